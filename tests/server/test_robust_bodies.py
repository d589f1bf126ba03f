"""Mutated requests of every dialect are answered or refused in its own way; `fuzz_dialects.py` sends more of them."""

from __future__ import annotations

import asyncio
import random
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ggpy.server.jobs.embeddings import MAX_TEXTS
from ggpy.server.jobs.job_fields import MAX_SCALES
from ggpy.server.jobs.sampling_fields import MAX_BIASES
from ggpy.server.web import lanes
from ggpy.server.web.lanes import LARGE_BYTES, LONG_BYTES, Lanes, body_bytes
from ggpy.text import Tokenizer
from tests.server.conftest import TIMEOUT_S, Served
from tests.server.fuzz_bodies import SEEDS, Dialect, mutated, sound
from tests.server.fuzz_dialects import N_CTX, Faults, fuzz, is_error, known_text, make_served, send, wrong_with

N_CASES = 200           # of each dialect
N_SLOW_CASES = 10_000
DIALECTS: tuple[Dialect, ...] = ("llama", "openai", "anthropic", "ollama")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = make_served(tmp_path_factory.mktemp("fuzz"))
    yield server
    server.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_mutated_requests_do_not_break_the_server(served: Served, dialect: Dialect) -> None:
    """It answers a known one as before."""
    known = known_text(served)
    seeds = tuple(seed for seed in SEEDS if seed.dialect == dialect)
    counts, wrong = fuzz(served, N_CASES, 11, seeds)
    assert not wrong, "\n".join(wrong)
    assert counts.keys() == {seed.path for seed in seeds}
    assert known_text(served) == known


@pytest.mark.slow
def test_very_many_mutated_requests_do_not_break_the_server(served: Served) -> None:
    """Of all dialects in turn."""
    known = known_text(served)
    _, wrong = fuzz(served, N_SLOW_CASES, 12)
    assert not wrong, "\n".join(wrong)
    assert known_text(served) == known


@pytest.mark.parametrize("path", [
    "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/../../app.py", "/%00", "/%ff%fe", "/" + "a/" * 2000,
    "/v1/models/..%2f..%2fx", "/v1/models/%00", "/models?reload=%00", "/props?model=%F0%9F%98%80",
    "/metrics?model=../x", "/slots?model=%00&fail_on_no_slot=x", "/v1/stream?conv_id=%00&from=-1",
    "/v1/stream?conv_id=a&from=99999999999999",
    "/api/blobs/sha256:..%2f..%2fx", "/api/blobs/" + "a" * 3000, "/health?" + "a=b&" * 2000, "/props?model=a&model=b"])
def test_no_path_breaks_the_server(served: Served, path: str) -> None:
    """Nor leads out of the folders that it serves."""
    with Faults() as faults:
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"):
            reply = served.ask(method, path)
            assert reply.status < 500 or reply.status == 501, (method, reply.data)
            assert b"root:" not in reply.data
            assert b"from __future__" not in reply.data
    assert not faults.found


def test_requests_that_are_not_mutated_are_sound(served: Served) -> None:
    """But for those of models that cannot see pictures, and of servers with a store of models."""
    refused = {"/v1/messages", "/v1/rerank", "/api/create", "/api/copy", "/api/delete"}
    for seed in SEEDS:
        reply = served.ask(seed.method, seed.path, sound(seed).data, sound(seed).headers)
        assert wrong_with(reply, seed) is None
        assert reply.status == 200 or seed.path in refused, f"{seed.path}: {reply.data!r}"


