"""The grammar of a constraint, compiled."""

from __future__ import annotations

from typing import Any

from llguidance import LLMatcher

from ggpy.engine.structured.blame import blamed_path
from ggpy.engine.structured.compiler import compile_grammar, schema_grammar
from ggpy.engine.structured.gbnf import parse_gbnf
from ggpy.engine.structured.gbnf_lark import gbnf_to_lark
from ggpy.engine.structured.json_schema import canonical, parse_json
from ggpy.engine.structured.lark import checked_lark
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.engine.structured.tool_calls import tool_grammar
from ggpy.errors import GrammarError

MAX_REGEX = 1 << 16         # characters


def compiled(kind: str, source: str, tokens: GrammarTokens) -> LLMatcher:
    """A matcher at the beginning of a constraint. Raises GrammarError."""
    match kind:
        case "json_schema":
            return _compiled_schema(canonical(parse_json(source, "$")), tokens)
        case "json":
            return compile_grammar(tokens.index, schema_grammar({"type": "object"}))
        case "regex":
            if len(source) > MAX_REGEX:
                raise GrammarError(f"the regex has {len(source):,} characters, expected {MAX_REGEX:,} at most")
            return compile_grammar(tokens.index, LLMatcher.grammar_from_regex(source))
        case "gbnf":
            rules = parse_gbnf(source, tokens.token_id)
            return compile_grammar(tokens.index, gbnf_to_lark(rules, tokens.tokenizer.eog_ids))
        case "lark":
            return compile_grammar(tokens.index, checked_lark(source))
        case "tools":
            return compile_grammar(tokens.index, tool_grammar(source, tokens))
    raise GrammarError(f"constraint of kind {kind!r:.80}; expected json_schema, json, regex, gbnf, lark or tools")


def _compiled_schema(schema: Any, tokens: GrammarTokens) -> LLMatcher:
    try:
        return compile_grammar(tokens.index, schema_grammar(schema))
    except GrammarError as error:
        raise GrammarError(f"{blamed_path(schema, '$', tokens.index)}: {error}") from error
