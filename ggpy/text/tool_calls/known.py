"""The formats that are known, each before those that could read its calls too but expect other ones."""

from __future__ import annotations

from dataclasses import replace

from ggpy.text.tool_calls.code_calls import PYTHON_TAG
from ggpy.text.tool_calls.format import ArgumentTags, CallOpening, CallShape, ToolFormat
from ggpy.text.tool_calls.functionary import RECIPIENT, FunctionTags, Recipients
from ggpy.text.tool_calls.gemma import GemmaCalls
from ggpy.text.tool_calls.harmony import MARKS, Harmony
from ggpy.text.tool_calls.json_calls import JsonCalls, tagged
from ggpy.text.tool_calls.llama import LlamaCalls
from ggpy.text.tool_calls.named_calls import NamedCalls
from ggpy.text.tool_calls.output import new_short_id
from ggpy.text.tool_calls.python_calls import PythonCalls
from ggpy.text.tool_calls.tagged_calls import TaggedCalls

HERMES = tagged("hermes", "<tool_call>", "</tool_call>", also=("<tools>", "<function_call>"), is_bare=True)
APRIEL = tagged("apriel", "<tool_calls>", "</tool_calls>", is_list=True)
MINIMAX_M1 = JsonCalls(name="minimax-m1", begins=("<tool_calls>",), ends=("</tool_calls>",),
                       marks=("<tool_calls>", "</tool_calls>"),
                       shape=CallShape("<tool_calls>\n", "\n</tool_calls>", "\n"))
NEMOTRON = tagged("nemotron", "<TOOLCALL>", "</TOOLCALL>", is_list=True)
GRANITE = tagged("granite", "<|tool_call|>", is_list=True)
FIREFUNCTION = tagged("firefunction", "functools", is_list=True)
GIGACHAT = tagged("gigachat", "<|function_call|>")
GIGACHAT_ROLE = tagged("gigachat-role", "function call<|role_sep|>\n")
COMMAND_R7B = tagged("command-r7b", "<|START_ACTION|>", "<|END_ACTION|>", is_list=True, name_key="tool_name",
                     arguments_key="parameters", dropped=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                                          "<|END_TEXT|>"))
COMMAND_R = JsonCalls(name="command-r", begins=("Action:",), ends=("```",), shape=CallShape(
    "Action:\n```json\n[", "]```", ", ", name_key="tool_name", arguments_key="parameters"))
APERTUS = JsonCalls(name="apertus", begins=("<|tools_prefix|>",), ends=("<|tools_suffix|>",), name_is_key=True,
                    marks=("<|tools_prefix|>", "<|tools_suffix|>"))
LLAMA = LlamaCalls(name="llama", begins=(PYTHON_TAG,), marks=(PYTHON_TAG,), is_bare=True,
                   shape=CallShape(arguments_key="parameters"))
GENERIC = JsonCalls(name="generic", is_bare=True, shape=CallShape())

MISTRAL_LIST = tagged("mistral-list", "[TOOL_CALLS]", is_list=True, new_id=new_short_id)
MISTRAL = NamedCalls(name="mistral", begins=("[TOOL_CALLS]",), marks=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
                     separators=("[ARGS]",), id_separator="[CALL_ID]", new_id=new_short_id,
                     shape=CallShape("[TOOL_CALLS]", name_end="[ARGS]"))
_DEEPSEEK_SECTIONS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls｜>", "<｜tool_calls_begin｜>", "<｜tool calls begin｜>")
_DEEPSEEK = NamedCalls(
    name="deepseek", begins=(*_DEEPSEEK_SECTIONS, "<｜tool▁call▁begin｜>"), call_begins=("<｜tool▁call▁begin｜>",),
    separators=("<｜tool▁sep｜>",), has_kind=True, ends=("<｜tool▁call▁end｜>",),
    section_ends=("<｜tool▁calls▁end｜>",),
    marks=(*_DEEPSEEK_SECTIONS, "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
           "<｜tool▁calls▁end｜>"))
