"""What a model's file tells clients of Ollama, without loading it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ggpy.errors import TemplateError
from ggpy.gguf import GGUFFile, Metadata, StringArray
from ggpy.server.model_pool.models import Entry, info_of_file
from ggpy.server.ollama.names import model_file
from ggpy.server.settings import ServerSettings
from ggpy.text import ChatTemplate, file_templates
from ggpy.text.builtin_templates import jinja_source
from ggpy.text.special_ids import knows_infill
from ggpy.text.tool_calls import detect

MAX_CARDS = 256
SHORT_ARRAY = 16        # longer arrays are left out unless they are asked for
HIDDEN = frozenset({"general.name", "tokenizer.chat_template"})
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}


@dataclass(frozen=True, slots=True)
class Card:
    """A model in short."""

    path: Path
    size_bytes: int                 # of its files
    modified_s: float               # seconds since 1970
    digest: str                     # 64 hexadecimal digits, other ones for another file
    template: str                   # Jinja source; "" if it has none
    family: str
    n_params: int
    quantization: str
    n_ctx: int
    n_embd: int
    capabilities: tuple[str, ...]

    @property
    def details(self) -> dict[str, Any]:
        """As every list has them."""
        return {"parent_model": "", "format": "gguf", "family": self.family, "families": [self.family],
                "parameter_size": parameter_size(self.n_params), "quantization_level": self.quantization,
                "context_length": self.n_ctx, "embedding_length": self.n_embd}


def card_of(entry: Entry, settings: ServerSettings) -> Card:
    """That of a model; read again when its file has changed. Raises PullError if it is not here, and GGUFError."""
    path = model_file(entry)
    stat = path.stat()
    return _card(path, stat.st_mtime_ns, stat.st_size, (entry.settings or settings).chat_template)


@lru_cache(MAX_CARDS)
def _card(path: Path, modified_ns: int, size: int, chat_template: str | None) -> Card:
    gguf = GGUFFile(path)
    metadata, info = gguf.metadata, info_of_file(gguf)
    architecture = info.architecture
    template = template_of(metadata, chat_template)
    return Card(
        path=path, size_bytes=gguf.size_bytes, modified_s=modified_ns / 1e9,
        digest=hashlib.sha256(gguf.fingerprint.encode()).hexdigest(), template=template, family=architecture,
        n_params=info.n_params, quantization=FILE_TYPES.get(metadata.get_int("general.file_type", -1), info.file_type),
        n_ctx=info.n_ctx_train, n_embd=metadata.get_int(f"{architecture}.embedding_length", 0),
        capabilities=tuple(capabilities(metadata, architecture, template)))


def template_of(metadata: Metadata, chat_template: str | None) -> str:
    """The Jinja source that conversations are written by; "" if there is none."""
    if chat_template is not None:
        return jinja_source(chat_template) or chat_template
    try:
        return file_templates(metadata).get("default", "")
    except TemplateError:
        return ""


def capabilities(metadata: Metadata, architecture: str, template: str) -> list[str]:
    """What the model can do, in Ollama's words."""
    if f"{architecture}.pooling_type" in metadata:
        return ["embedding"]
    found = ["completion"]
    if template:
        try:
            compiled = ChatTemplate(template, variants=None, bos_token="", eos_token="")
            if compiled.capabilities.tools:
                found.append("tools")
            if detect(compiled).has_reasoning:
                found.append("thinking")
        except TemplateError:
            pass                # what does not compile writes neither
    if knows_infill(metadata):
        found.append("insert")
    return found


def parameter_size(n: int) -> str:
    """A number of parameters as Ollama writes it: 8B, 3.2B, 134.52M."""
    if n >= 1e9:
        return f"{n / 1e9:.1f}".removesuffix(".0") + "B"
    if n >= 1e6:
        return f"{n / 1e6:.2f}M"
    return f"{n / 1e3:.0f}K" if n >= 1e3 else str(n)


def model_info(path: Path, *, has_arrays: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The metadata in the file at `path` and its tensors; long arrays are empty unless `has_arrays`."""
    gguf = GGUFFile(path)
    info = {key: plain(value, has_arrays=has_arrays) for key, value in gguf.metadata.items() if key not in HIDDEN}
    info["general.parameter_count"] = sum(tensor.n_elements for tensor in gguf.tensors.values())
    tensors = [{"name": plain(tensor.name, has_arrays=True), "type": tensor.type.name,
                "shape": list(reversed(tensor.shape))} for tensor in gguf.tensors.values()]
    return dict(sorted(info.items())), tensors


def plain(value: Any, *, has_arrays: bool) -> Any:
    """A value of the metadata as JSON can have it."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, np.ndarray | StringArray | list):
        if len(value) > SHORT_ARRAY and not has_arrays:
            return []
        items = value.tolist() if isinstance(value, np.ndarray | StringArray) else value
        return [plain(item, has_arrays=has_arrays) for item in items]
    return value


def rfc3339(seconds: float) -> str:
    """A time since 1970 as JSON has it."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parameter_text(lines: list[tuple[str, str]]) -> str:
    """Parameters as /api/show has them."""
    return "\n".join(f"{name:<30} {value}" for name, value in lines)


def modelfile_text(parts: Mapping[str, Any]) -> str:
    """The Modelfile that makes a model from `parts`, which has what the instructions are called."""
    lines = ['# Modelfile generated by "ollama show"', "# To build a new one, replace FROM with a name:",
             f"# FROM {parts['name']}", "", f"FROM {parts['from']}"]
    lines += [f"ADAPTER {adapter}" for adapter in parts["adapters"]]
    lines += [f'{word} """{parts[word.lower()]}"""' for word in ("TEMPLATE", "SYSTEM") if parts[word.lower()]]
    lines += [f"PARAMETER {name} {value}" for name, value in parts["parameters"]]
    lines += [f'MESSAGE {message["role"]} """{message["content"]}"""' for message in parts["messages"]]
    lines += [f'LICENSE """{text}"""' for text in parts["licenses"]]
    return "\n".join(lines) + "\n"
