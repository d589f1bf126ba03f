"""Model architectures, one file per family: `build_model` turns a GGUF file into a graph."""

if __name__ != "ggpy.models":
    raise ImportError(f"{__name__} is ggpy.models; import it by that name")

from dataclasses import dataclass
from typing import Protocol

from ggpy.errors import ConfigError, UnsupportedModelError
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import Graph
from ggpy.graph.plan import KVGroup, kv_groups
from ggpy.models import (
    bert,
    cohere,
    deepseek,
    exaone4,
    falcon,
    gemma,
    gemma2,
    gemma3,
    glm4,
    gpt2,
    gpt_oss,
    gptneox,
    granite,
    llama,
    mistral3,
    olmo2,
    olmoe,
    qwen2,
    qwen2moe,
    qwen3,
    smollm3,
    stablelm,
    starcoder2,
)
from ggpy.models.hparams import HParams, Keys
from ggpy.models.weights import Weights

__all__ = ["ARCHITECTURES", "HParams", "Model", "build_model", "hparams_of"]


class Architecture(Protocol):
    """What the file of a family offers."""

    def hparams(self, keys: Keys) -> HParams:
        """Hyperparameters from the file's metadata."""

    def build(self, g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
        """Adds the forward pass to `g` and marks its outputs."""


ARCHITECTURES: dict[str, Architecture] = {
    "bert": bert,
    "cohere2": cohere,
    "command-r": cohere,
    "deepseek": deepseek,
    "ernie4_5": llama,
    "exaone": llama,
    "exaone4": exaone4,
    "falcon": falcon,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "glm4": glm4,
    "gpt-oss": gpt_oss,
    "gpt2": gpt2,
    "gptneox": gptneox,
    "granite": granite,
    "granitemoe": granite,
    "internlm2": llama,
    "jina-bert-v2": bert,
    "jina-bert-v3": bert,
    "llama": llama,
    "minicpm": granite,
    "mistral3": mistral3,
    "nemotron": starcoder2,
    "nomic-bert": bert,
    "olmo2": olmo2,
    "olmoe": olmoe,
    "phi2": falcon,
    "phi3": llama,
    "qwen2": qwen2,
    "qwen2moe": qwen2moe,
    "qwen3": qwen3,
    "qwen3moe": qwen3,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder": gpt2,
    "starcoder2": starcoder2,
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its forward pass. The graph refers to the file's tensors and keeps the file mapped."""

    graph: Graph
    hparams: HParams
    arch: str

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """The layers that share a page table of keys and values; see graph/plan.py."""
        return kv_groups(self.graph.attentions)


def build_model(gguf: GGUFFile, n_ctx: int | None = None) -> Model:
    """The model in `gguf`, for contexts of `n_ctx` tokens (None: what it was trained for).

    n_ctx matters to models whose rotary positions depend on it (LongRoPE). Raises UnsupportedModelError for an
    architecture or feature that ggpy does not have, GGUFError for metadata or tensors that do not fit together.
    """
    if n_ctx is not None and n_ctx < 1:
        raise ConfigError(f"n_ctx={n_ctx}: a context needs at least one token")
    arch, family = _family(gguf)
    hp = family.hparams(Keys(gguf, arch))
    graph = Graph()
    family.build(graph, hp, Weights(gguf), n_ctx or hp.n_ctx_train)
    return Model(graph, hp, arch)


def hparams_of(gguf: GGUFFile) -> HParams:
    """The sizes and constants of the model in `gguf`, from its metadata alone. Raises as `build_model` does."""
    arch, family = _family(gguf)
    return family.hparams(Keys(gguf, arch))


def _family(gguf: GGUFFile) -> tuple[str, Architecture]:
    arch = gguf.metadata.get_str("general.architecture")
    family = ARCHITECTURES.get(arch)
    if family is None:
        raise UnsupportedModelError(f"{gguf.path}: architecture {arch!r} is not supported; expected one of "
                                    f"{', '.join(sorted(ARCHITECTURES))}")
    return arch, family
