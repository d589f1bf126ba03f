"""Ollama's models by name: made, copied, deleted and pulled."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest

from ggpy import config
from ggpy.engine.config import SamplingParams
from ggpy.errors import PullError
from ggpy.hub import resolve
from ggpy.hub.catalogue import CATALOGUE, CatalogueEntry
from ggpy.hub.model_names import ModelName
from ggpy.hub.store import ModelStore
from ggpy.loading import ModelOptions
from ggpy.server.model_pool.discovery import find_entries
from ggpy.server.settings import ServerSettings
from tests.hub.fake_ollama import manifest
from tests.server.conftest import CHATML, Reply, Served

ABSENT = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the store, an empty one of its own."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "store_dir", lambda: folder)
        yield folder


@pytest.fixture(scope="module")
def router(tiny_model: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of several models, one of which is called "tiny"."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copy(tiny_model, folder / "tiny.gguf")
    settings = ServerSettings(options=ModelOptions(n_ctx=256, n_threads=1), chat_template=CHATML, n_slots=2,
                              models_dir=folder, sampling_of=lambda _: SamplingParams(temperature=0))
    served = Served(settings, folder / "tiny.gguf", is_single=False)
    yield served
    served.close()


@pytest.fixture
def make(router: Served) -> Iterator[Callable[..., Reply]]:
    """Makes models, which are deleted when the test ends."""
    made = []

    def create(name: str, **body: Any) -> Reply:
        made.append(name)
        return router.post("/api/create", {"model": name, "stream": False, **body})

    yield create
    for name in made:
        router.ask("DELETE", "/api/delete", {"model": name})


def upload(router: Served, data: bytes) -> tuple[str, Reply]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return digest, router.post(f"/api/blobs/{digest}", data)


def names(router: Served) -> list[str]:
    return [model["name"] for model in router.get("/api/tags").json["models"]]


def files(store: Path) -> list[str]:
    return sorted(path.name for path in store.rglob("*") if path.is_file() and path.name != "lock")


def lines(reply: Reply) -> list[Any]:
    import json

    return [json.loads(line) for line in reply.data.splitlines()]


def test_a_model_is_made_from_another(router: Served, make: Callable[..., Reply]) -> None:
    """What is said of it shows, and it answers."""
    reply = make("mine", **{"from": "tiny", "system": "Be terse.", "parameters": {"num_predict": 3, "stop": ["x"]},
                            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    assert reply.json == {"status": "success"}
    assert "mine:latest" in names(router)
    shown = router.post("/api/show", {"model": "MINE"}).json
    assert (shown["system"], shown["details"]["parent_model"]) == ("Be terse.", "tiny:latest")
    assert shown["parameters"] == 'num_predict                    3\nstop                           "x"'
    assert shown["messages"] == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    answer = router.post("/api/chat", {"model": "mine", "messages": [{"role": "user", "content": "c"}],
                                       "stream": False}).json
    assert (answer["model"], answer["eval_count"]) == ("mine", 3)


def test_what_the_maker_says_stands_before_the_conversation(router: Served, make: Callable[..., Reply]) -> None:
    """System, then messages, then those of the request; a system message of the request takes the place of his."""
    make("teacher", **{"from": "tiny", "system": "S", "messages": [{"role": "user", "content": "m"}]})
    asked = [{"role": "user", "content": "u"}]

    def prompt_count(model: str, messages: list[Any]) -> int:
        body = {"model": model, "messages": messages, "stream": False, "options": {"num_predict": 1}}
        return int(router.post("/api/chat", body).json["prompt_eval_count"])

    system, first = {"role": "system", "content": "S"}, {"role": "user", "content": "m"}
    assert prompt_count("teacher", asked) == prompt_count("tiny", [system, first, *asked])
    other = {"role": "system", "content": "another"}
    assert prompt_count("teacher", [other, *asked]) == prompt_count("tiny", [other, first, *asked])


def test_the_messages_of_the_maker_are_not_put_behind_a_context(router: Served, make: Callable[..., Reply]) -> None:
    """They stand in it; his system text is put there again, as in Ollama."""
    make("guide", **{"from": "tiny", "system": "S", "messages": [{"role": "user", "content": "mmm"}]})
    make("plain", **{"from": "tiny", "system": "S"})

    def prompt_count(model: str, **body: Any) -> int:
        reply = router.post("/api/generate", {"model": model, "prompt": "a", "stream": False,
                                              "options": {"num_predict": 1}, **body})
        count: int = reply.json["prompt_eval_count"]
        return count

    assert prompt_count("guide", context=[]) == prompt_count("guide") > prompt_count("plain")
    assert prompt_count("guide", context=[5]) == prompt_count("plain", context=[5])


def test_parameters_are_inherited_one_by_one(router: Served, make: Callable[..., Reply]) -> None:
    """Of a model that was made from one that was made."""
    make("first", **{"from": "tiny", "system": "A", "parameters": {"temperature": 0.5, "top_k": 3}})
    make("second", **{"from": "first", "parameters": {"top_k": 7}})
    shown = router.post("/api/show", {"model": "second"}).json
    assert shown["parameters"].split() == ["temperature", "0.5", "top_k", "7"]
    assert shown["system"] == "A"


def test_a_modelfile_as_a_text_is_read(router: Served, make: Callable[..., Reply]) -> None:
    """As older clients send it."""
    make("textual", modelfile='FROM tiny\n# a comment\nPARAMETER stop "<|x|>"\nparameter temperature 0.25\n'
                              'SYSTEM """two\nlines"""\nMESSAGE user hello there\n')
    shown = router.post("/api/show", {"model": "textual"}).json
    assert shown["system"] == "two\nlines"
    assert shown["messages"] == [{"role": "user", "content": "hello there"}]
    assert 'stop                           "<|x|>"' in shown["parameters"]


@pytest.mark.parametrize("source", ["/etc/passwd", "../../tiny.gguf", "./tiny.gguf", "~/tiny.gguf",
                                    "tiny.gguf", "C:\\tiny.gguf"])
def test_no_path_of_a_client_is_opened(router: Served, make: Callable[..., Reply], source: str) -> None:
    """FROM means models and uploaded files alone, and says so."""
    for body in ({"modelfile": f"FROM {source}"}, {"from": source}):
        reply = make("evil", **body)
        assert (reply.status, "evil:latest" in names(router)) == (400, False)
        assert f"FROM {source!r}: expected the name of a model, or @sha256:" in reply.json["error"]


@pytest.mark.parametrize("name", ["gemma3:270m", "gemma3", "Library/GEMMA3:Latest", "qwen2.5-coder:1.5b",
                                  "hf.co/user/repo", "huggingface.co/User/Repo:Q8_0"])
def test_what_could_be_pulled_keeps_its_name(
    router: Served, store: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where it is not here yet; another model of its name would hide it later."""
    monkeypatch.setattr(router.server.models, "entries", {"tiny": router.server.models.entries["tiny"]})
    for path, body in (("/api/create", {"model": name, "from": "tiny"}),
                       ("/api/copy", {"source": "tiny", "destination": name})):
        reply = router.post(path, body)
        assert (reply.status, "that `ggpy pull` fetches" in reply.json["error"]) == (400, True)
    assert files(store) == []


