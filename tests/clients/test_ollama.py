"""The official client of Ollama's API, streaming and not."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import ollama
import pytest

from ggpy import config
from ggpy.engine.config import SamplingParams
from ggpy.loading import ModelOptions
from ggpy.server.settings import ServerSettings
from tests.clients.conftest import KEY, N_CTX, TEMPLATE
from tests.server.conftest import TIMEOUT_S, Served

Script = Callable[..., None]

HELLO = [{"role": "user", "content": "Hello"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}


def weather(city: str, days: int = 1) -> str:
    """Forecast the weather.

    Args:
        city: where
        days: for how many days
    """
    return f"{days} days of rain in {city}"


def chat(client: ollama.Client, *, is_stream: bool, **fields: Any) -> tuple[ollama.Message, ollama.ChatResponse]:
    """The whole message, put together from the parts of a stream, and the last part."""
    fields = {"model": "tiny", "messages": HELLO, **fields}
    if not is_stream:
        reply = client.chat(**fields)
        return reply.message, reply
    parts = list(client.chat(stream=True, **fields))
    message = ollama.Message(
        role="assistant", content="".join(part.message.content or "" for part in parts),
        thinking="".join(part.message.thinking or "" for part in parts) or None,
        tool_calls=[call for part in parts for call in part.message.tool_calls or ()] or None)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    return message, parts[-1]


def generate(client: ollama.Client, *, is_stream: bool, **fields: Any) -> tuple[str, ollama.GenerateResponse]:
    fields = {"model": "tiny", "prompt": "Hello", **fields}
    if not is_stream:
        reply = client.generate(**fields)
        return reply.response or "", reply
    parts = list(client.generate(stream=True, **fields))
    return "".join(part.response or "" for part in parts), parts[-1]


both = pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])


@both
def test_a_chat_is_answered(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """With the counts and times that the client's type has."""
    script("Hi there.")
    message, last = chat(ollama_client, is_stream=is_stream, think=False)
    assert (message.role, message.content, message.thinking, message.tool_calls) == (
        "assistant", "Hi there.", None, None)
    assert (last.model, last.done, last.done_reason) == ("tiny", True, "stop")
    assert all(value and value > 0 for value in (
        last.total_duration, last.load_duration, last.prompt_eval_count, last.prompt_eval_duration, last.eval_count,
        last.eval_duration))
    assert last.created_at is not None
    assert datetime.now(UTC) - datetime.fromisoformat(last.created_at) < timedelta(minutes=1)


