"""Sampling parameters that change in the course of a conversation."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from ggpy.engine.config import SAMPLER_LETTERS, SamplingParams
from ggpy.errors import ConfigError, RequestError
from ggpy.gguf import Metadata
from ggpy.tools.flags import SAMPLING_FLAGS, sampling_params

COMMON = ("repeat_penalty", "min_p", "top_p", "top_k", "temperature", "max_tokens", "seed")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags of the command line, the wishes of the model and, above both, what was `changed` since then."""

    args: argparse.Namespace
    metadata: Metadata
    n_vocab: int
    changed: dict[str, Any] = dataclasses.field(default_factory=dict)      # field -> value as a flag has it

    @property
    def params(self) -> SamplingParams:
        """Raises ConfigError for a value that cannot work."""
        params = sampling_params(argparse.Namespace(**{**vars(self.args), **self.changed}), self.metadata)
        try:
            params.check_vocabulary(self.n_vocab)
        except RequestError as error:
            raise ConfigError(str(error)) from error
        return params

    def with_value(self, name: str, text: str) -> Settings:
        """These settings but for one, named and written as its flag is. Raises ConfigError."""
        field = field_name(name)
        if not text:
            raise ConfigError(f"/set {name} needs a value; it is {getattr(self.params, field)}")
        return self.replaced({**self.changed, field: _value(field, text)})

    def replaced(self, changed: Mapping[str, Any]) -> Settings:
        """These settings with other changes. Raises ConfigError for names and values that cannot work."""
        settings = dataclasses.replace(
            self, changed={field_name(name): value for name, value in changed.items()})
        try:
            _ = settings.params
        except (TypeError, ValueError, AttributeError, OverflowError) as error:     # from a file, it may be anything
            raise ConfigError(f"settings {dict(changed)!r:.160}: {error}") from error
        return settings

    def describe(self, name: str = "") -> dict[str, str]:
        """The value of a setting, or of each: what is most wanted comes last, where it stays on the screen."""
        params = self.params
        last = [*(field for field in COMMON if field not in self.changed), *self.changed]
        others = [field.name for field in dataclasses.fields(params) if field.name not in last]
        fields = [field_name(name)] if name else [*others, *last]
        return {field: _shown(getattr(params, field)) for field in fields}


def names() -> dict[str, str]:
    """Settings and what they mean."""
    return {field: flag.help for field, flag in SAMPLING_FLAGS.items()} | {"ignore_eos": "1: never end the answer"}


def field_name(name: str) -> str:
    """The field of SamplingParams that is called so, here or on the command line. Raises ConfigError."""
    plain = name.lstrip("-").replace("-", "_")
    for field in names():
        flags = SAMPLING_FLAGS[field].flags if field in SAMPLING_FLAGS else ()
        if plain in (field, *(flag.lstrip("-").replace("-", "_") for flag in flags)):
            return field
    near = difflib.get_close_matches(plain, names(), n=1)
    raise ConfigError(f"there is no setting {name!r}; " + (f"did you mean {near[0]}?" if near else "/set lists them"))


def _value(field: str, text: str) -> Any:
    if field == "ignore_eos":
        if text not in ("0", "1"):
            raise ConfigError(f"ignore_eos={text}: expected 0 or 1")
        return text == "1"
    flag = SAMPLING_FLAGS[field]
    try:
        value = flag.type(text)
    except (ValueError, argparse.ArgumentTypeError) as error:
        expected = {int: "a whole number", float: "a number"}.get(flag.type, flag.metavar)      # type: ignore[call-overload]
        raise ConfigError(f"{field}={text}: expected {expected}; {flag.help}") from error
    return [value] if flag.is_list else value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "; ".join(item if item in SAMPLER_LETTERS.values() else repr(item) for item in value) or "none"
    return "-1" if value is None else str(value)
