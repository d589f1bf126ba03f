"""`ggpy top`: what it shows of a server, once and live."""

import pytest
from rich.table import Table

from ggpy import cli
from ggpy.engine.metrics import EngineLoad, EngineMetrics, PageUse, RequestStats, StepStats
from ggpy.tools.metrics_page import Span, parse
from ggpy.tools.top import WINDOW_S, History
from ggpy.tools.top_view import activity, number, seconds, times
from tests.tools.metric_pages import LLAMA_SERVER, Server


def engine() -> EngineMetrics:
    """One that has served a request in two steps: 60 of 100 prompt tokens were cached, one of three drafts fitted."""
    metrics = EngineMetrics(lambda: EngineLoad(1, 4, (PageUse(free=10, idle=5, held=5),)))
    metrics.queued()
    metrics.admitted(0.01)
    metrics.looked_up(100, 60, "edited_history")
    metrics.step(StepStats(40, 40, 1, 0.5, 0.4))
    metrics.first_token(0.5)
    metrics.step(StepStats(4, 0, 1, 0.1, 0.1, n_preempted=2, n_drafted=3, accepted=(1,)))
    metrics.inter_token(0.1, 2)
    metrics.finished(RequestStats("stop", 100, 3, 0.6, 0.5, 0.1))
    return metrics


def span(before: str, now: str, time_s: float) -> Span:
    return Span(parse("x", before, 0.0), parse("x", now, time_s))


def rows(table: Table | None) -> dict[str, list[str]]:
    """Cells of a table by the first one of their row."""
    assert table is not None
    names, *columns = (list(column.cells) for column in table.columns)
    return {str(name): [str(cell) for cell in cells] for name, *cells in zip(names, *columns, strict=True)}


def test_all_of_an_engine_is_shown() -> None:
    """What happened in 2 s since its start."""
    shown = rows(activity(span(EngineMetrics().text(), engine().text(), 2.0)))
    assert shown["requests"] == ["1 running · 4 waiting · 0 refused · ended: 1 stop"]
    assert shown["tokens/s"] == ["1.5 generated · 20 read · 20 per stream"]
    assert shown["steps"] == ["1/s · 1 request each · 22 tokens · 83% in the forward pass"]
    assert shown["prompt cache"] == ["60% of prompt tokens · 60% since start · 60 tokens not computed"]
    assert shown["misses"] == ["1 edited history"]
    assert shown["KV pages"] == ["█████▒▒▒▒▒░░░░░░░░░░  █ 5 held  ▒ 5 idle  ░ 10 free"]
    assert shown["drafts"] == ["33% accepted · 33% since start · 1 token of a draft"]
    assert shown["preempted"] == ["2"]


def test_quantiles_are_those_of_the_window_and_those_since_the_start() -> None:
    """One gap of at most 0.1 s before the window, nothing in it, and then a longer one."""
    metrics = engine()
    first = metrics.text()
    assert rows(times(span(first, first, 1.0)))["between tokens"] == ["-", "-", "-", "87.5 ms", "98.8 ms", "99.8 ms"]
    metrics.inter_token(9.0)
    assert rows(times(span(first, metrics.text(), 1.0)))["between tokens"][0] == "> 5 s"


def test_of_llama_server_is_shown_what_its_page_has() -> None:
    """Neither pages nor histograms; the speeds are of 2 s in which nothing happened."""
    same = span(LLAMA_SERVER, LLAMA_SERVER, 2.0)
    assert rows(activity(same)) == {
        "requests": ["2 running · 1 waiting"],
        "tokens/s": ["0 generated · 0 read · 31.2 per stream"],
        "steps": ["0/s · 1.5 requests each since start"],
        "prompt cache": ["- of prompt tokens · 25% since start · 100 tokens not computed"],
    }
    assert times(same) is None


def test_pages_are_of_one_group_or_numbered() -> None:
    """By the group of layers that they belong to."""
    page = 'ggpy:kv_pages{group="0",use="held"} 3\nggpy:kv_pages{group="0",use="free"} 1\n'
    more = page + 'ggpy:kv_pages{group="1",use="held"} 2\n'
    assert [name for name in rows(activity(span(page, page, 1.0))) if name.startswith("KV")] == ["KV pages"]
    assert [name for name in rows(activity(span(more, more, 1.0))) if name.startswith("KV")] == [
        "KV group 0", "KV group 1"]


def test_a_single_scrape_has_no_speeds() -> None:
    assert rows(activity(span(LLAMA_SERVER, LLAMA_SERVER, 0.0)))["tokens/s"] == [
        "- generated · - read · 31.2 per stream"]


def test_history_goes_back_one_window() -> None:
    """A scrape each second."""
    history = History()
    spans = [history.add(parse("x", LLAMA_SERVER, time_s)) for time_s in range(30)]
    assert [each.seconds for each in spans[:3]] == [0, 1, 2]
    assert spans[-1].seconds == WINDOW_S


def test_history_begins_anew_with_the_server() -> None:
    """A restarted server's counters begin at 0."""
    history = History()
    history.add(parse("x", LLAMA_SERVER, 0.0))
    fresh = LLAMA_SERVER.replace("llamacpp:tokens_predicted_total 64", "llamacpp:tokens_predicted_total 2")
    assert history.add(parse("x", fresh, 1.0)).seconds == 0


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (12.34, "12.3"), (1234.5, "1,234"), (float("nan"), "-")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (1200, "1,200 s")])
def test_times_are_short(value: float, text: str) -> None:
    assert seconds(value) == text


def test_once_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of plain text, as stdout is no terminal."""
    with Server(engine().text()) as server:
        assert cli.main(["top", f"127.0.0.1:{server.port}", "--interval", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "requests      1 running · 4 waiting · 0 refused · ended: 1 stop"
    assert any(line.startswith("first token") for line in lines)
    assert len(server.authorizations) == 2


def test_once_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --metrics llama-server answers 501."""
    with Server('{"error": {}}', 501) as server:
        assert cli.main(["top", server.url, "--once"]) == 1
    message = f"ggpy top: {server.url}: the server does not show metrics (501); start it with --metrics\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "1e9"])
def test_an_interval_is_a_number_of_seconds(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["top", "--interval", value])
    assert f"--interval {value}: expected 0.1 to 3600 seconds" in capsys.readouterr().err
