"""`ggpy show`: what a GGUF file holds, whether or not ggpy can run it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from ggpy.backends.base import KVType, kv_bytes
from ggpy.errors import GGUFError, PullError, TemplateError, printable
from ggpy.formats.kv import QUANT_BLOCK
from ggpy.gguf import GGUFFile, Metadata, StringArray
from ggpy.hub import huggingface, names
from ggpy.hub.resolve import Resolved, resolve
from ggpy.hub.store import StoredModel
from ggpy.made import load_options
from ggpy.text import file_templates
from ggpy.tools.forecast import Forecast, forecast
from ggpy.tools.made_rows import modelfile_rows
from ggpy.tools.terminal import print_tables, table

CHAT_TEMPLATE = "tokenizer.chat_template"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="NAME|FILE", help="a model that has been pulled (a name that "
                        "`ggpy list` shows, or hf:user/repo[:QUANT]), or a GGUF file")
    parser.add_argument("-hf", "-hfr", "--hf-repo", dest="hub_model", type=names.hub_name,
                        metavar="user/repo[:QUANT]", help="a model of Hugging Face that has been pulled")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object, sizes in bytes")
    output.add_argument("--template", action="store_true", help="print the chat template alone")
    parser.set_defaults(fail=parser.error)


def main(args: argparse.Namespace) -> int:
    if (args.model is None) == (args.hub_model is None):
        args.fail("give one model: NAME, FILE or -hf")
    spec = args.hub_model if args.model is None else args.model
    found = _local(spec)
    file, made = GGUFFile(found.path), found.made
    if args.template:
        print_template(file, None if made is None else made.template)
        return 0
    description = describe(file, made)
    if args.json:
        print(json.dumps(asdict(description)))
    else:
        _print(description, made)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantShare:
    """The tensors of one type."""

    type: str
    tensors: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A model file in short; None where the file does not say."""

    path: str
    gguf_version: int
    architecture: str | None
    name: str | None
    parameters: int
    quants: tuple[QuantShare, ...]      # the largest share first
    n_ctx: int | None
    n_vocab: int | None
    n_layer: int | None
    n_embd: int | None
    tokenizer: str | None               # kind of vocabulary, and how text is split before it
    license: str | None
    has_chat_template: bool
    size_bytes: int
    kv_bytes_per_token: int | None      # K and V of all layers in f16
    kv_q8_0_bytes_per_token: int | None     # None also if the heads are no whole blocks
    sliding_window: int | None          # tokens; some or all layers look no further back
    memory: Forecast
    unsupported: str | None             # why ggpy cannot compute the model; None: it can
    made: dict[str, Any] | None         # what the maker of a model said who gave it a name of its own


def describe(file: GGUFFile, made: StoredModel | None = None) -> Description:
    """Read off the header what a user asks about a model; raises GGUFError when a key has a wrong type.

    Memory is forecast for the context that `made`, what its maker said, gives it, if that is less than the file's.
    """
    metadata = file.metadata
    architecture = metadata.get_str("general.architecture", None)
    n_ctx = metadata.get_int(f"{architecture}.context_length", None)
    per_token = kv_bytes_per_token(file)
    memory, unsupported = forecast(file, _smaller_n_ctx(n_ctx, made), per_token)
    return Description(
        path=str(file.path),
        gguf_version=file.version,
        architecture=architecture,
        name=metadata.get_str("general.name", None),
        parameters=sum(tensor.n_elements for tensor in file.tensors.values()),
        quants=_quant_mix(file),
        n_ctx=n_ctx,
        n_vocab=_vocabulary_size(metadata, architecture),
        n_layer=metadata.get_int(f"{architecture}.block_count", None),
        n_embd=metadata.get_int(f"{architecture}.embedding_length", None),
        tokenizer=_tokenizer(metadata),
        license=metadata.get_str("general.license", None),
        has_chat_template="default" in file_templates(metadata) or (made is not None and made.template is not None),
        size_bytes=file.size_bytes,
        kv_bytes_per_token=per_token,
        kv_q8_0_bytes_per_token=kv_bytes_per_token(file, "q8_0"),
        sliding_window=metadata.get_int(f"{architecture}.attention.sliding_window", None) or None,
        memory=memory,
        unsupported=unsupported,
        made=None if made is None else msgspec.to_builtins(made),
    )


