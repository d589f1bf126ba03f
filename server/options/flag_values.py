"""What the flags of `ggpy serve` mean: the settings of the server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from ggpy import config
from ggpy.gguf import Metadata
from ggpy.hub import names
from ggpy.loading import ModelOptions
from ggpy.server.options import ollama_variables
from ggpy.server.settings import DEFAULT_PORT, DEFAULT_SLOTS, ServerSettings
from ggpy.server.web.origins import ANY, LOCAL
from ggpy.tools.constraint_flags import read_constraint
from ggpy.tools.flags import model_options, sampling_params, unescape
from ggpy.tools.speculation_flags import speculation_options


def source_of(args: argparse.Namespace) -> str | None:
    """The model that is to be served; None: any that requests name. Ends the process with 2 where there are two."""
    given = [source for source in (args.model, args.model_flag, args.hub_model) if source]
    if len(given) > 1:
        args.fail(f"there are two models, {given[0]} and {given[1]}; give one")
    if args.hf_file and not args.hub_model:
        args.fail("-hff needs -hf, the repository that the file is in")
    if not given:
        return None
    if args.hf_file:
        return f"{names.PREFIX}{names.parse(given[0]).repo}:{args.hf_file}"
    return str(given[0])


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """What the flags mean. Ends the process with 2 where they do not fit together; raises ConfigError."""
    if bool(args.ssl_key_file) != bool(args.ssl_cert_file):
        args.fail("--ssl-key-file and --ssl-cert-file are needed together")
    vertex = config.vertex()
    options = {**model_options(args), **speculation_options(args), "shows_special": args.special}
    if args.ollama and not args.ctx_size and (n_ctx := ollama_variables.n_ctx()):
        options |= {"n_ctx": n_ctx, "pool_tokens": options["pool_tokens"] and max(n_ctx, options["pool_tokens"])}
    return ServerSettings(
        hosts=args.host or (ollama_variables.address()[0] if args.ollama else "127.0.0.1",),
        port=port_of(args) if vertex is None else vertex.port, is_ollama=args.ollama,
        reuse_port=args.reuse_port, api_prefix=args.api_prefix.rstrip("/"),
        predict_path=None if vertex is None else vertex.predict_path,
        health_path=None if vertex is None else vertex.health_path,
        ssl_files=(args.ssl_cert_file, args.ssl_key_file) if args.ssl_key_file else None,
        api_keys=api_keys(args), allowed_hosts=frozenset(name.lower() for name in args.allowed_hosts),
        cors_origins=args.cors_origins or origins_of(args),
        timeout_s=args.timeout,
        cors_methods=args.cors_methods, cors_headers=args.cors_headers,
        cors_credentials=args.cors_credentials, max_body_bytes=args.max_body_size << 20, drain_s=args.drain_seconds,
        sse_ping_s=args.sse_ping_interval, n_slots=DEFAULT_SLOTS if args.parallel < 1 else args.parallel,
        slot_similarity=args.slot_prompt_similarity,
        is_unified=args.parallel < 1 if args.kv_unified is None else args.kv_unified,
        aliases=args.alias, tags=args.tags, has_ui=args.ui, static_path=args.path, has_slots=args.slots,
        has_metrics=args.metrics, has_props=args.props, has_embeddings=args.embedding or args.reranking,
        has_reranking=args.reranking, pooling="rank" if args.reranking else args.pooling,
        embd_normalize=args.embd_normalize, n_batch=args.batch_size, slot_save_path=args.slot_save_path,
        record_path=args.record,
        is_offline=args.offline, models_dir=args.models_dir, models_preset=args.models_preset, argv=args.argv,
        models_max=args.models_max, autoload=args.models_autoload,
        fake_delay_s=config.fake_delay_s(),
        sleep_idle_s=idle_s(args),
        options=ModelOptions(**options), sampling_of=partial(_sampling, args), constraint=read_constraint(args),
        has_context_shift=args.context_shift, n_keep=args.keep, cache_prompt=args.cache_prompt,
        chat_template=args.chat_template,
        chat_template_kwargs=template_variables(args), parses_chats=not args.skip_chat_parsing,
        uses_jinja=args.jinja, reasoning_format=args.reasoning_format,
        reasoning=args.reasoning, reasoning_budget=args.reasoning_budget,
        reasoning_budget_message=args.reasoning_budget_message, prefill_assistant=args.prefill_assistant,
        is_spm_infill=args.spm_infill, is_verbose=args.verbose)


def idle_s(args: argparse.Namespace) -> float | None:
    """After how long without requests a model goes; None: never."""
    if args.sleep_idle_seconds is None:
        return ollama_variables.keep_s() if args.ollama else None
    return args.sleep_idle_seconds if args.sleep_idle_seconds > 0 else None


def port_of(args: argparse.Namespace) -> int:
    if args.port is not None:
        return int(args.port)
    return ollama_variables.address()[1] if args.ollama else DEFAULT_PORT


def origins_of(args: argparse.Namespace) -> str:
    """The rule of --cors-origins where it is not given."""
    if args.ollama:
        return ollama_variables.origins()
    return LOCAL if args.has_agent_flags else ANY


def _sampling(args: argparse.Namespace, metadata: Metadata) -> Any:
    stop = [*map(unescape, args.stop)] if args.stop and args.unescapes else args.stop
    return sampling_params(argparse.Namespace(**{**vars(args), "stop": stop}), metadata)


def template_variables(args: argparse.Namespace) -> dict[str, Any]:
    """What templates are told by default; those that keep reasoning have different names for it."""
    drops = not args.reasoning_preserve
    variables: dict[str, Any] = {"preserve_thinking": not drops, "clear_thinking": drops,
                                 "truncate_history_thinking": drops, "drop_thinking": drops}
    if args.reasoning_effort not in (None, "default"):
        variables["reasoning_effort"] = args.reasoning_effort
    return {**variables, **args.chat_template_kwargs}


def api_keys(args: argparse.Namespace) -> frozenset[str]:
    """From flag, file and variable."""
    lines = [line.strip() for line in (args.api_key_file or "").splitlines()]
    keys: Sequence[str] = [*args.api_key, *(line for line in lines if line and not line.startswith("#")),
                           *config.api_keys()]
    return frozenset(keys)
