"""The grammar of a constraint, compiled."""

from __future__ import annotations

from llguidance import LLMatcher

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.blame import blamed_path, blamed_tool
from ggpy.engine.structured.closed_objects import read_schema
from ggpy.engine.structured.compiler import compile_grammar, schema_grammar
from ggpy.engine.structured.gbnf import parse_gbnf
from ggpy.engine.structured.gbnf_lark import gbnf_to_lark
from ggpy.engine.structured.json_schema import parse_json
from ggpy.engine.structured.lark import checked_lark
from ggpy.engine.structured.reasoning import behind_reasoning
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.engine.structured.tool_calls import tool_grammar
from ggpy.errors import GrammarError

MAX_REGEX = 1 << 16         # characters


def compiled(spec: ConstraintSpec, tokens: GrammarTokens) -> LLMatcher:
    """A matcher at the beginning of a constraint. Raises GrammarError."""
    kind, source = spec.kind, spec.source
    match kind:
        case "json_schema":
            schema = read_schema(parse_json(source, "$"))
            try:
                return _compiled(schema_grammar(schema), spec, tokens)
            except GrammarError as error:
                raise GrammarError(f"{blamed_path(schema, '$', tokens.index)}: {error}") from error
        case "json":
            return _compiled(schema_grammar({"type": "object"}), spec, tokens)
        case "regex":
            if len(source) > MAX_REGEX:
                raise GrammarError(f"the regex has {len(source):,} characters, expected {MAX_REGEX:,} at most")
            return _compiled(LLMatcher.grammar_from_regex(source), spec, tokens)
        case "gbnf":
            rules = parse_gbnf(source, tokens.token_id)
            return _compiled(gbnf_to_lark(rules, tokens.tokenizer.eog_ids), spec, tokens)
        case "lark":
            return _compiled(checked_lark(source), spec, tokens)
        case "tools":
            grammar = tool_grammar(source, tokens)
            try:
                return _compiled(grammar, spec, tokens)
            except GrammarError as error:
                raise blamed_tool(source, tokens, error) from error
    raise GrammarError(f"constraint of kind {kind!r:.80}; expected json_schema, json, regex, gbnf, lark or tools")


def _compiled(grammar: str, spec: ConstraintSpec, tokens: GrammarTokens) -> LLMatcher:
    if spec.reasoning is not None and not spec.after:
        grammar = behind_reasoning(grammar, *spec.reasoning, tokens)
    return compile_grammar(tokens.index, grammar)
