"""The low-rank adapters of a model, and how much of each a request gets."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ggpy.backends.base import Scales
from ggpy.errors import RequestError, shown


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """What is known of an adapter. Its number is its place among the model's adapters."""

    path: str
    scale: float = 1.0          # that requests get which do not say
    task_name: str = ""
    prompt_prefix: str = ""
    fingerprint: str = ""


class Adapters:
    """The adapters that a model was opened with; their default scales may change while it runs.

    Any thread may ask, one at a time may change them.
    """

    def __init__(self, infos: Sequence[AdapterInfo] = ()) -> None:
        self._infos = tuple(infos)
        self._defaults = normal((i, info.scale) for i, info in enumerate(infos))

    @property
    def infos(self) -> list[AdapterInfo]:
        """All of them, with the scales of the moment."""
        scales = dict(self._defaults)
        return [AdapterInfo(info.path, scales.get(i, 0.0), info.task_name, info.prompt_prefix, info.fingerprint)
                for i, info in enumerate(self._infos)]

    def set_defaults(self, scales: Scales) -> None:
        """From now on requests that do not say get these. Raises RequestError as `scales_of` does."""
        self._defaults = self.scales_of(scales)

    def scales_of(self, wanted: Scales | None) -> Scales:
        """What a request gets that asks for `wanted`, None: the defaults; by number, without those that get nothing.

        Raises RequestError for a number that no adapter has, or has twice, and for a scale that is not finite.
        """
        if wanted is None:
            return self._defaults
        n, numbers = len(self._infos), [i for i, _ in wanted]
        for i, scale in wanted:
            if not is_whole(i) or not 0 <= i < n:
                expected = f"0 to {n - 1}" if n else "none: the model was opened without adapters"
                raise RequestError(f"lora: id {shown(i)}: there is no such adapter, expected {expected}")
            if numbers.count(i) > 1:
                raise RequestError(f"lora: id {i} is there twice, expected each once")
            if not is_scale(scale):
                raise RequestError(f"lora: id {i}: scale {shown(scale)}: expected a finite number")
        return normal(wanted)

    def salted(self, salt: int, scales: Scales) -> int:
        """A salt for prefixes: keys and values of other adapters or scales are others."""
        if not scales:
            return salt
        facts = repr((salt, [(self._infos[i].fingerprint, scale) for i, scale in scales]))
        return int.from_bytes(hashlib.sha256(facts.encode()).digest()[:8], "little") >> 1


def normal(scales: Any) -> Scales:
    """By number, as floats, without zeros."""
    return tuple(sorted((i, float(scale)) for i, scale in scales if scale))


def is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
