"""Traces of requests that hold no text: what was shared with what, how long it was and when it came.

A trace is a file of JSON lines in Mooncake's format (Qin et al., "Mooncake", 2024): `timestamp` in milliseconds,
`input_length`, `output_length` in tokens, and `hash_ids`, a number for each block of the input, equal where a block and
all that stands before it are equal. Blocks have 512 tokens in Mooncake's files and PAGE_TOKENS here. Three fields are
ours, and may be missing: `block_tokens`; `session`, equal for the turns of a conversation; `parent`, the number of the
line (from 0) whose input and output this input begins with.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ggpy.backends.base import PAGE_TOKENS
from ggpy.errors import ConfigError, RequestError, shown

MOONCAKE_BLOCK_TOKENS = 512
MAX_LENGTH = 2**24          # tokens of an input or an output; more is no trace but a mistake

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One request of a trace."""

    timestamp_ms: float                 # when it arrived, from the beginning of the trace
    input_length: int                   # tokens
    output_length: int
    hash_ids: tuple[int, ...]           # one for each block of the input, the last one perhaps not full
    block_tokens: int = PAGE_TOKENS
    session: int | None = None
    parent: int | None = None           # line number

    def as_json(self) -> str:
        """The line of the file."""
        fields: dict[str, Any] = {
            "timestamp": round(self.timestamp_ms, 3), "input_length": self.input_length,
            "output_length": self.output_length, "hash_ids": list(self.hash_ids), "block_tokens": self.block_tokens,
            "session": self.session, "parent": self.parent}
        return json.dumps({name: value for name, value in fields.items() if value is not None})


def write_trace(path: Path, lines: Iterable[TraceLine]) -> None:
    """Write a file of `lines`."""
    path.write_text("".join(f"{line.as_json()}\n" for line in lines), encoding="utf-8", newline="\n")


def read_trace(path: Path) -> list[TraceLine]:
    """The lines of a file. Raises RequestError, with the line's number from 1, if one is malformed."""
    with path.open(encoding="utf-8", errors="replace") as file:
        texts = [text.strip() for text in file if text.strip()]
    return [_parsed(text, f"{path}, line {i}", i - 1) for i, text in enumerate(texts, start=1)]


