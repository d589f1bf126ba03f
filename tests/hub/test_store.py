"""The store of models that were made under names of the user's own."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from ggpy.errors import RequestError
from ggpy.hub.model_names import ModelName
from ggpy.hub.store import LEFTOVER_S, RESERVE_BYTES, ModelStore, StoredModel, check_digest

DATA = b"the bytes of a model"
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store")


def put(store: ModelStore, data: bytes = DATA) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with store.upload(digest) as blob:
        blob.write(data)
        blob.finish()
    return digest


def blobs(store: ModelStore) -> list[str]:
    return sorted(path.name for path in store.folder.glob("blobs/*"))


def test_a_model_is_found_again(store: ModelStore) -> None:
    """All that is said of it, in any case of letters of its name."""
    model = StoredModel(name="me/Model:v1", source="smollm2", system="S", parameters={"top_k": 3, "stop": ["a"]},
                        messages=({"role": "user", "content": "x"},), template="t", licenses=("l",), parent="p:latest")
    store.save(model)
    assert store.find(ModelName.parse("ME/model:V1")) == model
    assert store.models() == [model]
    assert store.find(ModelName.parse("me/model")) is None
    assert store.modified_s(ModelName.parse("me/model:v1")) == pytest.approx(time.time(), abs=60)


def test_a_model_takes_the_place_of_one_of_the_same_name(store: ModelStore) -> None:
    """Whatever its case of letters; files that only the old one needs go."""
    store.save(StoredModel(name="Model", source=put(store)))
    store.save(StoredModel(name="model", source="smollm2"))
    assert [model.source for model in store.models()] == ["smollm2"]
    assert blobs(store) == []


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such permissions")
def test_models_are_for_others_to_read_as_the_umask_has_it(store: ModelStore) -> None:
    """An image whose models root made serves them as another user."""
    before = os.umask(0o022)
    try:
        store.save(StoredModel(name="a", source=put(store)))
    finally:
        os.umask(before)
    files = [path for path in store.folder.rglob("*") if path.is_file() and path.name != "lock"]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o644] * 2


def test_a_blob_stays_as_long_as_a_model_needs_it(store: ModelStore) -> None:
    """As its file, or as an adapter."""
    digest = put(store)
    store.save(StoredModel(name="a", source=digest))
    store.save(StoredModel(name="b", source="smollm2", adapters=(digest,)))
    assert store.delete(ModelName.parse("a"))
    assert blobs(store) == [digest.replace(":", "-")]
    assert store.delete(ModelName.parse("B"))
    assert blobs(store) == []
    assert not store.delete(ModelName.parse("b"))
    assert list((store.folder / "models").iterdir()) == []


def test_a_model_needs_its_blobs(store: ModelStore) -> None:
    """Else it is not kept."""
    with pytest.raises(RequestError, match="is not here; upload it"):
        store.save(StoredModel(name="a", source=DIGEST))
    assert store.models() == []


def test_a_blob_is_what_its_digest_says(store: ModelStore) -> None:
    """Or it is not kept, nor what is broken off."""
    with store.upload(DIGEST) as blob:
        blob.write(b"something else")
        with pytest.raises(RequestError, match="digest mismatch"):
            blob.finish()
    with store.upload(DIGEST) as blob:
        blob.write(DATA[:5])
    assert blobs(store) == []
    put(store)
    assert store.has_blob(DIGEST)
    assert store.blob_path(DIGEST).read_bytes() == DATA


def test_uploads_do_not_fill_the_disk(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of it stays free."""
    usage = shutil.disk_usage(store.folder.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=RESERVE_BYTES + 100))
    with store.upload(DIGEST) as blob:
        blob.check_room(100)
        with pytest.raises(RequestError, match="101 bytes do not fit"):
            blob.check_room(101)
    assert blobs(store) == []


def test_what_nobody_came_back_for_is_swept_away(store: ModelStore) -> None:
    """Once it is old: parts of uploads, and files that no model uses."""
    used, old, new = (put(store, data) for data in (b"used", b"old", b"new"))
    store.save(StoredModel(name="a", source=used))
    part = store.folder / "blobs" / "part-x"
    part.write_bytes(b"")
    long_ago = time.time() - LEFTOVER_S - 1
    for path in (part, store.blob_path(used), store.blob_path(old)):
        os.utime(path, (long_ago, long_ago))
    store.sweep()
    assert blobs(store) == sorted(digest.replace(":", "-") for digest in (used, new))


def test_files_that_are_no_models_are_left_out(store: ModelStore) -> None:
    """Whoever put them there."""
    store.save(StoredModel(name="a", source="smollm2"))
    (store.folder / "models/registry.ollama.ai/library/a/b.json").write_text('{"name": "a:b"}')
    (store.folder / "models/registry.ollama.ai/library/a/c.json").write_text("no JSON")
    assert [model.name for model in store.models()] == ["a"]


def test_an_empty_store_has_nothing(store: ModelStore) -> None:
    """It need not even exist."""
    store.sweep()
    assert store.models() == []
    assert not store.has_blob(DIGEST)
    assert not store.folder.exists()


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:xyz", "../x", f"sha256:../{'0' * 61}", f"md5:{'0' * 64}",
                                  f"{DIGEST}0", DIGEST.upper()])
def test_what_is_no_digest_is_refused(text: str) -> None:
    """So no path comes of it."""
    with pytest.raises(RequestError, match="invalid digest format"):
        check_digest(text)


def test_the_name_does_not_count_for_the_digest_of_a_model() -> None:
    """All else does."""
    one, same = StoredModel(name="a", source="s"), StoredModel(name="b", source="s")
    other = StoredModel(name="a", source="s", system="x")
    assert one.sha256 == same.sha256 != other.sha256