@both
def test_thoughts_are_told_apart(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """Whether thinking is asked for or not, since the model thinks."""
    script("<think>\nEasy.\n</think>\n\n4", "<think>\nEasy.\n</think>\n\n4")
    for think in (True, None):
        message, _ = chat(ollama_client, is_stream=is_stream, think=think)
        assert ((message.thinking or "").strip(), message.content) == ("Easy.", "4")


@both
def test_tools_are_called_and_their_results_read(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """Arguments are an object; a call is in one part; what the client echoes is understood."""
    script(f"I look.\n{CALL}\n{CALL}", "Rain.")
    message, last = chat(ollama_client, is_stream=is_stream, tools=[weather], think=False)
    assert message.content is not None
    assert message.content.strip() == "I look."
    assert message.tool_calls is not None
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("weather", {"city": "Oslo", "days": 2})] * 2
    assert last.done_reason == "stop"
    results = [{"role": "tool", "tool_name": call.function.name, "content": weather(**call.function.arguments)}
               for call in message.tool_calls]
    again, _ = chat(ollama_client, is_stream=is_stream, tools=[weather], messages=[*HELLO, message, *results],
                    think=False)
    assert (again.content, again.tool_calls) == ("Rain.", None)


@both
def test_a_call_that_is_cut_off_has_no_arguments(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """It is an object all the same."""
    script('<tool_call>\n{"name": "weather", "arguments": {"city": "Os')
    message, _ = chat(ollama_client, is_stream=is_stream, tools=[weather], think=False)
    calls = message.tool_calls or ()
    assert [call.function.arguments for call in calls] in ([{}], [])


@both
@pytest.mark.parametrize("form", ["json", SCHEMA], ids=["json", "schema"])
def test_an_answer_has_the_format(ollama_client: ollama.Client, is_stream: bool, form: Any) -> None:
    """Of JSON, or of a schema; thoughts are free of it."""
    message, _ = chat(ollama_client, is_stream=is_stream, format=form, think=False, options={"num_predict": 400})
    text, _ = generate(ollama_client, is_stream=is_stream, format=form, think=False, options={"num_predict": 400})
    for found in (json.loads(message.content or ""), json.loads(text)):
        assert isinstance(found, dict)
        assert form == "json" or found in ({"answer": "yes"}, {"answer": "no"})


@both
def test_a_prompt_is_gone_on_with(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """With a context for the next one."""
    script("World", "again")
    text, last = generate(ollama_client, is_stream=is_stream, think=False)
    assert (text, last.done_reason) == ("World", "stop")
    assert last.context is not None
    assert last.prompt_eval_count is not None
    assert last.eval_count is not None
    assert len(last.context) == last.prompt_eval_count + last.eval_count
    text, more = generate(ollama_client, is_stream=is_stream, context=last.context, think=False)
    assert text == "again"
    assert more.prompt_eval_count is not None
    assert more.prompt_eval_count > len(last.context)


@both
def test_thoughts_about_a_prompt_are_told_apart(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """In a field of their own."""
    script("<think>\nHm\n</think>\n\nWell")
    parts = [ollama_client.generate("tiny", "Hello")] if not is_stream else list(
        ollama_client.generate("tiny", "Hello", stream=True))
    assert "".join(part.thinking or "" for part in parts).strip() == "Hm"
    assert "".join(part.response or "" for part in parts) == "Well"


@both
def test_a_raw_prompt_is_read_as_it_stands(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """The answer too."""
    script("<think>x</think>")
    text, last = generate(ollama_client, is_stream=is_stream, raw=True, prompt="abc")
    assert text == "<think>x</think>"
    assert last.context is None


@both
def test_a_gap_is_filled(ollama_client: ollama.Client, script: Script, is_stream: bool) -> None:
    """Between prompt and suffix."""
    script("filled")
    text, last = generate(ollama_client, is_stream=is_stream, prompt="before", suffix="behind")
    assert (text, last.context) == ("filled", None)


@both
def test_options_count(ollama_client: ollama.Client, is_stream: bool) -> None:
    """The client sends all that it knows by name."""
    options = ollama.Options(num_predict=5, temperature=0.0, seed=1, top_k=3, top_p=0.5, typical_p=1.0,
                             repeat_last_n=-1, repeat_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1,
                             num_ctx=1024, stop=["never to be written"], numa=False, mirostat=0, num_keep=2)
    _, last = generate(ollama_client, is_stream=is_stream, options=options)
    assert (last.eval_count, last.done_reason) == (5, "length")


@both
def test_log_probabilities_come_with_tokens(ollama_client: ollama.Client, is_stream: bool) -> None:
    """With the most probable ones."""
    fields: dict[str, Any] = {"raw": True, "logprobs": True, "top_logprobs": 2, "options": {"num_predict": 3}}
    parts = [ollama_client.generate("tiny", "a", **fields)] if not is_stream else list(
        ollama_client.generate("tiny", "a", stream=True, **fields))
    found = [one for part in parts for one in part.logprobs or ()]
    assert len(found) == 3
    assert [len(one.top_logprobs or ()) for one in found] == [2, 2, 2]


def test_texts_have_vectors(ollama_client: ollama.Client) -> None:
    """One, several, and by the older route."""
    one = ollama_client.embed("tiny", "Hello")
    several = ollama_client.embed("tiny", ["Hello", "World"], dimensions=8)
    assert [len(row) for row in several.embeddings] == [8, 8]
    assert several.prompt_eval_count is not None
    assert one.prompt_eval_count is not None
    assert several.prompt_eval_count > one.prompt_eval_count
    assert len(ollama_client.embeddings("tiny", "Hello").embedding) == len(one.embeddings[0])


def test_models_are_listed_and_shown(ollama_client: ollama.Client) -> None:
    """With what the client's types have; the name of the list is taken back."""
    (listed,) = ollama_client.list().models
    assert listed.model == "tiny:latest"
    assert listed.details is not None
    assert (listed.details.format, listed.details.family) == ("gguf", "llama")
    assert isinstance(listed.modified_at, datetime)
    shown = ollama_client.show(listed.model)
    assert shown.capabilities is not None
    assert {*shown.capabilities} >= {"completion", "tools", "thinking"}
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == N_CTX
    assert shown.template == TEMPLATE.read_text(encoding="utf-8")
    (running,) = ollama_client.ps().models
    assert (running.name, running.context_length) == ("tiny:latest", N_CTX)
    assert running.expires_at is not None
    assert running.expires_at > datetime.now(UTC)


def test_a_wrong_request_is_an_error_of_the_client(ollama_client: ollama.Client) -> None:
    """Its text is what the server says."""
    with pytest.raises(ollama.ResponseError, match="temperature") as caught:
        ollama_client.generate("tiny", "a", options={"temperature": "hot"})
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="invalid think value"):
        list(ollama_client.chat("tiny", HELLO, think="very", stream=True))


def test_a_wrong_key_is_told_so(base_url: str) -> None:
    """A server that wants keys wants them of these clients, too."""
    client = ollama.Client(host=base_url, timeout=TIMEOUT_S, headers={"Authorization": "Bearer another"})
    with pytest.raises(ollama.ResponseError, match="Invalid API Key") as caught:
        client.list()
    assert caught.value.status_code == 401


def test_a_stream_is_read_asynchronously_too(base_url: str, script: Script) -> None:
    """Part by part."""
    async def run() -> str:
        client = ollama.AsyncClient(host=base_url, timeout=TIMEOUT_S, headers={"Authorization": f"Bearer {KEY}"})
        parts = await client.chat("tiny", HELLO, think=False, stream=True)
        return "".join([part.message.content or "" async for part in parts])

    script("One two three")
    assert asyncio.run(run()) == "One two three"


@pytest.fixture(scope="module")
def maker(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ollama.Client]:
    """A client of a server of several models, with a store of its own."""
    folder, store = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("store")
    shutil.copy(roomy_model, folder / "base.gguf")
    settings = ServerSettings(options=ModelOptions(n_ctx=1024, n_threads=1), models_dir=folder, n_slots=2,
                              sampling_of=lambda _: SamplingParams(temperature=0, max_tokens=16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "store_dir", lambda: store)
        served = Served(settings, folder / "base.gguf", is_single=False)
        yield ollama.Client(host=f"http://127.0.0.1:{served.port}", timeout=TIMEOUT_S)
        served.close()


@both
def test_a_model_is_made_of_a_file(maker: ollama.Client, roomy_model: Path, is_stream: bool) -> None:
    """Uploaded, made, used, copied and deleted by the client."""
    digest = maker.create_blob(roomy_model)
    fields: dict[str, Any] = {
        "model": "made:v1", "files": {"model.gguf": digest}, "system": "Be kind.", "parameters": {"num_predict": 4},
        "template": "{% for message in messages %}{{ message.content }}\n{% endfor %}"}
    steps = list(maker.create(stream=True, **fields)) if is_stream else [maker.create(**fields)]
    assert steps[-1].status == "success"
    try:
        shown = maker.show("made:v1")
        assert shown.parameters == f"{'num_predict':<30} 4"
        assert shown.modelfile is not None
        assert 'SYSTEM """Be kind."""' in shown.modelfile
        assert maker.generate("made:v1", "Hello").eval_count == 4
        assert maker.copy("made:v1", "twin").status == "success"
        assert {model.model for model in maker.list().models} >= {"made:v1", "twin:latest"}
    finally:
        for name in ("made:v1", "twin"):
            assert maker.delete(name).status == "success"
    assert not {model.model for model in maker.list().models} & {"made:v1", "twin:latest"}


def test_an_unknown_model_is_not_found(maker: ollama.Client) -> None:
    """The client's error has the text that programs look for."""
    for ask in (lambda: maker.show("nothing"), lambda: maker.generate("nothing", "a"),
                lambda: maker.delete("nothing"), lambda: list(maker.chat("nothing", HELLO, stream=True))):
        with pytest.raises(ollama.ResponseError, match="model 'nothing' not found") as caught:
            ask()
        assert caught.value.status_code == 404


@both
def test_a_pull_ends_well_where_the_model_is_here(maker: ollama.Client, is_stream: bool) -> None:
    """And else with an error."""
    steps = list(maker.pull("base", stream=True)) if is_stream else [maker.pull("base")]
    assert steps[-1].status == "success"
    with pytest.raises(ollama.ResponseError, match="file does not exist"):
        list(maker.pull("nothing-like-this", stream=True)) if is_stream else maker.pull("nothing-like-this")


def test_a_model_is_let_go(maker: ollama.Client) -> None:
    """With keep_alive 0, and loaded again by the next request."""
    assert maker.generate("base", "").done_reason == "load"
    assert [model.model for model in maker.ps().models] == ["base:latest"]
    assert maker.generate("base", "", keep_alive=0).done_reason == "unload"
    assert maker.ps().models == []
