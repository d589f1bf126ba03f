"""Models that clients download and delete: POST and DELETE /models of a server with several models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from ggpy.errors import PullError, RequestError
from ggpy.hub import huggingface, names
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError
from ggpy.server.llama import downloads
from ggpy.server.llama.downloads import begin, cancel, remove
from ggpy.server.model_list import router_object
from ggpy.server.model_pool.discovery import find_entries
from ggpy.server.model_pool.downloads import Arrived, find_pullable
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.settings import ServerSettings

NAME = "user/repo:Q8_0"


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only revision of user/repo in an otherwise empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("GGPY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "hub" / "models--user--repo" / "snapshots" / "1"
    folder.mkdir(parents=True)
    return folder


def put(snapshot: Path, name: str, digest: str) -> Path:
    """A file of the cache: a link to a blob that is called by its digest."""
    blob = snapshot.parents[1] / "blobs" / digest
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(b"GGUF")
    (snapshot / name).symlink_to(blob)
    return blob


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has a pull tell twice how far it is, doing something in between."""
    def set_up(work: Callable[[], object]) -> None:
        async def fetched(wanted: Any) -> AsyncGenerator[Arrived, None]:
            yield Arrived(0, 4)
            await asyncio.sleep(0.01)
            work()
            yield Arrived(4, 4)

        monkeypatch.setattr(downloads, "fetched", fetched)

    return set_up


def make_server(**settings: Any) -> Server:
    wanted = ServerSettings(**settings)
    return Server(wanted, ModelManager(wanted, find_entries(wanted), is_single=False))


async def downloaded(server: Server, name: str) -> list[tuple[str, Any]]:
    """What is told of a download."""
    async with server.models.news() as news:
        begin(server, name)
        task = server.models.entries[name].download
        assert task is not None
        assert router_object(server.models.entries[name])["status"]["value"] == "downloading"
        await task
        events = [news.get_nowait() for _ in range(news.qsize())]
        return [(event["event"], event["data"]) for event in events if event["model"] == name]


def test_a_download_tells_how_far_it_is_and_then_is_a_model(snapshot: Path, pulls: Callable[..., None]) -> None:
    """Under the name by which the cache knows it; it can be deleted again, and nothing is left of it."""
    pulls(lambda: put(snapshot, "m-Q8_0.gguf", "d1"))

    async def main() -> None:
        server = make_server()
        assert await downloaded(server, NAME) == [
            ("download_progress", {"progress": {f"hf:{NAME}": {"done": 0, "total": 4}}}),
            ("download_progress", {"progress": {f"hf:{NAME}": {"done": 4, "total": 4}}}), ("download_finished", {})]
        assert router_object(server.models.find(NAME))["can_remove"] is True
        with pytest.raises(RequestError, match="already exists"):
            begin(server, NAME)
        await remove(server, NAME)
        assert NAME not in server.models.entries
        with pytest.raises(NotFoundError, match="not found"):
            await remove(server, NAME)

    asyncio.run(main())
    assert not list(snapshot.parents[1].rglob("*.gguf"))
    assert not list((snapshot.parents[1] / "blobs").iterdir())


def test_a_download_that_fails_leaves_no_model(snapshot: Path, pulls: Callable[..., None]) -> None:
    """Its listeners hear of it."""
    def fail() -> None:
        raise PullError("the connection broke")

    pulls(fail)

    async def main() -> None:
        server = make_server()
        assert (await downloaded(server, NAME))[-1] == ("download_failed", {})
        assert NAME not in server.models.entries

    asyncio.run(main())


def test_a_download_can_be_cancelled(snapshot: Path, pulls: Callable[..., None]) -> None:
    """It fails then."""
    pulls(lambda: pytest.fail("it went on"))

    async def main() -> None:
        server = make_server()
        async with server.models.news() as news:
            begin(server, NAME)
            await asyncio.sleep(0)
            await cancel(server.models.entries[NAME])
            assert NAME not in server.models.entries
            assert "download_failed" in [news.get_nowait()["event"] for _ in range(news.qsize())]

    asyncio.run(main())


def test_offline_nothing_is_downloaded(snapshot: Path, pulls: Callable[..., None]) -> None:
    """What is here is all there is: the model has its name, and nothing behind it."""
    pulls(lambda: pytest.fail("it was pulled"))

    async def main() -> None:
        server = make_server(is_offline=True)
        assert await downloaded(server, NAME) == [("download_finished", {})]
        await remove(server, NAME)
        assert NAME not in server.models.entries

    asyncio.run(main())


def test_what_cannot_be_pulled_is_refused(snapshot: Path) -> None:
    """At once."""
    async def main() -> None:
        with pytest.raises(PullError, match="expected hf:user/repo"):
            begin(make_server(), "what is this")

    asyncio.run(main())


def test_a_file_of_the_users_own_is_not_deleted(snapshot: Path, tmp_path: Path) -> None:
    """That of --models-dir, say."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").touch()

    async def main() -> None:
        with pytest.raises(RequestError, match="not removable"):
            await remove(make_server(models_dir=tmp_path / "models"), "mine")

    asyncio.run(main())
    assert (tmp_path / "models" / "mine.gguf").exists()


def test_deleting_spares_what_others_use(snapshot: Path, tmp_path: Path) -> None:
    """A blob that has another name, too, and a file outside of the cache that a name in it means."""
    blob = put(snapshot, "m-Q8_0.gguf", "d1")
    (snapshot / "same-Q4_0.gguf").symlink_to(blob)
    (tmp_path / "outside.gguf").touch()
    (snapshot / "m-F16.gguf").symlink_to(tmp_path / "outside.gguf")
    for quant in ("Q8_0", "F16"):
        assert huggingface.remove(names.HubModel("user/repo", quant))
        assert not huggingface.remove(names.HubModel("user/repo", quant))
    assert blob.exists()
    assert (tmp_path / "outside.gguf").exists()
    assert huggingface.remove(names.HubModel("user/repo", "Q4_0"))
    assert not blob.exists()


@pytest.mark.parametrize(("name", "wanted"), [
    ("smollm2", "smollm2:135m"), ("smollm2:latest", "smollm2:135m"), ("hf:user/repo:Q8_0", "hf:user/repo:Q8_0"),
    ("hf.co/user/repo:Q8_0", "hf:user/repo:Q8_0"), ("user/repo", None), ("no such model", None)])
def test_what_a_name_stands_for_is_the_same_in_every_dialect(name: str, wanted: str | None) -> None:
    """But for user/repo, which is Ollama's own in its dialect and Hugging Face's in llama-server's."""
    found = find_pullable(name)
    assert (None if found is None else getattr(found, "name", str(found))) == wanted