def test_a_model_is_made_from_an_uploaded_file(
    router: Served, make: Callable[..., Reply], tiny_model: Path, store: Path
) -> None:
    """The file stays as long as a model needs it."""
    digest, reply = upload(router, tiny_model.read_bytes())
    assert reply.status == 201
    assert upload(router, tiny_model.read_bytes())[1].status == 200
    assert router.ask("HEAD", f"/api/blobs/{digest}").status == 200
    made = router.post("/api/create", {"model": "own/uploaded:v1", "files": {"model.gguf": digest}})
    assert [line["status"] for line in lines(made)] == [
        "parsing GGUF", f"using existing layer {digest}", "writing manifest", "success"]
    answer = router.post("/api/generate", {"model": "own/uploaded:v1", "prompt": "a", "stream": False,
                                           "options": {"num_predict": 2}}).json
    assert answer["eval_count"] == 2
    make("copied", **{"from": "own/uploaded:v1"})
    assert router.ask("DELETE", "/api/delete", {"model": "own/uploaded:v1"}).status == 200
    assert digest.replace(":", "-") in files(store)
    assert router.ask("DELETE", "/api/delete", {"name": "copied"}).status == 200
    assert files(store) == []


def test_what_is_no_model_leaves_nothing(router: Served, make: Callable[..., Reply], store: Path) -> None:
    """Neither a model nor the file."""
    digest, _ = upload(router, b"no GGUF at all, but long enough for a header")
    reply = make("broken", files={"x.gguf": digest})
    assert reply.status == 400
    assert "no model" in reply.json["error"]
    assert files(store) == []