def _smaller_n_ctx(n_ctx: int | None, made: StoredModel | None) -> int | None:
    """`n_ctx`, or what the model's maker gave it if that is less."""
    own = None if made is None else load_options(made).get("n_ctx")
    return min(n_ctx, own) if n_ctx and own else own or n_ctx


def print_template(file: GGUFFile, template: str | None = None) -> None:
    """Print the chat template, `template` in place of the file's; raises TemplateError when there is none."""
    template = template or file_templates(file.metadata).get("default")
    if template is None:
        raise TemplateError(f"{file.path}: there is no chat template (key {CHAT_TEMPLATE}); messages are written as "
                            "ChatML")
    if sys.stdout.isatty():         # the file may hold escape sequences
        template = "\n".join(printable(line.replace("\t", "    ")) for line in template.split("\n"))
    print(template)


def kv_bytes_per_token(file: GGUFFile, kind: KVType = "f16") -> int | None:
    """Bytes that one token's K and V take over all layers; None for a model that has no plain attention or cannot keep
    them so."""
    metadata = file.metadata
    architecture = metadata.get_str("general.architecture", None)
    n_layer = metadata.get_int(f"{architecture}.block_count", 0)
    compressed = f"{architecture}.attention.kv_lora_rank" in metadata      # MLA stores something smaller than K and V
    if compressed or not 0 < n_layer <= len(file.tensors):                 # every layer has a tensor at least
        return None
    heads = _per_layer(metadata, f"{architecture}.attention.head_count", n_layer)
    heads_kv = _per_layer(metadata, f"{architecture}.attention.head_count_kv", n_layer) or heads
    n_embd = metadata.get_int(f"{architecture}.embedding_length", None)
    if heads is None or heads_kv is None or n_embd is None:
        return None
    total = 0
    for n_head, n_head_kv in zip(heads, heads_kv, strict=True):
        head_dim = n_embd // n_head if n_head else 0
        k_dim = metadata.get_int(f"{architecture}.attention.key_length", head_dim)
        v_dim = metadata.get_int(f"{architecture}.attention.value_length", head_dim)
        if kind == "q8_0" and (k_dim % QUANT_BLOCK or v_dim % QUANT_BLOCK):
            return None
        total += kv_bytes(n_head_kv * (k_dim + v_dim), kind)
    return total


def _per_layer(metadata: Metadata, key: str, n_layer: int) -> list[int] | None:
    """A value that is one number for all layers or a list of one each; None if it is absent or of another length."""
    if key not in metadata:
        return None
    if isinstance(metadata[key], int):
        return [metadata.get_int(key)] * n_layer
    values = metadata.get_list(key)
    if not all(type(value) is int for value in values):
        raise GGUFError(f"{metadata.path}: key {key!r}: found {values!s:.60}, expected an array of integers")
    return values if len(values) == n_layer else None


def _tokenizer(metadata: Metadata) -> str | None:
    kinds = [metadata.get_str(f"tokenizer.ggml.{key}", None) for key in ("model", "pre")]
    return ", ".join(kind for kind in kinds if kind) or None


def _vocabulary_size(metadata: Metadata, architecture: str | None) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray):         # all that is needed is its length, so nothing is decoded
        return len(tokens)
    if tokens is not None:
        return len(metadata.get_list("tokenizer.ggml.tokens"))
    return metadata.get_int(f"{architecture}.vocab_size", None)


def _quant_mix(file: GGUFFile) -> tuple[QuantShare, ...]:
    counts: dict[str, tuple[int, int]] = {}
    for tensor in file.tensors.values():
        tensors, size_bytes = counts.get(tensor.type.name, (0, 0))
        counts[tensor.type.name] = (tensors + 1, size_bytes + tensor.size_bytes)
    shares = [QuantShare(type=name, tensors=n, size_bytes=size) for name, (n, size) in counts.items()]
    return tuple(sorted(shares, key=lambda share: -share.size_bytes))


