"""A sequence's keys and values in a file, so that its tokens need not be computed again.

    8 bytes     MAGIC
    u32, u32    VERSION, bytes of the header; little-endian
    header      msgpack, see Header
    pages       of each group in order: pages first_page .. pages_for(tokens) - 1 of the sequence, page_bytes each
    32 bytes    SHA-256 of all before

A file is hostile input: all of it is checked before the cache is touched. It fits where it would be computed again with
the same bits: same model, processor level, kernels and cache types.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from ggpy.backends.base import PAGE_TOKENS, KVIdentity
from ggpy.engine.kv_cache import KVCache, SequenceKV
from ggpy.engine.pages import pages_for
from ggpy.engine.prefix_node import TOKEN_BYTES, to_key, to_tokens
from ggpy.errors import OutOfPagesError, SavedStateError, printable

MAGIC = b"ggpy-kv\0"
VERSION = 1
PREFIX = struct.Struct("<8sII")
DIGEST_BYTES = 32
SLICE_BYTES = 1 << 20


class Pages(Protocol):
    """What is asked of a backend; `Backend` says what each method does."""

    def kv_identity(self) -> KVIdentity: ...
    def page_bytes(self, group: int) -> int: ...
    def read_page(self, group: int, page: int) -> bytes: ...
    def write_page(self, group: int, page: int, data: bytes) -> None: ...


class SavedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is there of a KV group. `first_page` is the first page that the next token sees, or an earlier one."""

    window: int | None
    page_bytes: int
    first_page: int


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the pages are. `tokens` are 64-bit integers, little-endian."""

    model: str
    numeric_path: str
    cache_types: tuple[str, str]
    page_tokens: int
    groups: tuple[SavedGroup, ...]
    salt: int
    tokens: bytes

    @property
    def num_tokens(self) -> int:
        return len(self.tokens) // TOKEN_BYTES

    @property
    def num_pages(self) -> int:
        """Columns of the page table that the tokens take."""
        return pages_for(self.num_tokens)

    @property
    def pages_bytes(self) -> int:
        return sum(group.page_bytes * (self.num_pages - group.first_page) for group in self.groups)


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a file holds."""

    tokens: list[int]
    salt: int
    size_bytes: int


def save_state(path: str | os.PathLike[str], backend: Pages, cache: KVCache, tokens: Sequence[int],
               salt: int = 0, head: bytes = b"") -> SavedState:
    """Write the longest prefix of `tokens` that `cache` holds, whether its sequence is live or has ended.

    `head` stands in front of it, for the caller's own use. The file is there as a whole or not at all. Raises
    SavedStateError if nothing of `tokens` is there or the file cannot be written.
    """
    path = Path(path)
    kv = cache.open([*tokens, 0], salt)      # which does not look for the last one
    try:
        if not kv.num_computed:
            raise SavedStateError(f"{path}: none of these {len(tokens):,} tokens is computed; there is nothing to save")
        header = _header_of(backend, cache, kv, tokens)
        size = _write_whole(path, head, msgspec.msgpack.encode(header), _pages(backend, kv, header))
    except (OSError, ValueError) as error:      # ValueError: a NUL in the path
        raise SavedStateError(f"{path}: the state cannot be written: {error}") from error
    finally:
        cache.close(kv)
    return SavedState(to_tokens(header.tokens), salt, size)


def restore_state(path: str | os.PathLike[str], backend: Pages, cache: KVCache, *, start: int = 0,
                  salt: int | None = None) -> SavedState:
    """Put what `save_state` wrote into `cache`, idle: who asks for these tokens under this salt next reuses it.

    `start` is how many bytes the head has, `salt` takes the place of the one that it was saved with. Raises
    SavedStateError if the file is damaged or does not belong here, OutOfPagesError if the pools are too small; then the
    cache has nothing of it.
    """
    path = Path(path)
    if not path.is_file():
        raise SavedStateError(f"{path}: there is no such file; expected a saved state")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - start
            file.seek(start)
            header = _read_header(path, file, size)
            _check_identity(path, header, backend)
            _check_pages(path, header, backend, cache)
            if salt is not None:
                header = msgspec.structs.replace(header, salt=salt)
            pages_start = file.tell()
            _check_size(path, pages_start - start + header.pages_bytes + DIGEST_BYTES, size)
            _check_digest(path, file, start, size)
            _fill(path, file, pages_start, header, backend, cache)
    except (OSError, ValueError) as error:      # ValueError: a page that is shorter than before
        raise SavedStateError(f"{path}: the saved state cannot be read: {error}") from error
    return SavedState(to_tokens(header.tokens), header.salt, size)


def _header_of(backend: Pages, cache: KVCache, kv: SequenceKV, tokens: Sequence[int]) -> Header:
    identity = backend.kv_identity()
    groups = tuple(SavedGroup(window, backend.page_bytes(group), kv.first_held[group])
                   for group, window in enumerate(cache.windows))
    return Header(model=identity.model, numeric_path=identity.numeric_path, cache_types=identity.cache_types,
                  page_tokens=PAGE_TOKENS, groups=groups, salt=kv.salt, tokens=to_key(tokens[: kv.num_computed]))


def _pages(backend: Pages, kv: SequenceKV, header: Header) -> Iterator[bytes]:
    for group, saved in enumerate(header.groups):
        for page in kv.page_table[group, saved.first_page : header.num_pages].tolist():
            yield backend.read_page(group, page)


