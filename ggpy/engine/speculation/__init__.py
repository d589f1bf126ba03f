"""Guesses of the next tokens, that a step checks in rows beside those it computes anyway. Answers stay the same."""

from ggpy.engine.speculation.config import SpeculationConfig
from ggpy.engine.speculation.speculator import Speculator

__all__ = ["SpeculationConfig", "Speculator"]
