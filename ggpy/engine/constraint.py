"""What an answer may be, as a request says it; `structured/constraint.py` holds it to that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["json_schema", "json", "regex", "gbnf", "lark", "tools"]


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """What an answer has to be.

    kind            source
    json_schema     a JSON schema, whose objects have no members but those that it names, unless it says so
    json            nothing: any JSON object
    regex           a regular expression that matches the whole answer, in the syntax of Rust's regex
    gbnf            a grammar of llama.cpp
    lark            a grammar of llguidance
    tools           calls of tools; see `structured/tool_calls.py`
    """

    kind: Kind
    source: str = ""
    after: tuple[str, ...] = ()     # the answer is free until one of these texts stands in it; (): from the start
    # two texts between which free text may stand first; the first may be "", which stands already. What is `after`
    # something in there is free, too
    reasoning: tuple[str, str] | None = None
