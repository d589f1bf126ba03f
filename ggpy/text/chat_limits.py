"""What compiling and rendering a chat template may cost: a template comes with the model file and may be hostile.

Jinja's sandbox keeps a template away from Python; a budget keeps it from taking all time and memory. Steps are counted
(loop iterations, calls, pieces of text copied), and an operation whose result would be too large is refused before it
runs. Each single operation is thus short, so that the limit on time, looked at between them, holds as well.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any

import jinja2

from ggpy.errors import TemplateError

MAX_SOURCE = 64 * 1024      # characters of a template
MAX_TOKENS = 12_000         # of its tags and expressions, as Jinja reads them; compiling takes 0.1 ms for each
MAX_TEXT = 16_000_000       # characters of one text, the whole conversation included
MAX_ITEMS = 1_000_000       # of one list
MAX_STEPS = 4_000_000       # of one rendering; a step is about a microsecond
MAX_SECONDS = 30.0          # of one rendering, for what steps do not count
MAX_WIDTH = 100_000         # of padding, indentation and the like
MAX_BITS = 4096             # of an integer
_NESTED = (list, tuple, dict)
_CHARS_PER_STEP = 256
_STEPS_PER_CLOCK = 512
# fields of `%` and of str.format that are over 9999 wide, or as wide as an argument says
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\*|\d{5,}|\d*\.(?:\*|\d{5,}))")
_WIDE_BRACES = re.compile(r"\{[^{}]*:[^{}]*(?:\{|\d{5,})")


class LimitError(jinja2.TemplateError):
    """A template that takes more than it may."""


class Budget:
    """What is left of one rendering of a conversation of `n_messages`."""

    def __init__(self, n_messages: int = 0) -> None:
        # templates that look through all messages at each message are honest
        self.max_steps = MAX_STEPS + 10 * n_messages ** 2
        self.deadline = time.monotonic() + MAX_SECONDS
        self.num_steps = 0
        self._next_clock = 0

    def charge(self, steps: int = 1) -> None:
        """Count work that is done; raises LimitError if it was too much."""
        self.num_steps += steps
        if self.num_steps > self.max_steps:
            raise LimitError(f"the template takes more than {self.max_steps:,} steps; does it loop forever?")
        if self.num_steps >= self._next_clock:
            self._next_clock = self.num_steps + _STEPS_PER_CLOCK
            if time.monotonic() > self.deadline:
                raise LimitError(f"the template takes more than {MAX_SECONDS:.0f} seconds")

    def charge_text(self, size: int) -> None:
        """Count a text of `size` characters; raises LimitError if it is too long."""
        if size > MAX_TEXT:
            raise LimitError(f"the template makes a text of more than {MAX_TEXT:,} characters")
        self.charge(1 + size // _CHARS_PER_STEP)

    def charge_items(self, size: int) -> None:
        """Count a list of `size` items; raises LimitError if it is too long."""
        if size > MAX_ITEMS:
            raise LimitError(f"the template makes a list of more than {MAX_ITEMS:,} items")
        self.charge(1 + size // 32)

    def weigh(self, value: Any) -> int:
        """About as many characters as `value` has as text; nested lists that share parts are longer than they look."""
        total, pending = 0, [value]
        while pending:
            self.charge()
            item = pending.pop()
            if isinstance(item, str | bytes):
                total += len(item)
            elif isinstance(item, Mapping):
                pending += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple | set | frozenset):
                pending += item
            total += 8
            if total > MAX_TEXT:
                self.charge_text(total)
        return total

    def checked(self, value: Any) -> Any:
        """`value`, after counting its size."""
        if isinstance(value, str | bytes):
            self.charge_text(len(value))
        elif isinstance(value, list | tuple):
            self.charge_items(len(value))
        return value

    def joined(self, texts: Iterable[str]) -> str:
        """All `texts` as one; raises LimitError at the first that makes it too long."""
        total, seen = 0, []
        for text in texts:
            total += len(text)
            if total > MAX_TEXT:
                break
            seen.append(text)
        self.charge_text(total)
        return "".join(seen)


current_budget: ContextVar[Budget | None] = ContextVar("current_budget", default=None)


def budget() -> Budget:
    """The budget of the rendering that this thread is in.

    Outside of one, Jinja is folding constants; the error makes it leave that to rendering.
    """
    found = current_budget.get()
    if found is None:
        raise jinja2.TemplateError("not while compiling")
    return found


def check_source(environment: jinja2.Environment, source: str, key: str) -> None:
    """Refuse a template that would take long to compile. Raises ggpy's own TemplateError, and Jinja's."""
    if len(source) > MAX_SOURCE:
        raise TemplateError(f"{key}: the template has {len(source):,} characters; expected {MAX_SOURCE:,} at most")
    tokens = (line for line, kind, _ in environment.lex(source) if kind not in ("data", "whitespace"))
    line = next(islice(tokens, MAX_TOKENS, None), None)
    if line is not None:
        raise TemplateError(f"{key}, line {line}: the template has too many tags and expressions; expected at most "
                            f"{MAX_TOKENS:,} names, numbers and operators")


def check_conversation(*values: Any) -> None:
    """Refuse messages, tools and documents that are too long for any template. Raises ggpy's own TemplateError."""
    size, pending = 0, list(values)
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            pending += item
    if size > MAX_TEXT:
        raise TemplateError(f"the messages, with tools and documents, have {size:,} characters: expected at most "
                            f"{MAX_TEXT:,}; shorten them or leave some out")


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse `left operator right` if its result would be too large."""
    b = budget()
    if operator == "%" and isinstance(left, str | bytes):
        check_format(left, right, "%")
    elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = right.bit_length() if operator == "*" else left.bit_length() * max(right - 1, 0)
        if left.bit_length() + bits > MAX_BITS:
            raise LimitError(f"the template makes an integer of more than {MAX_BITS:,} bits")
    elif operator in ("*", "+"):
        for value, other in ((left, right), (right, left)):
            size = _length(value) * max(other, 0) if isinstance(other, int) else _length(value) + _length(other)
            if isinstance(value, str | bytes):
                b.charge_text(size)
            elif isinstance(value, tuple):      # may become a key, and hashing looks at all of it
                b.charge_text(b.weigh(value) * size)
            elif isinstance(value, list):
                b.charge_items(size)


def check_comparison(left: Any, right: Any) -> None:
    """Count what comparing `left` with `right`, or looking for it there, looks at."""
    b = budget()
    if isinstance(left, _NESTED):
        b.weigh((left, right))
    elif isinstance(left, str) and isinstance(right, str):
        b.charge(1 + (len(left) + len(right)) // _CHARS_PER_STEP)


def check_method(owner: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of Python's `owner.name` if its result would be too large."""
    values = [*args, *kwargs.values()]
    if isinstance(owner, _NESTED):
        if name in ("index", "count"):
            check_comparison(owner, values)
        return
    check_widths(values)
    if isinstance(owner, int):
        return
    if name in ("translate", "maketrans"):
        raise LimitError(f"{name} is not for templates")
    if name in ("format", "format_map"):
        check_format(owner, values, "{")
    elif name == "join":
        check_join(args[0] if args else (), owner)
    elif name == "replace" and len(values) >= 2:
        check_replace(owner, *values[:2])
    elif name in ("encode", "decode"):
        check_codec(values)
    elif name in ("rfind", "rindex", "rpartition", "rsplit") and values:
        # unlike its search from the front, Python's search from the back may take the product
        budget().charge(len(owner) * _length(values[0]) // _CHARS_PER_STEP)
    elif name == "expandtabs":
        budget().charge_text(len(owner) * next((v for v in values if isinstance(v, int)), 8))


# filters that do not look into what a list holds
_SHALLOW = frozenset(
    ("attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map", "random",
     "reject", "rejectattr", "reverse", "select", "selectattr", "slice")
)
# filters that take more than linear time, and the characters that they may have
_SHORT = {"int": 4300, "striptags": 100_000, "urlize": 100_000}


def check_filter(name: str, values: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse Jinja's filter `name` on `values[0]`, with arguments `values[1:]`, if its result would be too large."""
    value, arguments = values[0], [*values[1:], *kwargs.values()]
    if name not in _SHALLOW and not isinstance(value, str):
        budget().weigh(value)
    if name not in ("default", "d"):
        check_widths(arguments)
    texts = [a for a in arguments if isinstance(a, str)]
    if name in _SHORT and _length(value) > _SHORT[name]:
        raise LimitError(f"{name} of {_length(value):,} characters: expected at most {_SHORT[name]:,}")
    if name == "format":
        check_format(str(value), arguments, "%")
    elif name == "join":
        check_join(value, texts[0] if texts else "")
    elif name == "replace" and len(arguments) >= 2:
        check_replace(str(value), *arguments[:2])
    elif name in ("indent", "wordwrap"):
        text = str(value)
        longest = max((a if isinstance(a, int) else _length(a) for a in arguments), default=4)
        n_lines = text.count("\n") + 1 if name == "indent" else len(text)
        budget().charge_text(len(text) + n_lines * (longest if name == "indent" or texts else 1))


def check_widths(values: Iterable[Any]) -> None:
    """Raise LimitError if a number is too large for a width."""
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_WIDTH:
            raise LimitError(f"{value:.6g} as an argument: expected at most {MAX_WIDTH:,}")


def check_codec(values: Sequence[Any]) -> None:
    """Refuse encodings that take more than linear time."""
    for value in values[:1]:
        if str(value).lower() not in ("utf-8", "utf8", "ascii", "latin-1"):
            raise LimitError(f"the encoding {value!r:.40}: expected utf-8, ascii or latin-1")


def check_format(form: str | bytes, arguments: Any, mark: str) -> None:
    """Refuse to fill in `form`, whose fields begin with `mark`, if the result would be too long."""
    text = form.decode("latin-1") if isinstance(form, bytes) else form
    if mark == "{":
        text = text.replace("{{", "").replace("}}", "")
    if (_WIDE_PERCENT if mark == "%" else _WIDE_BRACES).search(text):
        raise LimitError(f"the format {text[:40]!r}: expected fields at most 9,999 wide")
    width = budget().weigh(arguments) + (9999 if re.search(r"\d", text) else 0)
    budget().charge_text(len(text) + text.count(mark) * width)


def check_join(values: Any, separator: str | bytes) -> None:
    """Refuse to join `values` if the result would be too long."""
    budget().charge_text(budget().weigh(values) + _length(values) * len(separator))


def check_replace(text: str | bytes, old: Any, new: Any) -> None:
    """Refuse to replace `old` in `text` if the result would be too long."""
    if isinstance(old, type(text)) and isinstance(new, type(text)):
        count: Callable[[Any], int] = text.count
        budget().charge_text(len(text) + count(old) * len(new))


def listed(value: Any) -> Any:
    """`value` with its size known: what an iterator gives, as a list."""
    return list(value) if hasattr(value, "__next__") else value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0
