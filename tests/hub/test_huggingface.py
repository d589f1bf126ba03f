"""Models of Hugging Face, fetched with huggingface_hub from a hub of this test's own."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from ggpy import cli
from ggpy.errors import PullError
from ggpy.hub import huggingface
from ggpy.hub.huggingface import find_cached, pull
from ggpy.hub.names import HubModel, choose, parse, quant_of
from ggpy.hub.resolve import resolve_model
from ggpy.tools import run
from ggpy.tools.parser import Parser
from tests.hub.fake_hub import FakeHub, serve

MODEL = HubModel("user/model", None)
Q4 = b"GGUF, four bits"
Q8 = b"GGUF, eight bits a weight"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of huggingface_hub, empty."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2)       # what was received of a chunk is lost with it
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)       # the library's, between two tries
    return folder


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one repository: two quantisations and what else is usual."""
    fake = FakeHub()
    fake.files = {"README.md": b"# A model", "mmproj-Q4_K_M.gguf": b"GGUF of images", "model-Q4_K_M.gguf": Q4,
                  "model-q8_0.gguf": Q8}
    with serve(fake):
        monkeypatch.setattr(constants, "ENDPOINT", fake.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                            fake.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        yield fake


def named_files(cache: Path) -> set[str]:
    """The files that programs find in the cache under a name."""
    return {path.name for path in cache.glob("models--*/snapshots/**/*") if path.is_file()}


def test_a_model_lies_in_the_hubs_own_cache(hub: FakeHub, cache: Path) -> None:
    """As huggingface_hub lays it out, so that other programs find it too; nothing else of the repository is fetched."""
    path = pull(MODEL)
    assert path.read_bytes() == Q4
    assert path.is_relative_to(cache / "models--user--model" / "snapshots")
    assert named_files(cache) == {"model-Q4_K_M.gguf"}
    assert not list(cache.rglob("*.incomplete"))


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_is_replaced_meanwhile_is_refused(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Also where names are no links, as on Windows: what was verified is not what got the name."""
    monkeypatch.setattr("huggingface_hub.file_download.are_symlinks_supported", lambda folder=None: has_links)
    assert pull(HubModel("user/model", "Q8_0")).is_symlink() == has_links
    fetch = huggingface._fetch_blob

    def fetch_and_replace(*arguments: Any) -> None:
        fetch(*arguments)
        hub.files["model-Q4_K_M.gguf"] = Q4[::-1]

    monkeypatch.setattr(huggingface, "_fetch_blob", fetch_and_replace)
    with pytest.raises(PullError, match=r"model-Q4_K_M\.gguf was replaced on the hub meanwhile"):
        pull(MODEL)


@pytest.mark.parametrize(("names", "quant", "expected"), [
    (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], None, ["a-Q4_K_M.gguf"]),
    (["b-Q8_0.gguf", "a-Q5_0.gguf"], None, ["a-Q5_0.gguf"]),
    (["a-Q8_0.gguf", "a.q4_k_s.gguf"], "Q4_K_S", ["a.q4_k_s.gguf"]),
    (["a-IQ4_XS.gguf", "a-Q4_0.gguf", "a-Q4_0_4_4.gguf"], "q4_0", ["a-Q4_0.gguf"]),
    (["a-Q4_K_M.gguf", "a-BF16.gguf", "a-F16.gguf"], "f16", ["a-F16.gguf"]),
    (["mmproj-F16.gguf", "a.imatrix.gguf", "a-F16.gguf"], None, ["a-F16.gguf"]),
    (["Q8_0/a-00002-of-00002.gguf", "Q8_0/a-00001-of-00002.gguf", "a-Q4_0.gguf"], "Q8_0",
     ["Q8_0/a-00001-of-00002.gguf", "Q8_0/a-00002-of-00002.gguf"]),
    (["a-Q8_0.gguf", "odd.gguf"], "odd.gguf", ["odd.gguf"]),
], ids=["default", "first", "case", "whole word", "f16", "not a model", "split", "file name"])
def test_which_files_are_the_model(names: list[str], quant: str | None, expected: list[str]) -> None:
    """By the quantisation in the name, in any case of letters; by default Q4_K_M, else the first."""
    assert choose(names, HubModel("user/model", quant)) == expected


@pytest.mark.parametrize(("names", "quant", "message"), [
    (["README.md"], None, "has no GGUF file"),
    (["a-Q8_0.gguf", "b.gguf"], "Q4_0", r"no GGUF file in user/model has Q4_0 in its name; there are a-Q8_0\.gguf"),
    (["a-Q8_0-00001-of-00003.gguf", "a-Q8_0-00003-of-00003.gguf"], None, "is split into 3 files, of which .* has 2"),
])
def test_what_cannot_be_chosen_is_told(names: list[str], quant: str | None, message: str) -> None:
    """The error says what there is instead."""
    with pytest.raises(PullError, match=message):
        choose(names, HubModel("user/model", quant))


@pytest.mark.parametrize("spec", ["hf:", "hf:model", "hf:a/b/c", "hf:a/b:", "hf:a/../b", "hf:a/b c", "hf:a/b:x y"])
def test_a_name_that_is_none_is_refused(spec: str) -> None:
    """One line that shows what a name looks like; nothing is asked of the hub."""
    with pytest.raises(PullError, match="expected hf:user/repo"):
        parse(spec)


@pytest.mark.parametrize("argv", [["pull", "hf:user/model:Q8_0"], ["pull", "HF:user/model:q8_0"],
                                  ["pull", "-hf", "user/model:Q8_0"]])
def test_the_command_prints_where_the_model_lies(
    hub: FakeHub, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The name with its prefix or llama.cpp's flag; progress goes to stderr."""
    assert cli.main(argv) == 0
    output = capsys.readouterr()
    assert Path(output.out.strip()).read_bytes() == Q8
    assert "pulling hf:user/model" in output.err


def test_run_takes_llama_cpps_flag() -> None:
    """`-hf user/repo:QUANT` is a MODEL."""
    parser = Parser()
    run.add_arguments(parser)
    args = parser.parse(["-hf", "user/model:Q8_0", "Hello"])
    assert run.read_model(args) == ("hf:user/model:Q8_0", ["Hello"])
    args = parser.parse(["-hf", "user/model:Q8_0", "-hff", "q/model.gguf"])
    assert run.read_model(args) == ("hf:user/model:q/model.gguf", [])


def test_all_parts_of_a_split_model_are_fetched(hub: FakeHub) -> None:
    """The first is what the model is opened by; all lie beside it."""
    hub.files = {f"q/m-Q8_0-0000{i}-of-00003.gguf": f"part {i}".encode() for i in (1, 2, 3)}
    path = pull(MODEL)
    assert path.name == "m-Q8_0-00001-of-00003.gguf"
    assert [file.read_bytes() for file in sorted(path.parent.iterdir())] == [b"part 1", b"part 2", b"part 3"]


def test_a_cached_model_is_resolved_without_asking(hub: FakeHub) -> None:
    """`ggpy run hf:...` starts at once, network or not; `ggpy pull` looks for a newer revision."""
    path = pull(MODEL)
    hub.requests.clear()
    assert resolve_model("hf:user/model:q4_k_m") == path
    assert resolve_model("hf:user/model") == path
    assert hub.requests == []
    assert pull(MODEL) == path
    assert hub.requests != []
    assert hub.transfers() == []


def test_a_broken_connection_is_resumed_at_once(hub: FakeHub) -> None:
    """Each try goes on at the byte where the last one stopped."""
    hub.break_after = 6
    assert pull(MODEL).read_bytes() == Q4
    assert hub.transfers() == [None, "bytes=6-", "bytes=12-"]


def test_an_interrupted_pull_goes_on_where_it_stopped(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves no model but what had come; the next pull asks for the rest alone."""
    hub.break_after = 6

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", interrupt)     # called before the second try
        with pytest.raises(KeyboardInterrupt):
            pull(MODEL)
    assert named_files(cache) == set()
    assert [path.read_bytes() for path in cache.rglob("*.incomplete")] == [Q4[:6]]

    hub.break_after = None
    assert pull(MODEL).read_bytes() == Q4
    assert hub.transfers() == [None, "bytes=6-"]


def test_damaged_bytes_never_get_the_models_name(hub: FakeHub, cache: Path) -> None:
    """The hub's sha256 tells; the next pull starts afresh."""
    hub.damaged = {"model-Q4_K_M.gguf"}
    with pytest.raises(PullError, match=r"has sha256 \w{64} but the hub says \w{64}; it was deleted"):
        pull(MODEL)
    assert named_files(cache) == set()
    hub.damaged = set()
    assert pull(MODEL).read_bytes() == Q4
    assert hub.transfers() == [None, None]


def test_a_pull_mends_a_file_that_was_damaged_since(hub: FakeHub) -> None:
    """A pull verifies what is in the cache, too."""
    path = pull(MODEL)
    path.resolve().write_bytes(Q4.upper())
    assert pull(MODEL).read_bytes() == Q4


@pytest.mark.parametrize(("status", "code", "message"), [
    (404, "RepoNotFound", r"/user/model does not exist, or it is private; check the name, or set HF_TOKEN"),
    (401, "RepoNotFound", r"does not exist, or it is private"),
    (403, "GatedRepo", r"hf:user/model is gated: accept its conditions at .*/user/model, then set HF_TOKEN"),
    (503, "", r"answered: .*503.*; try again later"),
], ids=["missing", "private", "gated", "down"])
def test_a_refusal_says_what_to_do(
    hub: FakeHub, status: int, code: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 1."""
    hub.refusal = (status, code)
    with pytest.raises(PullError, match=message):
        pull(MODEL)
    assert cli.main(["pull", "hf:user/model"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_token_is_sent_to_the_hub_alone(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN opens gated models; the host that holds the bytes does not see it."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pull(MODEL)
    tokens = {(path.startswith("/blobs/"), token) for _, path, _, token in hub.requests}
    assert tokens == {(False, "Bearer hf_secret"), (True, None)}


def test_offline_the_cache_has_to_do(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """By flag or by huggingface_hub's variable, nothing is asked; what is absent is an error."""
    path = pull(HubModel("user/model", "Q8_0"))
    hub.requests.clear()
    assert pull(MODEL, offline=True) == path
    with pytest.raises(PullError, match=r"hf:user/model:Q4_K_M is not on this machine and ggpy is offline"):
        resolve_model("hf:user/model:Q4_K_M", offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve_model("hf:user/model") == path
    assert hub.requests == []


def test_out_of_reach_the_cache_has_to_do(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so; what is absent is an error that says what to do."""
    path = pull(MODEL)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")        # nobody listens there
    assert pull(MODEL) == path
    assert "cannot be reached; using the model-Q4_K_M.gguf that is here" in caplog.text
    with pytest.raises(PullError, match=r"hf:user/model:Q8_0 is not on this machine and .* cannot be reached"):
        pull(HubModel("user/model", "Q8_0"))


def test_a_split_model_counts_as_cached_when_it_is_whole(hub: FakeHub) -> None:
    """A part that was deleted makes it absent."""
    hub.files = {f"m-Q4_K_M-0000{i}-of-00002.gguf": f"part {i}".encode() for i in (1, 2)}
    path = pull(MODEL)
    assert find_cached(MODEL) == path
    path.with_name("m-Q4_K_M-00002-of-00002.gguf").unlink()
    assert find_cached(MODEL) is None


def test_too_little_space_is_told_before_downloading(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has 15 bytes."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=14))
    with pytest.raises(PullError, match=r"MB free but .* MB are needed for hf:user/model; make room, or set HF_HOME"):
        pull(MODEL)
    assert hub.transfers() == []


def test_a_file_too_large_for_http_is_told(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the hub's own tool has fetched it, it is found like any other."""
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", 14)
    with pytest.raises(PullError, match=r"run `hf download user/model model-Q4_K_M\.gguf`, then this command again"):
        pull(MODEL)


def test_a_full_disk_leaves_no_model(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up under the download."""
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(PullError, match=r"hf:user/model: No space left on device .*make room"):
        pull(MODEL)
    assert named_files(cache) == set()


def test_two_pulls_at_once_download_once(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first, and finds its file."""
    both_ask = threading.Barrier(2)

    def check(*args: object) -> None:
        both_ask.wait(timeout=60)

    monkeypatch.setattr(huggingface, "_check_free_space", check)
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(pull, [MODEL, MODEL]))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == Q4
    assert hub.transfers() == [None]


def test_the_hubs_own_variables_hold(hub: FakeHub, tmp_path: Path) -> None:
    """HF_ENDPOINT and HF_HOME name a mirror and a cache, in a process of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_"))}
    environment = {**others, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "ggpy", "pull", "hf:user/model:Q8_0"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    path = Path(result.stdout.strip())
    assert path.is_relative_to(tmp_path / "home" / "hub")
    assert path.read_bytes() == Q8


def test_list_shows_what_is_in_the_cache(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Under the name that means just this file."""
    hub.files = {"Q8_0/m-Q8_0-00001-of-00002.gguf": b"1", "Q8_0/m-Q8_0-00002-of-00002.gguf": b"2", "m-Q4_K_M.gguf": Q4}
    paths = [pull(HubModel("user/model", quant)) for quant in ("Q4_K_M", "Q8_0")]
    capsys.readouterr()
    assert cli.main(["list", "--paths"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("hf:")]
    names = ["hf:user/model:Q8_0/m-Q8_0-00001-of-00002.gguf", "hf:user/model:m-Q4_K_M.gguf"]
    assert all(row[1:3] == ["0", "MB"] for row in rows)     # of all parts
    assert [[row[0], row[-3], row[-1]] for row in rows] == [[names[0], "Q8_0", str(paths[1])],
                                                            [names[1], "Q4_K_M", str(paths[0])]]
    hub.requests.clear()
    assert [resolve_model(name) for name in names] == [paths[1], paths[0]]
    assert hub.requests == []


@pytest.mark.parametrize(("name", "quant"), [
    ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"), ("a.q4_k_m.gguf", "q4_k_m"), ("a-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
    ("a-IQ4_XS.gguf", "IQ4_XS"), ("a-BF16-00001-of-00003.gguf", "BF16"), ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
    ("odd.gguf", ""),
])
def test_the_quantisation_in_a_name(name: str, quant: str) -> None:
    """As publishers write it."""
    assert quant_of(name) == quant


def test_show_does_not_download(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Describing a model is no reason to fetch it."""
    for argv in (["hf:user/model"], ["-hf", "user/model"]):
        assert cli.main(["show", *argv]) == 1
        assert "run `ggpy pull hf:user/model` first" in capsys.readouterr().err
    assert hub.requests == []


def test_show_needs_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name or by the flag, not both."""
    for argv in (["hf:user/model", "-hf", "user/model"], []):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["show", *argv])
    assert "give one model" in capsys.readouterr().err
