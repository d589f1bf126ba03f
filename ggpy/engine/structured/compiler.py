"""llguidance's compiler, with bounds on what a hostile grammar can take."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from ggpy.engine.structured.patience import in_deep_stack
from ggpy.errors import GrammarError, printable

# of the work for one token: about 20 ms, and for a compilation about ten times that
LIMITS = LLParserLimits(
    max_items_in_row=2_000, initial_lexer_fuel=1_000_000, step_lexer_fuel=200_000, step_max_items=50_000,
    max_lexer_states=50_000, max_grammar_size=500_000, verbose_errors=False)
MAX_MESSAGE = 600
# a space, or a line break and the next line's indentation: a model can not go on with spaces for ever
WHITESPACE = r"( |\r?\n[ \t]{0,40})"

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("ggpy")


def compile_grammar(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the start of `grammar`. Raises GrammarError with llguidance's message."""
    try:
        matcher = in_deep_stack(lambda: LLMatcher(tokens, grammar, log_level=0, limits=LIMITS))
    except BaseException as error:          # a panic of compiled code is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise GrammarError(f"the grammar cannot be compiled: {short(str(error))}") from error
    if matcher.is_error():
        raise GrammarError(short(matcher.get_error()))
    return matcher


def schema_grammar(schema: Any) -> str:
    """The grammar of JSON that meets `schema`, which `canonical` has made."""
    return LLMatcher.grammar_from_json_schema(inline_schema(schema), overrides={
        "whitespace_pattern": WHITESPACE, "lenient": False, "coerce_one_of": False})


def inline_schema(schema: Any) -> str:
    """`schema`, which `canonical` has made, as it stands behind %json in a grammar."""
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}
    return json.dumps({"x-guidance": {"whitespace_pattern": WHITESPACE}, **schema}, ensure_ascii=False)


def without_panics(raised: type[GrammarError]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a method raise `raised` in place of a panic in compiled code, which is no Exception."""
    def guarding(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(*args, **kwargs)
            except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as error:
                logger.exception("llguidance panics")
                raise raised(f"llguidance fails with this grammar: {short(str(error))}") from error

        return guarded

    return guarding


def short(message: str) -> str:
    """The beginning of a message of llguidance, fit to be shown; its lines stay."""
    message = message.partition("<backtrace>")[0].replace("<non-verbose/>", "")
    lines = [printable(line.rstrip()) for line in message.strip().splitlines()]
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."
