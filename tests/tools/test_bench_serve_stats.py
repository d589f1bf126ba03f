"""The figures of a serving benchmark, from records made by hand."""

import pytest

from ggpy.tools.bench_serve_load import Record
from ggpy.tools.bench_serve_stats import Goals, gaps_ms, quantiles, summarise, tpot_ms
from ggpy.tools.bench_serve_targets import Answer


def record(due_s: float, times_s: list[float], prompt: int = 10, n_cached: int | None = 0) -> Record:
    """A request due at `due_s` whose tokens came at `times_s`."""
    answer = Answer(list(range(len(times_s))), len(times_s), times_s, n_cached)
    return Record(list(range(prompt)), due_s, times_s[-1], answer)


def test_quantiles_lie_between_values() -> None:
    """Linear, as NumPy does; the last one is the maximum."""
    assert quantiles([float(i) for i in range(101)]) == {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    assert quantiles([1.0, 2.0]) == pytest.approx({"p50": 1.5, "p95": 1.95, "p99": 1.99, "max": 2.0})
    assert quantiles([]) is None


def test_latencies_of_a_request() -> None:
    """Due at 1 s; tokens at 1.5, 1.6 and 1.9 s."""
    summary = summarise([record(1.0, [1.5, 1.6, 1.9])], target="t", load="1 client")
    assert summary.ttft_ms is not None
    assert summary.ttft_ms["p50"] == pytest.approx(500)
    assert summary.tpot_ms is not None
    assert summary.tpot_ms["p99"] == pytest.approx(200)
    assert summary.itl_ms is not None
    assert (summary.itl_ms["p50"], summary.itl_ms["max"]) == pytest.approx((200, 300))
    assert summary.e2e_ms is not None
    assert summary.e2e_ms["max"] == pytest.approx(900)


def test_tokens_that_come_together_have_one_gap() -> None:
    """Two arrivals of two tokens: three tokens behind the first take 0.3 s."""
    r = Record([1], 0.0, 0.4, Answer([1, 2, 3, 4], 4, [0.1, 0.4]))
    assert gaps_ms(r) == pytest.approx([300])
    assert tpot_ms(r) == pytest.approx(100)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    """Nor a gap."""
    summary = summarise([record(0, [0.1])], target="t", load="")
    assert (summary.tpot_ms, summary.itl_ms) == (None, None)


def test_rates_count_from_the_first_request_to_the_last_answer() -> None:
    """Two requests of 10 and 3 tokens in 2 s."""
    summary = summarise([record(1.0, [1.5, 1.6, 1.9]), record(2.0, [2.5, 2.6, 3.0])], target="t", load="")
    assert (summary.duration_s, summary.output_tokens_per_s, summary.total_tokens_per_s, summary.requests_per_s) == (
        2.0, 3.0, 13.0, 1.0)


def test_goodput_counts_requests_that_keep_all_goals() -> None:
    """One is too late, one too slow, one good; all of them in 4 s."""
    records = [record(0.0, [1.0, 1.1]), record(0.0, [0.1, 1.1]), record(0.0, [0.1, 0.2]), record(3.0, [3.5, 4.0])]
    goals = Goals(ttft_ms=300, tpot_ms=200)
    assert summarise(records, target="t", load="", goals=goals).goodput_per_s == 0.25
    assert summarise(records, target="t", load="", goals=Goals(e2e_ms=500)).goodput_per_s == 0.25
    assert summarise(records, target="t", load="").goodput_per_s is None


def test_problems_are_counted_apart() -> None:
    """What was rejected or failed has no latency."""
    bad = [Record([1], 0.0, 0.1, Answer(problem="rejected", message="HTTP 503: busy")),
           Record([1], 0.0, 0.1, Answer(problem="failed", message="gone")),
           Record([1], 0.0, 0.1, Answer())]
    summary = summarise([*bad, record(0.0, [0.2, 0.3])], target="t", load="")
    assert (summary.n_requests, summary.n_ok, summary.n_rejected, summary.n_failed) == (4, 1, 1, 2)
    assert summary.problems == ("HTTP 503: busy", "gone")
    assert summary.n_prompt == 10


def test_hit_rates_stand_beside_their_bounds() -> None:
    """The second prompt is the first one: 9 of its tokens could have been cached, 8 were."""
    records = [record(0.0, [0.1]), record(1.0, [1.1], n_cached=8)]
    summary = summarise(records, target="t", load="", pool_tokens=5)
    assert (summary.hit_rate, summary.hit_rate_unlimited, summary.hit_rate_lru) == (8 / 20, 9 / 20, 5 / 20)
    assert summary.n_unique == 10


def test_an_unknown_hit_rate_is_not_0() -> None:
    """A server that does not tell what it cached."""
    assert summarise([record(0.0, [0.1], n_cached=None)], target="t", load="").hit_rate is None


def test_a_run_without_requests_has_figures() -> None:
    """None of them is an error."""
    summary = summarise([], target="t", load="")
    assert (summary.n_ok, summary.output_tokens_per_s, summary.ttft_ms) == (0, 0.0, None)
