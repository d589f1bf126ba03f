"""Flags of llama-server that `ggpy serve` takes so that scripts run, without doing what they say."""

from __future__ import annotations

import argparse
import sys
from typing import Any

# what is so anyway, or cannot be missed -> how many values follow
IGNORED: dict[str, Any] = {
    "--threads-http": None, "-cb --cont-batching": 0, "--cache-reuse": None, "-cram --cache-ram": None,
    "--cache-idle-slots": 0, "--no-cache-idle-slots": 0, "-ctxcp --ctx-checkpoints --swa-checkpoints": None,
    "-cms --checkpoint-min-step": None, "--kv-unified-per-slot": None, "--ui-config --webui-config": None,
    "--ui-config-file --webui-config-file": None, "--no-mmproj --no-mmproj-auto": 0, "--mmproj-auto": 0,
    "--mmproj-offload": 0, "--no-mmproj-offload": 0,
}
# flag -> why nothing happens, which is said
WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    "-nocb --no-cont-batching": (0, "requests always share steps"),
    "--log-prompts-dir": (None, "prompts are not logged"),
    "-lcs --lookup-cache-static": (None, "what guesses is learnt as it runs"),
    "-lcd --lookup-cache-dynamic": (None, "what guesses is learnt as it runs"),
    **dict.fromkeys(("-mm --mmproj", "-mmu --mmproj-url", "--media-path", "--image-min-tokens", "--image-max-tokens"),
                    (None, "models read text alone")),
}
# these run what a model says on this machine, or reach other servers for a page: no such thing is here
AGENT: dict[str, Any] = {
    "--tools": None, "--agent": 0, "--mcp-servers-config": None, "--mcp-servers-json": None, "--ui-mcp-proxy": 0,
    "--webui-mcp-proxy": 0,
}


def add_idle_flags(parser: argparse.ArgumentParser) -> None:
    """Let `parser` know them; its help does not show them.

    `has_agent_flags` says whether there was one of those that make llama-server stricter about origins.
    """
    parser.set_defaults(has_agent_flags=False)
    for flags, nargs in IGNORED.items():
        parser.add_argument(*flags.split(), dest=argparse.SUPPRESS, action=_Ignored, nargs=nargs,
                            help=argparse.SUPPRESS)
    for flags, (nargs, reason) in WITHOUT_EFFECT.items():
        parser.add_argument(*flags.split(), dest=argparse.SUPPRESS, action=_WithoutEffect, nargs=nargs, const=reason,
                            help=argparse.SUPPRESS)
    for flags, nargs in AGENT.items():
        parser.add_argument(*flags.split(), dest=argparse.SUPPRESS, action=_Agent, nargs=nargs, help=argparse.SUPPRESS)


class _Ignored(argparse.Action):
    """Nothing needs to be done."""

    def __call__(self, *_: object, **__: object) -> None:
        pass


class _WithoutEffect(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        print(f"ggpy: {option_string} has no effect: {self.const}", file=sys.stderr)


class _Agent(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        namespace.has_agent_flags = True
        print(f"ggpy: {option_string} has no effect: ggpy has no tools of its own, and no MCP", file=sys.stderr)
