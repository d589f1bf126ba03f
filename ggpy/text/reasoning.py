"""What a model thinks before it answers, and the tags around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReasoningFormat = Literal["none", "auto", "deepseek", "deepseek-legacy"]


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The texts before and behind reasoning. Whitespace around it is the model's own affair."""

    begin: str
    end: str

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt leaves reasoning open, so that the answer begins with it."""
        return prompt.rstrip().endswith(self.begin)

    def closing(self, message: str = "") -> str:
        """What ends reasoning that has gone on for long enough: `message`, and the tag behind it."""
        return f"{message}{self.end}"


THINK = ReasoningTags("<think>", "</think>")
KNOWN_TAGS = (
    THINK, ReasoningTags("[THINK]", "[/THINK]"), ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<mm:think>", "</mm:think>"), ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<|channel>thought", "<channel|>"), ReasoningTags("<|think|>", "<|/think|>"),
)
