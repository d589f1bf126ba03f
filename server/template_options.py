"""What chat templates are given beside the messages, in every dialect."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ggpy.server.fields import Fields
from ggpy.server.models import LoadedModel
from ggpy.server.settings import ServerSettings
from ggpy.text import ChatOptions


def chat_options(fields: Fields, settings: ServerSettings, model: LoadedModel) -> ChatOptions:
    """The options of rendering that llama-server's fields mean. Raises FieldError.

    Tools are left out where the template cannot write any, as llama-server does.
    """
    tools = fields.array("tools") or None
    if tools is not None and not can_write_tools(model):
        tools = None
    return {"tools": tools, "chat_template_kwargs": template_variables(fields, settings),
            "add_generation_prompt": fields.boolean("add_generation_prompt", default=True)}


def can_write_tools(model: LoadedModel) -> bool:
    """Whether the template tells the model of tools."""
    template = model.chat_template
    return template.variants.get("tool_use", template).capabilities.tools


def template_variables(fields: Fields, settings: ServerSettings) -> dict[str, Any]:
    """llama-server's variables of templates: what was asked for goes before what the server was started with."""
    now = datetime.now()
    effort = fields.text("reasoning_effort")
    variables: dict[str, Any] = {
        "enable_thinking": settings.reasoning != "off", "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"), **settings.chat_template_kwargs,
    }
    if effort == "none":
        variables["enable_thinking"] = False
    elif effort is not None:
        variables["reasoning_effort"] = effort
    variables |= fields.mapping("chat_template_kwargs") or {}
    if not isinstance(variables["enable_thinking"], bool):
        raise fields.error("chat_template_kwargs.enable_thinking", "expected a boolean")
    return variables
