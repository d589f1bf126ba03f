"""`ggpy serve`: models by HTTP."""

from __future__ import annotations

import argparse
import os

from ggpy import config, machine
from ggpy.server.options.flag_values import server_settings, source_of
from ggpy.server.options.flags import add_arguments
from ggpy.tools import environment

__all__ = ["add_arguments", "main"]


def main(args: argparse.Namespace) -> int:
    import asyncio

    from ggpy.kernels.cpu.level import current_level
    from ggpy.server.model_pool.discovery import find_entries, given_entry
    from ggpy.server.model_pool.models import check_source
    from ggpy.server.run import serve

    machine.keep_heap_small()
    config.use_llama_cache()
    source = source_of(args) or environment.model()
    settings = server_settings(args)
    current_level()             # a wrong GGPY_CPU is said before anything else happens
    if args.hf_token is not None:
        os.environ["HF_TOKEN"] = args.hf_token
    if source is not None:
        check_source(source, is_offline=settings.is_offline)
    entries = find_entries(settings) if source is None else [given_entry(settings, source)]
    asyncio.run(serve(settings, entries, is_single=source is not None))
    return 0
