"""Saved states: what comes back is what was saved, and a file that is not what it should be changes nothing."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.backends.base import PAGE_TOKENS, KVIdentity
from ggpy.engine.kv_cache import KVCache
from ggpy.engine.saved_state import DIGEST_BYTES, PREFIX, restore_state, save_state
from ggpy.errors import OutOfPagesError, SavedStateError
from tests.backends.steps import cpu, sequence
from tests.engine.page_store import PageStore
from tests.models.arch_data import ArchModel

WINDOWS = (None, 40)


class Store(PageStore):
    """Pages that hold tokens, as bytes."""

    identity = KVIdentity("model", "portable-1", ("f16", "q8_0"))

    def __init__(self, n_pages: Sequence[int] = (12, 8), table_pages: int = 8) -> None:
        super().__init__(WINDOWS, n_pages, table_pages)

    def kv_identity(self) -> KVIdentity:
        return self.identity

    def page_bytes(self, group: int) -> int:
        return int(self.pages[group][0].nbytes)

    def read_page(self, group: int, page: int) -> bytes:
        return bytes(self.pages[group][page].tobytes())

    def write_page(self, group: int, page: int, data: bytes) -> None:
        self.pages[group][page] = np.frombuffer(data, np.int64)

    def compute_by_pages(self, tokens: Sequence[int], salt: int = 0) -> None:
        """As `run`, but a page at a time: windows need not hold all."""
        kv = self.cache.open(tokens, salt)
        for end in range(kv.num_computed // PAGE_TOKENS * PAGE_TOKENS + PAGE_TOKENS, len(tokens) + PAGE_TOKENS,
                         PAGE_TOKENS):
            assert self.compute(kv, tokens, min(end, len(tokens)))
        self.cache.close(kv)

    def check(self, tokens: Sequence[int], salt: int = 0) -> int:
        """How many of `tokens` are reused, all of them as they should be."""
        kv = self.cache.open(tokens, salt)
        for group, window in enumerate(WINDOWS):
            first = 0 if window is None else max(0, kv.num_computed - window + 1)
            assert self.visible(kv, group) == list(tokens[first : kv.num_computed])
        self.cache.close(kv)
        return kv.num_cached

    def census(self) -> tuple[Any, ...]:
        cache = self.cache
        return cache.n_free, cache.n_idle, cache.n_held, sorted(cache.paths())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """100 tokens: four pages of group 0, and of the window of 40 the second to the fourth, 61 being the first seen."""
    store = Store()
    store.compute_by_pages(range(100), salt=5)
    path = tmp_path / "state"
    assert save_state(path, store, store.cache, range(100), salt=5).size_bytes == path.stat().st_size
    return path


def test_what_was_saved_is_reused(saved: Path) -> None:
    """In a cache that never saw the tokens, under the same salt, as far as the window allows."""
    store = Store()
    state = restore_state(saved, store, store.cache)
    assert (state.tokens, state.salt) == (list(range(100)), 5)
    assert store.check(range(101), salt=5) == 100
    assert store.check(range(101)) == 0                             # no salt
    assert store.check([*range(60), 7, 7], salt=5) == 0             # its window is not there
    assert store.cache.n_held == (0, 0)


def test_a_prefix_of_the_tokens_is_saved_as_far_as_it_is_there(tmp_path: Path) -> None:
    """The cache holds 70 of 90 tokens; of a sequence that is live it holds what is computed."""
    store = Store()
    kv = store.cache.open([*range(100)])
    assert store.compute(kv, range(100), 70)
    assert save_state(tmp_path / "state", store, store.cache, [*range(90)]).tokens == [*range(70)]
    assert store.compute(kv, range(100))
    assert save_state(tmp_path / "state", store, store.cache, [*range(70), 1, 2]).tokens == [*range(70)]


def test_nothing_is_saved_of_what_is_not_there(tmp_path: Path) -> None:
    """And no file is left behind."""
    store = Store()
    with pytest.raises(SavedStateError, match="none of these 3 tokens is computed"):
        save_state(tmp_path / "state", store, store.cache, [1, 2, 3])
    assert os.listdir(tmp_path) == []


def test_a_state_that_cannot_be_written_leaves_the_old_one(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full half-way: the error says so, the file that was there is whole."""
    before, store = saved.read_bytes(), Store()
    store.compute_by_pages(range(50))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(SavedStateError, match=r"state: the state cannot be written: .*No space left"):
        save_state(saved, store, store.cache, range(50))
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["state"]
    with pytest.raises(SavedStateError, match="cannot be written"):
        save_state(saved.parent / "none" / "state", store, store.cache, range(50))


def test_pools_that_are_too_small_stay_as_they_are(saved: Path) -> None:
    """Four pages are needed and a live sequence holds all but three."""
    store = Store(n_pages=(8, 8))
    kv = store.cache.open(range(1000, 1160))
    assert store.compute(kv, range(1000, 1160))
    before = store.census()
    with pytest.raises(OutOfPagesError, match="needs 4 KV pages of group 0 and 3 are free or idle"):
        restore_state(saved, store, store.cache)
    assert store.census() == before


