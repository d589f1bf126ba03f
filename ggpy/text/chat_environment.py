"""The Jinja environment of chat templates: sandboxed and bounded, with the names that Transformers gives them."""

import functools
import json
import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ggpy.text.chat_limits import (
    budget,
    check_comparison,
    check_filter,
    check_method,
    check_operator,
    current_budget,
    listed,
)


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; rendering passes its body through."""

    tags = {"generation"}       # noqa: RUF012  (declared as an instance variable by Jinja)

    def parse(self, parser: Parser) -> nodes.CallBlock:
        # a call block, as in Transformers: what its body sets stays inside
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_render_body"), [], [], body)
        block.set_lineno(line)
        return block

    def _render_body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Compiler(CodeGenerator):
    """Compiles what can grow into calls that charge for it."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:      # noqa: N802  (Jinja's name)
        tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None).set_lineno(node.lineno)
        node.body.insert(0, nodes.ExprStmt(tick).set_lineno(node.lineno))
        if node.test is not None:
            node.test = nodes.And(nodes.Not(tick), node.test)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:        # noqa: N802
        self._call("join_texts", "(", node.nodes, ",)", frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:        # noqa: N802
        if _is_constant(node.items):
            super().visit_List(node, frame)
        else:
            self._call("weighed", "[", node.items, "]", frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:      # noqa: N802
        if node.ctx == "load" and not _is_constant(node.items):
            self._call("weighed", "(", node.items, ",)", frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:        # noqa: N802
        self.write("environment.weighed(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:      # noqa: N802
        self.write("environment.checked(")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:      # noqa: N802
        if len(node.ops) == 1:
            operand = node.ops[0]
            self._call("compare", f"{operand.op!r}, ", [node.expr, operand.expr], "", frame)
            return
        self.write("(")
        self._call("weighed", "", [node.expr], "", frame)
        for operand in node.ops:        # a < b < c
            self.write(f" {operators[operand.op]} ")
            self._call("weighed", "", [operand.expr], "", frame)
        self.write(")")

    def _call(self, function: str, opening: str, items: list[nodes.Expr], closing: str, frame: Frame) -> None:
        self.write(f"environment.{function}({opening}")
        for index, item in enumerate(items):
            if index:
                self.write(", ")
            self.visit(item, frame)
        self.write(closing + ")")


def _is_constant(items: list[nodes.Expr]) -> bool:
    return all(isinstance(item, nodes.Const) for item in items)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "gteq": operator.ge, "lt": operator.lt,
    "lteq": operator.le, "in": lambda left, right: left in right, "notin": lambda left, right: left not in right,
}


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Templates can neither change their arguments, nor reach Python's internals, nor take all time and memory.

    Rendering needs a Budget in `current_budget`.
    """

    code_generator_class = _Compiler
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], finalize=_finalize,
        )
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, "dict": _Dict(),
                         "namespace": _Namespace}
        self.filters["tojson"] = _to_json
        self.filters |= {name: _guarded_filter(name, function) for name, function in self.filters.items()}
        tests: dict[str, Any] = self.tests
        self.tests = {name: _guarded_test(function) for name, function in tests.items()}

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `obj` from the template."""
        b = budget()
        b.charge()
        if obj == self.tick:
            return None
        method = getattr(obj, "__wrapped__", obj)      # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int | list | tuple):
            if method.__name__ == "join" and args:
                args = (listed(args[0]), *args[1:])
            check_method(owner, method.__name__, args, kwargs)
        if isinstance(obj, Macro) and (obj.catch_varargs or obj.catch_kwargs):
            b.weigh((args, kwargs))
        return b.checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def compare(name: str, left: Any, right: Any) -> Any:
        """`left == right`, and so on."""
        check_comparison(left, right)
        return _COMPARISONS[name](left, right)

    @staticmethod
    def concat(texts: Iterable[str]) -> str:
        """What a block wrote, as one text."""
        return budget().joined(texts)

    @staticmethod
    def join_texts(values: tuple[Any, ...]) -> str:
        """The `~` operator."""
        budget().charge_text(sum(budget().weigh(value) for value in values))
        return "".join(map(str, values))

    @staticmethod
    def weighed(value: Any) -> Any:
        """A list, tuple or dictionary that the template made or compares."""
        budget().weigh(value)
        return value

    @staticmethod
    def checked(value: Any) -> Any:
        """A part of a text or list."""
        return budget().checked(value)

    def tick(self) -> None:
        """One iteration of a loop; calling it counts."""


class _Dict:
    """`dict(...)` without the class behind it."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return ChatEnvironment.weighed(dict(*args, **kwargs))      # type: ignore[no-any-return]

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return ChatEnvironment.weighed(dict.fromkeys(*args))      # type: ignore[no-any-return]


class _Namespace(Namespace):
    """Refuses names with an underscore in front, as Transformers does."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        values = dict(*args, **kwargs)
        for name in values:
            _check_attribute(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"        # nested ones would be longer than anybody can foresee


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespace attribute {name!r}: expected a name without an underscore in front")


def _guarded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        b = budget()
        b.charge()
        if name == "join" and len(args) > first:
            args = (*args[:first], listed(args[first]), *args[first + 1:])
        check_filter(name, args[first:], kwargs)
        result = function(*args, **kwargs)
        if name in ("batch", "slice", "groupby"):       # make lists of lists
            return map(ChatEnvironment.weighed, result) if name != "groupby" else ChatEnvironment.weighed(result)
        return b.checked(result)

    return guarded


def _guarded_test(function: Callable[..., Any]) -> Callable[..., Any]:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def guarded(*args: Any) -> Any:
        if len(args) == first + 2:
            check_comparison(*args[first:])
        return function(*args)

    return guarded


def _finalize(value: Any) -> Any:
    """Called with each value that is written out."""
    if not isinstance(value, str) and (b := current_budget.get()) is not None:
        b.weigh(value)
    return value


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML and sorts keys; models were trained on neither.
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None and separators is None:
        return encoder.encode(value)
    return ChatEnvironment.concat(encoder.iterencode(value))


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
