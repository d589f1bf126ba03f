"""`ggpy rm`: delete a pulled model and whatever an interrupted pull of it left, or one that a client made."""

from __future__ import annotations

import argparse
import sys

from ggpy.errors import PullError
from ggpy.hub import names
from ggpy.hub.model_names import ModelName
from ggpy.hub.resolve import find_or_raise, made_model, remove
from ggpy.hub.store import ModelStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="NAME", help="names that `ggpy list` shows")


def main(args: argparse.Namespace) -> int:
    for name in filter(names.is_hub_name, args.models):
        repo = names.parse(name).repo
        raise PullError(f"{name} lies in Hugging Face's cache, which other programs use too: "
                        f"`hf cache rm model/{repo}` deletes it")
    made = [model for name in args.models if (model := made_model(name)) is not None]
    pulled = [find_or_raise(name) for name in args.models if made_model(name) is None]
    for model in made:
        ModelStore().delete(ModelName.parse(model.name))
        print(f"deleted {model.name}", file=sys.stderr)
    for entry in pulled:
        what = entry.name if entry.is_present else f"what an interrupted pull of {entry.name} left"
        remove(entry, lambda: print("another ggpy is pulling it; waiting", file=sys.stderr))
        print(f"deleted {what}", file=sys.stderr)
    return 0
