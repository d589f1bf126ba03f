"""The tests of `ggpy bench`, and what is said of a model in its results."""

from __future__ import annotations

from dataclasses import dataclass

from ggpy.gguf import GGUFFile
from ggpy.tools.bench_model import ModelSettings
from ggpy.tools.bench_output import test_name

# general.file_type: the mix of types that the quantiser was asked for
FILE_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
              12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
              19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
              26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
              36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """Reads `n_prompt` tokens, then generates `n_gen`, all of it after `n_depth`."""

    settings: ModelSettings
    n_batch: int
    n_ubatch: int
    n_prompt: int
    n_gen: int
    n_depth: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return test_name(self.n_prompt, self.n_gen, self.n_depth)

    @property
    def n_ctx(self) -> int:
        return self.n_depth + self.n_prompt + self.n_gen

    @property
    def n_sequences(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedTest:
    """`n_parallel` sequences read `n_prompt` tokens each, then generate `n_gen` each, one of each sequence a step."""

    settings: ModelSettings
    n_batch: int
    n_ubatch: int
    n_prompt: int
    n_gen: int
    n_parallel: int

    @property
    def name(self) -> str:
        return f"pp{self.n_prompt}, tg{self.n_gen}, {self.n_parallel} sequences"

    @property
    def n_ctx(self) -> int:
        return self.n_prompt + self.n_gen

    @property
    def n_sequences(self) -> int:
        return self.n_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What results say of a model file."""

    type: str           # architecture, parameters, quantisation
    size_bytes: int     # of its tensors
    n_params: int


def model_facts(file: GGUFFile) -> ModelFacts:
    """Read from the header."""
    n_params = sum(tensor.n_elements for tensor in file.tensors.values())
    sizes: dict[str, int] = {}
    for tensor in file.tensors.values():
        sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.size_bytes
    kind = FILE_TYPES.get(file.metadata.get_int("general.file_type", -1)) or max(sizes, key=sizes.__getitem__)
    size = f"{n_params / 1e9:.1f}B" if n_params >= 1e9 else f"{n_params / 1e6:.0f}M"
    return ModelFacts(type=f"{file.metadata.get_str('general.architecture')} {size} {kind}",
                      size_bytes=sum(sizes.values()), n_params=n_params)
