"""The command `ggpy bench serve`, from its flags to its table."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ggpy import cli
from ggpy.tools.bench_serve_output import draw, notes, table
from ggpy.tools.bench_serve_stats import Summary, summarise
from tests.models.arch_data import ArchModel
from tests.tools.test_bench_serve_stats import record

SMALL = ("-n", "3", "--scale", "0.02", "-c", "256", "--pool-tokens", "1024")


@pytest.fixture
def model(arch_model: Callable[[str], ArchModel]) -> str:
    return str(arch_model("llama_headdim").path)


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("workload", ["chat", "shared", "agent", "edit"])
def test_every_workload_runs(workload: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On a tiny model; every request is answered."""
    assert cli.main(["bench", "serve", model, *SMALL, "--workload", workload, "-o", "jsonl", "--clients", "2"]) == 0
    [line] = lines_of(capsys)
    assert line["n_ok"] == line["n_requests"]
    assert (line["target"], line["load"], line["pool_tokens"]) == ("ggpy", "2 clients", 1024)
    assert isinstance(line["output_tokens_per_s"], float)
    assert line["output_tokens_per_s"] > 0


def test_each_rate_is_a_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A column for each; goals make a row of good requests."""
    assert cli.main(["bench", "serve", model, *SMALL, "--rate", "50,100", "--slo-ttft", "10000"]) == 0
    output = capsys.readouterr().out
    assert "| ggpy, 50 sessions/s | ggpy, 100 sessions/s |" in output
    assert "| good requests/s " in output
    assert "| preemptions " in output


def test_a_written_trace_can_be_sent(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At its times, scaled, or by clients; nothing is sent while it is written."""
    path = str(tmp_path / "trace.jsonl")
    assert cli.main(["bench", "serve", *SMALL, "--workload", "agent", "--write-trace", path]) == 0
    assert capsys.readouterr().out == ""
    n_requests = len(Path(path).read_text().splitlines())
    for flags, load in ((("--time-scale", "0.001"), "times x 0.001"), (("--clients", "3"), "3 clients")):
        assert cli.main(["bench", "serve", model, *SMALL, "--trace", path, *flags, "-o", "jsonl"]) == 0
        [line] = lines_of(capsys)
        assert (line["load"], line["n_ok"]) == (load, n_requests)


def test_what_does_not_fit_the_context_is_left_out_aloud(
    model: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And if nothing fits, that is an error."""
    flags = ["-n", "8", "--scale", "0.2", "-o", "jsonl"]
    assert cli.main(["bench", "serve", model, *flags, "-c", "64"]) == 0
    assert "of 8 requests do not fit the context of 64 tokens and were left out" in caplog.text
    assert cli.main(["bench", "serve", model, *flags, "-c", "6", "--no-warmup"]) == 1
    assert "no request fits the context of 6 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "message"), [
    ([], "give a model or the --url of a server"),
    (["x.gguf", "--url", "http://127.0.0.1:9"], "give a model or the --url of a server"),
    (["x.gguf", "--rate", "1", "--clients", "2"], "--clients, --rate and --replay exclude each other"),
    (["x.gguf", "--rate", "1,0"], "--rate 1,0: expected a number above 0"),
    (["x.gguf", "--scale", "x"], "--scale x: expected a number above 0"),
])
def test_wrong_usage_is_one_line(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is loaded."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "serve", *flags])
    assert capsys.readouterr().err == f"ggpy bench serve: {message}; see ggpy bench serve --help\n"


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With its address, and what to do."""
    assert cli.main(["bench", "serve", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == (
        "ggpy bench serve: http://127.0.0.1:9/tokenize: nobody listens there; start the server, or give the URL of the "
        "one that you mean\n")


def test_help_knows_the_command_by_both_words(capsys: pytest.CaptureFixture[str]) -> None:
    """As `ggpy bench serve --help` does; `ggpy bench` stays what it is."""
    for argv, usage in ((["help", "bench", "serve"], "usage: ggpy bench serve [FLAGS] [MODEL]"),
                        (["bench", "serve", "-h"], "usage: ggpy bench serve [FLAGS] [MODEL]"),
                        (["help", "bench"], "usage: ggpy bench [FLAGS]")):
        with pytest.raises(SystemExit, match="0"):
            cli.main(argv)
        assert capsys.readouterr().out.startswith(usage)


def summary(target: str, ttft_s: float, *, n_cached: int | None = 4) -> Summary:
    """One request: first token after `ttft_s`, the second a second later."""
    return summarise([record(0.0, [ttft_s, ttft_s + 1], n_cached=n_cached)], target=target, load="1 client")


def cells(text: str) -> dict[str, list[str]]:
    """The table's rows by their label."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_a_ratio_above_1_means_that_the_first_is_better() -> None:
    """Half the time, or twice the rate; where there is nothing to compare it is empty."""
    rows = cells(table([summary("ours", 1.0), summary("theirs", 3.0)], with_ratio=True))
    assert rows[""] == ["ours, 1 client", "theirs, 1 client", "ratio"]
    assert rows["TTFT p50 [ms]"] == ["1,000.0", "3,000.0", "3.00"]
    assert rows["output tokens/s"] == ["1.0", "0.5", "2.00"]
    assert rows["requests"] == ["1", "1", ""]
    assert "pool [tokens]" not in rows


def test_what_is_not_known_is_a_dash() -> None:
    """Of one run; a row that no run has is left out."""
    rows = cells(table([summary("a", 1.0, n_cached=None), summary("b", 1.0)]))
    assert rows["cached [%]"] == ["-", "40.0"]
    assert "preemptions" not in rows


def test_notes_say_what_went_wrong() -> None:
    """Each message once."""
    bad = replace(summary("a", 1.0), problems=("HTTP 500: full",))
    assert list(notes([bad], ("token ids",))) == ["not told by a: token ids", "a, 1 client: HTTP 500: full"]


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    """A file that is the same for the same runs."""
    pytest.importorskip("matplotlib", reason="plots need the extra `bench`")
    runs = [summary("ours", 1.0), summary("ours", 2.0), summary("theirs", 3.0)]
    for name in ("a.svg", "b.svg"):
        draw(runs, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert text.startswith("<?xml")
