"""Ollama's API: answers, their options, and what is told of models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.errors import RequestError
from ggpy.loading import ModelOptions
from ggpy.made import with_parameters
from ggpy.server.model_pool.models import Entry
from ggpy.server.ollama.cards import parameter_size
from ggpy.server.ollama.options import apply_keep_alive, default_params
from ggpy.server.ollama.request import MAX_TEMPLATES, with_template
from ggpy.server.options.durations import parse_duration
from ggpy.server.settings import ServerSettings
from tests.models.arch_data import load_roomy
from tests.models.encoder_data import load_encoder
from tests.server.conftest import TIMEOUT_S, Reply, Served

TEMPLATES = Path(__file__).parents[2] / "data" / "templates"
SHORT = {"num_predict": 3, "temperature": 0}


def lines(reply: Reply) -> list[Any]:
    """Of a stream."""
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.data.splitlines()]


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose template has tools and thoughts."""
    settings = ServerSettings(
        options=ModelOptions(n_ctx=2048, n_threads=1), n_slots=2, sampling_of=lambda _: SamplingParams(temperature=0),
        chat_template=(TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8"))
    served = Served(settings, load_roomy(tmp_path_factory.mktemp("thinker"), 2048))
    yield served
    served.close()


def test_generate_streams_lines(server: Served) -> None:
    """The last one has no text, but how it went."""
    found = lines(server.post("/api/generate", {"model": "tiny", "prompt": "a", "options": SHORT}))
    assert all(set(line) == {"model", "created_at", "response", "done"} for line in found[:-1])
    last = found[-1]
    assert (last["model"], last["response"], last["done"], last["done_reason"]) == ("tiny", "", True, "length")
    assert last["eval_count"] == 3
    assert last["total_duration"] >= last["prompt_eval_duration"] > 0
    assert last["load_duration"] > 0
    assert last["eval_duration"] > 0
    assert len(last["context"]) == last["prompt_eval_count"] + 3


def test_generate_in_one_piece_says_the_same(server: Served) -> None:
    """With all of the text in the one line."""
    body = {"model": "tiny", "prompt": "a", "options": SHORT}
    streamed = lines(server.post("/api/generate", body))
    whole = server.post("/api/generate", {**body, "stream": False})
    assert whole.headers["content-type"] == "application/json; charset=utf-8"
    assert whole.json["response"] == "".join(line["response"] for line in streamed)
    assert whole.json["context"] == streamed[-1]["context"]


def test_raw_prompts_have_no_template(server: Served) -> None:
    """They are the tokens of the text, and there is no context to go on with."""
    reply = server.post("/api/generate", {"model": "tiny", "prompt": "abc", "raw": True, "stream": False,
                                          "options": SHORT})
    tokens = server.post("/tokenize", {"content": "abc", "add_special": True}).json["tokens"]
    assert reply.json["prompt_eval_count"] == len(tokens)
    assert "context" not in reply.json
    refused = server.post("/api/generate", {"model": "tiny", "prompt": "a", "raw": True, "system": "s"})
    assert (refused.status, refused.json) == (400, {
        "error": "raw mode does not support template, system, or context"})


def test_system_and_template_of_a_request_go_before_the_models(server: Served) -> None:
    """For that request alone."""
    def asked(**more: Any) -> int:
        body = {"model": "tiny", "prompt": "a", "stream": False, "options": SHORT, **more}
        return int(server.post("/api/generate", body).json["prompt_eval_count"])

    plain = asked()
    assert asked(system="system") > plain
    assert asked(template="{% for message in messages %}{{ message.content }}{% endfor %}") < plain
    assert asked() == plain


def test_a_template_of_requests_is_compiled_once(server: Served) -> None:
    """It has its own memory of answers, since the model's were written otherwise; the last few are kept."""
    model = server.server.models.single.loaded
    assert model is not None
    templates = [f"{{{{ .Prompt }}}} {i}" for i in range(MAX_TEMPLATES + 1)]
    first = with_template(model, templates[0])
    assert with_template(model, templates[0]) is first
    assert first.client is model.client
    assert first.answers is not model.answers
    assert first.chat_template is not model.chat_template
    for template in templates:
        with_template(model, template)
    assert with_template(model, templates[0]) is not first


def test_an_answer_goes_on_from_its_context(server: Served) -> None:
    """What was said before stands in front of the prompt; its beginning is not there twice."""
    body = {"model": "tiny", "prompt": "a", "stream": False, "options": SHORT}
    first = server.post("/api/generate", body).json
    second = server.post("/api/generate", {**body, "context": first["context"]}).json
    assert second["prompt_eval_count"] == len(first["context"]) + first["prompt_eval_count"] - 1
    assert second["context"][: len(first["context"])] == first["context"]


def test_a_gap_needs_a_model_that_fills_them(server: Served) -> None:
    """In Ollama's words."""
    reply = server.post("/api/generate", {"model": "tiny", "prompt": "a", "suffix": "b"})
    assert (reply.status, reply.json["error"]) == (400, '"tiny" does not support insert')


def test_chat_streams_messages(server: Served) -> None:
    """Each line has role and content, the last one too."""
    found = lines(server.post("/api/chat", {"model": "tiny", "messages": [user("a")], "options": SHORT}))
    assert {line["message"]["role"] for line in found} == {"assistant"}
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["message"]["content"] == ""
    whole = server.post("/api/chat", {"model": "tiny", "messages": [user("a")], "options": SHORT, "stream": False}).json
    assert whole["message"]["content"] == "".join(line["message"]["content"] for line in found)
    assert whole["eval_count"] == found[-1]["eval_count"] == 3


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain"])
def test_the_body_is_json_whatever_it_is_called(server: Served, content_type: str) -> None:
    """As curl sends it."""
    body = json.dumps({"model": "tiny", "messages": [user("a")], "stream": False, "options": SHORT}).encode()
    reply = server.ask("POST", "/api/chat", body, {"Content-Type": content_type})
    assert reply.status == 200


def test_an_answer_of_a_format_is_json(server: Served) -> None:
    """Any object, or what a schema says."""
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    for form, options in (("json", {"num_predict": 200}), (schema, {})):
        for path, prompt in (("/api/chat", {"messages": [user("a")]}), ("/api/generate", {"prompt": "a"})):
            reply = server.post(path, {"model": "tiny", "format": form, "stream": False, "options": options, **prompt})
            answer = reply.json
            text = answer["message"]["content"] if "message" in answer else answer["response"]
            found = json.loads(text)
            assert isinstance(found, dict)
            assert form == "json" or found["n"] in (1, 2)
    assert server.post("/api/chat", {"model": "tiny", "messages": [user("a")], "format": "xml"}).status == 400


def test_stop_strings_end_an_answer(server: Served) -> None:
    """An array of them, or one."""
    body = {"model": "tiny", "prompt": "a", "stream": False}
    text = server.post("/api/generate", {**body, "options": {"num_predict": 12}}).json["response"]
    stop = text[4:6]
    for given in (stop, [stop]):
        answer = server.post("/api/generate", {**body, "options": {"num_predict": 12, "stop": given}}).json
        assert (answer["response"], answer["done_reason"]) == (text[: text.index(stop)], "stop")


def test_log_probabilities_come_with_their_tokens(server: Served) -> None:
    """In the stream with each line, in one piece all of them."""
    body = {"model": "tiny", "prompt": "a", "raw": True, "logprobs": True, "top_logprobs": 2, "options": SHORT}
    whole = server.post("/api/generate", {**body, "stream": False}).json["logprobs"]
    assert len(whole) == 3
    assert set(whole[0]) == {"token", "logprob", "bytes", "top_logprobs"}
    assert [set(one) for one in whole[0]["top_logprobs"]] == [{"token", "logprob", "bytes"}] * 2
    streamed = [one for line in lines(server.post("/api/generate", body)) for one in line.get("logprobs", ())]
    assert streamed == whole


@pytest.mark.parametrize(("path", "body", "problem"), [
    ("/api/chat", {}, "model is required"),
    ("/api/chat", {"model": "tiny", "messages": [{"role": "user", "content": ["a"]}]}, "expected a string"),
    ("/api/chat", {"model": "tiny", "messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
    ("/api/chat", {"model": "tiny", "messages": "a"}, "messages"),
    ("/api/chat", {"model": "tiny", "messages": [{**user("a"), "images": ["aGk="]}]}, "does not support images"),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "tools": [{"type": "function", "function": {}}]}, "name"),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "think": True}, '"tiny" does not support thinking'),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "think": "hard"}, 'invalid think value: "hard"'),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "top_logprobs": 21}, "top_logprobs must be between 0 and"),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "keep_alive": "300"}, "missing unit in duration"),
    ("/api/chat", {"model": "tiny", "messages": [user("a")], "options": {"top_k": "many"}}, 'option "top_k"'),
    ("/api/generate", {"model": "tiny", "prompt": "a", "images": ["aGk="]}, "does not support images"),
    ("/api/generate", {"model": "tiny", "prompt": 1}, "prompt"),
    ("/api/generate", {"model": "tiny", "prompt": "a", "context": [10**9]}, "context[0]"),
    ("/api/generate", {"model": "tiny", "prompt": "a", "context": [1, "text"]}, "context[1]"),
    ("/api/generate", {"model": "tiny", "prompt": "a", "context": [True]}, "context[0]"),
    ("/api/generate", {"model": "tiny", "prompt": "a", "template": "{{ .Prompt }}{{"}, "template"),
    ("/api/embed", {"model": "tiny", "input": [1]}, "invalid input type"),
    ("/api/show", {"name": ""}, "model is required"),
    ("/api/push", {"model": "tiny"}, "push"),
])
def test_a_wrong_request_is_told_what_is_wrong(server: Served, path: str, body: Any, problem: str) -> None:
    """As text in an object, with a status."""
    reply = server.post(path, body)
    assert reply.status in (400, 501)
    assert list(reply.json) == ["error"]
    assert problem in reply.json["error"]


