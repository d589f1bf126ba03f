"""Models of Hugging Face: `hf:user/repo:QUANT` becomes verified files in huggingface_hub's own cache."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggpy import config
from ggpy.errors import PullError, printable
from ggpy.hub.filelock import exclusive
from ggpy.hub.names import DEFAULT_QUANT, HubModel, choose
from ggpy.hub.progress import Progress, ProgressLines, StartProgress

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

logger = logging.getLogger("ggpy")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve(model: HubModel, *, offline: bool = False, progress: StartProgress = ProgressLines) -> Path:
    """The file of `model`: the cached one if it is sure to be the one meant, else as `pull`."""
    sure = HubModel(model.repo, model.quant or DEFAULT_QUANT)
    return find_cached(sure) or pull(model, offline=offline, progress=progress)


def pull(model: HubModel, *, offline: bool = False, progress: StartProgress = ProgressLines) -> Path:
    """Fetch what the cache lacks of `model`; returns the path of its file, of a split one the first part.

    Only whole files with the sha256 that the hub states get their names. What an interrupted pull has fetched is kept
    for the next. Offline, or when the hub is out of reach, the cache has to do. Raises PullError.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    with _explained(model):
        if offline or constants.HF_HUB_OFFLINE:
            return _cached_or_raise(model, "ggpy is offline")
        try:
            info = HfApi().model_info(model.repo, files_metadata=True)
        except HfHubHTTPError:      # it was reached, and refuses
            raise
        except _unreachable() as error:
            path = _cached_or_raise(model, f"{constants.ENDPOINT} cannot be reached ({_one_line(error)})")
            logger.warning("%s cannot be reached; using the %s that is here", constants.ENDPOINT, path.name)
            return path
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        files = [siblings[name] for name in choose(list(siblings), model)]
        assert info.sha is not None
        return _fetch(model, files, info.sha, progress)


def find_cached(model: HubModel) -> Path | None:
    """The file of `model` in the cache, all its parts being there; None if it is not. The newest revision counts."""
    snapshots = _repo_folder(model) / "snapshots"
    if not snapshots.is_dir():
        return None
    for snapshot in sorted(snapshots.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True):
        try:
            return snapshot / choose(_file_names(snapshot), model)[0]
        except PullError:       # not in this revision, or a part of it is missing
            continue
    return None


def _file_names(snapshot: Path) -> list[str]:
    return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]


def cached() -> list[tuple[HubModel, list[Path]]]:
    """Every whole model in the cache: the name that means just this one, and its files."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    found: dict[HubModel, list[Path]] = {}
    for path in sorted(cache.glob("models--*/snapshots/*/**/*.gguf")):
        folder, _, _, *names = path.relative_to(cache).parts
        model = HubModel("/".join(folder.split("--")[1:]), "/".join(names))
        first = find_cached(model)
        if first is not None and first.name == path.name:       # the other parts are named by the first
            snapshot = cache / folder / "snapshots" / first.relative_to(cache / folder / "snapshots").parts[0]
            found[model] = [snapshot / name for name in choose(_file_names(snapshot), model)]
    return list(found.items())


def remove(model: HubModel) -> bool:
    """Delete the files of `model` from the cache, in every revision; returns whether there were any.

    Contents that another file of the repository shares stay, and so does whatever a name outside of the cache means.
    """
    folder = _repo_folder(model)
    removed = False
    for snapshot in list((folder / "snapshots").glob("*")):
        try:
            paths = [snapshot / name for name in choose(_file_names(snapshot), model)]
        except PullError:       # not in this revision
            continue
        for path in paths:
            blob = path.resolve()
            path.unlink()
            removed = True
            others = (folder / "snapshots").rglob("*")
            if blob.parent == (folder / "blobs").resolve() and all(other.resolve() != blob for other in others):
                blob.unlink(missing_ok=True)
    return removed


def _cached_or_raise(model: HubModel, reason: str) -> Path:
    path = find_cached(model)
    if path is None:
        raise PullError(f"{model} is not on this machine and {reason}; run `ggpy pull {model}` with a network, or give "
                        "ggpy a GGUF file by its path")
    return path


def _fetch(model: HubModel, files: Sequence[RepoSibling], commit: str, progress: StartProgress) -> Path:
    """Bring `files` of revision `commit` into the cache; returns the path of the first."""
    from huggingface_hub import hf_hub_download

    blobs = _repo_folder(model) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    sizes = [_size_and_sha256(model, file)[0] for file in files]
    _check_free_space(model, blobs, files)
    paths = []
    with progress(f"pulling {model}", sum(sizes)) as shown:
        for i, file in enumerate(files):
            _fetch_blob(model, file, commit, blobs, partial(_report, shown, sum(sizes[:i])))
            # the blob is there by now: this only gives it its name
            paths.append(Path(hf_hub_download(model.repo, file.rfilename)))
    for file, path in zip(files, paths, strict=True):
        if not _holds(path, *_size_and_sha256(model, file)):
            raise PullError(f"{model}: {file.rfilename} was replaced on the hub meanwhile; run `ggpy pull "
                            f"{model}` again")
    return paths[0]


def _holds(path: Path, size: int, sha256: str) -> bool:
    """Whether the cache's `path` is the file that was verified: a link names its sha256, a copy has to be read."""
    if path.is_symlink():
        return path.resolve().name == sha256
    return path.stat().st_size == size and file_sha256(path) == sha256


def _report(progress: Progress, before: int, done_bytes: int) -> None:
    progress.update(before + done_bytes)


