"""Flags of llama.cpp that ggpy takes without doing what they say, so that scripts run, and those that it refuses."""

from __future__ import annotations

import argparse
import sys
from typing import Any

# what ggpy does anyway -> how many values follow
IMPLIED: dict[str, Any] = {
    "--jinja": 0, "-e --escape": 0, "-mli --multiline-input": 0, "--no-display-prompt": 0, "--no-warmup": 0,
    "--perf": 0, "--no-perf": 0, "--mmap": 0, "-fa --flash-attn": "?", "--log-disable": 0, "--log-prefix": 0,
    "--no-log-prefix": 0, "--log-timestamps": 0, "--no-log-timestamps": 0, "--log-colors": "?",
    "--no-context-shift": 0, "--prefill-assistant": 0, "--skip-chat-parsing": 0,
}
# what a user could miss, so it is said that nothing happens
WITHOUT_EFFECT: dict[str, Any] = {
    "--no-jinja": 0, "--warmup": 0, "--no-mmap": 0, "--mlock": 0, "-lm --load-mode": None, "-lzm --lazy-mode": None,
    "-tb --threads-batch": None, "--keep": None, "-C --cpu-mask": None, "-Cr --cpu-range": None, "--cpu-strict": None,
    "--prio": None, "--poll": None, "-Cb --cpu-mask-batch": None, "-Crb --cpu-range-batch": None,
    "--cpu-strict-batch": None, "--prio-batch": None, "--poll-batch": None, "--numa": None,
    "-ngl --gpu-layers --n-gpu-layers": None, "-dev --device": None, "-sm --split-mode": None,
    "-ts --tensor-split": None, "-mg --main-gpu": None, "-fit --fit": None, "-fitt --fit-target": None,
    "-fitc --fit-ctx": None, "-cmoe --cpu-moe": 0, "-ncmoe --n-cpu-moe": None, "-ncffn --n-cpu-ffn": None,
    "-ot --override-tensor": None, "-kvo --kv-offload": 0, "-nkvo --no-kv-offload": 0, "--swa-full": 0,
    "-dt --defrag-thold": None, "-bs --backend-sampling": 0, "--check-tensors": 0, "-lv --verbosity": None,
    "--log-file": None, "--log-jsonl": 0, "--context-shift": 0, "--no-prefill-assistant": 0,
    "--no-skip-chat-parsing": 0, "--reasoning-format": None, "--reasoning-preserve": 0, "--no-reasoning-preserve": 0,
    "-ngld --gpu-layers-draft --n-gpu-layers-draft": None, "-devd --device-draft": None, "-td --threads-draft": None,
    "-tbd --threads-batch-draft": None, "-ctkd --cache-type-k-draft --spec-draft-type-k": None,
    "-ctvd --cache-type-v-draft --spec-draft-type-v": None,
    # how many tokens must match, and are guessed then, follows from how guesses fare
    **{f"--spec-ngram-{name}": None for name in (
        "size-n", "size-m", "min-hits", "simple-size-n", "simple-size-m", "simple-min-hits", "map-k-size-n",
        "map-k-size-m", "map-k-min-hits", "map-k4v-size-n", "map-k4v-size-m", "map-k4v-min-hits", "mod-n-match",
        "mod-n-min", "mod-n-max")},
}
# why -> what would change answers, and must not be ignored
UNSUPPORTED: dict[str, dict[str, Any]] = {
    "ggpy has no control vectors": {"--control-vector": None, "--control-vector-scaled": None,
                                    "--control-vector-layer-range": None},
    "ggpy takes these from the model file": {
        "--override-kv": None, "--rope-scaling": None, "--rope-scale": None, "--rope-freq-base": None,
        "--rope-freq-scale": None, "--yarn-orig-ctx": None, "--yarn-ext-factor": None, "--yarn-attn-factor": None,
        "--yarn-beta-slow": None, "--yarn-beta-fast": None, "-gan --grp-attn-n": None, "-gaw --grp-attn-w": None},
    "ggpy reads and writes text alone": {"-mm --mmproj": None, "-mmu --mmproj-url": None, "--image": None,
                                         "--audio": None, "--video": None},
    "what was read is kept only while ggpy runs": {"--prompt-cache": None, "--prompt-cache-all": 0,
                                                   "--prompt-cache-ro": 0},
    "control tokens are never printed": {"-sp --special": 0},
    "`--chat-template-kwargs '{\"enable_thinking\": false}'` turns the thinking of many models off": {
        "-rea --reasoning": None, "--reasoning-effort": None, "--reasoning-budget": None,
        "--reasoning-budget-message": None},
    "download the file, or use -hf": {"-mu --model-url": None, "-dr --docker-repo": None},
    "`ggpy list` shows the models that are here": {"-cl --cache-list": 0},
    "`ggpy doctor` shows what this machine has": {"--list-devices": 0},
    "ggpy runs models on this machine, by itself": {"--server-base": None, "--rpc": None},
}


def add_llama_flags(parser: argparse.ArgumentParser) -> None:
    """Let `parser` know these flags, but for those that it has already; its help does not show them."""
    parser.add_argument("--log-verbose", dest="verbose", action="store_true", help=argparse.SUPPRESS)
    for flags, nargs in IMPLIED.items():
        _add(parser, flags, _Implied, nargs)
    for flags, nargs in WITHOUT_EFFECT.items():
        _add(parser, flags, _WithoutEffect, nargs)
    for reason, group in UNSUPPORTED.items():
        for flags, nargs in group.items():
            _add(parser, flags, _Unsupported, nargs, reason)


def _add(parser: argparse.ArgumentParser, flags: str, action: type[argparse.Action], nargs: Any,
         const: str | None = None) -> None:
    unknown = [flag for flag in flags.split() if flag not in parser._option_string_actions]
    if not unknown:
        return
    parser.add_argument(*unknown, action=action, nargs=nargs, const=const, dest=argparse.SUPPRESS,
                        choices=("on", "off", "auto") if nargs == "?" else None, help=argparse.SUPPRESS)


class _Implied(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        """Nothing needs to be done."""


class _WithoutEffect(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        print(f"ggpy: {option_string} has no effect", file=sys.stderr)


class _Unsupported(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        parser.error(f"{option_string} is not supported yet ({self.const})")