def _local(spec: str) -> Resolved:
    """What `spec` is; unlike running a model, describing it is no reason to download it."""
    if names.is_hub_name(spec) and not Path(spec).is_file():
        path = huggingface.find_cached(names.parse(spec))
        if path is None:
            raise PullError(f"{spec} is not on this machine; run `ggpy pull {spec}` first")
        return Resolved(path)
    return resolve(spec, offline=True)


def _print(d: Description, made: StoredModel | None) -> None:
    n_ctx, n_ctx_made = _number(d.n_ctx, " tokens"), _smaller_n_ctx(d.n_ctx, made)
    if n_ctx_made != d.n_ctx:
        n_ctx += f", but num_ctx is {n_ctx_made:,}"
    summary = table()
    for label, value in (
        ("path", printable(d.path)),
        ("name", printable(d.name) if d.name else "not stated"),
        ("architecture", printable(d.architecture) if d.architecture else "not stated"),
        ("parameters", f"{d.parameters:,}"),
        ("file size", f"{d.size_bytes / 1e6:,.1f} MB, GGUF version {d.gguf_version}"),
        ("layers", _number(d.n_layer)),
        ("embedding", _number(d.n_embd)),
        ("context length", n_ctx),
        ("vocabulary", _number(d.n_vocab, " tokens")),
        ("tokenizer", printable(d.tokenizer) if d.tokenizer else "not stated"),
        ("sliding window", _number(d.sliding_window, " tokens") if d.sliding_window else "none"),
        ("KV cache, f16", _number(d.kv_bytes_per_token, " bytes a token")),
        ("KV cache, q8_0", _number(d.kv_q8_0_bytes_per_token, " bytes a token", absent="not possible")),
        ("chat template", "yes; --template prints it" if d.has_chat_template else "no"),
        ("license", printable(d.license) if d.license else "not stated"),
        ("supported", printable(f"no: {d.unsupported}") if d.unsupported else "yes"),
    ):
        summary.add_row(label, value)

    mix = table("TYPE", "TENSORS", "MB", "SHARE")
    for column in mix.columns[1:]:
        column.justify = "right"
    total = sum(share.size_bytes for share in d.quants) or 1
    for share in d.quants:
        size, part = f"{share.size_bytes / 1e6:,.1f}", f"{share.size_bytes / total:.1%}"
        mix.add_row(share.type, f"{share.tensors:,}", size, part)
    print_tables(summary, *([] if made is None else [_maker_table(made)]), mix, _memory_table(d.memory))


def _maker_table(made: StoredModel) -> Table:
    rows = table("SAID BY ITS MAKER", "")
    for name, text in modelfile_rows(made):
        rows.add_row(name, text)
    return rows


def _memory_table(memory: Forecast) -> Table:
    rows = table("MEMORY IN MB" if memory.is_exact else "MEMORY IN MB, ROUGHLY", "PACKED", "--repack off")
    for column in rows.columns[1:]:
        column.justify = "right"
    rows.add_row("weights", _megabytes(memory.weights_packed_bytes), _megabytes(memory.weights_mapped_bytes))
    rows.add_row("activations", *[_megabytes(memory.activations_bytes)] * 2)
    for context in memory.contexts:
        tokens = f"{context.n_ctx:,} tokens"
        rows.add_row(f"KV cache, {tokens}", *[_megabytes(context.kv_bytes)] * 2)
        rows.add_row(f"all, {tokens}", _megabytes(context.total_packed_bytes), _megabytes(context.total_mapped_bytes))
    return rows


def _megabytes(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else f"{size_bytes / 1e6:,.1f}"


def _number(value: int | None, unit: str = "", absent: str = "not stated") -> str:
    return absent if value is None else f"{value:,}{unit}"