def test_an_adapter_is_no_model(router: Served, make: Callable[..., Reply], tmp_path: Path, store: Path) -> None:
    """Its file says what it is."""
    writer = gguf.GGUFWriter(tmp_path / "adapter.gguf", "llama")
    writer.add_type("adapter")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    digest, _ = upload(router, (tmp_path / "adapter.gguf").read_bytes())
    reply = make("adapter", files={"x.gguf": digest})
    assert (reply.status, "'adapter'" in reply.json["error"]) == (400, True)
    assert files(store) == []


def test_another_file_than_was_said_is_refused(router: Served, store: Path) -> None:
    """Nothing of it stays."""
    reply = router.post(f"/api/blobs/{ABSENT}", b"something else")
    assert reply.status == 400
    assert reply.json["error"].startswith(f"digest mismatch, expected {ABSENT}, got sha256:")
    assert files(store) == []


@pytest.mark.parametrize("digest", ["sha256:12", "md5:" + "0" * 32, "..%2f..%2fx", "sha256:" + "G" * 64])
def test_a_digest_is_no_path(router: Served, store: Path, digest: str) -> None:
    """It is sha256: and 64 digits, or an error."""
    reply = router.post(f"/api/blobs/{digest}", b"x")
    assert (reply.status, "invalid digest format" in reply.json["error"]) == (400, True)
    assert router.ask("HEAD", f"/api/blobs/{digest}").status == 400
    assert files(store) == []


@pytest.mark.parametrize("name", ["../evil", "a/../b", "/x", "a/b/c/d", ".hidden", "a b", "x:..", "é", "a" * 81, "n\0"])
def test_a_name_is_no_path(router: Served, name: str, store: Path) -> None:
    """Whatever is made under it."""
    for path, body in (("/api/create", {"model": name, "from": "tiny"}),
                       ("/api/copy", {"source": "tiny", "destination": name})):
        reply = router.post(path, body)
        assert (reply.status, "invalid model name" in reply.json["error"]) == (400, True)
    assert files(store) == []


@pytest.mark.parametrize(("body", "problem"), [
    ({}, "neither 'from' or 'files' was specified"),
    ({"from": "tiny", "files": {"x": ABSENT}}, "both"),
    ({"files": {"x": ABSENT}}, "is not here"),
    ({"from": "tiny", "adapters": {"x": ABSENT}}, "is not here"),
    ({"from": "tiny", "parameters": {"heat": 1}}, "unknown parameter 'heat'"),
    ({"from": "tiny", "parameters": {"temperature": "hot"}}, 'option "temperature" must be of type float32'),
    ({"from": "tiny", "parameters": {"num_thread": 513}}, "num_thread 513: expected 512 at most"),
    ({"modelfile": "FROM tiny\nPARAMETER num_thread 1e9"}, "num_thread 1000000000: expected 512 at most"),
    ({"from": "tiny", "messages": [{"role": "robot", "content": "x"}]}, "role must be one of"),
    ({"from": "tiny", "template": "{% for %}"}, "template"),
    ({"from": "tiny", "quantize": "q4_K_M"}, "quantise"),
    ({"from": "no-such-model"}, "file does not exist"),
    ({"modelfile": "SYSTEM x"}, "no FROM line"),
    ({"modelfile": "FROM tiny\nFLAVOUR x"}, "(line 2)"),
    ({"modelfile": 'FROM tiny\nSYSTEM """x'}, "unexpected EOF"),
])
def test_what_is_wrong_with_a_creation_is_said(
    router: Served, make: Callable[..., Reply], store: Path, body: dict[str, Any], problem: str
) -> None:
    """And nothing is made."""
    reply = make("wrong", **body)
    assert reply.status in (400, 404)
    assert problem in reply.json["error"]
    assert files(store) == []


