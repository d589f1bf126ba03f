"""Traces: their format, and the recorder that writes them."""

import errno
import io
from pathlib import Path

import pytest

from ggpy.engine.recording import BlockIds, Recorder, TraceLine, read_trace, write_trace
from ggpy.errors import ConfigError, RequestError


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All fields, those that may be missing too."""
    lines = [TraceLine(0.0, 40, 5, (0, 1)), TraceLine(12.5, 64, 1, (0, 2), session=3, parent=0)]
    write_trace(tmp_path / "trace.jsonl", lines)
    assert read_trace(tmp_path / "trace.jsonl") == lines


def test_a_line_of_mooncake(tmp_path: Path) -> None:
    """Blocks of 512 tokens, and no field of ours."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 27482, "input_length": 1000, "output_length": 52, "hash_ids": [46, 47]}\n')
    assert read_trace(path) == [TraceLine(27482, 1000, 52, (46, 47), block_tokens=512)]


@pytest.mark.parametrize(("text", "message"), [
    ("[]", "line 1: expected a JSON object, found '\\[\\]'"),
    ("{", "line 1: expected a JSON object"),
    ('{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}',
     "line 1: input_length: expected a whole number from 1, found 0"),
    ('{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [0]}',
     "line 1: timestamp: expected milliseconds, found -1"),
    ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0, 1]}',
     "line 1: 2 hash_ids do not make an input of 1 tokens in blocks of 512"),
    ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}',
     "line 1: hash_ids: expected a list of whole numbers"),
    ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0], "parent": 0}',
     "line 1: parent 0 is not an earlier line"),
])
def test_a_malformed_line_is_refused_by_its_number(tmp_path: Path, text: str, message: str) -> None:
    """The message says what was found."""
    path = tmp_path / "trace.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(RequestError, match=message):
        read_trace(path)


def test_blocks_have_one_number_where_all_before_them_is_equal() -> None:
    """The same tokens after other ones are another block."""
    blocks = BlockIds(block_tokens=2)
    assert blocks.of([7, 8, 9, 9, 5]) == (0, 1, 2)
    assert blocks.of([7, 8, 9, 9]) == (0, 1)
    assert blocks.of([9, 9, 7, 8]) == (3, 4)


def record(path: Path, *requests: tuple[float, list[int], list[int]]) -> list[TraceLine]:
    recorder = Recorder(path)
    for arrival_s, prompt, output in requests:
        recorder.add(arrival_s, prompt, output)
    recorder.close()
    return read_trace(path)


def test_turns_of_a_conversation_are_a_session(tmp_path: Path) -> None:
    """A prompt that begins with another's prompt and answer continues it; the second that does so is a fork."""
    first, answer = list(range(50)), [60, 61, 62]
    lines = record(
        tmp_path / "trace.jsonl",
        (10.0, first, answer), (10.5, [1, 2], [3]), (11.0, [*first, *answer, 70], [71]),
        (12.0, [*first, *answer, 80, 81], [82]), (13.0, [*first, *answer, 70, 71, 90], [91]))
    assert [line.parent for line in lines] == [None, None, 0, 0, 2]
    assert [line.session for line in lines] == [0, 1, 0, 2, 0]
    assert [line.timestamp_ms for line in lines] == [0, 500, 1000, 2000, 3000]
    assert [line.hash_ids for line in lines] == [(0, 1), (2,), (0, 3), (0, 4), (0, 5)]


def test_the_last_token_of_an_answer_may_change(tmp_path: Path) -> None:
    """Such as the end of turn, for which a template writes something else."""
    lines = record(tmp_path / "trace.jsonl", (0, [1, 2], [3, 4]), (1, [1, 2, 3, 9, 9], [5]))
    assert lines[1].parent == 0


def test_a_trace_does_not_tell_the_tokens(tmp_path: Path) -> None:
    """Neither the file nor what the numbers come from has them."""
    record(tmp_path / "trace.jsonl", (0, [123456, 654321], [777777]))
    text = (tmp_path / "trace.jsonl").read_text()
    assert not any(token in text for token in ("123456", "654321", "777777"))
    assert list(BlockIds().digests([1])) != list(BlockIds().digests([1]))


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    """The numbers of two recordings mean different blocks."""
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(ConfigError, match="exists; a recording needs a file of its own"):
        Recorder(tmp_path / "trace.jsonl")


class FullDisk(io.StringIO):
    """A file that takes nothing."""

    name = "trace.jsonl"

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_trace_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, and whoever is answered hears nothing of it."""
    recorder = Recorder(tmp_path / "trace.jsonl")
    monkeypatch.setattr(recorder, "_file", FullDisk())
    recorder.add(0, [1, 2], [3])
    recorder.add(1, [1, 2], [3])
    recorder.close()
    assert caplog.messages == ["trace.jsonl: No space left on device; nothing more is recorded"]