def test_no_body_is_an_error(server: Served) -> None:
    """So is one that is no JSON."""
    assert server.post("/api/chat", b"").json == {"error": "missing request body"}
    assert server.post("/api/chat", b"{").status == 400
    assert server.post("/api/chat", b"[]").status == 400


def test_tools_need_a_template_that_has_them(server: Served) -> None:
    """In Ollama's words."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    reply = server.post("/api/chat", {"model": "tiny", "messages": [user("a")], "tools": tools})
    assert (reply.status, reply.json["error"]) == (400, '"tiny" does not support tools')


def test_the_oldest_messages_go_where_all_are_too_many(server: Served) -> None:
    """The system and the last one stay; without truncate they are refused."""
    messages = [{"role": "system", "content": "S"}, user("a" * 150), {"role": "assistant", "content": "b" * 60},
                user("c" * 20)]
    body = {"model": "tiny", "messages": messages, "stream": False, "options": {"num_predict": 1}}
    short = {**body, "messages": [messages[0], messages[3]]}
    count = server.post("/api/chat", body).json["prompt_eval_count"]
    assert count == server.post("/api/chat", short).json["prompt_eval_count"]
    refused = server.post("/api/chat", {**body, "truncate": False})
    assert (refused.status, "exceeds" in refused.json["error"]) == (400, True)


def test_a_prompt_too_long_by_itself_is_cut(server: Served) -> None:
    """Its beginning and its end stay, with room for an answer; num_ctx may want less than there is."""
    body = {"model": "tiny", "prompt": "ab" * 400, "raw": True, "stream": False, "options": {"num_predict": 1}}
    assert server.post("/api/generate", body).json["prompt_eval_count"] == 192
    assert server.post("/api/generate", {**body, "options": {"num_predict": 1, "num_ctx": 100}}).json[
        "prompt_eval_count"] == 75
    assert server.post("/api/generate", {**body, "truncate": False}).status == 400


def test_an_answer_ends_with_the_context_that_was_asked_for(server: Served) -> None:
    """Without a shift, and with a num_ctx below the context."""
    body = {"model": "tiny", "prompt": "abc", "raw": True, "stream": False}
    answer = server.post("/api/generate", {**body, "options": {"num_ctx": 32}}).json
    assert (answer["prompt_eval_count"] + answer["eval_count"], answer["done_reason"]) == (32, "length")
    answer = server.post("/api/generate", {**body, "shift": False}).json
    assert (answer["prompt_eval_count"] + answer["eval_count"], answer["done_reason"]) == (256, "length")


def test_an_answer_goes_on_when_the_context_is_full(server: Served) -> None:
    """Which is usual for Ollama."""
    answer = server.post("/api/generate", {"model": "tiny", "prompt": "abc", "raw": True, "stream": False,
                                           "options": {"num_predict": 300}}).json
    assert answer["eval_count"] == 300


def test_a_request_without_a_prompt_loads_or_unloads(make_server: Callable[..., Served]) -> None:
    """In one line, even where a stream was asked for."""
    server = make_server(tags=("unloading",))
    reply = server.post("/api/generate", {"model": "tiny", "keep_alive": 0}).json
    assert (reply["response"], reply["done"], reply["done_reason"]) == ("", True, "unload")
    assert server.get("/api/ps").json == {"models": []}
    reply = server.post("/api/chat", {"model": "tiny", "messages": [], "keep_alive": "5m"}).json
    assert (reply["message"], reply["done_reason"]) == ({"role": "assistant", "content": ""}, "load")
    (running,) = server.get("/api/ps").json["models"]
    assert (running["name"], running["size_vram"], running["context_length"]) == ("tiny:latest", 0, 256)


def test_a_model_goes_after_the_request_that_wants_it_so(make_server: Callable[..., Served]) -> None:
    """keep_alive 0 of a request with a prompt counts once; the next request has the server's time, or its own."""
    server = make_server(tags=("unloading",), sleep_idle_s=600)
    entry = server.server.models.single
    server.post("/api/generate", {"model": "tiny", "prompt": "a", "keep_alive": "0s", "options": SHORT})
    wait_until(lambda: entry.state == "sleeping")
    assert entry.keep_s == 600
    server.post("/api/generate", {"model": "tiny", "keep_alive": -1})
    assert entry.keep_s is None