def test_a_context_that_is_too_short_is_told(saved: Path) -> None:
    """100 tokens take four pages."""
    store = Store(table_pages=3)
    with pytest.raises(SavedStateError, match="has 100 tokens but the context holds 96"):
        restore_state(saved, store, store.cache)


@pytest.mark.parametrize(("identity", "message"), [
    (KVIdentity("other", "portable-1", ("f16", "q8_0")), r"another model \(found model, expected other\)"),
    (KVIdentity("model", "avx2-1", ("f16", "q8_0")), r"another numeric path \(found portable-1, expected avx2-1\)"),
    (KVIdentity("model", "portable-1", ("f16", "f16")), r"another KV cache types \(found f16/q8_0, expected f16/f16\)"),
])
def test_what_was_saved_elsewhere_does_not_fit(saved: Path, identity: KVIdentity, message: str) -> None:
    """Another model, another processor or kernels, other types."""
    store = Store()
    store.identity = identity
    with pytest.raises(SavedStateError, match=message):
        restore_state(saved, store, store.cache)


def rewritten(path: Path, **changes: Any) -> None:
    """The file at `path` with other fields in its header and a checksum that fits."""
    data = path.read_bytes()
    magic, version, n_bytes = PREFIX.unpack(data[: PREFIX.size])
    header = msgspec.msgpack.decode(data[PREFIX.size : PREFIX.size + n_bytes])
    for name, value in changes.items():
        if value is None:
            del header[name]
        else:
            header[name] = value
    encoded = msgspec.msgpack.encode(header)
    body = PREFIX.pack(magic, version, len(encoded)) + encoded + data[PREFIX.size + n_bytes : -DIGEST_BYTES]
    path.write_bytes(body + hashlib.sha256(body).digest())


def group(window: int | None, page_bytes: int = 256, first_page: int = 0) -> dict[str, int | None]:
    return {"window": window, "page_bytes": page_bytes, "first_page": first_page}