def _fetch_blob(model: HubModel, file: RepoSibling, commit: str, blobs: Path, report: Callable[[int], None]) -> None:
    """Write `file` under its sha256 in `blobs`, going on where an earlier try stopped.

    huggingface_hub resumes within one process only, so the partial file is kept here.
    """
    size, sha256 = _size_and_sha256(model, file)
    blob, incomplete = blobs / sha256, blobs / f"{sha256}.ggpy.incomplete"
    lock = blobs.parent.parent / ".locks" / blobs.parent.name / f"{sha256}.ggpy.lock"
    with exclusive(lock, partial(logger.warning, "another ggpy is pulling %s; waiting for it", model)):
        if blob.is_file():
            if blob.stat().st_size == size and file_sha256(blob) == sha256:
                report(size)
                return
            blob.unlink()       # damaged since: fetched again
        _download(model, file.rfilename, commit, incomplete, size, report)
        found = file_sha256(incomplete)
        if found != sha256:
            incomplete.unlink()
            raise PullError(f"{model}: what arrived of {file.rfilename} has sha256 {found} but the hub says {sha256}; "
                            f"it was deleted, so that `ggpy pull {model}` starts afresh")
        os.replace(incomplete, blob)


def _download(model: HubModel, name: str, commit: str, target: Path, size: int, report: Callable[[int], None]) -> None:
    """Append to `target` what it lacks of the file; the library tries again when a connection breaks."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    if size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise PullError(f"{model}: {printable(name)} has {size / 1e9:,.0f} GB, which the hub gives to its own tools "
                        f"alone: run `hf download {model.repo} {printable(name)}`, then this command again")
    if target.exists() and target.stat().st_size > size:
        target.unlink()
    url = hf_hub_url(model.repo, name, revision=commit)
    with target.open("ab") as file:
        done = file.tell()
        bar: Any = _Bar(done, report)       # it need not be a tqdm
        http_get(url, file, resume_size=done, headers={**build_hf_headers(), "Accept-Encoding": "identity"},
                 expected_size=size, displayed_filename=name, _tqdm_bar=bar)
        file.flush()
        os.fsync(file.fileno())


class _Bar:
    """What huggingface_hub wants of a progress bar, told on to ggpy's own."""

    def __init__(self, done: int, report: Callable[[int], None]) -> None:
        self._done = done
        self._report = report

    def update(self, n: int) -> None:
        self._done += n
        self._report(self._done)


def _size_and_sha256(model: HubModel, file: RepoSibling) -> tuple[int, str]:
    """Of a file, as the hub states them; raises PullError if it does not."""
    size, sha256 = (file.lfs.size, file.lfs.sha256) if file.lfs is not None else (None, "")
    if size is None or not _SHA256.fullmatch(sha256):
        raise PullError(f"{model}: the hub states no sha256 for {printable(file.rfilename)}, so it cannot be verified; "
                        "download it by hand and give ggpy its path")
    return size, sha256


def _check_free_space(model: HubModel, blobs: Path, files: Sequence[RepoSibling]) -> None:
    needed = 0
    for size, sha256 in (_size_and_sha256(model, file) for file in files):
        here = [path.stat().st_size for path in blobs.glob(f"{sha256}*") if path.name in (
            sha256, f"{sha256}.ggpy.incomplete")]
        needed += max(0, size - sum(here))
    free = shutil.disk_usage(blobs).free
    if free < needed:
        raise PullError(f"{blobs} has {free / 1e6:,.0f} MB free but {needed / 1e6:,.0f} MB are needed for {model}; "
                        "make room, or set HF_HOME to a folder on a larger disk")


def _repo_folder(model: HubModel) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model.repo, repo_type="model")


def _unreachable() -> tuple[type[BaseException], ...]:
    """What is raised when there is no connection: besides HfHubHTTPError, an answer, only these remain."""
    from huggingface_hub.errors import HfHubHTTPError

    http_error = HfHubHTTPError.__bases__[0]        # of the HTTP library that this huggingface_hub is built on
    return (http_error, ConnectionError)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _explained(model: HubModel) -> Iterator[None]:
    """Turns what huggingface_hub and the system raise into a PullError that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    page = f"{constants.ENDPOINT}/{model.repo}"
    try:
        yield
    except KeyboardInterrupt:
        logger.warning("what has arrived of %s is kept; the same command goes on from there", model)
        raise
    except GatedRepoError as error:
        raise PullError(f"{model} is gated: accept its conditions at {page}, then set HF_TOKEN to a token of that "
                        "account (https://huggingface.co/settings/tokens)") from error
    except RepositoryNotFoundError as error:
        raise PullError(f"{model}: {page} does not exist, or it is private; check the name, or set HF_TOKEN to a token "
                        "that may read it") from error
    except HFValidationError as error:
        raise PullError(f"{model}: {_one_line(error)}") from error
    except HfHubHTTPError as error:
        raise PullError(f"{model}: {constants.ENDPOINT} answered: {_one_line(error)}; try again later") from error
    except _unreachable() as error:
        raise PullError(f"{model}: the connection broke ({_one_line(error)}); run `ggpy pull {model}` again, it "
                        "goes on where it stopped") from error
    except OSError as error:
        where = f" ({error.filename or _repo_folder(model)})" if error.errno else ""
        advice = f"{config.write_advice(error, 'HF_HOME')}, then " if error.errno else ""
        raise PullError(f"{model}: {error.strerror or _one_line(error)}{where}; {advice}run `ggpy pull {model}` "
                        "again, it goes on where it stopped") from error


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
