"""`ggpy warm`: compile a model's kernels ahead of time."""

from __future__ import annotations

import argparse

from ggpy.tools.flags import add_model_flags, model_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="names that `ggpy list` shows, or GGUF files")
    add_model_flags(parser)


def main(args: argparse.Namespace) -> int:
    from ggpy.tools.loading import load

    for spec in args.models:
        load(spec, **model_options(args)).close()
        print(f"{spec} is ready")
    return 0
