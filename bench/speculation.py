"""What do guessed tokens bring? Decode speed with and without them, on edits of code and on free chat.

    python bench/speculation.py [MODEL...] [-t THREADS] [-md DRAFT] [--proposers ngram,past,draft]

For each prompt both engines answer in turns, with the same seed; each prompt is used once, so that no engine knows the
answer. An edit is greedy and repeats most of its prompt; a chat is sampled. The answers of both sides must be equal.

Prints a table and one line of JSON.
"""

import argparse
import inspect
import json
import statistics
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.choices import some_of
from bench.environment import commit, machine
from bench.vs_llama_cpp import find_models
from ggpy import LLM, Completion, SamplingParams, SpeculationConfig

N_CTX = 4096
PROPOSERS = SpeculationConfig().proposers
MODULES = ("bisect", "heapq", "reprlib", "shlex", "sched", "fnmatch", "colorsys", "linecache", "keyword", "stat")
LINES = 60              # of a module that is edited
EDITS = (
    "Add a short comment above each function", "Rename every variable called x to value",
    "Put double quotes in place of single ones", "Remove the docstrings", "Add type hints to all parameters",
)
CHATS = (
    "Tell me a story about a lighthouse keeper who finds a letter.", "Why is the sky blue, and sunsets red?",
    "What should I think about before I adopt a dog?", "Explain how vaccines work to a child.",
    "Plan three days in Lisbon for a family.", "What is the difference between a virus and a bacterium?",
    "Write a poem about the first snow.", "How do I learn to cook if I never have?",
    "What made the Roman empire fall?", "Describe a city a thousand years from now.",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One prompt, answered with and without drafts."""

    ratio: float            # tokens a second, with to without
    plain: float            # tokens a second without
    n_generated: int
    n_drafted: int
    n_accepted: int


def code_edits() -> list[str]:
    """Prompts that ask for a part of the standard library again, a little changed."""
    prompts = []
    for i, name in enumerate(MODULES):
        source = "\n".join(inspect.getsource(__import__(name)).splitlines()[:LINES])
        prompts.append(f"{EDITS[i % len(EDITS)]} in this code, and print all of the code again:\n\n```python\n"
                       f"{textwrap.dedent(source)}\n```")
    return prompts


def answer(llm: LLM, prompt: str, params: SamplingParams) -> Completion:
    """The answer to one message."""
    return llm.generate(llm.chat_tokens([{"role": "user", "content": prompt}]), params)


def measure(plain: LLM, drafting: LLM, prompts: list[str], **params: Any) -> list[Result]:
    """Answers each prompt on both sides, which take turns to be first."""
    results = []
    for i, prompt in enumerate(prompts):
        sides = [plain, drafting][:: 1 if i % 2 else -1]
        answers = {id(llm): answer(llm, prompt, SamplingParams(seed=i, **params)) for llm in sides}
        without, with_drafts = answers[id(plain)], answers[id(drafting)]
        if without.tokens != with_drafts.tokens:
            raise SystemExit(f"the answers to {prompt[:40]!r} differ; drafts must not change them")
        timings = with_drafts.timings
        if without.timings.tokens_per_s:
            results.append(Result(timings.tokens_per_s / without.timings.tokens_per_s, without.timings.tokens_per_s,
                                  timings.n_generated, timings.n_drafted, timings.n_accepted))
    return results


def summary(results: list[Result]) -> dict[str, float]:
    """Medians over the prompts, and the part of the drafts that was right."""
    ratios = [result.ratio for result in results]
    n_drafted = sum(result.n_drafted for result in results)
    return {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios),
            "plain": statistics.median(result.plain for result in results),
            "drafted": n_drafted / sum(result.n_generated for result in results),
            "accepted": sum(result.n_accepted for result in results) / max(1, n_drafted)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("-n", "--tokens", type=int, default=400, help="of an answer at most (default 400)")
    parser.add_argument("-p", "--prompts", type=int, default=len(CHATS), help="prompts of each kind (default all)")
    parser.add_argument("-md", "--draft-model", help="a smaller model with the same vocabulary")
    parser.add_argument("--proposers", type=some_of(PROPOSERS), default=list(PROPOSERS), metavar="PROPOSERS",
                        help="who guesses, separated by commas (default: all, draft with -md)")
    args = parser.parse_args()
    print(f"{machine()}, commit {commit()}, {args.threads} threads; decode with drafts to without, median over prompts")
    print(f"{'model':<20} {'workload':<10} {'ratio':>6} {'range':>13} {'tokens/s':>9} {'drafted':>8} {'accepted':>9}")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for model in find_models(args.models, None):
        common: dict[str, Any] = {"n_ctx": N_CTX, "n_threads": args.threads}
        with (LLM(model.path, speculation=SpeculationConfig(proposers=()), **common) as plain,
              LLM(model.path, speculation=SpeculationConfig(proposers=tuple(args.proposers)),
                  draft_model=args.draft_model, **common) as drafting):
            for llm in (plain, drafting):       # samplers are compiled, and weights read, before anything is timed
                for temperature in (0.0, 0.8):
                    answer(llm, "Hello!", SamplingParams(max_tokens=8, temperature=temperature, ignore_eos=True))
            rows[model.name] = {
                "code edit": summary(measure(plain, drafting, code_edits()[: args.prompts], temperature=0,
                                             max_tokens=args.tokens)),
                "free chat": summary(measure(plain, drafting, list(CHATS[: args.prompts]), max_tokens=args.tokens))}
        for name, row in rows[model.name].items():
            print(f"{model.name:<20} {name:<10} {row['ratio']:>6.2f} {row['lowest']:>6.2f}-{row['highest']:<6.2f} "
                  f"{row['plain']:>9.1f} {row['drafted']:>8.2f} {row['accepted']:>9.0%}", flush=True)
    print(json.dumps({"bench": "speculation", "machine": machine(), "commit": commit(), "threads": args.threads,
                      "proposers": args.proposers, "draft_model": args.draft_model,
                      "models": {name: {kind: {key: round(value, 3) for key, value in row.items()}
                                        for kind, row in kinds.items()} for name, kinds in rows.items()}}))


if __name__ == "__main__":
    main()
