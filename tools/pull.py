"""`ggpy pull`: download models by name, and say where they lie."""

from __future__ import annotations

import argparse

from ggpy.hub import huggingface, names, resolve
from ggpy.hub.catalogue import CATALOGUE, CatalogueEntry, find
from ggpy.hub.store import StoredModel
from ggpy.tools.inputs import hub_model
from ggpy.tools.terminal import pull_progress

EXAMPLES = """\
examples:
  ggpy pull smollm2
  ggpy pull hf:unsloth/Qwen3-0.6B-GGUF:Q8_0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(entry.name for entry in CATALOGUE)
    parser.add_argument("models", nargs="*", metavar="NAME",
                        help=f"one or more of {known}, or hf:user/repo[:QUANT] for a model of Hugging Face")
    parser.add_argument("-hf", "-hfr", "--hf-repo", dest="hub_models", action="append", type=hub_model,
                        default=[], metavar="user/repo[:QUANT]", help="a model of Hugging Face (QUANT: "
                        f"{names.DEFAULT_QUANT} if it is there, else the first file); may be repeated")
    parser.add_argument("--offline", action="store_true", help="fetch nothing: only say where the models lie")
    parser.epilog = EXAMPLES
    parser.set_defaults(fail=parser.error)


def main(args: argparse.Namespace) -> int:
    specs = [*args.models, *args.hub_models]
    if not specs:
        args.fail("there is no NAME; `ggpy list` shows the models that have one")
    for model in [wanted(spec) for spec in specs]:
        if isinstance(model, StoredModel):
            print(resolve.made_file(model))
        elif isinstance(model, names.HubModel):
            print(huggingface.pull(model, offline=args.offline, progress=pull_progress))
        elif args.offline:
            print(resolve.present_or_raise(model).path)
        else:
            print(resolve.pull(model, pull_progress))
    return 0


def wanted(spec: str) -> names.HubModel | CatalogueEntry | StoredModel:
    """What is to be fetched for the name `spec`; for one that a client of a server gave that which it was made of, or
    the model itself where that is a file. Raises PullError if there is none."""
    made = resolve.made_model(spec)
    source = spec if made is None else made.source
    if names.is_hub_name(source):
        return names.parse(source)
    if made is not None and find(source) is None:
        return made
    return resolve.find_or_raise(source)
