"""Where a request has `cache_control`, and which of the prompt's tokens that is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ggpy.errors import RequestError
from ggpy.server.web.fields import Fields

LIFETIMES_S = {"5m": 300.0, "1h": 3600.0}
MAX_BREAKPOINTS = 4
MAX_MISSED = 64         # texts that are looked for in vain, which takes time for each

Part = Literal["tools", "system", "messages"]
Keep = tuple[int, float]        # tokens from the prompt's beginning on, and how many seconds they are evicted last


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a request, in Anthropic's order: tools, the system's texts, and those of messages."""

    part: Part
    text: str                   # by which it is found in the prompt; "": it is written in a way that nobody knows
    keep_s: float | None        # how long all up to its end is to be kept; None: it has no `cache_control`


def read_blocks(fields: Fields) -> list[Block]:
    """All pieces of a request. A `cache_control` of the request itself counts as its last piece's.

    Raises RequestError for one that is malformed, for too many, and for a long lifetime behind a short one: what is
    kept is the beginning of a prompt.
    """
    blocks = [Block(part, text, lifetime(place)) for part, text, place in _pieces(fields)]
    own_s = lifetime(fields)
    if own_s is not None and (not blocks or blocks[-1].keep_s is None):
        blocks.append(Block("messages", "", own_s))
    lifetimes = [block.keep_s for block in blocks if block.keep_s is not None]
    if len(lifetimes) > MAX_BREAKPOINTS:
        raise RequestError(f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found "
                           f"{len(lifetimes)}.")
    if lifetimes != sorted(lifetimes, reverse=True):
        raise RequestError("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block; their "
                           "order is that of tools, system and messages")
    return blocks


def lifetime(place: Fields) -> float | None:
    """The seconds of its `cache_control`; None if it has none. Raises FieldError."""
    if "cache_control" not in place:
        return None
    control = place.nested("cache_control")
    control.choice("type", ("ephemeral",), "")
    return LIFETIMES_S[control.choice("ttl", tuple(LIFETIMES_S), "5m")]


def _pieces(fields: Fields) -> Iterator[tuple[Part, str, Fields]]:
    nothing = Fields({})
    for tool in fields.objects("tools"):
        yield "tools", "", tool
    system = fields.get("system")
    if isinstance(system, list):
        yield from (("system", _text(block), block) for block in fields.objects("system"))
    elif isinstance(system, str):
        yield "system", system, nothing
    for message in fields.objects("messages"):
        content = message.get("content")
        if isinstance(content, list):
            yield from (("messages", _text(block), block) for block in message.objects("content"))
        elif isinstance(content, str):
            yield "messages", content, nothing


def _text(block: Fields) -> str:
    """The last text in a block."""
    text: Any = block.get("text")
    if text is None and isinstance(content := block.get("content"), str | list):
        last = content[-1] if isinstance(content, list) and content else content
        text = last.get("text") if isinstance(last, dict) else last
    return text if isinstance(text, str) else ""


def keeps_of(blocks: Sequence[Block], prompt: str, tokens: Sequence[int],
             lengths: NDArray[np.int64]) -> tuple[Keep, ...]:
    """How many of `tokens`, which `prompt` is in, are to be kept how long; `lengths` has the bytes of each token.

    They are some tokens off where the tokens spell other bytes than `prompt`, such as one that begins all texts.
    """
    marked = [(i, block.keep_s) for i, block in enumerate(blocks) if block.keep_s is not None]
    if not marked:
        return ()
    ends = _ends(blocks, prompt)
    n_bytes = np.cumsum(lengths[np.asarray(tokens, np.int64)])
    keeps = []
    for i, keep_s in marked:
        end = len(prompt) if i == len(blocks) - 1 else ends[i]
        n = len(tokens) if end == len(prompt) else int(np.searchsorted(n_bytes, len(prompt[:end].encode()), "right"))
        keeps.append((n, keep_s))
    return tuple(keeps)


def _ends(blocks: Sequence[Block], prompt: str) -> list[int]:
    """Where each block ends in `prompt`, or what is known to stand before its end.

    Each text is looked for behind the one before, so a place may be too early by what also occurs before it; too late
    it is where the template changes a text that comes again further on. Templates write tools and the system's text in
    either order: what ends them all ends where the first message begins.
    """
    found: list[tuple[int, int]] = []       # beginning and end; a text that is not found is where the one before ends
    at = n_missed = 0
    for block in blocks:
        text = block.text.strip()
        start = prompt.find(text, at) if text and n_missed < MAX_MISSED else -1
        n_missed += start < 0 and text != ""
        found.append((at, at) if start < 0 else (start, start + len(text)))
        at = found[-1][1]
    ends = [end for _, end in found]
    parts = [block.part for block in blocks]
    first = parts.index("messages") if "messages" in parts else None
    head_end = len(prompt) if first is None else max(found[first][0], max(ends[:first], default=0))
    for i, block in enumerate(blocks):
        if block.part == "tools" or (block.part == "system" and (i + 1 == len(blocks) or parts[i + 1] != "system")):
            ends[i] = head_end
        elif block.part == "messages" and not block.text.strip() and i + 1 < len(blocks):
            ends[i] = max(ends[i], found[i + 1][0])
    return ends
