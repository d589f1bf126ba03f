"""What a server reuses of an agent's prompts: a session of 30 steps through the official clients, step by step.

`python bench/agent_replay.py [MODEL] [--api openai,anthropic] [--template FILE]`: a catalogue name or a path,
qwen2.5-coder:0.5b by default. The model answers by itself, calls of tools by the grammar of their schemas.

A row has the tokens of the prompt, the longest beginning that it truly has in common with what was read and written
before, how much of it was reused, and why it was no more. The same as one line of JSON for each API behind the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import anthropic
import openai

from bench.agent_session import Agent, AnthropicAgent, OpenAIAgent, Recorder, Replay, replay, session
from bench.choices import some_of
from bench.environment import commit, machine
from ggpy.engine.config import SamplingParams
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions
from ggpy.server.settings import ServerSettings
from tests.server.conftest import Served

MODEL = "qwen2.5-coder:0.5b"
APIS = ("openai", "anthropic")
N_CTX = 16384
TIMEOUT_S = 600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Play the session with each API and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--api", type=some_of(APIS), default=list(APIS), metavar="APIS",
                        help="openai, anthropic or both (default)")
    parser.add_argument("--template", type=Path, metavar="FILE", help="a chat template in place of the model's")
    args = parser.parse_args(argv)
    template = None if args.template is None else args.template.read_text(encoding="utf-8")
    settings = ServerSettings(options=ModelOptions(n_ctx=N_CTX), chat_template=template, n_slots=1,
                              sampling_of=lambda _: SamplingParams(temperature=0))
    served = Served(settings, resolve_model(args.model))
    try:
        for name in args.api:
            found = play(served, name)
            print(found.table(), flush=True)
            print(json.dumps({"benchmark": "agent_replay", "model": args.model, "api": name, "share": found.share,
                              "commit": commit(), "machine": machine(), "rows": [asdict(row) for row in found.rows]}))
    finally:
        served.close()
    return 0


def play(served: Served, name: str) -> Replay:
    """The session through the client called `name`, one of APIS."""
    loaded = served.server.models.single.loaded
    assert loaded is not None
    recorder, generate = Recorder(loaded), loaded.client.generate
    loaded.client.generate = recorder.wrapped(generate)     # type: ignore[assignment]
    try:
        return replay(agent_called(name, f"http://127.0.0.1:{served.port}"), recorder, session())
    finally:
        loaded.client.generate = generate                   # type: ignore[method-assign]


def agent_called(name: str, url: str) -> Agent:
    if name == "openai":
        return OpenAIAgent(openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=TIMEOUT_S), "model")
    return AnthropicAgent(anthropic.Anthropic(base_url=url, api_key="none", timeout=TIMEOUT_S), "model")


if __name__ == "__main__":
    sys.exit(main())
