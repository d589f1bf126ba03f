"""The process that vs_llama_cpp.py measures: loads a model and prints one line of JSON per result.

`python bench/engine_process.py first|speed MODEL_PATH N_THREADS`. It imports as little as a user's program would.
"""

import json
import random
import sys
import time

from ggpy import LLM, SamplingParams

N_PROMPT, N_GENERATE, N_FIRST = 512, 64, 32


def tokens(llm: LLM, n: int, seed: int) -> list[int]:
    """A prompt of random tokens; prompts that differ find nothing of each other in a cache."""
    rng = random.Random(seed)
    return [rng.randrange(llm.tokenizer.n_vocab) for _ in range(n)]


def seconds(llm: LLM, prompt: list[int], n_generate: int) -> float:
    """How long it takes to read `prompt` and answer with exactly `n_generate` tokens."""
    params = SamplingParams(temperature=0, max_tokens=n_generate, ignore_eos=True)
    start = time.perf_counter()
    answer = llm.generate(prompt, params)
    elapsed = time.perf_counter() - start
    assert len(answer.tokens) == n_generate
    return elapsed


def main() -> None:
    """Command line."""
    mode, model, n_threads = sys.argv[1:]
    with LLM(model, n_ctx=N_PROMPT + N_GENERATE, n_threads=int(n_threads)) as llm:
        if mode == "first":
            seconds(llm, tokens(llm, N_FIRST, seed=0), 1)
            print("first token", flush=True)
            return
        seconds(llm, tokens(llm, N_PROMPT, seed=0), 1)
        seconds(llm, tokens(llm, 1, seed=1), 8)
        prompt_s = seconds(llm, tokens(llm, N_PROMPT, seed=2), 1)
        # the first step reads the only token of the prompt: as many steps of one token as tokens come out
        generate_s = seconds(llm, tokens(llm, 1, seed=3), N_GENERATE)
    print(json.dumps({"pp512": N_PROMPT / prompt_s, "tg64": N_GENERATE / generate_s}))


if __name__ == "__main__":
    main()
