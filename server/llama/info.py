"""llama-server's routes that tell what the server is and does."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ggpy.engine.prometheus import CONTENT_TYPE
from ggpy.server.context import Server
from ggpy.server.errors import LoadingError, NotSupportedError
from ggpy.server.jobs.job_settings import settings_object
from ggpy.server.llama.router import router_props
from ggpy.server.model_pool.models import Entry, LoadedModel
from ggpy.server.model_pool.slots import Slot
from ggpy.server.web.replies import FINGERPRINT, json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/health, /props, /slots and /metrics."""
    async def health(request: web.Request) -> web.Response:
        if server.models.is_single and (entry := server.models.single).state == "failed":
            raise LoadingError(f"the model could not be loaded: {entry.error}")
        return json_response({"status": "ok"})

    async def props(request: web.Request) -> web.Response:
        if not server.models.is_single and "model" not in request.query:
            return json_response(router_props(server, FINGERPRINT))
        return json_response(props_object(server, server.models.asked(request.query.get("model"))))

    async def change_props(request: web.Request) -> web.Response:
        require(server.settings.has_props, "This server does not support changing global properties. Start it with "
                "`--props`")
        return json_response({"success": True})

    async def slots(request: web.Request) -> web.Response:
        require(server.settings.has_slots, "This server does not support slots endpoint. Start it without `--no-slots`")
        entry = server.models.asked(request.query.get("model"))
        model = entry.loaded or entry.last or await server.models.load(entry)
        if request.query.get("fail_on_no_slot") and not model.slots.n_idle:
            raise LoadingError("no slot available")
        return json_response([slot_object(slot, model) for slot in model.slots.slots])

    async def metrics(request: web.Request) -> web.Response:
        require(server.settings.has_metrics, "This server does not support metrics endpoint. Start it with `--metrics`")
        text = await server.models.metrics(server.models.asked(request.query.get("model")))
        return web.Response(body=text.encode(), headers={
            "Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": str(int(server.started_s))})

    async def disabled(request: web.Request) -> web.Response:
        return json_response({"error": {"message": "this feature is disabled", "type": "feature_disabled"}}, 403)

    return [
        *(Route("GET", path, health) for path in ("/health", "/v1/health")),
        Route("GET", "/props", props), Route("POST", "/props", change_props), Route("GET", "/slots", slots),
        Route("GET", "/metrics", metrics),
        *(Route(method, path, disabled) for path in ("/tools", "/cors-proxy") for method in ("GET", "POST")),
    ]


def require(is_on: bool, message: str) -> None:
    """Raise NotSupportedError with `message` unless the server has what is asked for."""
    if not is_on:
        raise NotSupportedError(message)


def props_object(server: Server, entry: Entry) -> dict[str, Any]:
    """What /props tells; much of it is known only of a model that was loaded."""
    settings, model = server.settings, entry.loaded or entry.last
    known = {} if model is None else model_props(model)
    return {
        "total_slots": settings.n_slots, "model_alias": entry.name, "model_path": entry.source,
        "modalities": {"vision": False, "video": False, "audio": False}, "media_marker": "<__media__>",
        "endpoint_slots": settings.has_slots, "endpoint_props": settings.has_props,
        "endpoint_metrics": settings.has_metrics, "ui": settings.has_ui, "ui_settings": {},
        "build_info": FINGERPRINT, "is_sleeping": entry.state == "sleeping", "cors_proxy_enabled": False, **known,
    }


def model_props(model: LoadedModel) -> dict[str, Any]:
    tokenizer, template = model.tokenizer, model.chat_template
    can = template.capabilities
    props = {
        "default_generation_settings": {"params": settings_object(model.defaults), "n_ctx": model.n_ctx},
        "model_ftype": model.info.file_type, "model_path": str(model.info.path), "chat_template": template.source,
        "chat_template_caps": {
            "supports_tools": can.tools, "supports_tool_calls": can.tool_calls, "supports_system_role": can.system_role,
            "supports_parallel_tool_calls": can.tool_calls},
        "bos_token": token_text(tokenizer.bos_id, model), "eos_token": token_text(tokenizer.eos_id, model),
    }
    if "tool_use" in template.variants:
        props["chat_template_tool_use"] = template.variants["tool_use"].source
    return props


def token_text(token: int | None, model: LoadedModel) -> str:
    return "" if token is None else model.tokenizer.token_bytes(token).decode("utf-8", "replace")


def slot_object(slot: Slot, model: LoadedModel) -> dict[str, Any]:
    """What /slots tells of one; what it did last shows while it is idle."""
    status = {"id": slot.id, "n_ctx": model.n_ctx, "speculative": False, "is_processing": slot.task is not None}
    task = slot.task or slot.last
    if task is None:
        return status
    is_idle = slot.task is None
    left = -1 if is_idle or task.n_predict is None else task.n_predict - task.n_decoded
    return {**status, "id_task": task.id, "n_prompt_tokens": len(task.prompt),
            "n_prompt_tokens_processed": max(0, task.n_computed - task.n_cached),
            "n_prompt_tokens_cache": task.n_cached, "params": task.settings,
            "next_token": [{"has_next_token": not is_idle, "has_new_line": task.has_new_line, "n_remain": left,
                            "n_decoded": 0 if is_idle else task.n_decoded}]}
