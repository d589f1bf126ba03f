"""`ggpy show`: what a GGUF file holds, whether or not ggpy can run it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ggpy.errors import PullError
from ggpy.gguf import GGUFFile, Metadata
from ggpy.tools import hub
from ggpy.tools.pull import resolve_model
from ggpy.tools.terminal import print_tables, printable, table

F16_BYTES = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NAME|FILE", help="a model that has been pulled, or a GGUF file")
    parser.add_argument("--json", action="store_true", help="print one JSON object, sizes in bytes")


def main(args: argparse.Namespace) -> int:
    description = describe(GGUFFile(_local_file(args.model)))
    if args.json:
        print(json.dumps(asdict(description)))
    else:
        _print(description)
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
    has_chat_template: bool
    size_bytes: int
    kv_bytes_per_token: int | None      # K and V of all layers in f16
    sliding_window: int | None          # tokens; some or all layers look no further back


def describe(file: GGUFFile) -> Description:
    """Read off the header what a user asks about a model; raises GGUFError when a key has a wrong type."""
    metadata = file.metadata
    architecture = metadata.get_str("general.architecture", None)
    return Description(
        path=str(file.path),
        gguf_version=file.version,
        architecture=architecture,
        name=metadata.get_str("general.name", None),
        parameters=sum(tensor.n_elements for tensor in file.tensors.values()),
        quants=_quant_mix(file),
        n_ctx=metadata.get_int(f"{architecture}.context_length", None),
        n_vocab=_vocabulary_size(metadata, architecture),
        n_layer=metadata.get_int(f"{architecture}.block_count", None),
        n_embd=metadata.get_int(f"{architecture}.embedding_length", None),
        has_chat_template="tokenizer.chat_template" in metadata,
        size_bytes=file.size_bytes,
        kv_bytes_per_token=kv_bytes_per_token(file),
        sliding_window=metadata.get_int(f"{architecture}.attention.sliding_window", None) or None,
    )


def kv_bytes_per_token(file: GGUFFile) -> int | None:
    """Bytes that one token's K and V take in f16 over all layers; None for a model that has no plain attention."""
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
        total += n_head_kv * (k_dim + v_dim) * F16_BYTES
    return total


def _per_layer(metadata: Metadata, key: str, n_layer: int) -> list[int] | None:
    """A value that is one number for all layers or a list of one each; None if it is absent or of another length."""
    if key not in metadata:
        return None
    if isinstance(metadata[key], int):
        return [metadata.get_int(key)] * n_layer
    values = [int(value) for value in metadata.get_list(key)]
    return values if len(values) == n_layer else None


def _vocabulary_size(metadata: Metadata, architecture: str | None) -> int | None:
    if "tokenizer.ggml.tokens" in metadata:
        return len(metadata["tokenizer.ggml.tokens"])
    return metadata.get_int(f"{architecture}.vocab_size", None)


def _quant_mix(file: GGUFFile) -> tuple[QuantShare, ...]:
    counts: dict[str, tuple[int, int]] = {}
    for tensor in file.tensors.values():
        tensors, size_bytes = counts.get(tensor.type.name, (0, 0))
        counts[tensor.type.name] = (tensors + 1, size_bytes + tensor.size_bytes)
    shares = [QuantShare(type=name, tensors=n, size_bytes=size) for name, (n, size) in counts.items()]
    return tuple(sorted(shares, key=lambda share: -share.size_bytes))


def _local_file(spec: str) -> Path:
    """The file of `spec`; unlike `resolve_model`, describing a model is no reason to download it."""
    if hub.is_hub_name(spec) and not Path(spec).is_file():
        path = hub.find_cached(hub.parse(spec))
        if path is None:
            raise PullError(f"{spec} is not on this machine; run `ggpy pull {spec}` first")
        return path
    return resolve_model(spec, offline=True)


def _print(d: Description) -> None:
    summary = table()
    for label, value in (
        ("path", printable(d.path)),
        ("name", printable(d.name) if d.name else "not stated"),
        ("architecture", printable(d.architecture) if d.architecture else "not stated"),
        ("parameters", f"{d.parameters:,}"),
        ("file size", f"{d.size_bytes / 1e6:,.1f} MB, GGUF version {d.gguf_version}"),
        ("layers", _number(d.n_layer)),
        ("embedding", _number(d.n_embd)),
        ("context length", _number(d.n_ctx, " tokens")),
        ("vocabulary", _number(d.n_vocab, " tokens")),
        ("sliding window", _number(d.sliding_window, " tokens") if d.sliding_window else "none"),
        ("KV cache (f16)", _number(d.kv_bytes_per_token, " bytes a token")),
        ("chat template", "yes" if d.has_chat_template else "no"),
    ):
        summary.add_row(label, value)

    mix = table("TYPE", "TENSORS", "MB", "SHARE")
    for column in mix.columns[1:]:
        column.justify = "right"
    total = sum(share.size_bytes for share in d.quants) or 1
    for share in d.quants:
        size, part = f"{share.size_bytes / 1e6:,.1f}", f"{share.size_bytes / total:.1%}"
        mix.add_row(share.type, f"{share.tensors:,}", size, part)
    print_tables(summary, mix)


def _number(value: int | None, unit: str = "") -> str:
    return "not stated" if value is None else f"{value:,}{unit}"
