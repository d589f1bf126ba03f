"""llguidance's compiler, with bounds on what a hostile grammar can take."""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from ggpy.errors import GrammarError, printable

# of the work for one token: about 20 ms, and for a compilation about ten times that
LIMITS = LLParserLimits(
    max_items_in_row=2_000, initial_lexer_fuel=1_000_000, step_lexer_fuel=200_000, step_max_items=50_000,
    max_lexer_states=50_000, max_grammar_size=500_000, verbose_errors=False)
STACK_BYTES = 64 << 20      # the compiler recurses along references and rules
MAX_MESSAGE = 600
# a space, or a line break and the next line's indentation: a model can not go on with spaces for ever
WHITESPACE = r"( |\r?\n[ \t]{0,40})"

P = ParamSpec("P")
T = TypeVar("T")
_stack_size_lock = threading.Lock()

logger = logging.getLogger("ggpy")


def compile_grammar(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the start of `grammar`. Raises GrammarError with llguidance's message."""
    matcher = in_deep_stack(lambda: LLMatcher(tokens, grammar, log_level=0, limits=LIMITS))
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


def without_panics(method: Callable[P, T]) -> Callable[P, T]:
    """`method`, whose GrammarError takes the place of a panic in compiled code, which is no Exception."""
    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            logger.exception("llguidance panics")
            raise GrammarError(f"llguidance fails with this grammar: {short(str(error))}") from error

    return guarded


def in_deep_stack(work: Callable[[], T]) -> T:
    """The result of `work`, done by a thread that may recurse deeper than others."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:          # a panic of compiled code is no Exception
            errors.append(error)

    with _stack_size_lock:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="ggpy-grammar", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise GrammarError(f"the grammar cannot be compiled: {short(str(errors[0]))}") from errors[0]
    return results[0]


def short(message: str) -> str:
    """The beginning of a message of llguidance, fit to be shown; its lines stay."""
    message = message.partition("<backtrace>")[0].replace("<non-verbose/>", "")
    lines = [printable(line.rstrip()) for line in message.strip().splitlines()]
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."
