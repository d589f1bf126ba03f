"""`ggpy warm`: compile a model's kernels ahead of time."""

from __future__ import annotations

import argparse

from ggpy.errors import PullError
from ggpy.hub.catalogue import CATALOGUE
from ggpy.tools import environment
from ggpy.tools.flags import add_model_flags, model_options
from ggpy.tools.parser import Parser


def add_arguments(parser: Parser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL",
                        help="names that `ggpy list` shows, hf:user/repo[:QUANT], or GGUF files; without any, all of "
                        "that list that were pulled. What is compiled is for this kind of processor and these flags")
    add_model_flags(parser)
    parser.variables = environment.MODEL_VARIABLES      # they may choose other kernels


def main(args: argparse.Namespace) -> int:
    from ggpy.backends.cpu.weights import layout_kernels
    from ggpy.gguf import GGUFFile
    from ggpy.kernels.cpu import object_loader
    from ggpy.kernels.cpu.sample_candidates import RARE
    from ggpy.tools.loading import KernelProgress, load

    models = args.models or [entry.name for entry in CATALOGUE if entry.is_present]
    if not models:
        raise PullError("no model has been pulled yet; name one that `ggpy list` shows, or a GGUF file")
    for spec in models:
        model = load(spec, **model_options(args))
        model.close()
        if args.repack == "auto" and args.compute == "int8":
            with KernelProgress(f"the other layout of {spec}") as progress:
                object_loader.addresses(layout_kernels(GGUFFile(model.path)), progress.update)
        print(f"{spec} is ready")
    with KernelProgress("loading rare samplers") as progress:
        object_loader.addresses(RARE, progress.update)        # whatever requests may want
    return 0
