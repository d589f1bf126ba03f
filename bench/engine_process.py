"""The process of this engine that a comparison measures: loads a model and prints what it measured as a line of JSON.

`python bench/engine_process.py MODEL_PATH N_THREADS MEASURE...` with some names of MEASURES; the line has tokens a
second by name. It imports as little as a user's program would; tokens are chosen and become text, as for users.
"""

import json
import random
import sys
import time
from collections.abc import Callable

from ggpy import LLM, SamplingParams, SpeculationConfig

N_PROMPT, N_GENERATE, N_FIRST = 512, 64, 32
N_SEQUENCES, N_BATCHED = 8, 32          # tokens that each of the sequences generates
DEPTH, N_DEEP = 4096, 16                # tokens generated after DEPTH ones
SPARE = 64                              # positions that are left over, so that nothing is evicted meanwhile


def tokens(llm: LLM, n: int, seed: int) -> list[int]:
    """A prompt of random tokens; prompts that differ find nothing of each other in a cache."""
    rng = random.Random(seed)
    return [rng.randrange(llm.tokenizer.n_vocab) for _ in range(n)]


def exactly(n_tokens: int) -> SamplingParams:
    """The most probable token each time, until there are `n_tokens`."""
    return SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True)


def seconds(llm: LLM, prompts: list[list[int]], n_generate: int) -> float:
    """How long it takes to read `prompts` and answer each with exactly `n_generate` tokens, all side by side."""
    start = time.perf_counter()
    streams = [llm.stream(prompt, exactly(n_generate)) for prompt in prompts]
    answers = [stream.finish() for stream in streams]
    elapsed = time.perf_counter() - start
    assert all(len(answer.tokens) == n_generate for answer in answers)
    return elapsed


def first(llm: LLM) -> float:
    """Reads N_FIRST tokens and chooses the next one; what counts is when the process says that it has done so."""
    return N_FIRST / seconds(llm, [tokens(llm, N_FIRST, seed=0)], 1)


def prefill(llm: LLM) -> float:
    """Tokens a second of reading N_PROMPT."""
    seconds(llm, [tokens(llm, N_PROMPT, seed=0)], 1)
    return N_PROMPT / seconds(llm, [tokens(llm, N_PROMPT, seed=2)], 1)


def decode(llm: LLM) -> float:
    """Tokens a second of N_GENERATE steps of one token."""
    seconds(llm, [tokens(llm, 1, seed=1)], 8)
    # the first step reads the only token of the prompt: as many steps of one token as tokens come out
    return N_GENERATE / seconds(llm, [tokens(llm, 1, seed=3)], N_GENERATE)


def batch(llm: LLM) -> float:
    """Tokens a second of N_BATCHED steps of N_SEQUENCES tokens, one of each sequence."""
    seconds(llm, [tokens(llm, 1, seed=10 + i) for i in range(N_SEQUENCES)], 4)
    prompts = [tokens(llm, 1, seed=20 + i) for i in range(N_SEQUENCES)]
    return N_SEQUENCES * N_BATCHED / seconds(llm, prompts, N_BATCHED)


def depth(llm: LLM) -> float:
    """Tokens a second of N_DEEP steps of one token after DEPTH tokens, which were read before."""
    prompt = tokens(llm, DEPTH, seed=4)
    llm.generate(prompt, exactly(1))
    start = time.perf_counter()
    answer = llm.generate([*prompt, *tokens(llm, 1, seed=5)], exactly(N_DEEP))
    elapsed = time.perf_counter() - start
    assert (answer.n_cached, len(answer.tokens)) == (DEPTH, N_DEEP), answer.n_cached
    return N_DEEP / elapsed


MEASURES: dict[str, tuple[Callable[[LLM], float], int]] = {     # and the tokens that it needs room for
    "first": (first, N_FIRST), "prefill": (prefill, N_PROMPT), "decode": (decode, N_GENERATE),
    "batch": (batch, N_SEQUENCES * (N_BATCHED + SPARE)), "depth": (depth, DEPTH + N_DEEP + SPARE)}


def main() -> None:
    """Command line."""
    model, n_threads, *names = sys.argv[1:]
    n_ctx = max(MEASURES[name][1] for name in names) + SPARE
    # a step for each token: guessed ones would come for nothing where answers repeat themselves, as these do
    no_drafts = SpeculationConfig(proposers=())
    with LLM(model, n_ctx=n_ctx, n_threads=int(n_threads), speculation=no_drafts) as llm:
        results = {name: MEASURES[name][0](llm) for name in names}
        print(json.dumps(results), flush=True)      # before the model is freed: a first token is timed by this line


if __name__ == "__main__":
    main()