@pytest.mark.parametrize("num_ctx", [2_000_000_000, 2**62])
def test_a_context_ends_where_the_models_training_did(
    router: Served, make: Callable[..., Reply], num_ctx: int
) -> None:
    """Room for more would be of no use, and there is not so much memory."""
    make("long", **{"from": "tiny", "parameters": {"num_ctx": num_ctx, "num_predict": 1}})
    assert router.post("/api/generate", {"model": "long", "prompt": "a", "stream": False}).json["eval_count"] == 1
    loaded = router.server.models.entries["long:latest"].loaded
    assert loaded is not None
    assert loaded.n_ctx == loaded.info.n_ctx_train


def test_a_model_is_copied(router: Served, make: Callable[..., Reply]) -> None:
    """A copy lives on when the other goes."""
    make("original", **{"from": "tiny", "system": "S"})
    reply = router.post("/api/copy", {"source": "original", "destination": "double:v2"})
    assert (reply.status, reply.data) == (200, b"")
    router.ask("DELETE", "/api/delete", {"model": "original"})
    assert router.post("/api/show", {"model": "double:v2"}).json["system"] == "S"
    assert router.ask("DELETE", "/api/delete", {"model": "double:v2"}).status == 200


@pytest.mark.parametrize(("method", "path", "body", "problem"), [
    ("POST", "/api/copy", {"source": "none", "destination": "x"}, 'model "none" not found'),
    ("DELETE", "/api/delete", {"model": "none"}, "model 'none' not found"),
    ("POST", "/api/show", {"model": "none"}, "model 'none' not found"),
    ("POST", "/api/generate", {"model": "none", "prompt": "x"}, "model 'none' not found"),
    ("POST", "/api/chat", {"model": "none", "messages": []}, "model 'none' not found"),
    ("POST", "/api/embed", {"model": "none", "input": "x"}, "model 'none' not found"),
])
def test_an_unknown_model_is_not_found(
    router: Served, method: str, path: str, body: dict[str, Any], problem: str
) -> None:
    """In the words that clients look for."""
    reply = router.ask(method, path, body)
    assert (reply.status, reply.json["error"]) == (404, problem)


def test_a_preset_of_a_made_model_is_none_itself(router: Served, make: Callable[..., Reply], store: Path) -> None:
    """Neither can its name be given away, nor does the model go with it."""
    make("base", **{"from": "tiny"})
    made = router.server.models.entries["base:latest"]
    router.server.models.entries["preset"] = replace(made, name="preset", aliases=())
    try:
        for reply in (router.ask("DELETE", "/api/delete", {"model": "preset"}),
                      router.post("/api/create", {"model": "preset", "from": "tiny"})):
            assert (reply.status, "was not made here" in reply.json["error"]) == (400, True)
        assert "base:latest" in names(router)
        ModelStore().delete(ModelName.parse("base"))        # by `ggpy rm`, say
        gone = router.ask("DELETE", "/api/delete", {"model": "preset"})
        assert (gone.status, "belongs to Ollama" in gone.json["error"]) == (400, False)
    finally:
        del router.server.models.entries["preset"]


def test_a_model_that_another_program_deleted_is_not_loaded(router: Served, make: Callable[..., Reply]) -> None:
    """Even where the file that it was made of is still there."""
    make("short-lived", **{"from": "tiny", "system": "S"})
    ModelStore().delete(ModelName.parse("short-lived"))
    reply = router.post("/api/generate", {"model": "short-lived", "prompt": "a", "stream": False})
    assert (reply.status, reply.json["error"]) == (
        404, "model 'short-lived:latest' not found: short-lived:latest was deleted")