def test_a_very_long_time_is_always(make_server: Callable[..., Served]) -> None:
    """Whatever number says so."""
    server = make_server(tags=("unloading",), sleep_idle_s=600)
    for keep_alive in (10**400, -(10**400), 1e300):
        assert server.post("/api/generate", {"model": "tiny", "keep_alive": keep_alive}).status == 200
        assert server.server.models.single.keep_s is None


def test_a_model_that_was_unloaded_stays_for_the_next_dialect(make_server: Callable[..., Served]) -> None:
    """keep_alive 0 without a prompt, and then clients who know nothing of it."""
    server = make_server(tags=("unloading",), sleep_idle_s=600)
    entry = server.server.models.single
    server.post("/api/generate", {"model": "tiny", "keep_alive": 0})
    assert (entry.state, entry.keep_s) == ("sleeping", 600)
    for path, body in (("/completion", {"prompt": "a", "n_predict": 1}),
                       ("/v1/chat/completions", {"messages": [user("a")], "max_tokens": 1}),
                       ("/v1/messages", {"messages": [user("a")], "max_tokens": 1})):
        assert server.post(path, body).status == 200
        assert (entry.state, entry.keep_s) == ("loaded", 600)


def test_the_models_of_this_machine_are_listed(server: Served) -> None:
    """With what apps show of them."""
    (model,) = server.get("/api/tags").json["models"]
    assert (model["name"], model["model"]) == ("tiny:latest", "tiny:latest")
    assert len(model["digest"]) == 64
    assert model["size"] > 200_000
    assert model["modified_at"].endswith("Z")
    assert model["details"] == {
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "67K",
        "quantization_level": "F32", "context_length": 256, "embedding_length": 48}
    assert model["capabilities"] == ["completion"]