def test_a_few_bytes_are_not_blown_up(served: Served) -> None:
    """A body that unpacks to more than the server reads is refused as one that is too long."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(80)) + packer.flush()
    assert len(bomb) < 1 << 17
    reply = served.post("/completion", bomb, **{"Content-Encoding": "gzip"})
    assert reply.status == 413
    assert reply.error["message"].startswith("the body is larger than")


GZIP, ZLIB, RAW = (zlib.compressobj(wbits=bits) for bits in (31, 15, -15))
CONTENT = b'{"content": "ab"}'
PACKED = {name: packer.compress(CONTENT) + packer.flush() for name, packer in (("gzip", GZIP), ("zlib", ZLIB),
                                                                             ("raw", RAW))}


@pytest.mark.parametrize(("encoding", "data"), [
    ("gzip", PACKED["gzip"]), ("x-gzip", PACKED["gzip"]), ("deflate", PACKED["zlib"]), ("Deflate", PACKED["raw"]),
    ("identity", CONTENT)])
def test_a_packed_body_is_unpacked(served: Served, encoding: str, data: bytes) -> None:
    """By what its encoding is called, which is two formats for deflate."""
    reply = served.post("/tokenize", data, **{"Content-Encoding": encoding})
    assert reply.json == served.post("/tokenize", CONTENT).json


@pytest.mark.parametrize(("encoding", "data", "problem"), [
    ("gzip", b"[]", "it is no gzip"), ("deflate", b'{"prompt": "a"}', "it is no deflate"),
    ("deflate", b"[]", "its deflate does not end within the 2 bytes"),
    ("gzip", PACKED["gzip"][:-1], "its gzip does not end within"),
    ("gzip", PACKED["gzip"] + b"ab", "2 bytes stand behind the end of its gzip"),
    ("br", b"[]", "its Content-Encoding is 'br', expected 'gzip', 'deflate' or none")])
@pytest.mark.parametrize(("path", "dialect"), [
    ("/completion", "llama"), ("/lora-adapters", "llama"), ("/v1/chat/completions", "openai"),
    ("/v1/messages", "anthropic"), ("/api/chat", "ollama")])
def test_a_body_that_is_not_packed_as_it_says_is_refused(
        served: Served, path: str, dialect: Dialect, encoding: str, data: bytes, problem: str) -> None:
    """With an error of the dialect, which tells what was found."""
    reply = served.post(path, data, **{"Content-Encoding": encoding})
    assert reply.status == 400
    assert is_error(reply.data, dialect, 400)
    assert f"the body cannot be read: {problem}" in reply.data.decode()


def test_what_a_client_expects_beside_going_on_is_of_no_account(served: Served) -> None:
    """`Expect: 100-continue` lets it send its body."""
    for what in ("100-continue", "nonsense"):
        assert served.post("/tokenize", {"content": "a"}, Expect=what).status == 200


def test_the_same_seed_makes_the_same_mutations() -> None:
    """So that a case that went wrong can be had again."""
    first, second = random.Random(3), random.Random(3)
    assert [str(mutated(first)) for _ in range(50)] == [str(mutated(second)) for _ in range(50)]


@pytest.mark.parametrize(("dialect", "body", "is_right"), [
    ("llama", b'{"error": {"code": 400, "message": "m", "type": "t"}}', True),
    ("openai", b'{"error": {"code": 401, "message": "m", "type": "t"}}', False),
    ("anthropic", b'{"type": "error", "error": {"message": "m", "type": "t"}}', True),
    ("anthropic", b'{"error": {"message": "m", "type": "t"}}', False),
    ("ollama", b'{"error": "m"}', True), ("ollama", b'{"error": ""}', False), ("llama", b"400: Bad Request", False)])
def test_errors_are_told_apart(dialect: Dialect, body: bytes, is_right: bool) -> None:
    """Each dialect has its own."""
    assert is_error(body, dialect, 400) is is_right


def test_a_connection_that_breaks_is_a_fault(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a reply with a status of the server's."""
    monkeypatch.setattr(served, "port", 1)
    problem = send(served, sound(SEEDS[0]))
    assert problem is not None
    assert problem.startswith("the connection broke")


def test_large_bodies_do_not_hold_up_others(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: they wait for each other."""
    large, is_released = threading.Semaphore(0), threading.Event()
    encode = Tokenizer.encode

    def slow(self: Tokenizer, text: str, *args: Any, **kwargs: Any) -> list[int]:
        if len(text) > LARGE_BYTES:
            large.release()
            is_released.wait(TIMEOUT_S)
            text = "a"
        return encode(self, text, *args, **kwargs)

    monkeypatch.setattr(Tokenizer, "encode", slow)
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(served.post, "/tokenize", {"content": "a" * (LARGE_BYTES + 1)}) for _ in range(20)]
        try:
            assert large.acquire(timeout=TIMEOUT_S)
            assert [served.post("/tokenize", {"content": "a"}).status for _ in range(3)] == [200] * 3
            assert not large.acquire(blocking=False)
        finally:
            is_released.set()
        assert [reply.result().status for reply in waiting] == [200] * 20


@pytest.mark.parametrize(("fields", "message"), [
    ({"logit_bias": [[40, 1]] * (MAX_BIASES + 1)}, "262,145 are too many; expected 262,144 at most"),
    ({"lora": [{"id": 0, "scale": 1}] * (MAX_SCALES + 1)}, "4,097 scales are too many; expected 4,096 at most")])
def test_lists_that_would_take_too_long_are_refused(served: Served, fields: dict[str, Any], message: str) -> None:
    """With how many there may be."""
    assert message in served.post("/completion", {"prompt": "a", "n_predict": 1, **fields}).error["message"]


def test_texts_that_would_take_too_long_are_refused(served: Served) -> None:
    """On all routes for vectors."""
    for path, name in (("/embedding", "content"), ("/v1/embeddings", "input")):
        message = served.post(path, {name: ["a"] * (MAX_TEXTS + 1)}).error["message"]
        assert message == f"Field '{name}': 4,097 texts are too many; expected 4,096 at most"


def test_a_very_long_conversation_is_shortened(served: Served) -> None:
    """Ollama leaves out as many of the oldest messages as it takes, of however many."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}] * 20_000, "stream": False,
            "options": {"num_predict": 1}}
    assert 900 < served.post("/api/chat", body).json["prompt_eval_count"] < N_CTX


@pytest.mark.parametrize(("n_bytes", "name"), [(10, "MainThread"), (LONG_BYTES + 1, "ggpy-request"),
                                               (LARGE_BYTES + 1, "ggpy-large-request")])
def test_long_bodies_are_read_on_threads(n_bytes: int, name: str) -> None:
    """The largest on one of their own."""
    async def main() -> str:
        asyncio.get_running_loop().set_default_executor(Lanes())
        body_bytes.set(n_bytes)
        return await lanes.read(lambda: threading.current_thread().name)

    assert asyncio.run(main()).startswith(name)
