"""Models on demand: loading, unloading, sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ggpy.errors import GGUFError, RequestError
from ggpy.server.errors import LoadingError
from ggpy.server.model_pool import manager
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.models import Entry
from ggpy.server.settings import ServerSettings


class FakeClient:
    """An engine that takes some turns of the loop to end."""

    def __init__(self) -> None:
        self.is_closed = False

    async def metrics(self) -> str:
        return "llamacpp:n_decode_total 3\nllamacpp:predicted_tokens_seconds 7.5\n"

    async def aclose(self, mode: str = "finish") -> None:
        await asyncio.sleep(0)
        self.is_closed = True


class FakeModel:
    """As much of a LoadedModel as the manager needs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client = FakeClient()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of models in the order in which they were opened; "bad" cannot be."""
    names: list[str] = []

    async def open_fake(entry: Entry, settings: ServerSettings) -> Any:
        names.append(entry.name)
        await asyncio.sleep(0.01)
        if entry.name == "bad":
            raise GGUFError("bad.gguf: expected the magic GGUF")
        return FakeModel(entry.name)

    monkeypatch.setattr(manager, "open_model", open_fake)
    monkeypatch.setattr(manager, "available_memory_bytes", lambda: None)
    monkeypatch.setattr(manager, "LOOK_S", 0.01)
    return names


@asynccontextmanager
async def managed(*names: str, is_single: bool = False, **settings: Any) -> AsyncIterator[ModelManager]:
    entries = [Entry(name, f"{name}.gguf", (f"{name}-alias",)) for name in names]
    models = ModelManager(ServerSettings(**settings), entries, is_single=is_single)
    for entry in models.entries.values():
        entry.size_bytes = lambda: 100      # type: ignore[method-assign]
    watching = asyncio.create_task(models.watch())
    try:
        yield models
    finally:
        watching.cancel()
        await models.aclose()


async def ask(models: ModelManager, name: str) -> str:
    """The name of the model that a request for `name` gets."""
    async with models.use(name) as model:
        return model.name


def states(models: ModelManager) -> dict[str, str]:
    return {name: entry.state for name, entry in models.entries.items()}


def test_a_model_is_loaded_by_the_request_that_names_it(opened: list[str]) -> None:
    """By its name or an alias; several requests load it once."""
    async def main() -> None:
        async with managed("a", "b") as models:
            assert list(await asyncio.gather(*(ask(models, name) for name in ("a", "a-alias", "a")))) == ["a", "a", "a"]
            assert (opened, states(models)) == (["a"], {"a": "loaded", "b": "unloaded"})

    asyncio.run(main())


@pytest.mark.parametrize(("name", "message"), [(None, "model name is missing from the request"),
                                               ("c", "model 'c' not found")])
def test_an_unknown_model_is_an_error(opened: list[str], name: str | None, message: str) -> None:
    """Nothing is loaded."""
    async def main() -> None:
        async with managed("a") as models:
            with pytest.raises(RequestError, match=message):
                async with models.use(name):
                    pass

    asyncio.run(main())
    assert opened == []


def test_the_least_used_model_goes_when_there_are_too_many(opened: list[str]) -> None:
    """But never one that is being used: the request waits, and others behind it."""
    async def main() -> None:
        async with managed("a", "b", "c", models_max=2) as models, models.use("a"):
            async with models.use("b"):
                pass
            async with models.use("c"):
                assert states(models) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
                waiting = asyncio.create_task(models.load(models.find("b")))
                await asyncio.sleep(0.05)
                assert not waiting.done()
            await waiting
            assert states(models) == {"a": "loaded", "b": "loaded", "c": "unloaded"}

    asyncio.run(main())


def test_a_model_that_is_busy_all_the_time_leaves_in_the_end(opened: list[str],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new requests wait then, and are served when it is loaded again."""
    monkeypatch.setattr(manager, "MAKE_ROOM_S", 0.05)

    async def main() -> None:
        async with managed("a", "b", "c", models_max=2) as models:
            served = []

            async def ask(name: str, wait_s: float) -> None:
                async with models.use(name):
                    await asyncio.sleep(wait_s)
                    served.append(name)

            async def keep_busy(name: str, n: int) -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(n):
                        group.create_task(ask(name, 0.03))
                        await asyncio.sleep(0.01)

            async with models.use("c"), asyncio.TaskGroup() as group:
                group.create_task(keep_busy("a", 30))
                await asyncio.sleep(0.05)
                await ask("b", 0)
                assert served.count("a") < 30
            assert (opened, served.count("a")) == (["c", "a", "b", "a"], 30)

    asyncio.run(main())


