"""What models of each family write, read whole and in pieces."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from ggpy.text.reasoning import THINK, ReasoningTags
from ggpy.text.tool_calls import FORMATS, AnswerParser, ParsedAnswer, ToolFormat, parse_answer

BY_NAME = {each.name: each for each in FORMATS}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_time", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "python", "parameters": {
        "type": "object", "properties": {"code": {"type": "string"}}}}},
]
OSLO, PARIS = {"city": "Oslo", "days": 2}, {"city": "Paris"}
ONE, TWO = [("get_time", OSLO)], [("get_time", OSLO), ("get_time", PARIS)]
OSLO_JSON, PARIS_JSON = '{"city": "Oslo", "days": 2}', '{"city": "Paris"}'
Calls = list[tuple[str, dict[str, Any]]]


def numbered() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"id{next(numbers)}"


def in_pieces(pieces: list[str], tool_format: ToolFormat) -> ParsedAnswer:
    parser = AnswerParser(tool_format, TOOLS, reasoning=THINK, new_id=numbered())
    events = [event for piece in pieces for event in parser.feed(piece)]
    return ParsedAnswer.of([*events, *parser.finish()])


@pytest.mark.parametrize(("name", "text", "content", "calls"), [
    ("hermes", f'Wait.\n<tool_call>\n{{"name": "get_time", "arguments": {OSLO_JSON}}}\n</tool_call>\n<tool_call>\n'
               f'{{"name": "get_time", "arguments": {PARIS_JSON}}}\n</tool_call>', "Wait.", TWO),
    ("hermes", f'<tools>\n{{"name": "get_time", "arguments": {OSLO_JSON}}}\n</tools>', "", ONE),
    ("hermes", f'{{"name": "get_time", "arguments": {OSLO_JSON}}}', "", ONE),
    ("hermes", f'```json\n{{"name": "get_time", "arguments": {OSLO_JSON}}}\n```', "", ONE),
    ("hermes", f'```\n{{"name": "get_time", "arguments": {OSLO_JSON}}}\n```\n```json\n{{"name": "get_time", '
               f'"arguments": {PARIS_JSON}}}\n```\nDone', "Done", TWO),
    ("hermes", '```json\n{"name": "Oslo"}\n```', '```json\n{"name": "Oslo"}\n```', []),
    ("hermes", "```python\nprint(1)\n```", "```python\nprint(1)\n```", []),
    ("hermes", f'<tool_call>{{"arguments": {OSLO_JSON}, "name": "get_time"}}</tool_call> Done', "Done", ONE),
    ("hermes", f'<tool_call>{{"name": "get_time", "arguments": {json.dumps(OSLO_JSON)}}}</tool_call>', "", ONE),
    ("hermes", '<tool_call>{"type": "function", "function": {"name": "get_time", "arguments": '
               f'{OSLO_JSON}}}}}</tool_call>', "", ONE),
    ("hermes", '<tool_call>{"name": "get_time"}</tool_call>', "", [("get_time", {})]),
    ("hermes", '<tool_call>\n```json\n{"name": "get_time", "arguments": null}\n```\n</tool_call>', "",
     [("get_time", {})]),
    ("hermes", '<tool_call>{"name": "python", "arguments": {"code": "print(1)\nx = {\\"}\\": None}"}}', "",
     [("python", {"code": 'print(1)\nx = {"}": None}'})]),
    ("hermes", 'Use <tool_call> like this: <tool_call>{"nom": 1}', 'Use <tool_call> like this: <tool_call>{"nom": 1}',
     []),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
     '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', []),
    ("apriel", f'<tool_calls>[{{"name": "get_time", "arguments": {OSLO_JSON}}}, {{"name": "get_time", "arguments": '
               f'{PARIS_JSON}}}]</tool_calls>', "", TWO),
    ("granite", f'<|tool_call|>[{{"name": "get_time", "arguments": {OSLO_JSON}}}]', "", ONE),
    ("command-r7b", f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_time", "parameters": {OSLO_JSON}'
                    f'}},\n    {{"tool_call_id": "1", "tool_name": "get_time", "parameters": {PARIS_JSON}}}\n]'
                    '<|END_ACTION|>', "", TWO),
    ("command-r7b", "<|START_RESPONSE|>Hello<|END_RESPONSE|>", "Hello", []),
    ("command-r", f'Action:\n```json\n[{{"tool_name": "get_time", "parameters": {OSLO_JSON}}}]\n```', "", ONE),
    ("apertus", f'<|tools_prefix|>[{{"get_time": {OSLO_JSON}}}, {{"get_time": {PARIS_JSON}}}]<|tools_suffix|>', "",
     TWO),
    ("llama", f'{{"name": "get_time", "parameters": {OSLO_JSON}}}', "", ONE),
    ("llama", f'<|python_tag|>{{"name": "get_time", "parameters": {OSLO_JSON}}}; {{"name": "get_time", "parameters": '
              f'{PARIS_JSON}}}', "", TWO),
    ("llama", '<|python_tag|>get_time.call(city="Oslo", days=2)', "", ONE),
    ("llama", '<|python_tag|>print("Hi")\n', "", [("python", {"code": 'print("Hi")\n'})]),
    ("llama", '{"name": "Peter", "age": 3}', '{"name": "Peter", "age": 3}', []),
    ("mistral-list", f'[TOOL_CALLS][{{"name": "get_time", "arguments": {OSLO_JSON}, "id": "123456789"}}]', "", ONE),
    ("mistral", f'Hm[TOOL_CALLS]get_time[ARGS]{OSLO_JSON}[TOOL_CALLS]get_time[ARGS]{PARIS_JSON}', "Hm", TWO),
    ("mistral", f'[TOOL_CALLS]get_time[CALL_ID]a1b2c3d4e[ARGS]{OSLO_JSON}', "", ONE),
    ("mistral", f'[TOOL_CALLS]get_time{OSLO_JSON}', "", ONE),
    ("deepseek", f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{OSLO_JSON}\n```'
                 f'<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{PARIS_JSON}\n```'
                 '<｜tool▁call▁end｜><｜tool▁calls▁end｜>', "", TWO),
    ("deepseek", f'Hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{OSLO_JSON}<｜tool▁call▁end｜>'
                 f'<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{PARIS_JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', "Hm", TWO),  # noqa: E501
    ("deepseek-tags", '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_time">\n<｜DSML｜parameter name="city" string='  # noqa: E501
                      '"true">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'  # noqa: E501
                      '</｜DSML｜invoke>\n</｜DSML｜function_calls>', "", ONE),
    ("deepseek-tool-tags", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="python">\n<｜DSML｜parameter name="code" string="true">'  # noqa: E501
                           'a</p>\n</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', "",
     [("python", {"code": "a</p>\n"})]),
    ("functionary-tags", f'Hm<function=get_time>{OSLO_JSON}</function><function=get_time>{PARIS_JSON}</function>',
     "Hm", TWO),
    ("functionary-tags", "<|python_tag|>x = 1", "", [("python", {"code": "x = 1"})]),
    ("functionary", f'all\nHello >> there>>>get_time\n{OSLO_JSON}>>>get_time\n{PARIS_JSON}', "Hello >> there", TWO),
    ("functionary", "python\nprint(1)\n", "", [("python", {"code": "print(1)\n"})]),
    ("kimi", f'Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>'
             f'{OSLO_JSON}<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>'
             f'{PARIS_JSON}<|tool_call_end|><|tool_calls_section_end|>', "Hm", TWO),
    ("harmony", f'<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>commentary to=functions.get_time '
                f'<|constrain|>json<|message|>{OSLO_JSON}<|call|>', "Hi", ONE),
    ("harmony", f' to=functions.get_time<|channel|>analysis<|message|>{OSLO_JSON}', "", ONE),
    ("harmony", "Hello, world", "Hello, world", []),
    ("qwen-coder", "Hm\n\n<tool_call>\n<function=get_time>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
                   "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n<parameter=city>\nParis\n"
                   "</parameter>\n</function>\n</tool_call>", "Hm", TWO),
    ("qwen-coder", "<function=python>\n<parameter=code>\nif a < b:\n\tprint(\"</p>\")\n\n</parameter>\n</function>", "",
     [("python", {"code": 'if a < b:\n\tprint("</p>")\n'})]),
    ("seed", "<seed:tool_call>\n<function=get_time>\n<parameter=city>Oslo</parameter>\n<parameter=days>2</parameter>\n"
             "</function>\n</seed:tool_call>", "", ONE),
    ("glm", "<tool_call>get_time\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_time<arg_key>city</arg_key><arg_value>Paris"
            "</arg_value></tool_call>", "", TWO),
    ("minimax", '\n<minimax:tool_call>\n<invoke name="get_time">\n<parameter name="city">Oslo</parameter>\n<parameter '
                'name="days">2</parameter>\n</invoke>\n<invoke name="get_time">\n<parameter name="city">Paris'
                '</parameter>\n</invoke>\n</minimax:tool_call>', "", TWO),
    ("minicpm", '<function name="get_time"><param name="city">Oslo</param><param name="days">2</param></function>', "",
     ONE),
    ("lfm", "Hm<|tool_call_start|>[get_time(city='Oslo', days=2), get_time(city=\"Paris\")]<|tool_call_end|>Then",
     "HmThen", TWO),
    ("lfm", "<|tool_call_start|>[python(code='a\\'s [)\\d\nb')]<|tool_call_end|>", "",
     [("python", {"code": "a's [)\\d\nb"})]),
    ("lfm", "[get_time('Oslo', 2)]", "", ONE),
    ("lfm", "[1, 2] is a list", "[1, 2] is a list", []),
    ("function-gemma", "<start_function_call>call:get_time{city:<escape>Oslo<escape>,days:2}<end_function_call>"
                       "<start_function_call>call:get_time{city:<escape>Paris<escape>}<end_function_call>", "", TWO),
    ("gemma", 'Hm<|tool_call>call:get_time{city:<|"|>Oslo<|"|>,days:2}<tool_call|>', "Hm", ONE),
    ("gemma", '<|tool_call>call:set{a:[<|"|>x"y<|"|>,1.5e3],b:{c:true,d:{}},e:null}<tool_call|>', "",
     [("set", {"a": ['x"y', 1500.0], "b": {"c": True, "d": {}}, "e": None})]),
    ("solar", f'<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get_time<|tool_call:args|>{OSLO_JSON}'
              '<|tool_call:end|>', "", ONE),
    ("solar", f'<|content|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>get_time'
              f'<|tool_call:args|>{OSLO_JSON}<|tool_call:end|><|tool_call:begin|>1<|tool_call:name|>get_time'
              f'<|tool_call:args|>{PARIS_JSON}<|tool_call:end|>', "Hm", TWO),
    ("generic", f'{{"tool_call": {{"name": "get_time", "arguments": {OSLO_JSON}}}}}', "", ONE),
])
def test_calls_of_each_format_are_read_at_every_split(name: str, text: str, content: str, calls: Calls) -> None:
    """A call's name and arguments, and the text beside it, are the same wherever the text is cut in two, and if it
    comes character by character."""
    answer = in_pieces([text], BY_NAME[name])
    assert answer.content == content
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == calls
    assert all(call.is_complete for call in answer.calls)
    for i in range(1, len(text)):
        assert in_pieces([text[:i], text[i:]], BY_NAME[name]) == answer
    assert in_pieces(list(text), BY_NAME[name]) == answer


@pytest.mark.parametrize("tool_format", [each for each in FORMATS if each.shape], ids=lambda each: each.name)
def test_calls_as_a_grammar_writes_them_are_read(tool_format: ToolFormat) -> None:
    """The shape of a format is one that it reads, from the trigger on."""
    shape = tool_format.shape
    assert shape is not None
    number = ":0" if shape.is_numbered else ""
    call_id = f"a{shape.id_end}" if shape.id_end else ""
    arguments = OSLO_JSON if shape.tags is None else (
        f"{shape.tags.key_begin}city{shape.tags.text_begin}Oslo{shape.tags.value_end}"
        f"{shape.tags.key_begin}days{shape.tags.json_begin}2{shape.tags.value_end}")
    call = (f'{{"{shape.name_key}": "get_time", "{shape.arguments_key}": {OSLO_JSON}}}' if shape.name_end is None
            else f"{shape.name_begin}{call_id}get_time{number}{shape.name_end}{arguments}{shape.arguments_end}")
    n_calls = 2 if shape.begin else 1
    text = (f"{shape.begin}{shape.between.join([call] * n_calls)}{shape.end}" if shape.between is not None
            else f"{shape.begin}{call}{shape.end}" * n_calls)
    answer = in_pieces([text], tool_format)
    assert [(each.name, json.loads(each.arguments)) for each in answer.calls] == ONE * n_calls
    assert answer.content == ""
    assert all(text.startswith(trigger) for trigger in tool_format.triggers)


def test_ids_that_a_model_writes_are_kept() -> None:
    """They stand in the model's own history; one that comes twice is replaced."""
    one = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    answer = in_pieces(["<|tool_calls_section_begin|>" + one + one], BY_NAME["kimi"])
    assert [call.id for call in answer.calls] == ["functions.f:0", "id0"]