def test_a_model_is_shown(server: Served) -> None:
    """Its metadata without long arrays, unless they are asked for."""
    shown = server.post("/api/show", {"model": "tiny"}).json
    info = shown["model_info"]
    assert (info["general.architecture"], info["llama.context_length"]) == ("llama", 256)
    assert info["tokenizer.ggml.tokens"] == []
    assert "tokenizer.chat_template" not in info
    assert shown["modelfile"].startswith('# Modelfile generated by "ollama show"')
    assert {"name": "token_embd.weight", "type": "F32", "shape": [48, 280]} in shown["tensors"]
    assert len(server.post("/api/show", {"name": "tiny", "verbose": True}).json["model_info"][
        "tokenizer.ggml.tokens"]) == 280


def test_copilot_gets_the_name_that_it_asked_for(server: Served) -> None:
    """It shows another field than the others."""
    agent = {"User-Agent": "GitHubCopilotChat/1.2"}
    assert server.ask("POST", "/api/show", {"model": "Tiny"}, agent).json["model_info"]["general.basename"] == "Tiny"


def test_what_a_template_knows_is_a_capability(thinker: Served) -> None:
    """Tools and thoughts; that it fills gaps, its tokens tell."""
    shown = thinker.post("/api/show", {"model": "tiny"}).json["capabilities"]
    assert shown == ["completion", "tools", "thinking", "insert"]
    assert thinker.get("/api/tags").json["models"][0]["capabilities"] == shown


