"""`ggpy bench`: llama-bench's lists, tests and outputs, and what is counted for the roofline."""

import argparse
import csv
import io
import json
import sqlite3
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggpy import cli
from ggpy.gguf import GGUFFile
from ggpy.tools import bench, bench_measure
from ggpy.tools.bench_flags import pairs, repacks, whole_numbers
from ggpy.tools.bench_model import MeasuredModel, ModelSettings
from ggpy.tools.bench_output import parameters, size
from ggpy.tools.bench_tests import model_facts
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]
QUICK = ["-r", "2", "-t", "2", "--bandwidth", "10"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["bench", *arguments, *QUICK]) == 0
    return capsys.readouterr().out


def records(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "-o", "jsonl").splitlines()]


@pytest.mark.parametrize(("text", "values"), [
    ("512", [512]), ("0", [0]), ("1,2,4", [1, 2, 4]), ("1-4", [1, 2, 3, 4]), ("1-9+4", [1, 5, 9]), ("1-8+4", [1, 5]),
    ("1-16*2", [1, 2, 4, 8, 16]), ("3-3", [3]), ("7,1-2", [7, 1, 2])])
def test_lists_and_ranges(text: str, values: list[int]) -> None:
    """As llama-bench takes them."""
    assert whole_numbers(text) == values


@pytest.mark.parametrize("text", ["", "x", "-1", "1,,2", "4-1", "1-8*1", "0-8*2", "1-8+0", "1-9999999", "1.5"])
def test_lists_that_cannot_be_read_are_wrong_usage(text: str) -> None:
    """The parser's own kind of error."""
    with pytest.raises(argparse.ArgumentTypeError):
        whole_numbers(text)


def test_other_lists() -> None:
    """A pair for -pg, and llama-bench's numbers for --repack."""
    assert pairs("512, 128") == [(512, 128)]
    assert repacks("0,1,auto") == ["off", "on", "auto"]
    for wrong in (lambda: pairs("512"), lambda: repacks("2")):
        with pytest.raises(argparse.ArgumentTypeError):
            wrong()


