"""Groups of layers with pages of their own: what a token does not see is not read, and pages can be copied and kept."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.backends.base import PAGE_TOKENS, CacheTypes, KVGroup
from ggpy.backends.cpu.kv_pools import KVPools
from ggpy.errors import ConfigError
from ggpy.graph.ops import Attention
from ggpy.graph.plan import kv_groups
from tests.backends.steps import NO_PAGE, cpu, in_chunks, pages, sequence
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]
WINDOWED = ("gemma2", "gemma3", "gpt-oss", "cohere2")       # windows of 16 tokens and layers without
TYPES: tuple[CacheTypes, ...] = (("f16", "f16"), ("f32", "f32"), ("q8_0", "q8_0"), ("q8_0", "f16"), ("f16", "q8_0"))


def attention(layer: int, window: int | None = None, dim_k: int = 32, dim_v: int = 64) -> Attention:
    return Attention(width=2 * dim_v, layer=layer, n_head=2, n_head_kv=2, head_dim_k=dim_k, head_dim_v=dim_v, scale=1.0,
                     window=window)


def pools(n_pages: tuple[int, ...], *attentions: Attention, types: CacheTypes = ("f16", "f16")) -> KVPools:
    return KVPools(attentions, n_pages, 8, types)


def test_layers_that_see_the_same_are_a_group() -> None:
    """Full attention first, then windows from the smallest on; without full attention the smallest window is first."""
    windows = (64, 16, None, 16, None)
    layers = [attention(layer, window) for layer, window in enumerate(windows)]
    assert kv_groups(layers) == (KVGroup(None, (2, 4)), KVGroup(16, (1, 3)), KVGroup(64, (0,)))
    assert kv_groups(layers[:2]) == (KVGroup(16, (1,)), KVGroup(64, (0,)))


@pytest.mark.parametrize("name", WINDOWED)
def test_bits_do_not_depend_on_pools_and_page_ids(name: str, arch_model: Load) -> None:
    """Pools of any size, groups with other ids than their neighbours: the logits of equal ones."""
    model = arch_model(name)
    with cpu(model) as backend:
        expected = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
    with cpu(model, n_pages=(7, 4), table_pages=5) as backend:
        assert (backend.n_pages, backend.table_pages, len(backend.kv_groups)) == ((7, 4), 5, 2)
        ids = np.array([[6, 0, 3], [1, 3, 2]], np.int32)
        for sizes in ([128], [31, 1, 33, 2], [1]):
            assert np.array_equal(in_chunks(backend, model.tokens, sizes, ids), expected)


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("size", [1, 8, 17])
def test_two_pages_are_enough_for_a_window_of_one(name: str, size: int, arch_model: Load) -> None:
    """Pages that left the window are used again, and nobody reads what stands in their columns."""
    model = arch_model(name)
    with cpu(model) as backend:
        expected = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
    with cpu(model, n_pages=(3, 3), table_pages=3) as backend:
        (_, group), logits = backend.kv_groups, []
        assert group.window == 16
        for start in range(0, len(model.tokens), size):
            part = model.tokens[start: start + size]
            ids = np.array([[0, 1, 2], [2, 0, 2]], np.int32)    # the third page of a window is the first again
            ids[1, : max(0, start - 15) // PAGE_TOKENS] = NO_PAGE
            ids[1, (start + len(part) - 1) // PAGE_TOKENS + 1:] = NO_PAGE
            logits.append(backend.forward([sequence(backend, part, start, ids, len(part))]).copy())
    assert np.array_equal(np.concatenate(logits), expected)


def test_a_copied_page_continues_as_its_source_would(arch_model: Load) -> None:
    """40 tokens are shared; the page with the last 8 of them is copied in both groups, and both sequences go on."""
    model = arch_model("gemma3")
    shared, other = model.tokens[:40], model.tokens[50:60]
    with cpu(model) as backend:
        expected = in_chunks(backend, np.concatenate([shared, other]), [128], pages(0, 1))[40:]
        first = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
        backend.forward([sequence(backend, shared, 0, pages(3, 4), 0)])
        backend.copy_page(0, 4, 5)
        backend.copy_page(1, 4, 6)
        ids = np.array([[3, 5, 0], [3, 6, 0]], np.int32)
        assert np.array_equal(backend.forward([sequence(backend, other, 40, ids, 10)]), expected)
        rest = sequence(backend, model.tokens[40:], 40, pages(3, 4, 7), len(model.tokens) - 40)
        assert np.array_equal(backend.forward([rest]), first[40:])


def test_a_page_that_was_read_and_written_back_is_the_same(arch_model: Load) -> None:
    """Two pages of each group go to other ids by way of bytes, and the sequence goes on."""
    model = arch_model("gpt-oss")
    with cpu(model) as backend:
        expected = in_chunks(backend, model.tokens, [60, 128], pages(0, 1, 2))[60:]
        kept = [[backend.read_page(group, page) for page in (0, 1)] for group in (0, 1)]
    with cpu(model, n_pages=(8, 6), table_pages=4) as backend:
        ids = np.array([[7, 2, 0], [3, 5, 1]], np.int32)
        for group in (0, 1):
            for page, data in zip(ids[group], kept[group], strict=False):
                assert len(data) == backend.page_bytes(group)
                backend.write_page(group, int(page), data)
        rest = sequence(backend, model.tokens[60:], 60, ids, len(model.tokens) - 60)
        assert np.array_equal(backend.forward([rest]), expected)


@pytest.mark.parametrize("types", TYPES)
@given(data=st.data())
@settings(max_examples=25)
def test_pages_stay_apart(types: CacheTypes, data: st.DataObject) -> None:
    """Whatever is written and copied, each page holds what it should, with keys and values of different widths."""
    kv = pools((3, 2), attention(0), attention(1, 16, 64, 32), attention(2, None, 96, 32), types=types)
    expected = {(group, page): bytes(kv.page_bytes(group)) for group, n in enumerate((3, 2)) for page in range(n)}
    for i in range(data.draw(st.integers(1, 12))):
        group = data.draw(st.integers(0, 1))
        page, source = (data.draw(st.integers(0, (3, 2)[group] - 1)) for _ in range(2))
        if data.draw(st.booleans()):
            kv.copy_page(group, source, page)
            expected[group, page] = expected[group, source]
        else:
            expected[group, page] = np.random.default_rng(i).bytes(kv.page_bytes(group))
            kv.write_page(group, page, expected[group, page])
    assert {at: kv.read_page(*at) for at in expected} == expected


def test_bytes_of_a_page() -> None:
    """32 tokens of two heads in f16, keys and values: of both layers of full attention, of the one with a window."""
    kv = pools((3, 2), attention(0), attention(1, 16, 64, 32), attention(2, None, 96, 32))
    assert [kv.page_bytes(group) for group in (0, 1)] == [32 * 2 * 2 * (32 + 64 + 96 + 32), 32 * 2 * 2 * (64 + 32)]


def test_what_is_no_page_is_not_written() -> None:
    """The error says how many bytes there are and how many a page has."""
    kv = pools((3,), attention(0))
    with pytest.raises(ValueError, match="5 bytes for a page of KV group 0, expected 12,288"):
        kv.write_page(0, 1, b"abcde")
    assert kv.read_page(0, 1) == bytes(12_288)


@pytest.mark.parametrize("n_pages", [(4,), (4, 4, 4), (4, 0), 0])
def test_every_group_needs_pages(n_pages: tuple[int, ...] | int, arch_model: Load) -> None:
    """One number for each group, 1 or more."""
    message = r"n_pages=.*: the model has 2 KV groups; expected 1 or more pages for each"
    with pytest.raises(ConfigError, match=message), cpu(arch_model("gemma2"), n_pages=n_pages):
        pass