def _parsed(text: str, where: str, number: int) -> TraceLine:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{where}: expected a JSON object, found {shown(text)}") from error
    if not isinstance(fields, dict):
        raise RequestError(f"{where}: expected a JSON object, found {shown(text)}")
    ids = fields.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
        raise RequestError(f"{where}: hash_ids: expected a list of whole numbers, found {shown(ids)}")
    timestamp = fields.get("timestamp")
    if not isinstance(timestamp, int | float) or not 0 <= timestamp < float("inf"):
        raise RequestError(f"{where}: timestamp: expected milliseconds, found {shown(timestamp)}")
    line = TraceLine(
        timestamp, _whole(fields, "input_length", 1, where), _whole(fields, "output_length", 1, where), tuple(ids),
        _whole({"block_tokens": MOONCAKE_BLOCK_TOKENS} | fields, "block_tokens", 1, where),
        None if fields.get("session") is None else _whole(fields, "session", 0, where),
        None if fields.get("parent") is None else _whole(fields, "parent", 0, where))
    if len(ids) != -(-line.input_length // line.block_tokens):
        raise RequestError(f"{where}: {len(ids)} hash_ids do not make an input of {line.input_length} tokens in blocks "
                           f"of {line.block_tokens}")
    if line.parent is not None and line.parent >= number:
        raise RequestError(f"{where}: parent {line.parent} is not an earlier line")
    return line


def _whole(fields: dict[str, Any], name: str, least: int, where: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or not least <= value <= MAX_LENGTH:
        raise RequestError(f"{where}: {name}: expected a whole number from {least}, found {shown(value)}")
    return value


class BlockIds:
    """Numbers blocks of tokens in the order in which they first come; equal blocks after equal ones are the same.

    Digests are keyed with a secret that nobody keeps, so neither they nor the numbers tell what the tokens were.
    """

    def __init__(self, block_tokens: int = PAGE_TOKENS) -> None:
        self.block_tokens = block_tokens
        self._key = secrets.token_bytes(32)
        self._ids: dict[bytes, int] = {}

    def of(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """A number for each block of `tokens`, the last one perhaps not full."""
        return tuple(self._ids.setdefault(digest, len(self._ids)) for digest in self.digests(tokens))

    def digests(self, tokens: Sequence[int]) -> Iterator[bytes]:
        """A digest for each block, of it and all that stands before it."""
        data, n_bytes = np.asarray(tokens, np.int64).tobytes(), 8 * self.block_tokens
        digest = b""
        for start in range(0, len(data), n_bytes):
            digest = hashlib.blake2b(digest + data[start : start + n_bytes], digest_size=16, key=self._key).digest()
            yield digest


class Recorder:
    """Writes a trace of the requests that an engine has answered; any thread may add to it.

    Raises ConfigError if the file exists, for its numbers would mean other blocks, and if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("x", encoding="utf-8", newline="\n")
        except FileExistsError:
            raise ConfigError(f"{path} exists; a recording needs a file of its own") from None
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; a recording needs a file that can be written") from error
        self._blocks = BlockIds()
        self._lock = threading.Lock()
        self._is_ended = False
        self._start_s: float | None = None
        self._n_lines = 0
        self._new_sessions = itertools.count()
        self._last: dict[int, int] = {}             # session -> its last line
        self._sessions: list[int] = []              # of every line
        # digest of the full blocks of a line's input and output -> (the tokens behind them, line)
        self._ends: dict[bytes, list[tuple[tuple[int, ...], int]]] = {}

    def add(self, arrival_s: float, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Note a request that has ended; `arrival_s` is a reading of one clock. One without output is left out."""
        with self._lock:
            if not output or self._is_ended:
                return
            if self._start_s is None:
                self._start_s = arrival_s
            parent = self._find_parent(prompt)
            session = self._session(parent)
            # a request that came before the first one to end has no negative time
            timestamp_ms = max(0.0, arrival_s - self._start_s) * 1000
            line = TraceLine(timestamp_ms, len(prompt), len(output), self._blocks.of(prompt), session=session,
                             parent=parent)
            try:
                self._file.write(f"{line.as_json()}\n")
                self._file.flush()
            except OSError as error:
                logger.error("%s: %s; nothing more is recorded", self._file.name, error.strerror)
                self._is_ended = True
                return
            self._remember(prompt, output, session)

    def close(self) -> None:
        """Close the file."""
        with self._lock, suppress(OSError):     # of what could not be written before
            self._file.close()

    def _session(self, parent: int | None) -> int:
        """That of the parent if this is what follows it, a new one if something else did."""
        if parent is not None and self._last[self._sessions[parent]] == parent:
            return self._sessions[parent]
        return next(self._new_sessions)

    def _remember(self, prompt: Sequence[int], output: Sequence[int], session: int) -> None:
        # the last token was never read, and the next turn may have another in its place
        tokens = [*prompt, *output[:-1]]
        n_full = len(tokens) // PAGE_TOKENS * PAGE_TOKENS
        digest = self._full_digests(tokens[:n_full])[-1]
        self._ends.setdefault(digest, []).append((tuple(tokens[n_full:]), self._n_lines))
        self._sessions.append(session)
        self._last[session] = self._n_lines
        self._n_lines += 1

    def _find_parent(self, prompt: Sequence[int]) -> int | None:
        """The line whose input and output make the longest beginning of `prompt`; of several, the last."""
        n_full = len(prompt) // PAGE_TOKENS * PAGE_TOKENS
        digests = self._full_digests(prompt[:n_full])
        for n_blocks, digest in reversed(list(enumerate(digests))):
            rest = tuple(prompt[n_blocks * PAGE_TOKENS : (n_blocks + 1) * PAGE_TOKENS])
            ends = [(len(tail), line) for tail, line in self._ends.get(digest, ()) if rest[: len(tail)] == tail]
            if ends:
                return max(ends)[1]
        return None

    def _full_digests(self, tokens: Sequence[int]) -> list[bytes]:
        """The digest of nothing, then those of each block of `tokens`, which are all full."""
        return [b"", *self._blocks.digests(tokens)]
