"""A serving benchmark's target that is an engine of this library, without a server in between."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

from ggpy.engine.async_client import AsyncClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Generate, Progress
from ggpy.engine.process_client import ProcessClient
from ggpy.errors import GgpyError
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions, load_core
from ggpy.text import Tokenizer
from ggpy.tools.bench_serve_targets import COMMON_WORDS, Answer, preemptions_in
from ggpy.tools.loading import KernelProgress
from ggpy.tools.terminal import pull_progress


class Engine:
    """An engine behind `client`, whose model has `tokenizer`.

    Without `ignores_eos` the model ends answers by itself, too.
    """

    lacks: tuple[str, ...] = ()

    def __init__(self, client: AsyncClient, tokenizer: Tokenizer, name: str = "ggpy", *,
                 ignores_eos: bool = True) -> None:
        self.name = name
        self._ignores_eos = ignores_eos
        self._client, self._tokenizer = client, tokenizer

    async def words(self) -> list[int]:
        return list(dict.fromkeys(self._tokenizer.encode(COMMON_WORDS, add_special=False)))

    async def n_ctx(self) -> int | None:
        return self._client.model.n_ctx

    async def n_preempted(self) -> int | None:
        return preemptions_in(await self._client.metrics())

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        answer = Answer() if answer is None else answer
        params = SamplingParams(temperature=0, max_tokens=n_output, ignore_eos=self._ignores_eos)
        try:
            async with aclosing(self._client.generate(Generate(prompt_tokens=prompt, params=params))) as events:
                async for event in events:
                    if event.tokens:
                        answer.arrived(event.tokens, time.perf_counter())
                        answer.n_cached = event.num_cached
        except GgpyError as error:
            answer.problem, answer.message = "failed", str(error)
        return answer


@asynccontextmanager
async def open_engine(model: str, options: ModelOptions, *, ignores_eos: bool = True) -> AsyncIterator[Engine]:
    """The model in a process of its own, pulled if it is absent, with progress on stderr. Raises what LLM does."""
    path = resolve_model(model, progress=pull_progress)
    tokenizer = Tokenizer.from_metadata(GGUFFile(path).metadata)
    with KernelProgress(f"loading {model}") as shown:
        def show(progress: Progress) -> None:
            if progress.stage == "compiling":
                shown.update(progress.name, progress.done, progress.of)

        client = await ProcessClient.start(partial(load_core, path, options), show)
    async with client:
        yield Engine(client, tokenizer, ignores_eos=ignores_eos)
