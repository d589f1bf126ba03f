"""Whatever comes to Ollama's routes gets an answer that is its own fault or its own success, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggpy import config
from ggpy.engine.config import SamplingParams
from ggpy.loading import ModelOptions
from ggpy.server.settings import ServerSettings
from tests.server.conftest import CHATML, Served

ODD_NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308])
TEXTS = st.text(max_size=8) | st.sampled_from(["tiny", "json", "5m", "-1", "{{ .Prompt }}", "{% if %}", "sha256:"])
VALUES = st.recursive(st.none() | st.booleans() | ODD_NUMBERS | TEXTS,
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                          st.sampled_from(["role", "content", "function", "name", "arguments", "type", "properties"])
                          | st.text(max_size=6), inner, max_size=3), max_leaves=6)
ANSWERS = ["messages", "prompt", "system", "template", "format", "think", "tools", "raw", "suffix", "context",
           "options", "keep_alive", "logprobs", "top_logprobs", "truncate", "shift", "images", "stream", "input",
           "dimensions"]
OPTIONS = ["temperature", "top_k", "top_p", "min_p", "seed", "stop", "num_ctx", "num_keep", "repeat_last_n", "mirostat",
           "typical_p", "repeat_penalty", "presence_penalty", "num_batch", "numa", "unheard_of"]
CREATION = ["from", "files", "adapters", "template", "system", "license", "parameters", "messages", "quantize",
            "modelfile", "source", "destination", "name", "stream"]
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def router(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of several models, with an empty store and no model to be pulled."""
    store = tmp_path_factory.mktemp("store")
    options = ServerSettings(options=ModelOptions(n_ctx=256, n_threads=1), chat_template=CHATML, n_slots=2,
                             is_offline=True, sampling_of=lambda _: SamplingParams(temperature=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "store_dir", lambda: store)
        served = Served(options, tiny_model, is_single=False)
        yield served
        served.close()
    assert not [path for path in store.rglob("*") if path.is_file() and path.name != "lock"]


@quick
@given(path=st.sampled_from(["/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"]),
       body=st.dictionaries(st.sampled_from(ANSWERS), VALUES, max_size=5),
       options=st.dictionaries(st.sampled_from(OPTIONS), VALUES, max_size=3))
def test_no_body_breaks_the_server(server: Served, path: str, body: dict[str, Any], options: dict[str, Any]) -> None:
    """What is wrong is said in a text."""
    fine = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "prompt": "a"}
    reply = server.post(path, {**fine, "options": {**options, "num_predict": 2}, **body, "keep_alive": -1})
    assert reply.status in (200, 400), reply.data
    if reply.status == 400:
        assert isinstance(reply.json["error"], str)


@quick
@given(path=st.sampled_from(["/api/create", "/api/copy", "/api/pull", "/api/push", "/api/show"]),
       body=VALUES | st.dictionaries(st.sampled_from([*CREATION, "model"]), VALUES, max_size=5))
def test_no_creation_breaks_the_server(router: Served, path: str, body: Any) -> None:
    """Nor does one leave anything that nobody asked for."""
    reply = router.post(path, body)
    assert reply.status in (200, 400, 404, 501), reply.data
    made = body.get("destination" if path == "/api/copy" else "model") if isinstance(body, dict) else None
    if isinstance(made, str):
        router.ask("DELETE", "/api/delete", {"model": made})


@quick
@given(data=st.binary(max_size=60))
def test_bytes_that_are_no_json_are_refused(server: Served, data: bytes) -> None:
    """Nothing is one of them, here."""
    for path in ("/api/chat", "/api/generate", "/api/show"):
        assert server.post(path, data).status == 400


def test_deep_nesting_is_refused(server: Served) -> None:
    """In a body, and in a schema."""
    deep = b'{"model": "tiny", "prompt": "a", "format": ' + b'{"items": ' * 5000 + b"{}" + b"}" * 5001
    assert server.post("/api/generate", deep).status == 400
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    assert server.post("/api/generate", {"model": "tiny", "prompt": "a", "format": schema, "stream": False,
                                         "options": {"num_predict": 2}}).status in (200, 400)


def test_an_upload_that_breaks_off_leaves_nothing(router: Served) -> None:
    """Whatever the client has promised."""
    head = f"POST /api/blobs/sha256:{'0' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", router.port)) as connection:
        connection.sendall(head.encode() + b"x" * 1000)
    assert router.get("/api/version").status == 200


def test_an_upload_larger_than_the_disk_is_refused(router: Served) -> None:
    """Before it begins."""
    head = f"POST /api/blobs/sha256:{'0' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**18}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", router.port)) as connection:
        connection.sendall(head.encode())
        reply = connection.recv(4096)
    assert reply.startswith(b"HTTP/1.1 400")
    assert "do not fit" in json.loads(reply.split(b"\r\n\r\n")[1])["error"]


def test_a_client_that_leaves_ends_its_answer(server: Served) -> None:
    """Of a stream that would go on for long."""
    body = json.dumps({"model": "tiny", "prompt": "a", "raw": True, "options": {"num_predict": 2000}}).encode()
    head = f"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    for _ in range(200):
        if all(not slot["is_processing"] for slot in server.get("/slots").json):
            return
    pytest.fail("the answer goes on")


@pytest.mark.parametrize("template", ["{% if %}" * 100_000, "{{ [" + "a," * 30_000 + "] }}", "{{ .Response }}" * 4000,
                                      "{{ .Response }}" * 100_000], ids=["long", "full", "go", "long-go"])
@pytest.mark.parametrize("path", ["/api/generate", "/api/create"])
def test_a_template_that_takes_long_to_compile_is_refused(router: Served, path: str, template: str) -> None:
    """Before it is compiled."""
    body = {"model": "tiny" if path == "/api/generate" else "made", "from": "tiny", "prompt": "a", "template": template}
    reply = router.post(path, body)
    assert (reply.status, "expected" in reply.json["error"]) == (400, True), reply.data
