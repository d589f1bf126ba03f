"""`ggpy trace`: every operation has its time, its bytes and its place in the Chrome trace."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ggpy import cli
from ggpy.backends.cpu.encode import Entry
from ggpy.backends.cpu.trace import StepTrace, Work, seconds_per_cycle
from ggpy.gguf import GGUFFile
from ggpy.tools.bench_model import MeasuredModel, ModelSettings
from ggpy.tools.trace import Reading
from ggpy.tools.trace_report import print_profile
from ggpy.tools.trace_rows import Profile, Row, entry_times, profile, tensor_of, without_layer
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]
CYCLE_S = 0.5


def step(cycles: list[list[tuple[int, int]]]) -> tuple[StepTrace, list[Entry]]:
    """A step whose threads were at each entry from a first to a last cycle, and its entries."""
    work = [Work(weight_bytes=100)] * len(cycles)
    entries = [SimpleNamespace(kernel="k", op=SimpleNamespace(inputs=()))] * len(cycles)
    return StepTrace(work, np.array(cycles, np.int64), 0.0, 1.0, 21.0), cast(list[Entry], entries)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["trace", *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_thread_waits_until_the_last_one_has_ended() -> None:
    """Two entries of two threads: the first takes until cycle 20, the second until 31."""
    trace, _ = step([[(10, 20), (12, 16)], [(22, 30), (21, 31)]])
    busy, wait = entry_times(trace, CYCLE_S)
    assert busy.tolist() == [[5.0, 2.0], [4.0, 5.0]]
    assert wait.tolist() == [[0.0, 3.0], [1.5, 0.5]]


def test_a_thread_is_not_idle_while_it_is_further_on() -> None:
    """Thread 1 has no part in the middle entry: it waits until it begins the last one, while that still goes on."""
    trace, _ = step([[(0, 10), (0, 8)], [(11, 20), (0, 0)], [(20, 30), (14, 30)]])
    busy, wait = entry_times(trace, CYCLE_S)
    assert busy.tolist() == [[5.0, 4.0], [4.5, 0.0], [5.0, 8.0]]
    assert wait.tolist() == [[0.0, 1.0], [0.5, 2.0], [0.0, 0.0]]


def test_a_thread_without_any_part_is_idle_all_the_time() -> None:
    """Another program had its core: what it leaves to others is their work and its wait."""
    trace, _ = step([[(0, 10), (0, 0)], [(12, 20), (0, 0)]])
    busy, wait = entry_times(trace, CYCLE_S)
    assert busy.tolist() == [[5.0, 0.0], [4.0, 0.0]]
    assert wait.tolist() == [[0.0, 5.0], [1.0, 5.0]]


def test_rows_add_up_over_steps() -> None:
    """Means over threads, sums over steps; rates and imbalance are by the busiest thread's time."""
    trace, entries = step([[(10, 20), (12, 16)], [(22, 30), (21, 31)]])
    result = profile(entries, [trace, trace], CYCLE_S, n_tokens=2)
    row, = result.rows
    assert row == Row(kernel="k", tensor="", calls=4, busy_s=16.0, wait_s=5.0, longest_s=20.0, weight_bytes=400)
    assert (row.time_s, row.gb_per_s, row.imbalance) == (21.0, 400 / 20.0 / 1e9, 1.25)
    assert (result.total_s, result.prepare_s, result.call_s) == (42.0, 2.0, 19.0)


def test_cycles_are_measured_against_the_clock() -> None:
    """1,000 cycles lie between the beginnings of two steps that are 2 s apart."""
    first, _ = step([[(500, 600)]])
    later, _ = step([[(1500, 1600)]])
    later = StepTrace(later.work, later.cycles, 2.5, 3.0, 4.0)
    assert seconds_per_cycle(first, later) == 0.002