def test_thoughts_are_turned_off(thinker: Served) -> None:
    """By the template, which has a place for that."""
    def prompt_count(**more: Any) -> int:
        body = {"model": "tiny", "messages": [user("a")], "stream": False, "options": {"num_predict": 1}, **more}
        return int(thinker.post("/api/chat", body).json["prompt_eval_count"])

    assert prompt_count(think=False) > prompt_count() == prompt_count(think=True) == prompt_count(think="low")


def test_a_conversation_with_calls_is_read(thinker: Served) -> None:
    """As clients send back what they got, with results by the tool's name."""
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer"}}}}}]
    messages = [user("a"), {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call, call]},
                {"role": "tool", "tool_name": "f", "content": "3"}, {"role": "tool", "tool_name": "f", "content": "4"}]
    reply = thinker.post("/api/chat", {"model": "tiny", "messages": messages, "tools": tools, "stream": False,
                                       "options": {"num_predict": 1}})
    assert reply.status == 200
    wrong = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}
    refused = thinker.post("/api/chat", {"model": "tiny", "messages": [user("a"), wrong]})
    assert (refused.status, "messages[1].tool_calls[0].function.arguments" in refused.json["error"]) == (400, True)


def test_texts_become_vectors(server: Served) -> None:
    """Of length 1, by default; the older route gives them as they are."""
    reply = server.post("/api/embed", {"model": "tiny", "input": ["a", "b"]}).json
    assert [round(sum(x * x for x in row), 4) for row in reply["embeddings"]] == [1.0, 1.0]
    assert (reply["model"], reply["prompt_eval_count"], reply["load_duration"] > 0) == ("tiny", 4, True)
    short = server.post("/api/embed", {"model": "tiny", "input": "a", "dimensions": 4}).json["embeddings"][0]
    assert (len(short), round(sum(x * x for x in short), 4)) == (4, 1.0)
    old = server.post("/api/embeddings", {"model": "tiny", "prompt": "a"}).json["embedding"]
    length = sum(x * x for x in old) ** 0.5
    assert [x / length for x in old] == pytest.approx(reply["embeddings"][0], abs=1e-5)


def test_nothing_has_no_vector(server: Served) -> None:
    """As in Ollama."""
    nothing: list[dict[str, Any]] = [{"input": ""}, {"input": []}, {}]
    for body in nothing:
        assert server.post("/api/embed", {"model": "tiny", **body}).json == {"model": "tiny", "embeddings": []}
    assert server.post("/api/embeddings", {"model": "tiny", "prompt": ""}).json == {"embedding": []}


