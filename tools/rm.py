"""`ggpy rm`: delete a pulled model and whatever an interrupted pull of it left, or one that a client made."""

from __future__ import annotations

import argparse
import sys

from ggpy.errors import PullError
from ggpy.hub import names
from ggpy.hub.model_names import ModelName
from ggpy.hub.resolve import find_or_raise, made_model, remove
from ggpy.hub.store import ModelStore, StoredModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="NAME", help="names that `ggpy list` shows")


def main(args: argparse.Namespace) -> int:
    for name in filter(names.is_hub_name, args.models):
        repo = names.parse(name).repo
        raise PullError(f"{name} lies in Hugging Face's cache, which other programs use too: "
                        f"`hf cache rm model/{repo}` deletes it")
    found = [made_model(name) or find_or_raise(name) for name in args.models]
    for model in found:
        what = model.name
        if isinstance(model, StoredModel):
            ModelStore().delete(ModelName.parse(model.name))
        else:
            what = model.name if model.is_present else f"what an interrupted pull of {model.name} left"
            remove(model, lambda: print("another ggpy is pulling it; waiting", file=sys.stderr))
        print(f"deleted {what}", file=sys.stderr)
    return 0
