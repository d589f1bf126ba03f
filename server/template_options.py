"""What chat templates are given beside the messages, in every dialect."""

from __future__ import annotations

import json
import re
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
    variables = template_variables(fields, settings)
    if takes_functions(model.chat_template.source):
        variables.setdefault("functions", json.dumps(tools, indent=4) if tools else "")
    if tools is not None and not can_write_tools(model):
        tools = None
    return {"tools": tools, "chat_template_kwargs": variables,
            "add_generation_prompt": fields.boolean("add_generation_prompt", default=True)}


def can_write_tools(model: LoadedModel) -> bool:
    """Whether the template tells the model of tools."""
    template = model.chat_template
    return template.variants.get("tool_use", template).capabilities.tools


def takes_functions(source: str) -> bool:
    """Whether a template has tools as a text in a variable of its own, as FireFunction's does."""
    return re.search(r"\btools\b", source) is None and re.search(r"[+{]\s*functions\b", source) is not None


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
