"""Whatever a client sends, it gets an answer that is its own fault or its own success, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import Served

ODD_NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308])
VALUES = st.recursive(st.none() | st.booleans() | ODD_NUMBERS | st.text(max_size=8),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner,
                                                                                  max_size=3), max_leaves=6)
NAMES = ["prompt", "n_predict", "stream", "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop",
         "samplers", "logit_bias", "n_probs", "post_sampling_probs", "n", "id_slot", "cache_prompt", "return_tokens",
         "return_progress", "response_fields", "t_max_predict_ms", "n_indent", "n_keep", "grammar", "json_schema",
         "lora", "dry_multiplier", "dry_base", "dry_sequence_breakers", "mirostat", "mirostat_tau", "repeat_last_n",
         "repeat_penalty", "ignore_eos", "sse_ping_interval", "xtc_probability", "adaptive_target", "min_keep"]
ROUTES = ["/tokenize", "/detokenize", "/apply-template", "/embeddings", "/v1/embeddings", "/rerank", "/infill",
          "/lora-adapters", "/slots/0?action=erase", "/slots/1?action=save", "/props"]
FIELDS = ["content", "tokens", "messages", "input", "query", "documents", "input_prefix", "input_suffix", "input_extra",
          "filename", "add_special", "with_pieces", "encoding_format", "dimensions", "embd_normalize", "top_n", "texts",
          "tools", "chat_template_kwargs", "model"]
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(body=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_no_body_of_a_completion_breaks_the_server(server: Served, body: dict[str, Any]) -> None:
    """A prompt that is fine is completed, or some other field is named."""
    body = {"prompt": [40, 41], "n_predict": 3, **body}
    if body["n_predict"] in (0, None):
        body["n_predict"] = 3
    reply = server.post("/completion", body)
    assert reply.status in (200, 400), reply.data
    if reply.status == 400:
        assert reply.error["message"]


@quick
@given(path=st.sampled_from(ROUTES), body=VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5))
def test_no_body_of_another_route_breaks_the_server(make_server: Callable[..., Served], tmp_path_factory: Any,
                                                    path: str, body: Any) -> None:
    """501 is for what the model has not."""
    server = make_server(has_embeddings=True, slot_save_path=tmp_path_factory.getbasetemp())
    assert server.post(path, body).status in (200, 400, 501)


@quick
@given(data=st.binary(max_size=60))
def test_bytes_that_are_no_json_are_refused(server: Served, data: bytes) -> None:
    """An empty body is an empty object."""
    reply = server.post("/completion", data)
    assert reply.status == 400
    assert json.loads(reply.data)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("head", [
    b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
    b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n"])
def test_what_is_no_http_is_refused(server: Served, head: bytes) -> None:
    """Or the connection ends."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(head)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(200)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.0 4")
    assert server.get("/health").status == 200


def test_many_connections_that_are_dropped_cost_nothing(server: Served) -> None:
    """Some in the middle of a head, some in the middle of a body, some of an answer."""
    parts = [b"", b"GET /health HT", b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
             b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 56\r\n\r\n"
             b'{"prompt": [40, 41], "n_predict": 200, "stream": true } ']
    for i in range(400):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(parts[i % len(parts)])
    for _ in range(300):
        if not any(slot["is_processing"] for slot in server.get("/slots").json):
            break
    assert server.post("/completion", {"prompt": [40], "n_predict": 1}).status == 200