def test_files_of_others_stay(router: Served) -> None:
    """Only what was made or pulled here is deleted, or made anew."""
    assert router.ask("DELETE", "/api/delete", {"model": "tiny"}).status == 400
    assert router.post("/api/create", {"model": "tiny", "from": "tiny"}).status == 400
    assert "tiny:latest" in names(router)


def test_pages_of_other_sites_change_nothing(router: Served, store: Path) -> None:
    """Browsers send simple requests without asking first."""
    body = {"model": "x", "from": "tiny", "stream": False}
    assert router.post("/api/create", body, Origin="https://example.com").status == 403
    assert router.post(f"/api/blobs/{ABSENT}", b"x", Origin="null").status == 403
    assert files(store) == []
    assert router.post("/api/create", body, Origin="http://localhost:3000").status == 200
    assert router.ask("DELETE", "/api/delete", {"model": "x"}, {"Origin": "app://obsidian.md"}).status == 200


def test_a_made_model_is_there_for_other_dialects(router: Served, make: Callable[..., Reply]) -> None:
    """By its name, with its parameters."""
    make("shared", **{"from": "tiny", "parameters": {"num_predict": 2}})
    reply = router.post("/v1/completions", {"model": "shared", "prompt": "a"})
    assert reply.json["usage"]["completion_tokens"] == 2
    assert "shared:latest" in [model["id"] for model in router.get("/v1/models").json["data"]]


def test_a_model_that_is_here_is_pulled_at_once(router: Served) -> None:
    """Whatever its source."""
    found = [line["status"] for line in lines(router.post("/api/pull", {"model": "tiny"}))]
    assert found == ["pulling manifest", "verifying sha256 digest", "writing manifest", "success"]