def test_tests_come_in_llama_benchs_order(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Threads, then depths, then prompts, generations and both."""
    found = records(capsys, str(arch_model("llama").path), "-p", "5,7", "-n", "3", "-pg", "4,2", "-d", "0,9", "-t", "1")
    shapes = [(r["n_threads"], r["n_depth"], r["n_prompt"], r["n_gen"]) for r in found]
    assert shapes == [(threads, depth, *shape) for threads in (1, 2) for depth in (0, 9)
                      for shape in ((5, 0), (7, 0), (0, 3), (4, 2))]


def test_a_record_has_llama_benchs_fields(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Speed is tokens over time, of each repetition; only generation has a roofline."""
    model = arch_model("llama_q8_0")
    prompt, generation = records(capsys, "-m", str(model.path), "-p", "16", "-n", "4", "--repack", "off")
    tensors = GGUFFile(model.path).tensors.values()
    assert prompt["model_filename"] == str(model.path)
    assert prompt["model_type"].endswith(" Q8_0")
    assert prompt["model_size"] == sum(tensor.size_bytes for tensor in tensors)
    assert prompt["model_n_params"] == sum(tensor.n_elements for tensor in tensors)
    assert (prompt["backends"], prompt["n_threads"], prompt["type_k"], prompt["repack"]) == ("CPU", 2, "f16", "off")
    assert len(prompt["samples_ns"]) == len(prompt["samples_ts"]) == 2
    for nanoseconds, speed in zip(prompt["samples_ns"], prompt["samples_ts"], strict=True):
        assert speed == pytest.approx(16e9 / nanoseconds, rel=1e-4)
    assert prompt["avg_ts"] == pytest.approx(sum(prompt["samples_ts"]) / 2, rel=1e-4)
    assert prompt["roofline"] is None
    assert generation["bandwidth"] == 10.0
    with MeasuredModel(ModelSettings(path=model.path, n_threads=1, repack="off"), n_ctx=4) as measured:
        read = measured.bytes_per_step(1)
    assert generation["roofline"] == pytest.approx(100 * read * generation["avg_ts"] / 10e9, rel=1e-3)


def test_the_table_is_llama_benchs(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Its columns and the roofline; one that differs from the default is shown."""
    lines = run(capsys, str(arch_model("llama").path), "-p", "4", "-n", "2", "-d", "3", "-ub", "32").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[0] == ["model", "size", "params", "backend", "threads", "n_ubatch", "test", "t/s", "roofline"]
    assert [set(cell) for cell in rows[1]] == [{"-"} if i in (0, 3) else {"-", ":"} for i in range(9)]
    assert [row[5:7] for row in rows[2:]] == [["32", "pp4 @ d3"], ["32", "tg2 @ d3"]]
    assert all(" ± " in row[7] for row in rows[2:])
    assert (rows[2][8], rows[3][8][-1]) == ("", "%")
    assert len({len(line) for line in lines if line.startswith("|")}) == 1
    assert lines[-1].startswith("build: ggpy ")
    assert lines[-1].endswith("memory is read at 10.0 GB/s by 2 threads")


def test_keys_and_values_have_types_of_their_own(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Every combination is a test; the roofline knows how many bytes a type takes."""
    path = str(arch_model("llama").path)
    found = records(capsys, path, "-p", "0", "-n", "2", "-ctk", "f16,f32", "-ctv", "f32", "-d", "64")
    assert [(record["type_k"], record["type_v"]) for record in found] == [("f16", "f32"), ("f32", "f32")]
    read = [record["roofline"] / record["avg_ts"] for record in found]
    assert read[0] < read[1]


def test_csv_json_and_sql_hold_the_same_records(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and numbers of columns agree; lists are in JSON only."""
    arguments = (str(arch_model("llama").path), "-p", "4", "-n", "2")
    array = json.loads(run(capsys, *arguments, "-o", "json"))
    assert [record["n_prompt"] for record in array] == [4, 0]
    names = [name for name in array[0] if not name.startswith("samples_")]
    header, *rows = csv.reader(io.StringIO(run(capsys, *arguments, "-o", "csv")))
    assert header == names
    assert [row[names.index("n_gen")] for row in rows] == ["0", "2"]
    database = sqlite3.connect(":memory:")
    database.executescript(run(capsys, *arguments, "-o", "sql"))
    assert database.execute("SELECT n_prompt, n_gen, backends, roofline IS NULL FROM llama_bench").fetchall() == [
        (4, 0, "CPU", 1), (0, 2, "CPU", 0)]


def test_a_second_output_goes_to_stderr(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """-oe, beside the table on stdout."""
    path = str(arch_model("llama").path)
    assert cli.main(["bench", path, "-p", "4", "-n", "0", "-oe", "jsonl", *QUICK]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("| model ")
    assert json.loads(captured.err.splitlines()[-1])["n_prompt"] == 4


def test_batched_tests_are_llama_batched_benchs(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Speeds count the tokens of all sequences, its names and table included."""
    path = str(arch_model("llama").path)
    one, three = records(capsys, path, "-npp", "8", "-ntg", "4", "-npl", "1,3")
    assert (three["pp"], three["tg"], three["pl"], three["n_kv"]) == (8, 4, 3, 36)
    assert three["speed_pp"] == pytest.approx(24 / three["t_pp"], rel=1e-3)
    assert three["speed_tg"] == pytest.approx(12 / three["t_tg"], rel=1e-3)
    assert three["speed"] == pytest.approx(36 / three["t"], rel=1e-3)
    assert one["roofline"] > 0
    table = [line for line in run(capsys, path, "-p", "8", "-n", "4", "-npl", "1,3").splitlines() if line[:1] == "|"]
    assert [cell.strip() for cell in table[0].strip("|").split("|")][:4] == ["PP", "TG", "B", "N_KV"]
    assert [row.split("|")[3].strip() for row in table[2:]] == ["1", "3"]


def test_flags_of_other_devices_are_named_and_ignored(arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """A script written for llama-bench runs; a flag that neither knows is wrong usage."""
    path = str(arch_model("llama").path)
    assert cli.main(["bench", path, "-p", "4", "-n", "0", "-ngl", "99", "-fa", "1", *QUICK]) == 0
    assert "-ngl, -fa: ignored" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", path, "--no-such-flag"])


@pytest.mark.parametrize("arguments", [
    ["-r", "0"], ["-t", "0"], ["-ub", "1,0"], ["-p", "x"], ["-npl", "2", "-pg", "4,4"], ["-ctk", "q9"],
    ["--bandwidth", "0"], ["--bandwidth", "nan"], ["--bandwidth", "x"], ["--delay", "-1"], ["--delay", "inf"]])
def test_what_cannot_be_measured_is_wrong_usage(
        arguments: list[str], arch_model: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and a line with the flag's name."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", str(arch_model("llama").path), *arguments])
    assert capsys.readouterr().err.startswith(f"ggpy bench: {arguments[0]} ")


@pytest.mark.parametrize("arguments", [[], ["some.gguf", "-p", "0", "-n", "0"]])
def test_nothing_to_measure_is_wrong_usage(arguments: list[str], arch_model: Load) -> None:
    """No model, or no test."""
    paths = [str(arch_model("llama").path) if word == "some.gguf" else word for word in arguments]
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *paths])


def test_bandwidth_is_measured_beside_each_run(
        arch_model: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first run of a test and after each, with its threads; the mean by time counts."""
    asked: list[int] = []

    class Reader:
        def __init__(self, n_threads: int) -> None:
            self._n_threads = n_threads

        def read(self, _seconds: float) -> list[float]:
            asked.append(self._n_threads)
            return [self._n_threads * 2e9, self._n_threads * 6e9]

    monkeypatch.setattr(bench_measure, "MemoryReader", Reader)
    path = str(arch_model("llama").path)
    assert cli.main(["bench", path, "-p", "0", "-n", "1", "-d", "0,2", "-t", "2,1", "-r", "1", "-o", "jsonl"]) == 0
    bandwidths = [json.loads(line)["bandwidth"] for line in capsys.readouterr().out.splitlines()]
    assert asked == [2, 2, 2, 2, 1, 1, 1, 1]
    assert bandwidths == pytest.approx([6.0, 6.0, 3.0, 3.0])


def test_what_memory_is_read_for_is_there_only_beside_its_model(
        arch_model: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is loaded by what memory is free: nothing is taken of it before, nothing is left of the last model's."""
    events: list[str] = []

    class Model(MeasuredModel):
        def __init__(self, settings: ModelSettings, **sizes: int) -> None:
            events.append("model")
            super().__init__(settings, **sizes)

    class Reader:
        def __init__(self, n_threads: int) -> None:
            events.append(f"{n_threads} readers")
            weakref.finalize(self, events.append, f"{n_threads} readers gone")

        def read(self, _seconds: float) -> list[float]:
            return [1e9]

    monkeypatch.setattr(bench_measure, "MeasuredModel", Model)
    monkeypatch.setattr(bench_measure, "MemoryReader", Reader)
    assert cli.main(["bench", str(arch_model("llama").path), "-p", "1", "-n", "1", "-t", "1,2", "-r", "1"]) == 0
    assert events == ["model", "1 readers", "1 readers gone", "model", "2 readers", "2 readers gone"]


def test_steps_compute_what_they_stand_for(arch_model: Load) -> None:
    """Keys and values after a filled depth are those of reading all of it at once: the next logits are equal."""
    path = arch_model("llama").path
    logits = []
    for parts in ([40], [13, 27]):
        with MeasuredModel(ModelSettings(path=path, n_threads=2, step_tokens=16), n_ctx=64, n_sequences=2) as model:
            for depth in np.cumsum(parts).tolist():
                assert model.fill(depth, 2) is False
            assert model.fill(40, 2) is True
            logits.append(model.backend.forward(model.decode_step(40, 2)).copy())
    assert np.array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0][0], logits[0][1])


def test_prompts_of_several_sequences_share_steps(arch_model: Load) -> None:
    """Three prompts of 10 tokens in steps of 16: two steps, logits for the last token of each prompt."""
    path = arch_model("llama").path
    with MeasuredModel(ModelSettings(path=path, n_threads=1, step_tokens=16), n_ctx=16, n_sequences=3) as model:
        steps = list(model.prompt_steps(4, 10, range(3)))
    parts = [[(part.first_position, len(part.tokens), part.n_outputs) for part in step] for step in steps]
    assert parts == [[(4, 10, 1), (4, 6, 0)], [(10, 4, 1), (4, 10, 1)]]


def test_sizes_are_llama_benchs() -> None:
    """MiB and GiB, M and B."""
    assert (size(96_576_768), size(1_117_000_000)) == ("92.10 MiB", "1.04 GiB")
    assert (parameters(134_515_008), parameters(1_543_714_304)) == ("134.52 M", "1.54 B")


def test_a_model_is_named_after_what_it_was_quantised_to(arch_model: Load) -> None:
    """Architecture, parameters and the file's type."""
    assert model_facts(GGUFFile(arch_model("llama_f16").path)).type.split()[::2] == ["llama", "F16"]


def test_llama_benchs_own_flags_are_all_accepted() -> None:
    """Those that ggpy has no use for, by the names that scripts give them."""
    flags = {flag for names in bench.IGNORED for flag in names}
    assert {"-ngl", "-sm", "-mg", "-ts", "-fa", "-mmp", "-nkvo", "--numa", "--prio", "--poll", "-ot", "-dev"} <= flags
