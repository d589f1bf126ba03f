"""The formats that are known, those that others could be taken for last."""

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_calls import JsonCalls, tagged
from ggpy.text.tool_calls.named_calls import NamedCalls

HERMES = tagged("hermes", "<tool_call>", "</tool_call>", also=("<tools>", "<function_call>"), is_bare=True,
                hints=("<tool_call>",))
MISTRAL = NamedCalls(name="mistral", begins=("[TOOL_CALLS]",), marks=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
                     separators=("[ARGS]",), id_separator="[CALL_ID]")
GENERIC = JsonCalls(name="generic", is_bare=True)

FORMATS: tuple[ToolFormat, ...] = (HERMES, MISTRAL, GENERIC)
