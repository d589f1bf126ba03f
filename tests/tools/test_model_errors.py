"""A model that cannot be had or run is one line on stderr and exit code 1, whichever command is asked."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy import cli
from ggpy.gguf import GGUFWriter

VOCABULARY: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
}


@pytest.fixture(autouse=True)
def _no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is piped in."""
    monkeypatch.setattr(sys, "stdin", None)


def write(path: Path, architecture: str = "llama") -> Path:
    """A file with a vocabulary of three tokens and one tensor."""
    writer = GGUFWriter(path)
    for key, value in ({"general.architecture": architecture} | VOCABULARY).items():
        writer.add(key, value)
    writer.add_tensor("token_embd.weight", np.zeros((3, 32), np.float32))
    writer.write()
    return path


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a command that fails."""
    assert cli.main(list(argv)) == 1
    output = capsys.readouterr()
    assert output.out == ""
    line, = output.err.splitlines()
    prefix = f"ggpy {argv[0]}: "
    assert line.startswith(prefix)
    return line.removeprefix(prefix)


@pytest.mark.parametrize("command", [["run"], ["show"], ["warm"]])
def test_a_name_that_is_nearly_right(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The near name comes first, then all that there are."""
    error = error_of(capsys, *command, "smolm2", *(["hi"] if command == ["run"] else []))
    assert re.match(r"no model is called 'smolm2'\. Did you mean smollm2.*\? The catalogue has smollm2:135m", error)


def test_a_file_that_is_nearly_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A GGUF file beside it whose name is close is named."""
    write(tmp_path / "model-Q4_K_M.gguf")
    error = error_of(capsys, "run", str(tmp_path / "model-Q4_K.gguf"), "hi")
    assert error.endswith(f"there is no such file; did you mean {tmp_path / 'model-Q4_K_M.gguf'}?")


def test_a_file_that_is_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a near one, the way to names."""
    error = error_of(capsys, "run", str(tmp_path / "none.gguf"), "hi")
    assert error.endswith("none.gguf: there is no such file; `ggpy list` shows the models that have a name")


def test_a_repository_without_its_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    """user/repo might be a path; the message says how to name the repository."""
    error = error_of(capsys, "run", "user/model:Q8_0", "hi")
    assert error == ("user/model:Q8_0: there is no such file; a model of Hugging Face is written hf:user/model:Q8_0")


@pytest.mark.parametrize("command", ["show", "warm", "pull", "rm"])
def test_an_empty_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a shell's variable that is not set."""
    assert re.search(r"name of the model is empty|no model is called ''", error_of(capsys, command, ""))


def test_an_architecture_that_ggpy_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the file, the architecture and those that there are."""
    path = write(tmp_path / "odd.gguf", "frobnicator")
    error = error_of(capsys, "run", str(path), "hi")
    assert error.startswith(f"{path}: architecture 'frobnicator' is not supported; expected one of ")


@pytest.mark.parametrize("number", [4, 99])     # one that ggml has removed, one that nobody has
def test_a_quantisation_that_ggpy_does_not_have(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the tensor and the number of its type, and where in the file it stands."""
    path = write(tmp_path / "odd.gguf")
    data = path.read_bytes()
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8     # behind the name: two dimensions
    path.write_bytes(data[:at] + number.to_bytes(4, "little") + data[at + 4 :])
    error = error_of(capsys, "run", str(path), "hi")
    assert re.search(rf"type of tensor 'token_embd\.weight' at byte {at}: found {number}, expected a type", error)


def test_a_file_that_is_no_gguf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it begins with in place of the magic."""
    path = tmp_path / "page.gguf"
    path.write_bytes(b"<!doctype html>" + bytes(100))
    assert error_of(capsys, "show", str(path)) == (
        f"{path}: this is not a GGUF file (it begins with '<!do', expected 'GGUF' at byte 0)")


def test_a_hub_model_is_not_ggpys_to_delete(capsys: pytest.CaptureFixture[str]) -> None:
    """It lies in a cache that other programs share; the line says how to delete it there."""
    assert error_of(capsys, "rm", "hf:user/model").endswith("`hf cache rm model/user/model` deletes it")
