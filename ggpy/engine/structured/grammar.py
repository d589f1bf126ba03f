"""The grammar of a constraint, as llguidance reads it."""

from __future__ import annotations

from llguidance import LLMatcher

from ggpy.engine.structured.compiler import schema_grammar
from ggpy.engine.structured.gbnf import parse_gbnf
from ggpy.engine.structured.gbnf_lark import gbnf_to_lark
from ggpy.engine.structured.json_schema import canonical_schema
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.errors import GrammarError

MAX_REGEX = 1 << 16         # characters


def grammar_of(kind: str, source: str, tokens: GrammarTokens) -> str:
    """The grammar of a constraint of this kind. Raises GrammarError."""
    match kind:
        case "json_schema":
            return schema_grammar(canonical_schema(source))
        case "json":
            return schema_grammar('{"type": "object"}')
        case "regex":
            if len(source) > MAX_REGEX:
                raise GrammarError(f"the regex has {len(source):,} characters, expected {MAX_REGEX:,} at most")
            return LLMatcher.grammar_from_regex(source)
        case "gbnf":
            return gbnf_to_lark(parse_gbnf(source, tokens.token_id), tokens.tokenizer.eog_ids)
    raise GrammarError(f"constraint of kind {kind!r:.80}; expected json_schema, json, regex, gbnf, lark or tools")