def test_a_text_too_long_for_a_vector_is_cut(server: Served) -> None:
    """Or refused."""
    body = {"model": "tiny", "input": "ab" * 400}
    assert server.post("/api/embed", body).json["prompt_eval_count"] == 255
    refused = server.post("/api/embed", {**body, "truncate": False})
    assert (refused.status, refused.json) == (400, {"error": "the input length exceeds the context length"})


def test_a_model_of_vectors_does_not_chat(tmp_path: Path) -> None:
    """It says what it can do."""
    settings = ServerSettings(options=ModelOptions(n_threads=1), n_slots=2)
    served = Served(settings, load_encoder("bert", tmp_path).path)
    try:
        assert served.post("/api/show", {"model": "tiny"}).json["capabilities"] == ["embedding"]
        reply = served.post("/api/chat", {"model": "tiny", "messages": [user("a")]})
        assert (reply.status, reply.json["error"]) == (400, '"tiny" does not support chat')
        assert len(served.post("/api/embed", {"model": "tiny", "input": "hello"}).json["embeddings"]) == 1
    finally:
        served.close()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_clients_see_what_they_look_for_first(server: Served, method: str) -> None:
    """A version, the models, and at the root who is there."""
    assert server.ask(method, "/api/version").status == server.ask(method, "/api/tags").status == 200
    assert server.ask(method, "/", headers={"User-Agent": "ollama/0.5", "Accept": "*/*"}).status == 200
    assert server.get("/api/version").json["version"] >= "0.13"


@pytest.mark.parametrize(("text", "seconds"), [
    ("0", 0.0), ("0s", 0.0), ("5m", 300.0), ("1h30m", 5400.0), ("300ms", 0.3), ("1.5s", 1.5), ("-1m", float("inf")),
])
def test_durations_are_gos(text: str, seconds: float) -> None:
    """A negative one is for ever."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["300", "", "5 m", "m", "1d", "five", "1..5s", "9" * 100 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Also a number without a unit."""
    with pytest.raises(RequestError, match="duration"):
        parse_duration(text)


def test_a_model_stays_as_long_as_the_last_request_wants() -> None:
    """A request that does not say leaves it; one that loads it anew has the server's time."""
    entry = Entry("m", "m.gguf")
    apply_keep_alive(entry, None, 300.0)
    assert entry.keep_s == 300.0
    apply_keep_alive(entry, float("inf"), 300.0)
    assert entry.keep_s is None
    entry.loaded = cast(Any, object())
    apply_keep_alive(entry, None, 300.0)
    assert entry.keep_s is None


def test_defaults_are_ollamas() -> None:
    """Unless the server was started with others."""
    params = default_params(SamplingParams(temperature=0.5))
    assert (params.top_p, params.min_p, params.top_k, params.temperature) == (0.9, 0.0, 40, 0.5)
    assert default_params(SamplingParams(top_p=0.7)).top_p == 0.7


def test_options_are_sampling_parameters() -> None:
    """What is out of range is taken for the nearest value; those of older releases mean nothing."""
    params = with_parameters(SamplingParams(), {
        "seed": -1, "num_predict": -1, "repeat_last_n": -1, "top_p": 1.5, "mirostat": 2, "stop": ["", "x"],
        "presence_penalty": 0.5})
    assert (params.seed, params.max_tokens, params.repeat_last_n, params.top_p) == (None, None, None, 1.0)
    assert (params.mirostat, params.stop, params.presence_penalty) == (0, ("x",), 0.5)


@pytest.mark.parametrize(("n", "text"), [
    (8_000_000_000, "8B"), (3_210_000_000, "3.2B"), (134_515_008, "134.52M"), (67_000, "67K"), (12, "12")])
def test_numbers_of_parameters_are_short(n: int, text: str) -> None:
    """As Ollama writes them."""
    assert parameter_size(n) == text
