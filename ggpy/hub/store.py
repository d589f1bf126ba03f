"""The models that a user made under names of their own: a file, and what is said of it in a Modelfile.

    blobs/sha256-HEX                        what was uploaded: model files and adapters
    models/HOST/NAMESPACE/MODEL/TAG.json    a model
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ggpy import config
from ggpy.errors import RequestError, shown
from ggpy.hub.filelock import exclusive
from ggpy.hub.model_names import ModelName

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LEFTOVER_S = 86_400         # after so long an upload that no model uses is forgotten
RESERVE_BYTES = 1 << 29     # of the disk that uploads leave free
LOOK_BYTES = 1 << 26        # how often they look


class StoredModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model."""

    name: str                                   # the whole name, in the case of letters that its maker chose
    source: str                                 # the digest of a blob, else whatever ggpy takes for a model
    adapters: tuple[str, ...] = ()              # the same
    template: str | None = None                 # in place of the file's
    system: str | None = None
    parameters: dict[str, Any] = {}
    messages: tuple[dict[str, str], ...] = ()   # in front of every conversation
    licenses: tuple[str, ...] = ()
    parent: str = ""                            # the name of the model that it was made from

    @property
    def digests(self) -> tuple[str, ...]:
        """The blobs of the store that it is made of."""
        return tuple(filter(is_digest, (self.source, *self.adapters)))

    @property
    def sha256(self) -> str:
        """Tells two models apart, 64 hexadecimal digits; the name does not count."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, name=""))).hexdigest()


def is_digest(text: str) -> bool:
    return DIGEST.fullmatch(text) is not None


def check_digest(text: str) -> str:
    """`text`, if it is a digest; "sha256-" counts for "sha256:". Raises RequestError."""
    digest = text.replace("sha256-", "sha256:", 1)
    if not is_digest(digest):
        raise RequestError(f"invalid digest format: {shown(text)}; expected sha256: and 64 hexadecimal digits")
    return digest


class ModelStore:
    """The models in a folder, which need not exist yet. Several processes may use it at a time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = config.store_dir() if folder is None else folder

    @property
    def _blobs(self) -> Path:
        return self.folder / "blobs"

    @property
    def _models(self) -> Path:
        return self.folder / "models"

    def models(self) -> list[StoredModel]:
        """All of them; files that are none are left out."""
        return [model for path in sorted(self._models.glob("*/*/*/*.json")) if (model := _read(path)) is not None]

    def find(self, name: ModelName) -> StoredModel | None:
        """The model of that name, in any case of letters."""
        path = self._find(name)
        return None if path is None else _read(path)

    def modified_s(self, name: ModelName) -> float:
        """When the model was made, in seconds since 1970; 0 if there is none."""
        path = self._find(name)
        return 0.0 if path is None else path.stat().st_mtime

    def save(self, model: StoredModel) -> None:
        """Keep `model`, in place of one of the same name. Raises RequestError if one of its blobs is not here."""
        name = ModelName.parse(model.name)
        with self._locked():
            for digest in model.digests:
                if not self.has_blob(digest):
                    raise RequestError(f"blob {digest} is not here; upload it by POST /api/blobs/{digest} first")
            old = self._find(name)
            path = self._path(name) if old is None else old
            before = None if old is None else _read(old)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, msgspec.json.format(msgspec.json.encode(model), indent=2))
            self._prune(() if before is None else before.digests)

    def delete(self, name: ModelName) -> bool:
        """Forget the model, and the blobs that no other uses; false if there is none."""
        with self._locked():
            path = self._find(name)
            if path is None:
                return False
            model = _read(path)
            path.unlink()
            for folder in path.parents[:3]:
                if any(folder.iterdir()):
                    break
                folder.rmdir()
            self._prune(() if model is None else model.digests)
            return True

    def has_blob(self, digest: str) -> bool:
        return self.blob_path(digest).is_file()

    def blob_path(self, digest: str) -> Path:
        """Where the blob lies, or would. Raises RequestError for what is no digest."""
        return self._blobs / check_digest(digest).replace(":", "-")

    def upload(self, digest: str) -> Upload:
        """Takes the bytes of a blob; use as a context manager."""
        return Upload(self.blob_path(digest), check_digest(digest))

    def prune(self, digests: Iterable[str]) -> None:
        """Delete those of the blobs that no model uses."""
        with self._locked():
            self._prune(digests)

    def sweep(self) -> None:
        """Delete what uploads left that were broken off, and blobs that are old and that no model uses."""
        if not self._blobs.is_dir():
            return
        with self._locked():
            old = [path for path in self._blobs.iterdir() if path.stat().st_mtime < time.time() - LEFTOVER_S]
            for path in old:
                if path.name.startswith("part-"):
                    path.unlink()
            self._prune(digest for path in old if is_digest(digest := path.name.replace("-", ":", 1)))

    def _prune(self, digests: Iterable[str]) -> None:
        unused = set(digests)
        if unused:
            unused -= {digest for model in self.models() for digest in model.digests}
        for digest in unused:
            self.blob_path(digest).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with exclusive(self.folder / "lock", _nothing):
            yield

    def _path(self, name: ModelName) -> Path:
        return self._models / name.host.replace(":", "+") / name.namespace / name.model / f"{name.tag}.json"

    def _find(self, name: ModelName) -> Path | None:
        """The file of a model; its name may be there in another case of letters."""
        path = self._path(name)
        if path.is_file():
            return path
        for other in self._models.glob("*/*/*/*.json"):
            if other.relative_to(self._models).as_posix().lower() == path.relative_to(self._models).as_posix().lower():
                return other
        return None


class Upload:
    """A blob on its way. It has its name only if all of it came and has the right sha256; else nothing stays."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self._digest = digest
        self._sha256 = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._part = self._path.with_name(f"part-{secrets.token_hex(8)}")
        self._file = self._part.open("xb")      # who may read it is for the umask to say, as of other files
        return self

    def check_room(self, n_bytes: int) -> None:
        """Raise RequestError unless the disk has room for so many more."""
        free = shutil.disk_usage(self._path.parent).free - RESERVE_BYTES
        if free < n_bytes:
            raise RequestError(f"{n_bytes:,} bytes do not fit: the disk has room for {max(0, free):,}; make room, or "
                               "set GGPY_HOME to a folder on a larger disk")

    def write(self, data: bytes) -> None:
        """Append `data`. Raises RequestError when the disk is nearly full."""
        if self._size // LOOK_BYTES != (self._size + len(data)) // LOOK_BYTES:
            self.check_room(LOOK_BYTES)
        self._file.write(data)
        self._sha256.update(data)
        self._size += len(data)

    def finish(self) -> None:
        """Give the blob its name. Raises RequestError if it is another than was said."""
        found = f"sha256:{self._sha256.hexdigest()}"
        if found != self._digest:
            raise RequestError(f"digest mismatch, expected {self._digest}, got {found}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, self._path)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


def _read(path: Path) -> StoredModel | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoredModel)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(path: Path, data: bytes) -> None:
    """Put `data` in place of the file, all of it or nothing."""
    part = path.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


_nothing: Callable[[], None] = lambda: None     # noqa: E731
