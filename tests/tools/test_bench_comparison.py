"""The comparison with llama.cpp: whose turn it is, what is kept, which build counts, and the page about it."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))      # bench is no part of an installed ggpy

from bench import vs_llama_cpp
from bench.comparison_report import page
from bench.engines import LlamaCpp, Ours
from bench.groups import GROUPS, Group
from bench.units import Key, Unit, append_unit, load_units
from bench.vs_llama_cpp import Job, Model, measure


def unit(group: str = "decode", *, ours: list[float], theirs: dict[str, list[float]], **fields: object) -> Unit:
    values = {"model": "some", "threads": 2, "level": "", "is_requantised": False, "machine": "a machine", "load": 0.1,
              "commit": "abc", "builds": {}} | fields
    return Unit(group=group, ours=ours, theirs=theirs, **values)     # type: ignore[arg-type]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose turn it was; values are 1, 2, 3, ..."""
    calls: list[str] = []

    def turn(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    monkeypatch.setattr(Ours, "measure", lambda self, group, model: turn(f"ours{self.level}"))
    monkeypatch.setattr(Ours, "warm_up", lambda self, model: None)
    monkeypatch.setattr(LlamaCpp, "measure", lambda self, group, model: turn(self.folder.name))
    monkeypatch.setattr(LlamaCpp, "build", lambda self: "build 1")
    return calls


@pytest.fixture
def peers(tmp_path: Path) -> dict[str, Path]:
    """Folders of two builds; only the first has llama-batched-bench."""
    for file in ("amx/llama-bench", "amx/llama-batched-bench", "plain/llama-bench"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    return {"amx": tmp_path / "amx", "plain": tmp_path / "plain"}


def test_engines_take_turns_in_going_first(calls: list[str], peers: dict[str, Path]) -> None:
    """Three engines, three rounds: each is first once, and values stay with their engine."""
    job = Job(Key("decode", "some", 2, ""), Model("some", Path("some.gguf")),
              {label: LlamaCpp(folder, 2) for label, folder in peers.items()})
    result = measure(job, 3, {"amx": "build 1", "plain": "build 1"})
    assert calls == ["ours", "amx", "plain", "amx", "plain", "ours", "plain", "ours", "amx"]
    assert result.ours == [1.0, 6.0, 8.0]
    assert result.theirs == {"amx": [2.0, 4.0, 9.0], "plain": [3.0, 5.0, 7.0]}


def test_a_build_without_the_program_is_left_out(calls: list[str], peers: dict[str, Path]) -> None:
    """Only one has llama-batched-bench; nothing of llama.cpp can be cold."""
    engines = {label: LlamaCpp(folder, 2) for label, folder in peers.items()}
    assert measure(Job(Key("batch", "some", 2, ""), Model("some", Path("x")), engines), 1,
                   dict.fromkeys(peers, "b")).theirs == {"amx": [2.0]}
    assert measure(Job(Key("cold", "some", 2, ""), Model("some", Path("x")), engines), 5, {}).theirs == {}
    assert calls == ["ours", "amx", "ours"]


def test_the_ratio_is_to_the_best_build() -> None:
    """By its median; for times the lower one."""
    speed = unit(ours=[20.0, 30.0], theirs={"slow": [1.0, 4.0], "fast": [10.0, 10.0]})
    assert (speed.best, speed.ratios) == ("fast", [2.0, 3.0])
    time_ms = unit("first", ours=[100.0], theirs={"slow": [400.0], "fast": [200.0]})
    assert (time_ms.best, time_ms.ratios) == ("fast", [2.0])
    alone = unit(ours=[1.0], theirs={})
    assert (alone.best, alone.ratios) == (None, [])


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["vs_llama_cpp.py", *arguments])
    vs_llama_cpp.main()


def test_what_is_kept_is_not_measured_again(
        calls: list[str], peers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """A second run measures the group that is new, a third everything, since the commit has changed."""
    model = tmp_path / "some.gguf"
    model.touch()
    results = tmp_path / "results.jsonl"
    common = [str(model), "--peer-bin", str(peers["amx"]), "--results", str(results), "--rounds", "1"]
    monkeypatch.setattr(vs_llama_cpp, "commit", lambda: "abc")
    run(monkeypatch, *common, "--only", "decode")
    run(monkeypatch, *common, "--only", "decode,prefill")
    assert calls == ["ours", "amx"] * 2
    assert [key.group for key in load_units(results)] == ["decode", "prefill"]
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(item["group"], item["ours"]) for item in last["units"]] == [("decode", [1.0]), ("prefill", [3.0])]
    monkeypatch.setattr(vs_llama_cpp, "commit", lambda: "def")
    run(monkeypatch, *common, "--only", "decode")
    assert calls == ["ours", "amx"] * 3


def test_other_builds_and_machines_are_measured_anew(
        calls: list[str], peers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file holds of another llama.cpp, or of another computer, tells nothing of this one."""
    model = tmp_path / "some.gguf"
    model.touch()
    common = [str(model), "--results", str(tmp_path / "results.jsonl"), "--rounds", "1", "--only", "decode"]
    monkeypatch.setattr(vs_llama_cpp, "commit", lambda: "abc")
    monkeypatch.setattr(vs_llama_cpp, "machine", lambda: "a machine")
    run(monkeypatch, *common, "--peer-bin", str(peers["amx"]))
    run(monkeypatch, *common, "--peer-bin", str(peers["amx"]))
    assert calls == ["ours", "amx"]
    run(monkeypatch, *common, "--peer-bin", f"plain={peers['plain']}")
    assert calls[2:] == ["ours", "plain"]
    monkeypatch.setattr(LlamaCpp, "build", lambda self: "build 2")
    run(monkeypatch, *common, "--peer-bin", f"plain={peers['plain']}")
    assert calls[4:] == ["ours", "plain"]
    monkeypatch.setattr(vs_llama_cpp, "machine", lambda: "another")
    run(monkeypatch, *common, "--peer-bin", f"plain={peers['plain']}")
    assert calls[6:] == ["ours", "plain"]


@pytest.mark.parametrize(("text", "label", "folder"), [
    ("/opt/bin", "llama.cpp", "/opt/bin"), ("amx=/opt/bin", "amx", "/opt/bin"), ("amx=/opt/a=b", "amx", "/opt/a=b"),
    ("/opt/a=b/bin", "llama.cpp", "/opt/a=b/bin"), ("./a=b", "llama.cpp", "./a=b")])
def test_a_build_is_a_folder_with_or_without_a_label(text: str, label: str, folder: str) -> None:
    """A path may have a "=" of its own."""
    assert vs_llama_cpp.peer_bin(text) == (label, Path(folder))


@pytest.mark.parametrize("arguments", [
    ["--peer-bin", "/a", "--peer-bin", "/b"], ["--peer-bin", "x=/a", "--peer-bin", "x=/b"], ["--rounds", "0"]])
def test_builds_without_a_name_of_their_own_and_no_rounds_are_wrong_usage(
        arguments: list[str], calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two builds with one label, neither is left out in silence."""
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, *arguments)
    assert calls == []


def test_time_that_is_over_ends_a_run(
        calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is begun, and a line says how to go on."""
    model = tmp_path / "some.gguf"
    model.touch()
    run(monkeypatch, str(model), "--only", "decode", "--minutes", "1e-12")
    assert calls == []
    assert "run this again to go on" in capsys.readouterr().err


def test_levels_meet_their_own_build_alone(
        calls: list[str], peers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GGPY_CPU=avx2 against the plain build, in the groups that tell something of processors."""
    model = tmp_path / "some.gguf"
    model.touch()
    builds = [f"--peer-bin={label}={folder}" for label, folder in peers.items()]
    run(monkeypatch, str(model), *builds, "--level", "avx2=plain", "--only", "decode,first", "--rounds", "1")
    assert calls == ["oursavx2", "plain"]
    with pytest.raises(SystemExit, match="there is no --peer-bin other=DIR"):
        run(monkeypatch, str(model), *builds, "--level", "avx2=other")


def test_files_that_were_quantised_again_are_measured_in_two_groups(
        calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Decode and prefill of every file in the folder, and of no other model."""
    for name in ("b-Q6_K.gguf", "a-Q8_0.gguf", "notes.txt"):
        (tmp_path / name).touch()
    run(monkeypatch, "--requants", str(tmp_path), "--rounds", "1")
    units = json.loads(capsys.readouterr().out.splitlines()[-1])["units"]
    assert [(item["group"], item["model"], item["is_requantised"]) for item in units] == [
        (group, model, True) for group in ("decode", "prefill") for model in ("a-Q8_0", "b-Q6_K")]


def test_unknown_groups_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong usage, and one line about a folder without llama-bench."""
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "--only", "decode,speed")
    with pytest.raises(SystemExit, match="there is no llama-bench in"):
        run(monkeypatch, "--peer-bin", str(tmp_path))


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_is_measured(
        calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib is needed for nothing else."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "--plot", "plot.svg")
    assert calls == []


def test_units_survive_the_file(tmp_path: Path) -> None:
    """The last one of a key counts."""
    file = tmp_path / "results.jsonl"
    first, second = unit(ours=[1.0], theirs={"a": [2.0]}), unit(ours=[1.5], theirs={"a": [2.5]})
    for each in (first, second):
        append_unit(file, each)
    assert load_units(file) == {Key("decode", "some", 2, ""): second}


def test_the_page_has_a_table_for_each_group(tmp_path: Path) -> None:
    """Medians with their range, the build that counts, and what it was measured on."""
    units = [unit(ours=[20.0, 30.0, 22.0], theirs={"plain": [10.0, 10.0, 10.0]}, builds={"plain": "build 1"}),
             unit("memory", ours=[300.0], theirs={"plain": [150.0]}, load=0.4), unit("cold", ours=[4000.0], theirs={})]
    lines = page(units, "plot.svg").splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## decode: tg64", "## cold: first token, cold", "## memory: memory"]
    assert "| some | 2 | 22.0 (20.0-30.0) | 10.0 (10.0-10.0) | plain | 2.20 (2.00-3.00) |" in lines
    assert "| some | 2 | 4000.0 | - | - | - |" in lines
    assert "- llama.cpp: plain: build 1" in lines
    assert "- load when a measurement began: at most 0.4" in lines
    assert "![Ratios to llama.cpp](plot.svg)" in lines


@pytest.mark.parametrize("name", GROUPS)
def test_groups_ask_both_engines_for_the_same(name: str) -> None:
    """As many tokens on both sides, as far as the flags tell."""
    from bench.engine_process import MEASURES

    group: Group = GROUPS[name]
    assert set(group.measures) <= set(MEASURES)
    numbers = {int(word) for word in group.llama_bench if word.isdigit()} - {0}
    assert all(str(number) in group.row for number in numbers if name in ("decode", "prefill", "depth"))
    assert bool(group.llama_bench) != group.is_cold
