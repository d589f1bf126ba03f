"""ggpy: a GGUF inference engine in Python."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from ggpy.engine.config import SamplingParams
    from ggpy.engine.constraint import ConstraintSpec
    from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
    from ggpy.engine.speculation.config import SpeculationConfig
    from ggpy.errors import GgpyError
    from ggpy.llm import LLM, Completion, CompletionStream, Timings

__all__ = ["LLM", "Completion", "CompletionStream", "ConstraintSpec", "GgpyError", "ProbabilitySpec",
           "SamplingParams", "SpeculationConfig", "Timings", "TokenProbability"]

_HOMES = {"SamplingParams": "ggpy.engine.config", "ConstraintSpec": "ggpy.engine.constraint",
          "ProbabilitySpec": "ggpy.engine.probabilities", "TokenProbability": "ggpy.engine.probabilities",
          "SpeculationConfig": "ggpy.engine.speculation.config", "GgpyError": "ggpy.errors"}   # all else is in ggpy.llm


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `import ggpy` itself loads nothing."""
    if name == "__version__":
        return metadata.version("ggpy")
    if name not in __all__:
        raise AttributeError(f"module 'ggpy' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "ggpy.llm")), name)


def __dir__() -> list[str]:
    """What is for users: none of the names that this module itself needs."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "__version__"])