def test_who_gives_up_waiting_lets_busy_models_stay(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who were held up for it go on."""
    monkeypatch.setattr(manager, "MAKE_ROOM_S", 0.0)

    async def main() -> None:
        async with managed("a", "b", models_max=1) as models, models.use("a"):
            impatient = asyncio.create_task(ask(models, "b"))
            await asyncio.sleep(0.02)
            held_up = asyncio.create_task(ask(models, "a"))
            await asyncio.sleep(0.02)
            assert not held_up.done()
            impatient.cancel()
            assert await held_up == "a"
        assert opened == ["a"]

    asyncio.run(main())


def test_an_engine_ends_when_nobody_uses_it(opened: list[str]) -> None:
    """A request may ask it several things, which unloading its model does not cut short."""
    async def main() -> None:
        async with managed("a") as models:
            async with models.use("a") as model:
                unloading = asyncio.create_task(models.unload(models.find("a")))
                await asyncio.sleep(0.02)
                assert states(models) == {"a": "unloaded"}
                assert not model.client.is_closed       # type: ignore[attr-defined]
            await unloading
            assert model.client.is_closed               # type: ignore[attr-defined]

    asyncio.run(main())


def test_who_waits_for_a_model_that_is_unloaded_is_told_so(opened: list[str]) -> None:
    """Everybody who does; the next one loads it again."""
    async def main() -> None:
        async with managed("a") as models:
            waiting = [asyncio.create_task(ask(models, "a")) for _ in range(2)]
            await asyncio.sleep(0)
            await models.unload(models.find("a"))
            for task in waiting:
                with pytest.raises(LoadingError, match="model 'a' was unloaded while it was being loaded"):
                    await task
            assert await ask(models, "a") == "a"

    asyncio.run(main())


def test_who_goes_away_while_waiting_costs_nobody_a_model(opened: list[str]) -> None:
    """The model that had no place yet is not loaded."""
    async def main() -> None:
        async with managed("a", "b", models_max=1) as models:
            async with models.use("a"):
                asking = asyncio.create_task(ask(models, "b"))
                await asyncio.sleep(0.02)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await asyncio.sleep(0.05)
            assert states(models) == {"a": "loaded", "b": "unloaded"}

    asyncio.run(main())


def test_models_make_room_in_memory(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 100 bytes does not fit beside another in 105."""
    monkeypatch.setattr(manager, "available_memory_bytes", lambda: 105)

    async def main() -> None:
        async with managed("a", "b") as models:
            for name in ("a", "b"):
                async with models.use(name):
                    pass
            assert states(models) == {"a": "unloaded", "b": "loaded"}

    asyncio.run(main())


def test_a_failed_load_is_the_callers_error_and_nothing_else(opened: list[str]) -> None:
    """Others go on, and the next request tries again."""
    async def main() -> None:
        async with managed("a", "bad") as models, models.use("a"):
            for _ in range(2):
                with pytest.raises(GGUFError, match="expected the magic"):
                    async with models.use("bad"):
                        pass
            assert states(models) == {"a": "loaded", "bad": "failed"}

    asyncio.run(main())
    assert opened == ["a", "bad", "bad"]


def test_without_autoload_a_model_must_be_loaded_first(opened: list[str]) -> None:
    """A request may still ask for it."""
    async def main() -> None:
        async with managed("a", autoload=False) as models:
            with pytest.raises(RequestError, match="model is not loaded"):
                async with models.use("a"):
                    pass
            async with models.use("a", autoload=True) as model:
                assert model.name == "a"

    asyncio.run(main())


def test_an_idle_model_sleeps_and_wakes(opened: list[str]) -> None:
    """Its metrics are told meanwhile, and its speeds once."""
    async def main() -> None:
        async with managed("a", is_single=True, sleep_idle_s=0.05) as models:
            async with models.use():
                await asyncio.sleep(0.1)        # it is being used
                assert states(models) == {"a": "loaded"}
            await asyncio.sleep(0.15)
            assert states(models) == {"a": "sleeping"}
            first, second = await models.metrics(models.single), await models.metrics(models.single)
            assert "seconds 7.5" in first
            assert second == first.replace("7.5", "0.0")
            async with models.use("whatever"):
                assert states(models) == {"a": "loaded"}

    asyncio.run(main())
    assert opened == ["a", "a"]


def test_a_model_may_have_a_lifetime_of_its_own(opened: list[str]) -> None:
    """Longer or shorter than the others', and again when it is loaded anew, whatever a request wanted before."""
    async def main() -> None:
        async with managed("a", "b", sleep_idle_s=0.05) as models:
            models.find("b").settings = ServerSettings(sleep_idle_s=None)
            await models.unload(models.find("b"))
            for name in ("a", "b"):
                await ask(models, name)
            await asyncio.sleep(0.15)
            assert states(models) == {"a": "unloaded", "b": "loaded"}

    asyncio.run(main())
    entries = [Entry("a", "a.gguf", settings=ServerSettings(sleep_idle_s=7.0)), Entry("b", "b.gguf")]
    ModelManager(ServerSettings(sleep_idle_s=9.0), entries, is_single=False)
    assert [entry.keep_s for entry in entries] == [7.0, 9.0]


def test_requests_do_not_wait_for_the_only_model_to_be_loaded_first(opened: list[str]) -> None:
    """They are told to come again."""
    async def main() -> None:
        async with managed("a", is_single=True) as models:
            loading = asyncio.create_task(models.load(models.single))
            await asyncio.sleep(0.005)
            with pytest.raises(LoadingError, match="Loading model"):
                async with models.use():
                    pass
            await loading

    asyncio.run(main())


def test_requests_of_ollamas_clients_wait_for_the_only_model(opened: list[str]) -> None:
    """They do not come again."""
    async def main() -> None:
        async with managed("a", is_single=True) as models:
            loading = asyncio.create_task(models.load(models.single))
            await asyncio.sleep(0.005)
            assert models.is_starting
            async with models.use(autoload=True) as model:
                assert model.name == "a"
            await loading

    asyncio.run(main())
    assert opened == ["a"]


def test_listeners_hear_what_happens(opened: list[str]) -> None:
    """In order."""
    async def main() -> list[Any]:
        async with managed("a") as models, models.news() as news:
            await models.load(models.find("a"))
            await models.unload(models.find("a"))
            return [news.get_nowait()["data"]["status"] for _ in range(3)]

    assert asyncio.run(main()) == ["loading", "loaded", "unloaded"]
