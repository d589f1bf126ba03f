"""Go's templates as Jinja, so that they run like all others: sandboxed, bounded, and asked what they can write.

A template that knows `.Messages` is written over all messages. One that knows only `.System`, `.Prompt` and
`.Response` is written once for each exchange, and in the last one ends behind `.Response`, as Ollama does it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ggpy.errors import TemplateError, shown
from ggpy.text.go_template import Assign, Block, Call, Expression, Jump, Literal_, Node, Print, Ref, Text, parse_go

FIELDS = {      # of messages, tools and calls -> what ggpy calls them
    "Role": "role", "Content": "content", "Thinking": "reasoning_content", "ToolCalls": "tool_calls",
    "ToolName": "name", "ToolCallID": "tool_call_id", "Function": "function", "Name": "name", "ID": "id",
    "Arguments": "arguments", "Type": "type", "Description": "description", "Parameters": "parameters",
    "Required": "required", "Properties": "properties", "Enum": "enum", "Items": "items", "Images": "images",
    "Index": "index", "Defs": "$defs",
}
ROOT = {
    "Messages": "messages", "Tools": "tools", "System": "system", "Prompt": "prompt", "Response": "response",
    "Suffix": "''", "Think": "(enable_thinking | default(false))", "IsThinkSet": "(enable_thinking is defined)",
    "ThinkLevel": "(reasoning_effort | default(''))",
}
MAPS = frozenset({"Properties", "Arguments"})       # that range goes through by key
OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
JSON = "tojson(separators=(',', ':'))"

OVER_ALL = """\
{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\\n\\n') -%}
{%- set prompt = '' -%}{%- set response = '' -%}BODY"""
OVER_EXCHANGES = """\
{%- macro exchange(system, prompt, response) -%}BODY{%- endmacro -%}
{%- macro last_exchange(system, prompt, response) -%}LAST{%- endmacro -%}
{%- set now = namespace(system='', prompt='', response='') -%}
{%- for message in messages -%}
{%- set role = message['role'] -%}
{%- if (role == 'system' and (now.prompt or now.response)) or (role == 'user' and now.response) -%}
{{- exchange(now.system, now.prompt, now.response) -}}
{%- set now.system = '' -%}{%- set now.prompt = '' -%}{%- set now.response = '' -%}
{%- endif -%}
{%- if role == 'system' -%}{%- set now.system = message['content'] -%}
{%- elif role == 'user' -%}{%- set now.prompt = message['content'] -%}
{%- elif role == 'assistant' -%}{%- set now.response = message['content'] -%}
{%- endif -%}
{%- endfor -%}
{{- last_exchange(now.system, now.prompt, now.response) -}}"""

_GO = re.compile(r"\{\{-?\s*(?:[.$(/]|if\b|range\b|with\b|else\b|end\b|break\b|continue\b|json\b|define\b|block\b"
                 r"|template\s+\"|\w+\s+[.$][A-Za-z_])")


def jinja_of(template: str) -> str:
    """A template of a Modelfile as Jinja: Go's are translated, others are Jinja already. Raises TemplateError."""
    return go_to_jinja(template) if is_go(template) else template


def is_go(template: str) -> bool:
    """Whether it is a Go template, and not one of Jinja."""
    return "{%" not in template and _GO.search(template) is not None


def go_to_jinja(template: str) -> str:
    """The Jinja source that writes what the Go template does. Raises TemplateError, with the line where it is known."""
    from ggpy.text.chat_limits import MAX_SOURCE

    if len(template) > MAX_SOURCE:
        raise TemplateError(f"the template has {len(template):,} characters; expected {MAX_SOURCE:,} at most")
    nodes = parse_go(template)
    if "Messages" in used_fields(nodes):
        return OVER_ALL.replace("BODY", _Writer(nodes).write(nodes))
    last, _ = up_to_response(nodes)
    return OVER_EXCHANGES.replace("BODY", _Writer(nodes).write(nodes)).replace("LAST", _Writer(last).write(last))


def used_fields(nodes: Sequence[Node]) -> set[str]:
    """The names of all fields that a template asks for."""
    found: set[str] = set()

    def look(value: Expression) -> None:
        if not isinstance(value, Literal_):
            found.update(value.fields)
        if isinstance(value, Call):
            for argument in value.arguments:
                look(argument)

    for node in nodes:
        if isinstance(node, Print | Assign | Block):
            look(node.value)
        if isinstance(node, Block):
            found |= used_fields(node.body) | used_fields(node.otherwise)
    return found


def up_to_response(nodes: Sequence[Node]) -> tuple[list[Node], bool]:
    """`nodes` up to the one that writes the response, and whether there is one."""
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Block):
            body, is_cut = up_to_response(node.body)
            otherwise, is_other_cut = up_to_response(node.otherwise)
            kept.append(Block(node.kind, node.value, node.names, body, otherwise))
            if is_cut or is_other_cut:
                return kept, True
            continue
        kept.append(node)
        if isinstance(node, Print) and "Response" in used_fields([node]):
            return kept, True
    return kept, False


