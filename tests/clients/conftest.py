"""The official clients, and one server for all of their tests."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import anthropic
import msgspec
import ollama
import openai
import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.messages import Generate, Tokens
from ggpy.loading import ModelOptions
from ggpy.server.settings import ServerSettings
from tests.models.arch_data import load_roomy
from tests.server.conftest import TIMEOUT_S, Served

TEMPLATE = Path(__file__).parents[1] / "data" / "templates" / "qwen3.jinja"     # has tools and thoughts
N_CTX = 8192
KEY = "a-key"


@pytest.fixture(scope="session")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama of 280 tokens, most of them bytes, with room for conversations with tools."""
    return load_roomy(tmp_path_factory.mktemp("clients"), N_CTX)


@pytest.fixture(scope="session")
def served(roomy_model: Path) -> Iterator[Served]:
    """A server that wants a key, on a model called "tiny", greedy unless a request says how."""
    settings = ServerSettings(
        options=ModelOptions(n_ctx=N_CTX, n_threads=1), chat_template=TEMPLATE.read_text(encoding="utf-8"),
        n_slots=4, has_embeddings=True, has_metrics=True, api_keys=frozenset({KEY}),
        sampling_of=lambda _: SamplingParams(temperature=0, max_tokens=512))
    server = Served(settings, roomy_model)
    yield server
    server.close()


@pytest.fixture
def base_url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


@pytest.fixture
def openai_client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY, timeout=TIMEOUT_S, max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(base_url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=base_url, api_key=KEY, timeout=TIMEOUT_S, max_retries=0) as client:
        yield client


@pytest.fixture
def ollama_client(base_url: str) -> ollama.Client:
    return ollama.Client(host=base_url, timeout=TIMEOUT_S, headers={"Authorization": f"Bearer {KEY}"})


@pytest.fixture
def script(served: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the model write given texts, one for each request to come, whatever else constrains its answers.

    It computes all of them itself, token by token, so that counts and caches are what they are; it ends by itself.
    """
    loaded = served.server.models.single.loaded
    assert loaded is not None
    generate, texts = loaded.client.generate, deque[str]()

    async def scripted(request: Generate) -> AsyncGenerator[Tokens, None]:
        if texts:
            grammar = f"root ::= {json.dumps(texts.popleft(), ensure_ascii=False)}"
            request = msgspec.structs.replace(request, constraint=ConstraintSpec("gbnf", grammar))
        async with aclosing(generate(request)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr(loaded.client, "generate", scripted)
    return lambda *answers: texts.extend(answers)