DEEPSEEK = replace(_DEEPSEEK, shape=CallShape(
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "", name_begin="<｜tool▁call▁begin｜>", name_end="<｜tool▁sep｜>",
    arguments_end="<｜tool▁call▁end｜>"))
DEEPSEEK_R1 = replace(_DEEPSEEK, name="deepseek-r1", shape=CallShape(
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "\n", name_begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    name_end="\n```json\n", arguments_end="\n```<｜tool▁call▁end｜>"))
KIMI = NamedCalls(
    name="kimi", begins=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), call_begins=("<|tool_call_begin|>",),
    separators=("<|tool_call_argument_begin|>",), ends=("<|tool_call_end|>",),
    section_ends=("<|tool_calls_section_end|>",), name_prefix="functions.", has_number=True,
    marks=("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
           "<|tool_calls_section_end|>"),
    shape=CallShape("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "",
                    name_begin="<|tool_call_begin|>functions.", name_end="<|tool_call_argument_begin|>",
                    arguments_end="<|tool_call_end|>", is_numbered=True))
SOLAR = NamedCalls(
    name="solar", begins=("<|tool_calls|>", "<|tool_call:begin|>"), call_begins=("<|tool_call:begin|>",),
    id_separator="<|tool_call:name|>", id_is_first=True, separators=("<|tool_call:args|>",),
    ends=("<|tool_call:end|>",),
    marks=("<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"),
    dropped=("<|content|>", "<|end|><|begin|>assistant"), call_reasoning=("<|think|>", "<|end|><|begin|>assistant"),
    shape=CallShape("<|tool_calls|>", "", "", name_begin="<|tool_call:begin|>", id_end="<|tool_call:name|>",
                    name_end="<|tool_call:args|>", arguments_end="<|tool_call:end|>"))
FUNCTIONARY_TAGS = FunctionTags(name="functionary-tags", begins=("<function=", PYTHON_TAG), separators=(">",),
                                ends=("</function>",), marks=("<function=", "</function>", PYTHON_TAG),
                                shape=CallShape("<function=", "</function>", name_end=">"))