def test_a_pull_tells_how_far_it_is(router: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes of the whole, with the digest of the file."""
    entry = CatalogueEntry(name="new:1b", file_name="new.gguf", size_bytes=10, sha256="ab" * 32, quant="Q8_0",
                           description="", sources=())

    def pull(wanted: CatalogueEntry, progress: Any) -> Path:
        with progress(f"pulling {wanted.name}", 100) as shown:
            shown.update(40)
        return Path("new.gguf")

    monkeypatch.setattr("ggpy.hub.catalogue.find", lambda name: entry if name == "new:1b" else None)
    monkeypatch.setattr(resolve, "pull", pull)
    found = lines(router.post("/api/pull", {"model": "new:1b"}))
    assert found[0] == {"status": "pulling manifest"}
    whole = {"status": "pulling abababababab", "digest": f"sha256:{'ab' * 32}", "total": 100, "completed": 100}
    assert found[-4:] == [whole, *({"status": text} for text in
                                   ("verifying sha256 digest", "writing manifest", "success"))]


def test_a_pull_that_fails_is_told(router: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stream as a line, else with a status."""
    def pull(wanted: CatalogueEntry, progress: Any) -> Path:
        raise PullError("the network is down")

    absent = next((entry for entry in CATALOGUE if not entry.is_present), None)
    if absent is None:
        monkeypatch.setattr("ggpy.server.ollama.pull.is_here", lambda entry: False)
        absent = CATALOGUE[0]
    monkeypatch.setattr(resolve, "pull", pull)
    assert lines(router.post("/api/pull", {"model": absent.name}))[-1] == {"error": "the network is down"}
    reply = router.post("/api/pull", {"model": absent.name, "stream": False})
    assert (reply.status, reply.json) == (404, {"error": "the network is down"})
    unknown = router.post("/api/pull", {"model": "never-heard-of", "stream": False})
    assert "pull model manifest: file does not exist" in unknown.json["error"]


def test_one_model_alone_is_not_to_be_changed(server: Served, store: Path) -> None:
    """A server that was given its model serves it under any name."""
    assert server.post("/api/create", {"model": "x", "from": "tiny"}).status == 501
    assert server.post(f"/api/blobs/{ABSENT}", b"x").status == 501
    assert server.ask("DELETE", "/api/delete", {"model": "tiny"}).status == 501
    assert server.post("/api/show", {"model": "whatever"}).json["details"]["family"] == "llama"


def test_a_template_of_go_is_understood(router: Served, make: Callable[..., Reply]) -> None:
    """It is shown as it was given, and conversations are written by it."""
    template = "{{ if .System }}<s>{{ .System }}</s>{{ end }}<u>{{ .Prompt }}</u>{{ .Response }}<end>"
    assert make("gopher", **{"from": "tiny", "template": template}).json == {"status": "success"}
    assert router.post("/api/show", {"model": "gopher"}).json["template"] == template
    body = {"model": "gopher", "prompt": "x", "stream": False, "options": {"num_predict": 1}}
    plain = {"model": "tiny", "prompt": "<u>x</u>", "raw": True, "stream": False, "options": {"num_predict": 1}}
    assert router.post("/api/generate", body).json["prompt_eval_count"] == router.post("/api/generate", plain).json[
        "prompt_eval_count"]


def test_models_of_one_file_share_its_engine(router: Served, make: Callable[..., Reply]) -> None:
    """As long as they are to run in the same way; it ends with the last of them."""
    entries = router.server.models.entries
    make("near", **{"from": "tiny", "system": "S", "template": "{{ .System }}{{ .Prompt }}{{ .Response }}"})
    make("far", **{"from": "tiny", "parameters": {"num_ctx": 128}})
    ask = {"prompt": "a", "stream": False, "options": {"num_predict": 1}}
    counts = [router.post("/api/generate", {"model": name, **ask}).json["prompt_eval_count"]
              for name in ("tiny", "near", "far")]
    tiny, near, far = (entries[name].loaded for name in ("tiny", "near:latest", "far:latest"))
    assert tiny is not None
    assert near is not None
    assert far is not None
    assert near.client is tiny.client is not far.client
    assert (near.n_ctx, far.n_ctx) == (256, 128)
    assert counts[0] == counts[2] != counts[1]
    for name in ("tiny", "far"):
        router.post("/api/generate", {"model": name, "keep_alive": 0})
    assert [model["name"] for model in router.get("/api/ps").json["models"]] == ["near:latest"]
    assert router.post("/api/generate", {"model": "near", **ask}).json["prompt_eval_count"] == counts[1]


def test_models_of_an_ollama_are_served_and_stay(
    tiny_model: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where the server stands in for it; a template that is not understood is left out."""
    for name, template in (("good", b"{{ .Prompt }}{{ .Response }}"), ("odd", b"{{ shout .Prompt }}")):
        manifest(tmp_path, f"registry.ollama.ai/library/{name}/latest", model=tiny_model.read_bytes(),
                 template=template, params=b'{"num_predict": 2}')
    monkeypatch.setattr(config, "ollama_dir", lambda: tmp_path)
    settings = ServerSettings(options=ModelOptions(n_ctx=256, n_threads=1), n_slots=2, is_ollama=True)
    assert not [entry for entry in find_entries(replace(settings, is_ollama=False)) if entry.name.startswith("good")]
    found = {entry.name: entry for entry in find_entries(settings)}
    assert found["odd:latest"].stored is not None
    assert found["odd:latest"].stored.template is None
    served = Served(settings, tiny_model, is_single=False)
    try:
        served.server.models.entries |= {"good:latest": found["good:latest"]}
        answer = served.post("/api/generate", {"model": "good", "prompt": "a", "stream": False}).json
        assert answer["eval_count"] == 2
        refused = served.ask("DELETE", "/api/delete", {"model": "good"})
        assert (refused.status, "ollama rm" in refused.json["error"]) == (400, True)
        hiding = served.post("/api/copy", {"source": "tiny", "destination": "good"})
        assert (hiding.status, "was not made here" in hiding.json["error"]) == (400, True)
    finally:
        served.close()