def assigned(nodes: Sequence[Node]) -> set[str]:
    """The variables that get another value later."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Assign) and not node.is_new:
            found.add(node.name)
        if isinstance(node, Block):
            found |= assigned(node.body) | assigned(node.otherwise)
    return found


class _Writer:
    """Writes nodes as Jinja. In Go `.` is something else in each block; here it has a name of its own."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._changing = assigned(nodes)            # Jinja's loops need a namespace for them
        self._n_names = 0
        self._dots = [""]                           # what `.` is: "" at the top
        self._scopes: list[dict[str, str]] = [{}]   # Go's variables -> what they are here

    def write(self, nodes: Sequence[Node]) -> str:
        return "".join(map(self._node, nodes))

    def _node(self, node: Node) -> str:
        match node:
            case Text(text):
                return "{{ " + quoted(text) + " }}"
            case Print(value):
                return "{{ " + self._printed(value) + " }}"
            case Assign(name, value, is_new):
                return self._assigned(name, self._value(value), is_new=is_new)
            case Jump(kind):
                return "{% " + kind + " %}"
            case Block():
                return {"if": self._if, "with": self._with, "range": self._range}[node.kind](node)

    def _assigned(self, name: str, value: str, *, is_new: bool) -> str:
        if is_new and name in self._changing:
            self._scopes[-1][name] = f"{self._name('v')}.value"
            return f"{{% set {self._scopes[-1][name].partition('.')[0]} = namespace(value={value}) %}}"
        if is_new:
            self._scopes[-1][name] = self._name("v")
        return f"{{% set {self._variable(name)} = {value} %}}"

    def _if(self, node: Block) -> str:
        before, value = self._held(node)
        return f"{before}{{% if {value} %}}{self._inner(node.body)}{self._else(node)}{{% endif %}}"

    def _with(self, node: Block) -> str:
        dot = self._name("d")
        before, value = self._held(node)
        body = self._inner(node.body, dot)
        return f"{before}{{% set {dot} = {value} %}}{{% if {dot} %}}{body}{self._else(node)}{{% endif %}}"

    def _range(self, node: Block) -> str:
        item, value = self._name("d"), self._value(node.value)
        is_map = not isinstance(node.value, Literal_) and bool(node.value.fields) and node.value.fields[-1] in MAPS
        self._scopes.append({})
        place = ""
        if is_map:
            key = self._name("k")
            head, places = f"{key}, {item} in (({value}) or {{}}).items()", key
        else:
            head, places = f"{item} in (({value}) or [])", self._name("i")
            place = f"{{% set {places} = loop.index0 %}}"
        for name, held in zip(node.names, (places, item) if len(node.names) == 2 else (item,), strict=False):
            self._scopes[-1][name] = held
        body = self._inner(node.body, item)
        self._scopes.pop()
        return f"{{% for {head} %}}{place}{body}{self._else(node)}{{% endfor %}}"

    def _else(self, node: Block) -> str:
        return f"{{% else %}}{self._inner(node.otherwise)}" if node.otherwise else ""

    def _inner(self, nodes: Sequence[Node], dot: str | None = None) -> str:
        self._dots.append(self._dots[-1] if dot is None else dot)
        self._scopes.append({})
        written = self.write(nodes)
        self._scopes.pop()
        self._dots.pop()
        return written

    def _held(self, node: Block) -> tuple[str, str]:
        """What comes before a block that keeps its value in a variable, and the value."""
        value = self._value(node.value)
        if not node.names:
            return "", value
        return self._assigned(node.names[0], value, is_new=True), self._variable(node.names[0])

    def _printed(self, value: Expression) -> str:
        """What Go writes of a value: objects as JSON, nothing of nothing."""
        text = self._value(value)
        if isinstance(value, Call) and value.function in ("json", "printf", "print"):
            return text
        return f"'' if ({text}) is undefined or ({text}) is none else ({text}) if ({text}) is string else " \
               f"({text}) | {JSON}"

    def _value(self, value: Expression) -> str:
        match value:
            case Literal_(literal):
                return quoted(literal) if isinstance(literal, str) else str(literal).lower()
            case Ref(variable, fields):
                return self._ref(variable, fields)
            case Call(function, arguments, fields):
                return self._fields(self._call(function, arguments), fields)

    def _ref(self, variable: str, fields: tuple[str, ...]) -> str:
        base = "" if variable == "$" else self._dots[-1] if variable == "." else self._variable(variable)
        if base:
            return self._fields(base, fields)
        if not fields or fields[0] not in ROOT:
            what = f"{variable}.{fields[0]}" if fields else f"{variable} as a whole"
            raise TemplateError(f"template: {what} is not known; there are {', '.join(ROOT)}")
        return self._fields(ROOT[fields[0]], fields[1:])

    def _fields(self, base: str, fields: Sequence[str]) -> str:
        for name in fields:
            if name not in FIELDS:
                raise TemplateError(f"template: the field .{name} is not known; there are {', '.join(FIELDS)}")
            base = f"(({base}) or {{}})[{quoted(FIELDS[name])}]"
        return base

    def _call(self, function: str, arguments: Sequence[Expression]) -> str:
        values = [f"({self._value(argument)})" for argument in arguments]
        match function, values:
            case "", [value]:
                return value
            case ("and" | "or"), [_, *_]:
                return f"({f' {function} '.join(values)})"
            case "not", [value]:
                return f"(not {value})"
            case "eq", [first, second, third, *more]:
                return f"({first} in [{', '.join([second, third, *more])}])"
            case ("eq" | "ne" | "lt" | "le" | "gt" | "ge"), [first, second]:
                return f"({first} {OPERATORS[function]} {second})"
            case "len", [value]:
                return f"(({value} or []) | length)"
            case "index", [value, *places]:
                return value + "".join(f"[{place}]" for place in places)
            case "slice", [value, *bounds] if len(bounds) <= 2:
                return f"({value} or [])[{':'.join([*bounds, '', ''][:2])}]"
            case "json", [value]:
                return f"({value} if {value} is string else {value} | {JSON})" if is_arguments(arguments[0]) \
                    else f"({value} | {JSON})"
            case "printf", [form, *rest]:
                return f"({form}.replace('%v', '%s') % ({''.join(f'{each}, ' for each in rest)}))"
            case "print", _:
                return f"({' ~ '.join(values)})"
            case "currentDate", []:
                return "strftime_now('%Y-%m-%d')"
        raise TemplateError(f"template: {shown(function)} of {len(values)} arguments is not understood here")

    def _variable(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise TemplateError(f"template: the variable {name} is not declared")

    def _name(self, kind: str) -> str:
        self._n_names += 1
        return f"{kind}{self._n_names}"


def is_arguments(value: Expression) -> bool:
    """Whether it is what a call gives its function, which may be JSON already."""
    return isinstance(value, Ref) and value.fields[-1:] == ("Arguments",)


def quoted(text: str) -> str:
    """`text` as Jinja has it in quotes."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