FUNCTIONARY = Recipients(name="functionary", shape=CallShape(between=RECIPIENT, name_end="\n"))
HARMONY = Harmony(name="harmony", marks=MARKS, reads_reasoning=True, content_begin="<|channel|>final<|message|>",
                  told_by=("<|channel|>", "analysis"), opening=CallOpening(
                      "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", has_json=True),
                  call_reasoning=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"))


def _dsml(section: str) -> CallShape:
    """The calls of DeepSeek's markup, in a section of that name."""
    return CallShape(
        f"<｜DSML｜{section}>\n", f"</｜DSML｜{section}>", "", name_begin='<｜DSML｜invoke name="', name_end='">\n',
        arguments_end="</｜DSML｜invoke>\n", tags=ArgumentTags(
            '<｜DSML｜parameter name="', '" string="true">', '" string="false">', "</｜DSML｜parameter>\n"))


QWEN_CODER = TaggedCalls(
    name="qwen-coder", begins=("<tool_call>", "<function="), call_begin="<function=", name_end=">",
    key_begin="<parameter=", key_end=">", value_end="</parameter>", call_end="</function>",
    section_ends=("</tool_call>",), is_on_lines=True, marks=("<tool_call>", "</tool_call>"),
    shape=CallShape("<tool_call>\n<function=", "</function>\n</tool_call>", name_end=">\n",
                    tags=ArgumentTags("<parameter=", ">\n", ">\n", "\n</parameter>\n")))
SEED = TaggedCalls(
    name="seed", begins=("<seed:tool_call>", "<function="), call_begin="<function=", name_end=">",
    key_begin="<parameter=", key_end=">", value_end="</parameter>", call_end="</function>",
    section_ends=("</seed:tool_call>",), marks=("<seed:tool_call>", "</seed:tool_call>"),
    shape=CallShape("<seed:tool_call>\n<function=", "</function>\n</seed:tool_call>", name_end=">\n",
                    tags=ArgumentTags("<parameter=", ">", ">", "</parameter>\n")))
GLM = TaggedCalls(
    name="glm", begins=("<tool_call>",), key_begin="<arg_key>", key_end="</arg_key>", value_begin="<arg_value>",
    value_end="</arg_value>", call_end="</tool_call>",
    marks=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    shape=CallShape("<tool_call>", "</tool_call>", name_end="\n", tags=ArgumentTags(
        "<arg_key>", "</arg_key>\n<arg_value>", "</arg_key>\n<arg_value>", "</arg_value>\n")))
MINIMAX = TaggedCalls(
    name="minimax", begins=("<minimax:tool_call>",), call_begin='<invoke name="', name_end='">',
    key_begin='<parameter name="', key_end='">', value_end="</parameter>", call_end="</invoke>",
    section_ends=("</minimax:tool_call>",), marks=("<minimax:tool_call>", "</minimax:tool_call>"),
    shape=CallShape("<minimax:tool_call>\n", "</minimax:tool_call>", "", name_begin='<invoke name="', name_end='">\n',
                    arguments_end="</invoke>\n",
                    tags=ArgumentTags('<parameter name="', '">', '">', "</parameter>\n")))
DEEPSEEK_TAGS = TaggedCalls(
    name="deepseek-tags", begins=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
    call_begin='<｜DSML｜invoke name="', name_end='">', key_begin='<｜DSML｜parameter name="', key_end='"',
    has_attributes=True, value_end="</｜DSML｜parameter>", call_end="</｜DSML｜invoke>",
    section_ends=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"), marks=("｜DSML｜",),
    shape=_dsml("function_calls"))
DEEPSEEK_TOOL_TAGS = replace(DEEPSEEK_TAGS, name="deepseek-tool-tags", begins=DEEPSEEK_TAGS.begins[::-1],
                             shape=_dsml("tool_calls"))
MINICPM = TaggedCalls(
    name="minicpm", begins=('<function name="',), call_begin='<function name="', name_end='">',
    key_begin='<param name="', key_end='">', value_end="</param>", call_end="</function>",
    shape=CallShape('<function name="', "</function>", name_end='">',
                    tags=ArgumentTags('<param name="', '">', '">', "</param>")))

LFM = PythonCalls(name="lfm", begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",), is_bare=True,
                  told_by=("List of tools: ",), marks=("<|tool_call_start|>", "<|tool_call_end|>"),
                  opening=CallOpening("<|tool_call_start|>[", "("))
FUNCTION_GEMMA = GemmaCalls(name="function-gemma", begins=("<start_function_call>",), ends=("<end_function_call>",),
                            quote="<escape>", marks=("<start_function_call>", "<end_function_call>", "<escape>"),
                            opening=CallOpening("<start_function_call>call:", "{"))
GEMMA = GemmaCalls(name="gemma", begins=("<|tool_call>",), ends=("<tool_call|>",), quote='<|"|>',
                   marks=("<|tool_call>", "<tool_call|>", '<|"|>'), opening=CallOpening("<|tool_call>call:", "{"))

FORMATS: tuple[ToolFormat, ...] = (
    HARMONY, KIMI, DEEPSEEK_R1, DEEPSEEK, DEEPSEEK_TAGS, DEEPSEEK_TOOL_TAGS, SOLAR, MISTRAL_LIST, MISTRAL, COMMAND_R7B,
    COMMAND_R, FUNCTIONARY_TAGS, FUNCTIONARY, LLAMA, HERMES, APRIEL, MINIMAX_M1, NEMOTRON, GRANITE, FIREFUNCTION,
    GIGACHAT, GIGACHAT_ROLE, APERTUS, GLM, QWEN_CODER, SEED, MINIMAX, MINICPM, LFM, FUNCTION_GEMMA, GEMMA, GENERIC,
)
