"""What chat templates are given beside the messages, in every dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.settings import ServerSettings
from ggpy.server.web.fields import Fields


def tools_for_template(tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any],
                       model: LoadedModel) -> tuple[list[Mapping[str, Any]] | None, dict[str, Any]]:
    """`tools` and variables as the model's template takes them. Tools are left out where it cannot write any."""
    found = list(tools) or None
    taken = dict(variables)
    if takes_functions(model.chat_template.source):
        taken.setdefault("functions", json.dumps(found, indent=4) if found else "")
    return (found if found is not None and can_write_tools(model) else None), taken


def takes_tools(model: LoadedModel) -> bool:
    """Whether the model is told of tools, in whichever way."""
    return can_write_tools(model) or takes_functions(model.chat_template.source)


def can_write_tools(model: LoadedModel) -> bool:
    """Whether the template writes tools."""
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