def test_a_thread_without_a_part_in_the_first_entry_does_not_move_the_clock() -> None:
    """Thread 0 may come too late for it: its zeros are no beginning."""
    first, _ = step([[(0, 0), (500, 600)], [(610, 700), (605, 690)]])
    later, _ = step([[(1520, 1600), (1500, 1600)]])
    later = StepTrace(later.work, later.cycles, 2.5, 3.0, 4.0)
    assert (first.first_cycle, later.first_cycle) == (500, 1500)
    assert seconds_per_cycle(first, later) == 0.002


@pytest.mark.parametrize("path", ["absent/trace.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_loaded(
        path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage: the model of this test does not exist."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trace", "absent.gguf", "-o", str(tmp_path / path)])
    assert "ggpy trace: -o " in capsys.readouterr().err


def test_a_file_that_nobody_may_write_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And keeps what it has."""
    file = tmp_path / "trace.json"
    file.write_text("kept")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trace", "absent.gguf", "-o", str(file)])
    assert "it cannot be written" in capsys.readouterr().err
    assert file.read_text() == "kept"


@pytest.mark.parametrize("name", ["llama_q8_0", "qwen2_q8_0"])
def test_bytes_add_up_to_the_weights(name: str, arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """A step reads every matrix in the file once, but for an embedding that is not the output too."""
    model = arch_model(name)
    rows = report(capsys, str(model.path), "-n", "3", "--repack", "off", "-t", "2")["rows"]
    tensors = GGUFFile(model.path).tensors
    is_tied = "output.weight" not in tensors
    matrices = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) == 2
                and (is_tied or name != "token_embd.weight")}
    assert sum(row["weight_bytes"] for row in rows) == 3 * sum(tensor.size_bytes for tensor in matrices.values())
    assert {row["tensor"] for row in rows if row["weight_bytes"]} == {
        without_layer(name.removesuffix(".weight")) for name in matrices}


def test_keys_and_values_grow_with_depth_and_windows_bound_them(arch_model: Load) -> None:
    """llama's two layers have two heads of 16 + 16 values in float16; gemma3's window bounds what its layers see."""
    settings = ModelSettings(path=arch_model("llama").path, n_threads=1)
    with MeasuredModel(settings, n_ctx=100, n_sequences=2) as model:
        attention = next(entry.op for entry in model.backend.entries if entry.kernel.startswith("attention.attend"))
        a_position = 2 * 2 * attention.n_head_kv * (attention.head_dim_k + attention.head_dim_v)    # type: ignore[attr-defined]
        for depth, n_sequences in ((0, 1), (63, 1), (63, 2)):
            work = model.backend.work(model.decode_step(depth, n_sequences))
            assert sum(entry.kv_bytes for entry in work) == a_position * (depth + 1) * n_sequences
    with MeasuredModel(ModelSettings(path=arch_model("gemma3").path, n_threads=1), n_ctx=400) as model:
        windows = [entry.op.window for entry in model.backend.entries       # type: ignore[attr-defined]
                   if entry.kernel.startswith("attention.attend")]
        sliding = [work.kv_bytes for work in model.backend.work(model.decode_step(399)) if work.kv_bytes]
    assert min(window or 400 for window in windows) < 400
    assert [size * 400 // max(sliding) for size in sliding] == [window or 400 for window in windows]


def test_experts_that_a_token_does_not_use_are_not_read(arch_model: Load) -> None:
    """One token reads as many matrices as it uses experts; many tokens read each expert at most once."""
    with MeasuredModel(ModelSettings(path=arch_model("llama_moe").path, n_threads=1), n_ctx=200) as model:
        backend = model.backend
        entries = [i for i, entry in enumerate(backend.entries) if "expert_linear" in entry.kernel]
        weight = backend.weights.matrix(backend.entries[entries[0]].op.weight)      # type: ignore[attr-defined]
        one = backend.work(model.decode_step(0))[entries[0]].weight_bytes
        many = backend.work(next(model.prompt_steps(0, 200, (0,))))[entries[0]].weight_bytes
    assert one == backend.plan.n_used * weight.expert_bytes
    assert many == weight.tensor.shape[0] * weight.expert_bytes


def test_the_table_has_every_kernel_and_its_shares_are_the_whole(
        arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Shares of operations and of what Python does around them make 100%."""
    assert cli.main(["trace", str(arch_model("llama").path), "-n", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("llama.gguf, generating 4 tokens after 0; ")
    start = next(i for i, line in enumerate(lines) if line.startswith("KERNEL"))
    shares = [float(word[:-1]) for line in lines[start + 1:] for word in line.split() if word.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=1.5)
    assert any(line.startswith("norm.rms") and "blk.*.attn_norm" in line for line in lines)


@pytest.mark.parametrize("arguments", [["-n", "2", "--batch", "3"], ["-p", "70", "-ub", "32", "-d", "5"]])
def test_chrome_trace_covers_every_entry(
        arguments: list[str], arch_model: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each entry of each step is there, inside the step it belongs to, on the thread that did it."""
    file = tmp_path / "trace.json"
    result = report(capsys, str(arch_model("llama").path), *arguments, "-t", "2", "--all", "-o", str(file))
    events = json.loads(file.read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["python", "thread 0", "thread 1"]
    runs = [event for event in events if event["name"] == "run"]
    assert len(runs) == result["n_steps"]
    entries = [event for event in events if event["ph"] == "X" and event["tid"] > 0]
    assert all(event["dur"] >= 0 for event in entries)
    assert {event["args"]["kernel"] for event in entries} == {row["kernel"] for row in result["rows"]}
    assert len(entries) >= result["n_steps"] * len(result["rows"])
    assert sum(event["args"]["weight_bytes"] for event in entries if event["tid"] == 1) > 0


def test_operations_are_named_after_their_tensor(arch_model: Load) -> None:
    """Its own, or in parentheses the one that its input came from."""
    with MeasuredModel(ModelSettings(path=arch_model("llama").path, n_threads=1), n_ctx=8) as model:
        names = {(entry.kernel.partition(".")[0], tensor_of(entry.op)) for entry in model.backend.entries}
    assert {("attention", "blk.1.attn"), ("norm", "output_norm"), ("rope", "(blk.0.attn_q)"),
            ("activation", "(blk.0.ffn_gate)")} <= names


@pytest.mark.parametrize("arguments", [
    ["-p", "0"], ["-n", "-3"], ["-d", "-1"], ["--batch", "0"], ["-ub", "0"], ["-p", "4", "-n", "4"]])
def test_what_cannot_be_traced_is_wrong_usage(
        arguments: list[str], arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and a line with the flag's name."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trace", str(arch_model("llama").path), *arguments])
    assert capsys.readouterr().err.startswith(f"ggpy trace: {arguments[0]} ")


def test_a_depth_that_the_model_was_not_trained_for_is_warned_of(
    arch_model: Load, caplog: pytest.LogCaptureFixture
) -> None:
    """As such a context of `ggpy run` is."""
    settings = ModelSettings(path=arch_model("llama").path, n_threads=1)
    with MeasuredModel(settings, n_ctx=256):
        assert caplog.text == ""
    with MeasuredModel(settings, n_ctx=257):
        assert "the context is 257 tokens, but the model was trained for 256" in caplog.text


def test_reading_far_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line now and then."""
    times = iter([0.0, 1.0, 2.5, 2.5, 3.0])
    monkeypatch.setattr("ggpy.tools.trace.time.monotonic", lambda: next(times))
    reading = Reading()
    for n_read in (512, 1024, 1536):
        reading(n_read, 2048)
    assert capsys.readouterr().err == "1,024 of 2,048 tokens read that stand before\n"


@pytest.mark.parametrize(("n_steps", "line"), [(1, "a step, 200.000 ms, 160.0 tokens/s"),
                                               (2, "2 steps, 100.000 ms each, 160.0 tokens/s")])
def test_one_step_is_a_step(n_steps: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt that fits one."""
    print_profile("m", Profile(n_steps=n_steps, n_tokens=32, total_s=0.2, rows=[], prepare_s=0.0, call_s=0.0),
                  in_order=False)
    assert capsys.readouterr().out.splitlines()[1] == line