def test_ids_are_as_the_model_s_template_takes_them() -> None:
    """Mistral's templates refuse ids that are not nine letters or digits."""
    text = "[TOOL_CALLS]f[ARGS]{}"
    assert len(parse_answer(text, BY_NAME["mistral"]).calls[0].id) == 9
    assert parse_answer("<tool_call>{\"name\": \"f\"}", BY_NAME["hermes"]).calls[0].id.startswith("call_")


def test_reasoning_of_harmony_is_a_channel() -> None:
    """The format tells reasoning itself, also that which is shown."""
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi"
    harmony = BY_NAME["harmony"]
    answer = parse_answer(text, harmony)
    assert (answer.reasoning, answer.content) == ("hm", "Hi")
    shown = parse_answer(text, harmony, reasoning_format="none")
    assert (shown.reasoning, shown.content) == ("", "<|channel|>analysis<|message|>hm<|end|>Hi")


@pytest.mark.parametrize(("name", "text", "arguments", "content"), [
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, tru', '{"a": [1, tru', ""),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1]} Hm', '{"a": 1', "]} Hm"),
    ("qwen-coder", "<tool_call>\n<function=f>\n<parameter=a>\nx", '{"a": "x"', ""),
    ("gemma", '<|tool_call>call:f{a:<|"|>x', '{"a": "x', ""),
])
def test_arguments_that_break_off_leave_the_call_incomplete(name: str, text: str, arguments: str, content: str) -> None:
    """What was told of a call stays told; what follows the break is content."""
    answer = parse_answer(text, BY_NAME[name])
    assert [(call.arguments, call.is_complete) for call in answer.calls] == [(arguments, False)]
    assert answer.content == content


def test_a_call_may_end_reasoning_in_a_way_of_its_own() -> None:
    """Where the tag that ends reasoning in front of content is another."""
    tags = ReasoningTags("<|think|>", "<|end|><|begin|>assistant<|content|>")
    call = f"<|tool_call:begin|>a<|tool_call:name|>get_time<|tool_call:args|>{OSLO_JSON}<|tool_call:end|>"
    answers = ((f"hm<|end|><|begin|>assistant<|tool_calls|>{call}", "", 1), (f"hm{tags.end}Hi", "Hi", 0))
    for text, content, n_calls in answers:
        for size in (1, 7, len(text)):
            parser = AnswerParser(BY_NAME["solar"], TOOLS, reasoning=tags, is_open=True)
            pieces = [text[i : i + size] for i in range(0, len(text), size)]
            answer = ParsedAnswer.of([*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()])
            assert (answer.reasoning, answer.content, len(answer.calls)) == ("hm", content, n_calls)


@pytest.mark.parametrize(("name", "rest"), [
    ("lfm", 'city="Oslo")]<|tool_call_end|>'),
    ("function-gemma", "city:<escape>Oslo<escape>}<end_function_call>"),
    ("gemma", 'city:<|"|>Oslo<|"|>}<tool_call|>'), ("harmony", '{"city": "Oslo"}<|call|>'),
])
def test_openings_begin_calls(name: str, rest: str) -> None:
    """The opening of a format, the name between its parts, is how a call begins that the format reads."""
    tool_format = BY_NAME[name]
    assert tool_format.opening is not None
    text = f"{tool_format.opening.before}get_time{tool_format.opening.behind}{rest}"
    answer = parse_answer(text, tool_format, TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("get_time", {"city": "Oslo"})]
    assert answer.content == ""


@pytest.mark.parametrize("schema", [
    {"properties": {"x": {"$ref": "#/$defs/code"}}}, {"properties": {"x": {"allOf": [{"$ref": "#/$defs/code"}]}}},
    {"$ref": "#/$defs/call"}, {"allOf": [{"$ref": "#/$defs/call"}]}, {"anyOf": [{"$ref": "#/$defs/call"}, {}]},
    {"additionalProperties": {"type": "string"}}, {"patternProperties": {"x": {"$ref": "#/$defs/code"}}},
])
def test_texts_are_told_wherever_the_schema_says_so(schema: Any) -> None:
    """A text of digits is no number, also where it is in another part of the schema that it is a text."""
    tools = [{"name": "f", "parameters": {**schema, "$defs": {
        "code": {"type": "string"}, "call": {"properties": {"x": {"type": "string"}}}}}}]
    text = '<function name="f"><param name="x">12</param></function>'
    (call,) = parse_answer(text, BY_NAME["minicpm"], tools).calls
    assert json.loads(call.arguments) == {"x": "12"}


@pytest.mark.parametrize("schema", [
    {"$ref": "#"}, {"$ref": "#/$defs/a/b"}, {"$ref": 1, "allOf": 2}, {"properties": {"x": {"$ref": "#/properties/x"}}},
    {"properties": {"x": {"enum": "ab"}}}, {"properties": [1], "additionalProperties": True}, True,
])
def test_schemas_that_say_nothing_leave_values_as_they_are(schema: Any) -> None:
    """References in a circle and to nowhere, and what is no schema."""
    text = '<function name="f"><param name="x">12</param></function>'
    (call,) = parse_answer(text, BY_NAME["minicpm"], [{"name": "f", "parameters": schema}]).calls
    assert json.loads(call.arguments) == {"x": 12}


def test_a_schema_of_many_levels_is_read_as_far_as_it_matters() -> None:
    """Deeper than functions may call each other."""
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(2000):
        inner = {"allOf": [inner]}
    tools = [{"name": "f", "parameters": {"allOf": [inner], "properties": {"x": inner}}}]
    text = '<function name="f"><param name="x">12</param></function>'
    (call,) = parse_answer(text, BY_NAME["minicpm"], tools).calls
    assert json.loads(call.arguments) == {"x": 12}


@pytest.mark.parametrize(("values", "expected"), [
    (['["</param>"]', "1"], [["</param>"], 1]), (['{"a": "x</param>y", "b": "</param>"}', "2"],
                                                 [{"a": "x</param>y", "b": "</param>"}, 2]),
    (['"say \\"</param>\\""', "3"], ['say "</param>"', 3]),
    (['["a', '"b'], ['["a', '"b']), (['"a', "1"], ['"a', 1]), (['{"a": "b', '"]'], ['{"a": "b', '"]']),
])
def test_tags_in_strings_of_json_are_none(values: list[str], expected: list[Any]) -> None:
    """But what is no JSON after all ends at the first of them, however the text is cut."""
    parameters = "".join(f'<param name="x{i}">{value}</param>' for i, value in enumerate(values))
    text = f'<function name="f">{parameters}</function>!'
    wholes = [in_pieces([text], BY_NAME["minicpm"]),
              *(in_pieces([text[:at], text[at:]], BY_NAME["minicpm"]) for at in range(len(text))),
              in_pieces([*text], BY_NAME["minicpm"])]
    for answer in wholes:
        assert [json.loads(call.arguments) for call in answer.calls] == [{f"x{i}": e for i, e in enumerate(expected)}]
        assert answer.content == "!"
