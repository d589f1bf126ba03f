"""Tiny random models, one per architecture variant, with llama.cpp's logits: written from seeds when asked for.

`tests/data/arch/README.md` describes the data.
"""

import copy
import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).parents[1] / "data" / "arch"

GELU_MODELS = ("falcon", "gemma", "gpt2", "gptneox", "phi2", "starcoder")      # prefixes of names
SPECIAL_TOKENS = {"bos": 271, "eos": 272, "padding": 273, "unknown": 276, "seperator": 277, "cls": 278, "mask": 279}
VALUE_TYPES = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32,
               str: gguf.GGUFValueType.STRING}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}


@dataclass(frozen=True)
class ArchModel:
    """One model: its file, a prompt and llama.cpp's logits (n_tokens, n_vocab) at every position of it.

    Logits were computed in float32 with a float32 KV cache and, in f16 and q8_0 models, from the weights as float32;
    they are rounded to multiples of 2^-14. `greedy` continues the first 24 tokens; `margins` says by how much each of
    those beat the next best logit.
    """

    name: str
    path: Path
    n_ctx: int
    tokens: NDArray[np.int32]
    logits: NDArray[np.float32]
    greedy: NDArray[np.int32]
    margins: NDArray[np.float32]

    @property
    def tolerance(self) -> float:
        """Largest difference to a logit that float32 arithmetic may have. llama.cpp rounds GELU through float16."""
        return 1e-2 if self.name.startswith(GELU_MODELS) else 1e-3


@cache
def _specs() -> dict[str, Any]:
    specs: dict[str, Any] = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    return specs


def arch_names() -> list[str]:
    """Names of all models, in order."""
    return sorted(_specs()["models"])


def load_arch(name: str, folder: Path) -> ArchModel:
    """The model `name`, its file written into `folder` unless it is there already."""
    spec = _specs()["models"][name]
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_model(path, name, spec)
    with np.load(DATA / f"{name}.npz") as data:
        return ArchModel(name, path, spec["n_ctx"], data["tokens"], data["logits"], data["greedy"], data["margins"])


def load_roomy(folder: Path, n_ctx: int) -> Path:
    """The model llama with a context of `n_ctx` tokens, in place of 256, and tokens that mark a gap in a text."""
    spec = copy.deepcopy(_specs()["models"]["llama"])
    spec["metadata"] |= {"llama.context_length": n_ctx, "tokenizer.ggml.fim_pre_token_id": 277,
                         "tokenizer.ggml.fim_suf_token_id": 278, "tokenizer.ggml.fim_mid_token_id": 279}
    path = folder / "roomy.gguf"
    write_model(path, "llama", spec)
    return path


def load_wide_heads(folder: Path) -> ArchModel:
    """The model llama_headdim with heads of 64 dimensions in place of 16, and a bias on its keys as Qwen 2 has it.

    The bias is 1 in the first dimensions and 50 in the last 4. llama.cpp has not run it, so it has no logits.
    """
    spec = copy.deepcopy(_specs()["models"]["llama_headdim"])
    del spec["sha256"]
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        assert spec["metadata"][f"llama.{key}"] == 16
        spec["metadata"][f"llama.{key}"] = 64
    for tensor, shape, *_ in spec["tensors"]:
        if "attn_norm" not in tensor and ".attn_" in tensor:
            axis = 1 if "attn_output" in tensor else 0
            shape[axis] *= 4
    spec["tensors"] += [[f"blk.{layer}.attn_k.bias", [64], [1.0] * 60 + [50.0] * 4] for layer in range(2)]
    model = load_arch("llama_headdim", folder)
    path = folder / "wide_heads.gguf"
    if not path.exists():
        write_model(path, "wide_heads", spec)
    return replace(model, name="wide_heads", path=path, logits=np.empty((0, 0), np.float32))


def _tensors(name: str, spec: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Weights in float32: given values, or mean + scale * normal numbers of a generator seeded by the model's name."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    tensors = {}
    for tensor, shape, *numbers in spec["tensors"]:
        if len(numbers) == 1:
            values = np.array(numbers[0]).reshape(shape)
        else:
            scale, mean = numbers
            values = mean + scale * rng.standard_normal(shape)
        tensors[tensor] = values.astype(np.float32)
    digest = hashlib.sha256(b"".join(values.tobytes() for values in tensors.values())).hexdigest()
    assert digest == spec.get("sha256", digest), (
        f"{name}: not the weights that llama.cpp ran; did NumPy's random numbers change?")
    return tensors


def write_model(path: Path, name: str, spec: dict[str, Any]) -> None:
    """Writes the model that `spec` describes, as `README.md` says."""
    writer = gguf.GGUFWriter(path, spec["arch"])
    title = "tiny random " + name.replace("phi", "ph")
    metadata = {"general.name": title, "general.file_type": FILE_TYPES[spec["dtype"]], **spec["metadata"],
                "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, VALUE_TYPES[type(value)])
    tokenizer = _specs()["tokenizer"]
    writer.add_token_list(tokenizer["tokens"])
    writer.add_token_types(tokenizer["types"])
    writer.add_token_merges(tokenizer["merges"])
    for token, number in SPECIAL_TOKENS.items():
        writer.add_uint32(f"tokenizer.ggml.{token}_token_id", number)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_bool("tokenizer.ggml.add_eos_token", False)
    for tensor, values in _tensors(name, spec).items():
        _add_tensor(writer, tensor, values, spec["dtype"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], dtype: str) -> None:
    """Matrices in the model's type, all else in float32."""
    is_matrix = values.ndim >= 2 and min(values.shape) > 1 and not any(
        part in name for part in ("gate_inp", ".bias", "position_embd", "token_types"))
    if is_matrix and dtype == "f16":
        writer.add_tensor(name, values.astype(np.float16))
    elif is_matrix and dtype == "q8_0" and values.shape[-1] % 32 == 0:
        q8_0 = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, q8_0), raw_dtype=q8_0)
    else:
        writer.add_tensor(name, values)
