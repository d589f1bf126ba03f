"""llama-server's files of slots: what was computed for a prompt, saved and restored.

A file begins as llama.cpp's do, with the tokens, for programs that read these; behind that is the engine's own state.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from ggpy.errors import RequestError, SavedStateError, shown
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.generation import new_salt
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.model_pool.slots import Slot
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

HEAD = struct.Struct("<4sII")           # magic, version, 32-bit words of the tokens' part
MAGIC, VERSION = b"qsgg", 3             # llama.cpp's, of a sequence's state
PACKED = struct.Struct("<iII")          # no token, version, number of tokens
PACKED_VERSION = 1


def routes(server: Server) -> list[Route]:
    """/slots/{id}?action=save, restore and erase."""
    async def act(request: web.Request) -> web.Response:
        folder = server.settings.slot_save_path
        if folder is None:
            raise NotSupportedError("This server does not support slots action. Start it with `--slot-save-path`")
        fields = await read_fields(request)
        async with server.models.use(request.query.get("model")) as model:
            slot = find_slot(request.match_info["id"], model)
            match request.query.get("action"):
                case "save":
                    return json_response(await save(model, slot, folder, file_name(fields)))
                case "restore":
                    return json_response(await restore(model, slot, folder, file_name(fields)))
                case "erase":
                    return json_response(await erase(model, slot))
        raise RequestError("Invalid action; expected save, restore or erase")

    return [Route("POST", "/slots/{id}", act, changes_server=True)]


def find_slot(text: str, model: LoadedModel) -> Slot:
    """The slot of that number. Raises RequestError."""
    slots = model.slots.slots
    if not text.isdecimal() or len(text) > 9 or int(text) >= len(slots):
        raise RequestError(f"Invalid slot ID: {shown(text)}, expected 0 to {len(slots) - 1}")
    return slots[int(text)]


def file_name(fields: Fields) -> str:
    """The name in field `filename`, which is no path. Raises RequestError."""
    name = fields.text("filename", default="")
    is_plain = name == Path(name).name and name not in ("", ".", "..") and name.isprintable() and len(name) <= 200
    if not is_plain or set(name) & set('\\/:*?"<>|') or name.startswith(".") or name.endswith((" ", ".")):
        raise RequestError("Invalid filename")
    return name


async def save(model: LoadedModel, slot: Slot, folder: Path, name: str) -> dict[str, Any]:
    start_s = time.perf_counter()
    saved = await model.client.save_state(str(folder / name), slot.tokens, slot.salt, head_of(slot.tokens))
    return {"id_slot": slot.id, "filename": name, "n_saved": len(saved.tokens),
            "n_written": (folder / name).stat().st_size, "timings": {"save_ms": (time.perf_counter() - start_s) * 1e3}}


async def restore(model: LoadedModel, slot: Slot, folder: Path, name: str) -> dict[str, Any]:
    """What the file holds is found by requests that get the slot, whatever others have computed meanwhile."""
    start_s, path = time.perf_counter(), folder / name
    salt = new_salt()
    restored = await model.client.restore_state(str(path), start=head_size(path), salt=salt)
    slot.tokens, slot.salt = list(restored.tokens), salt
    return {"id_slot": slot.id, "filename": name, "n_restored": len(restored.tokens), "n_read": path.stat().st_size,
            "timings": {"restore_ms": (time.perf_counter() - start_s) * 1e3}}


async def erase(model: LoadedModel, slot: Slot) -> dict[str, Any]:
    tokens, slot.tokens = slot.tokens, []
    if tokens:
        await model.client.erase_state(tokens, slot.salt)
    slot.salt = 0
    return {"id_slot": slot.id, "n_erased": len(tokens)}


def head_of(tokens: Sequence[int]) -> bytes:
    """How a file begins that holds `tokens`."""
    packed = PACKED.pack(-1, PACKED_VERSION, len(tokens)) + struct.pack(f"<{len(tokens)}i", *tokens)
    return HEAD.pack(MAGIC, VERSION, len(packed) // 4) + packed


def head_size(path: Path) -> int:
    """Bytes in front of the engine's state. Raises SavedStateError."""
    try:
        with path.open("rb") as file:
            data = file.read(HEAD.size)
    except OSError as error:
        raise SavedStateError(f"{path.name}: {error.strerror or error}; expected a saved slot") from error
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise SavedStateError(f"{path.name}: this is no saved slot")
    n_words: int = HEAD.unpack(data)[2]
    return HEAD.size + 4 * n_words