@pytest.mark.parametrize(("changes", "message"), [
    ({"tokens": b""}, "0 bytes of tokens"),
    ({"tokens": b"1234567"}, "7 bytes of tokens"),
    ({"tokens": "text"}, "header is damaged.*tokens"),
    ({"tokens": bytes(8 * 129)}, "found [0-9,]+ bytes, expected|has 129 tokens"),
    ({"tokens": bytes(8 * 4000)}, "has 4,000 tokens but the context holds 256"),
    ({"page_tokens": 16}, "another page size"),
    ({"model": "a\x1b[2Jb" * 1000}, "another model"),
    ({"salt": "x"}, "header is damaged.*salt"),
    ({"salt": None}, "header is damaged.*salt"),
    ({"extra": 1}, "header is damaged.*extra"),
    ({"groups": [group(None)]}, "found KV groups"),
    ({"groups": [group(None), group(41)]}, "found KV groups"),
    ({"groups": [group(None), group(40, 1 << 60)]}, "found KV groups"),
    ({"groups": [group(None, first_page=1), group(40)]}, "group 0 begins with page 1, expected 0 to 0"),
    ({"groups": [group(None), group(40, first_page=-1)]}, "group 1 begins with page -1, expected 0 to 1"),
    ({"groups": [group(None), group(40, first_page=2)]}, "group 1 begins with page 2, expected 0 to 1"),
    ({"groups": [group(None), group(40, first_page=0)]}, "found [0-9,]+ bytes, expected"),
])
def test_a_header_that_lies_is_refused(saved: Path, changes: dict[str, Any], message: str) -> None:
    """Even with a checksum that fits; the message holds no control characters."""
    rewritten(saved, **changes)
    store = Store()
    before = store.census()
    with pytest.raises(SavedStateError, match=message) as error:
        restore_state(saved, store, store.cache)
    assert str(error.value).isprintable()
    assert store.census() == before


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_refused_and_changes_nothing(data: st.DataObject,
                                                       tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut anywhere, longer than it was, or with any bytes changed."""
    store = Store()
    store.compute_by_pages(range(70))
    path = tmp_path_factory.mktemp("damaged") / "state"
    save_state(path, store, store.cache, range(70))
    whole = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(("cut", "longer", "changed")))
    if kind == "cut":
        del whole[data.draw(st.integers(0, len(whole) - 1)):]
    elif kind == "longer":
        whole += data.draw(st.binary(min_size=1, max_size=50))
    for _ in range(data.draw(st.integers(1, 4)) if kind == "changed" else 0):
        at = data.draw(st.one_of(st.integers(0, 300), st.integers(0, len(whole) - 1)))
        whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    store.cache.clear()
    store.compute_by_pages(range(40))
    before = store.census()
    if kind == "changed" and hashlib.sha256(whole[:-DIGEST_BYTES]).digest() == whole[-DIGEST_BYTES:]:
        return      # changed back
    with pytest.raises(SavedStateError):
        restore_state(path, store, store.cache)
    assert store.census() == before


@pytest.mark.parametrize("name", ["none", "folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    """A folder, a pipe that nobody writes to, or nothing."""
    (tmp_path / "folder").mkdir()
    if name == "pipe" and hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SavedStateError, match="there is no such file"):
        restore_state(tmp_path / name, Store(), Store().cache)


TOKENS = st.integers(0, 6).flatmap(lambda n: st.lists(st.integers(0, 1), min_size=n, max_size=n)).map(
    lambda bits: [17 * (i + 1) + bit for bit in bits for i in range(29)])       # many share their beginnings


@given(prompts=st.lists(st.tuples(TOKENS, st.integers(0, 1)), min_size=1, max_size=8), data=st.data())
@settings(max_examples=100, deadline=None)
def test_nobody_reads_what_is_not_there(prompts: list[tuple[list[int], int]], data: st.DataObject,
                                        tmp_path_factory: pytest.TempPathFactory) -> None:
    """States come back among others that share their beginnings, are cut short or evicted: each prompt still finds its
    own tokens only."""
    store, folder = Store(n_pages=(16, 9)), tmp_path_factory.mktemp("states")
    files = []
    for i, (tokens, salt) in enumerate(prompts):
        if tokens:
            store.compute_by_pages(tokens, salt)
        if store.cache.find([*tokens, 99], salt).num_cached:    # else another page was found, whose window is gone
            files.append((save_state(folder / str(i), store, store.cache, tokens, salt), folder / str(i)))
    store.cache.clear()
    for state, path in data.draw(st.permutations(files)):
        others = data.draw(st.lists(st.sampled_from(prompts), max_size=2))
        for tokens, salt in others:
            store.compute_by_pages(tokens or [1], salt)
        restore_state(path, store, store.cache)
        assert store.check([*state.tokens, 99], state.salt) <= len(state.tokens)
        for tokens, salt in prompts:
            store.check([*tokens, 99], salt)
        free, idle = store.cache.n_free, store.cache.n_idle
        assert [f + i for f, i in zip(free, idle, strict=True)] == [16, 9]


@pytest.mark.parametrize("name", ["gemma3", "llama", "gpt-oss"])
@pytest.mark.parametrize("n_saved", [33, 64, 70])
def test_a_restored_sequence_goes_on_with_the_same_bits(name: str, n_saved: int, tmp_path: Path,
                                                        arch_model: Callable[[str], ArchModel]) -> None:
    """Saved, evicted, restored into another backend of the model with other pools: logits as if nothing happened."""
    model = arch_model(name)
    tokens = model.tokens.tolist()
    with cpu(model, table_pages=4) as backend:
        cache = KVCache([g.window for g in backend.kv_groups], backend.n_pages, backend.table_pages, backend.copy_page)
        kv = cache.open(tokens)
        assert cache.reserve(kv, len(tokens))
        backend.forward([sequence(backend, tokens[:n_saved], 0, kv.page_table, 0)])
        cache.advance(kv, tokens, n_saved)
        save_state(tmp_path / "state", backend, cache, tokens)
        rest = sequence(backend, tokens[n_saved:], n_saved, kv.page_table, len(tokens) - n_saved)
        expected = backend.forward([rest]).copy()
        identity = backend.kv_identity()
    with cpu(model, n_threads=1, n_pages=(9, 6)[: len(cache.windows)], table_pages=3, repack="off") as backend:
        cache = KVCache(cache.windows, backend.n_pages, backend.table_pages, backend.copy_page)
        assert backend.kv_identity() == identity
        other = cache.open([5] * 40)
        assert cache.reserve(other, 40)
        assert restore_state(tmp_path / "state", backend, cache).tokens == tokens[:n_saved]
        kv = cache.open(tokens)
        assert kv.num_cached == n_saved
        assert cache.reserve(kv, len(tokens))
        rest = sequence(backend, tokens[n_saved:], n_saved, kv.page_table, len(tokens) - n_saved)
        assert np.array_equal(backend.forward([rest]), expected)


def test_arithmetic_and_cache_types_are_part_of_the_identity(arch_model: Callable[[str], ArchModel]) -> None:
    """Float32 arithmetic has another numeric path; another model another fingerprint."""
    llama = arch_model("llama_q8_0")
    identities = []
    for model, options in ((llama, {}), (llama, {"compute": "f32"}), (llama, {"cache_type_k": "f32"}),
                           (arch_model("qwen2_q8_0"), {})):
        with cpu(model, **options) as backend:
            identities.append(backend.kv_identity())
    assert len(set(identities)) == 4
    assert len({identity.model for identity in identities}) == 2
    assert identities[0].numeric_path != identities[1].numeric_path


def test_a_head_stands_in_front_of_a_state(tmp_path: Path) -> None:
    """It is the caller's; the state comes back under a salt of the caller's choice too."""
    store, tokens = Store(), list(range(70))
    store.compute_by_pages(tokens)
    save_state(tmp_path / "state", store, store.cache, tokens, head=b"head")
    assert (tmp_path / "state").read_bytes().startswith(b"headggpy-kv")
    other = Store()
    restored = restore_state(tmp_path / "state", other, other.cache, start=4, salt=9)
    assert (restored.tokens, restored.salt) == (tokens, 9)
    assert other.check([*tokens, 0], salt=9) == 70
    assert other.check([*tokens, 0]) == 0
