"""llama-server's other routes: health, properties, tokens, slots, metrics, models, infill, embeddings, adapters."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy.tools.metrics_page import parse
from tests.server.conftest import CHATML, Served


def test_health_is_ok_once_the_model_is_there(server: Served) -> None:
    """Under both names."""
    assert [server.get(path).json for path in ("/health", "/v1/health")] == [{"status": "ok"}] * 2


def test_props_tell_the_settings_of_requests_that_do_not_say(server: Served) -> None:
    """And what the server has."""
    body = server.get("/props").json
    assert body["total_slots"] == 2
    assert body["default_generation_settings"]["n_ctx"] == 256
    assert body["default_generation_settings"]["params"]["temperature"] == 0
    assert body["chat_template"] == CHATML
    assert body["endpoint_metrics"] is True


def test_tokens_become_text_and_text_tokens(server: Served) -> None:
    """With pieces, which are bytes where they are no text alone."""
    tokens = server.post("/tokenize", {"content": "añb"}).json["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json["content"].strip() == "añb"
    pieces = server.post("/tokenize", {"content": "añb", "with_pieces": True}).json["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    assert server.post("/tokenize", {}).json == {"tokens": []}


def test_messages_become_a_prompt(server: Served) -> None:
    """As a chat would send it."""
    body = server.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}).json
    assert body == {"prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"}
    assert server.post("/apply-template", {}).error["message"] == "Field 'messages': it is missing"


def test_slots_tell_what_they_did_last(make_server: Callable[..., Served]) -> None:
    """A slot that did nothing says so; the one that is wished for is taken."""
    server = make_server(cache_prompt=False)
    first = server.get("/slots").json
    assert [(slot["id"], slot["n_ctx"], "params" in slot) for slot in first] == [(0, 256, False), (1, 256, False)]
    assert server.post("/completion", {"prompt": [40, 41, 42], "n_predict": 2, "id_slot": 1}).json["id_slot"] == 1
    slot = server.get("/slots").json[1]
    assert (slot["is_processing"], slot["n_prompt_tokens"], slot["next_token"][0]["n_remain"]) == (False, 3, -1)


def test_what_the_server_lacks_is_501(make_server: Callable[..., Served]) -> None:
    """With the flag that it would need."""
    server = make_server(has_slots=False, has_metrics=False)
    asked = [server.get("/slots"), server.get("/metrics"), server.post("/props", {}),
             server.post("/slots/0?action=erase"), server.post("/embeddings", {"input": "a"}),
             server.post("/rerank", {"query": "a", "documents": ["b"]}),
             server.post("/infill", {"input_prefix": "a", "input_suffix": "b"})]
    assert {(reply.status, reply.error["type"]) for reply in asked} == {(501, "not_supported_error")}


def test_metrics_are_a_page_of_prometheus(server: Served) -> None:
    """With the time of the start in a header."""
    server.post("/completion", {"prompt": [40], "n_predict": 2})
    reply = server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(reply.headers["process-start-time-unix"]) > 1_700_000_000
    n_predicted = parse("", reply.data.decode(), 0.0).value("llamacpp:tokens_predicted_total")
    assert n_predicted is not None
    assert n_predicted > 0


def test_models_are_listed_for_clients_of_openai_and_ollama(server: Served) -> None:
    """One of them by name too."""
    body = server.get("/v1/models").json
    assert [model["name"] for model in body["models"]] == ["tiny"]
    assert body["data"][0]["meta"]["n_ctx"] == 256
    assert server.get("/v1/models/tiny").json["id"] == "tiny"
    assert server.get("/v1/models/other").status == 404


def test_a_slot_is_saved_restored_and_erased(make_server: Callable[..., Served], tmp_path_factory: Any) -> None:
    """Who gets the slot finds what was restored, and nothing of what was erased."""
    folder = tmp_path_factory.mktemp("slots")
    server = make_server(slot_save_path=folder)
    prompt = list(range(200, 240))

    def cached(slot: int) -> int:
        body = server.post("/completion", {"prompt": prompt, "n_predict": 1, "id_slot": slot}).json
        found: int = body["timings"]["cache_n"]
        return found

    assert cached(0) == 0
    saved = server.post("/slots/0?action=save", {"filename": "a.bin"}).json
    assert (saved["n_saved"], saved["n_written"]) == (40, (folder / "a.bin").stat().st_size)
    assert server.post("/slots/0?action=erase").json == {"id_slot": 0, "n_erased": 40}
    assert cached(0) == 0
    assert server.post("/slots/0?action=erase").status == 200
    assert server.post("/slots/1?action=restore", {"filename": "a.bin"}).json["n_restored"] == 40
    assert cached(1) == 39
    assert struct.unpack_from("<4sIIiII", (folder / "a.bin").read_bytes())[5] == 40      # tokens, as llama.cpp writes


@pytest.mark.parametrize("name", ["", "../a", "/etc/passwd", "a/b", "a\\b", "..", "a\n", ".hidden", "x" * 300])
def test_a_slot_file_has_a_plain_name(make_server: Callable[..., Served], tmp_path_factory: Any, name: str) -> None:
    """Nothing outside of the folder is read or written."""
    server = make_server(slot_save_path=Path(tmp_path_factory.getbasetemp()))
    for action in ("save", "restore"):
        reply = server.post(f"/slots/0?action={action}", {"filename": name})
        assert (reply.status, reply.error["message"]) == (400, "Invalid filename")


def test_other_files_actions_and_slots_are_errors(make_server: Callable[..., Served], tmp_path_factory: Any) -> None:
    """Each says what is wrong."""
    folder = Path(tmp_path_factory.getbasetemp())
    (folder / "no_slot.bin").write_bytes(b"ggpy")
    server = make_server(slot_save_path=folder)
    messages = [server.post(path, body).error["message"] for path, body in (
        ("/slots/0?action=restore", {"filename": "absent.bin"}),
        ("/slots/0?action=restore", {"filename": "no_slot.bin"}),
        ("/slots/0?action=fly", {}), ("/slots/7?action=erase", {}), ("/slots/x?action=erase", {}))]
    parts = ["No such file", "this is no saved slot", "Invalid action", "Invalid slot ID", "Invalid slot ID"]
    assert all(part in message for part, message in zip(parts, messages, strict=True))


def test_embeddings_have_length_1_and_come_in_base64_too(make_server: Callable[..., Served]) -> None:
    """The native reply has a row for each text, or for each token where nothing is pooled."""
    server = make_server(has_embeddings=True)
    body = server.post("/v1/embeddings", {"input": ["ab", [40, 41, 42]]}).json
    row = body["data"][1]["embedding"]
    assert sum(x * x for x in row) == pytest.approx(1, abs=1e-5)
    data = server.post("/v1/embeddings", {"input": [40, 41, 42], "encoding_format": "base64"}).json["data"][0]
    assert list(struct.unpack(f"<{len(row)}f", base64.b64decode(data["embedding"]))) == pytest.approx(row)
    short = server.post("/v1/embeddings", {"input": [40, 41, 42], "dimensions": 8}).json["data"][0]["embedding"]
    assert len(short) == 8
    assert sum(x * x for x in short) == pytest.approx(1, abs=1e-5)
    native = server.post("/embeddings", {"content": [40, 41, 42]}).json
    assert (native[0]["index"], len(native[0]["embedding"])) == (0, 3)


def test_adapters_are_none_and_cannot_be_set(server: Served) -> None:
    """A body that is no array is an error."""
    assert server.get("/lora-adapters").json == []
    assert server.post("/lora-adapters", []).json == {"success": True}
    assert server.post("/lora-adapters", {"id": 0}).status == 400
    assert "no such adapter" in server.post("/lora-adapters", [{"id": 0, "scale": 1}]).error["message"]


def test_templates_know_the_day_and_whether_to_think(make_server: Callable[..., Served]) -> None:
    """What a request says goes before what the server was started with; it must be a boolean."""
    server = make_server(chat_template="{{ date_string | length }} {{ enable_thinking }} {{ messages[0].content }}",
                         reasoning="off")
    messages = [{"role": "user", "content": "Hi"}]

    def prompt(**fields: Any) -> Any:
        return server.post("/apply-template", {"messages": messages, **fields}).json.get("prompt")

    assert prompt() == "11 False Hi"
    assert prompt(chat_template_kwargs={"enable_thinking": True}) == "11 True Hi"
    assert prompt(chat_template_kwargs={"enable_thinking": "false"}) is None
    assert prompt(tools=[{"type": "function", "function": {"name": "f"}}]) == "11 False Hi"     # it cannot write any
