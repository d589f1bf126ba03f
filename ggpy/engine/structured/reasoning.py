"""Reasoning in front of what a grammar allows."""

from __future__ import annotations

import json

from ggpy.engine.structured.symbols import symbols
from ggpy.engine.structured.tokens import GrammarTokens

SPACES = r"/[ \n]{1,4}/"     # that a model may put between its reasoning and the rest


def behind_reasoning(grammar: str, begin: str, end: str, tokens: GrammarTokens) -> str:
    """`grammar`, in front of which there may be reasoning between `begin` and `end`; an empty `begin` is there already.

    Both are in a form that llguidance compiles.
    """
    first, *others = json.loads(grammar)["grammars"] if grammar.startswith("{") else [{"lark_grammar": grammar}]
    lines = [f"start: {symbols(begin, tokens)} reasoning" + (" | @rest" if begin else ""), f"SPACES: {SPACES}"]
    control = symbols(end, tokens).partition("<[")      # what stands before control tokens is as free as reasoning
    if control[1]:
        lines += [f"reasoning: TEXT? <[{control[2]} SPACES? @rest", "TEXT: /(?s:.+)/"]
    else:
        lines += ["reasoning: text SPACES? @rest", f"text[suffix={json.dumps(end)}]: /(?s:.*)/"]
    main = {"name": "reasoning", "lark_grammar": "\n".join([*lines, ""])}
    return json.dumps({"grammars": [main, {**first, "name": "rest"}, *others]})