def _write_whole(path: Path, head: bytes, header: bytes, pages: Iterator[bytes]) -> int:
    """Write a file and put it in place; returns its size."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".saving-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            digest = hashlib.sha256()
            for part in chain((PREFIX.pack(MAGIC, VERSION, len(header)), header), pages):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return size


def _read_header(path: Path, file: BinaryIO, size: int) -> Header:
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise SavedStateError(f"{path}: this is not a saved state of ggpy (it begins with {prefix[:8]!r})")
    _, version, n_bytes = PREFIX.unpack(prefix)
    if version != VERSION:
        raise SavedStateError(f"{path}: the saved state has version {version}, expected {VERSION}; save it again")
    if n_bytes > size - PREFIX.size - DIGEST_BYTES:
        raise SavedStateError(f"{path}: the header has {n_bytes:,} bytes but the file {size:,}; is it complete?")
    try:
        return msgspec.msgpack.decode(file.read(n_bytes), type=Header)
    except msgspec.MsgspecError as error:
        raise SavedStateError(f"{path}: the header is damaged: {error}") from error


def _check_identity(path: Path, header: Header, backend: Pages) -> None:
    """Raise SavedStateError unless what is computed here has the bits of what is saved."""
    identity = backend.kv_identity()
    for what, found, expected in (
            ("model", header.model, identity.model), ("numeric path", header.numeric_path, identity.numeric_path),
            ("KV cache types", "/".join(header.cache_types), "/".join(identity.cache_types)),
            ("page size", header.page_tokens, PAGE_TOKENS)):
        if found != expected:
            raise SavedStateError(f"{path}: the state was saved with another {what} (found "
                                  f"{printable(str(found)):.80}, expected {expected}); compute it again here")


def _check_pages(path: Path, header: Header, backend: Pages, cache: KVCache) -> None:
    """Raise SavedStateError unless the header tells of whole tokens and of pages as this cache has them."""
    if not header.tokens or len(header.tokens) % TOKEN_BYTES:
        raise SavedStateError(f"{path}: found {len(header.tokens):,} bytes of tokens, expected a multiple of "
                              f"{TOKEN_BYTES}, one token or more")
    if header.num_pages > cache.table_pages:
        raise SavedStateError(f"{path}: the state has {header.num_tokens:,} tokens but the context holds "
                              f"{cache.table_pages * PAGE_TOKENS:,}; load the model with a longer context")
    found = [(group.window, group.page_bytes) for group in header.groups]
    expected = [(window, backend.page_bytes(group)) for group, window in enumerate(cache.windows)]
    if found != expected:
        raise SavedStateError(f"{path}: found KV groups of (window, page bytes) {found}, expected {expected}")
    for group, saved in enumerate(header.groups):
        last = cache.first_seen(group, header.num_tokens)
        if not 0 <= saved.first_page <= last:
            raise SavedStateError(f"{path}: KV group {group} begins with page {saved.first_page}, expected 0 to {last}")


def _check_size(path: Path, expected: int, size: int) -> None:
    if size != expected:
        raise SavedStateError(f"{path}: found {size:,} bytes, expected {expected:,}; is the file complete?")


def _check_digest(path: Path, file: BinaryIO, start: int, size: int) -> None:
    file.seek(start)
    digest = hashlib.sha256()
    for done in range(0, size - DIGEST_BYTES, SLICE_BYTES):
        digest.update(file.read(min(SLICE_BYTES, size - DIGEST_BYTES - done)))
    if file.read(DIGEST_BYTES) != digest.digest():
        raise SavedStateError(f"{path}: the checksum does not match: the file is damaged; compute the state again")


def _fill(path: Path, file: BinaryIO, start: int, header: Header, backend: Pages, cache: KVCache) -> None:
    """Give the tokens pages in the cache, those that it lacks, and fill these from the file's pages at `start`."""
    tokens = to_tokens(header.tokens)
    kv = cache.open([*tokens, 0], header.salt)      # the last token of a prompt is never reused
    n_reused = kv.num_computed // PAGE_TOKENS
    is_whole = False
    try:
        _check_room(path, header, cache, header.num_pages - kv.n_pages)
        for column in range(n_reused, header.num_pages):        # page by page: a window's pool has no room for all
            n_tokens = min(header.num_tokens, (column + 1) * PAGE_TOKENS)
            if not cache.reserve(kv, n_tokens):
                raise OutOfPagesError(f"{path}: no KV pages are left for {n_tokens:,} tokens")
            at = start
            for group, saved in enumerate(header.groups):
                if column >= saved.first_page:
                    file.seek(at + (column - saved.first_page) * saved.page_bytes)
                    backend.write_page(group, int(kv.page_table[group, column]), file.read(saved.page_bytes))
                at += (header.num_pages - saved.first_page) * saved.page_bytes
            cache.advance(kv, tokens, n_tokens)
        is_whole = True
    finally:
        unfilled = [kv.path[n_reused : saved.first_page] for saved in header.groups]
        if is_whole:
            cache.close(kv)
        else:
            cache.discard(kv)
        for group, nodes in enumerate(unfilled):
            cache.forget(nodes, group)


def _check_room(path: Path, header: Header, cache: KVCache, n_missing: int) -> None:
    """Raise OutOfPagesError unless free and idle pages are enough for `n_missing` more columns, one after the other."""
    for group, saved in enumerate(header.groups):
        n_needed = n_missing
        if group > 0 and saved.window is not None:
            n_needed = min(n_missing, pages_for(saved.window) + 1)
        n_there = cache.n_free[group] + cache.n_idle[group]
        if n_there < n_needed:
            raise OutOfPagesError(f"{path}: the state needs {n_needed:,} KV pages of group {group} and {n_there:,} are "
                                  "free or idle; try again when requests have ended")
