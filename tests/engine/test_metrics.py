"""What an engine counts, and how Prometheus reads it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ggpy.engine.metrics import EngineLoad, EngineMetrics, PageUse, RequestStats, StepStats


def samples(metrics: EngineMetrics) -> dict[str, float]:
    """What a scrape finds: name with labels -> value."""
    return {sample.name + "".join(f",{label}={value}" for label, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(metrics.text()) for sample in family.samples}


def step(*, n_rows: int = 1, n_prompt_rows: int = 0, n_running: int = 1, step_s: float = 0.02, forward_s: float = 0.01,
         longest: int = 0, n_preempted: int = 0, n_drafted: int = 0, accepted: tuple[int, ...] = ()) -> StepStats:
    return StepStats(n_rows, n_prompt_rows, n_running, step_s, forward_s, longest, n_preempted, n_drafted, accepted)


def test_prompt_tokens_are_those_computed_and_cached_ones_have_a_count_of_their_own() -> None:
    """Of a prompt of 100 tokens 60 were cached; 40 were read in two steps, the second one with another's token."""
    metrics = EngineMetrics()
    metrics.looked_up(n_prompt=100, n_cached=60, miss_cause="edited_history")
    metrics.step(step(n_rows=32, n_prompt_rows=32, forward_s=0.25))
    metrics.step(step(n_rows=9, n_prompt_rows=8, forward_s=0.5))
    metrics.step(step(n_rows=2, n_prompt_rows=0, forward_s=0.125))
    found = samples(metrics)
    assert found["llamacpp:prompt_tokens_total"] == 40
    assert found["llamacpp:prompt_tokens_cached_total"] == 60
    assert found["llamacpp:prompt_seconds_total"] == 0.75
    assert found["ggpy:prefix_cache_queries_total"] == 100
    assert found["ggpy:prefix_cache_hits_total"] == 60
    assert found["ggpy:prefix_cache_misses_total,cause=edited_history"] == 1


def test_generated_tokens_are_the_first_ones_and_those_that_follow() -> None:
    """Two requests with 1 and 2 + 1 + 3 tokens, of which 2 came at once; times begin at the first token."""
    metrics = EngineMetrics()
    metrics.first_token(1.0)
    metrics.first_token(2.0, n_tokens=2)
    metrics.inter_token(0.25)
    metrics.inter_token(0.5, n_tokens=3)
    found = samples(metrics)
    assert found["llamacpp:tokens_predicted_total"] == 7
    assert found["llamacpp:tokens_predicted_seconds_total"] == 0.75
    assert found["ggpy:inter_token_latency_seconds_count"] == 2
    assert found["ggpy:time_to_first_token_seconds_sum"] == 3.0


def test_speeds_are_those_since_the_last_scrape() -> None:
    """As llama-server's: 40 tokens in 0.5 s, then nothing, then 10 in 1 s; the first token counts for none."""
    metrics = EngineMetrics()
    metrics.step(step(n_prompt_rows=40, forward_s=0.5))
    metrics.first_token(0.5)
    metrics.inter_token(0.25)
    found = samples(metrics)
    assert (found["llamacpp:prompt_tokens_seconds"], found["llamacpp:predicted_tokens_seconds"]) == (80, 4)
    found = samples(metrics)
    assert (found["llamacpp:prompt_tokens_seconds"], found["llamacpp:predicted_tokens_seconds"]) == (0, 0)
    metrics.step(step(n_prompt_rows=10, forward_s=1.0))
    assert samples(metrics)["llamacpp:prompt_tokens_seconds"] == 10


def test_a_snapshot_leaves_the_speeds_to_the_next_scrape() -> None:
    metrics = EngineMetrics()
    metrics.step(step(n_prompt_rows=40, forward_s=0.5))
    assert metrics.snapshot()["n_prompt"] == 40
    assert samples(metrics)["llamacpp:prompt_tokens_seconds"] == 80


def test_steps_count_with_their_requests_and_the_longest_of_them() -> None:
    """Steps of 1 and 4 requests."""
    metrics = EngineMetrics()
    metrics.step(step(n_running=1, longest=700))
    metrics.step(step(n_running=4, longest=300, n_rows=6, n_preempted=2))
    found = samples(metrics)
    assert found["llamacpp:n_decode_total"] == 2
    assert found["llamacpp:n_busy_slots_per_decode"] == 2.5
    assert found["llamacpp:n_tokens_max_total"] == 700       # the parser adds "_total" to counters
    assert found["ggpy:step_tokens_sum"] == 7
    assert found["ggpy:num_preemptions_total"] == 2


def test_drafts_count_by_position() -> None:
    """Of three drafts, 2, 0 and 3 tokens were accepted."""
    metrics = EngineMetrics()
    metrics.step(step(n_drafted=8, accepted=(2, 0)))
    metrics.step(step(n_drafted=3, accepted=(3,)))
    found = samples(metrics)
    assert found["llamacpp:spec_decode_num_draft_tokens_total"] == 11
    assert found["llamacpp:spec_decode_num_accepted_tokens_total"] == 5
    assert found["llamacpp:spec_decode_num_drafts_total"] == 3
    by_position = [found[f"llamacpp:spec_decode_num_accepted_tokens_per_pos_total,position={i}"] for i in range(3)]
    assert by_position == [2, 2, 1]


def test_there_are_no_positions_before_the_first_accepted_draft() -> None:
    metrics = EngineMetrics()
    metrics.step(step())
    assert not any("per_pos" in name for name in samples(metrics))


def test_load_is_that_of_the_moment_of_the_scrape() -> None:
    """Nothing has to happen in the engine for gauges to be right."""
    load = EngineLoad(n_running=3, n_waiting=2, pages=(PageUse(free=5, idle=3, held=2), PageUse(1, 0, 9)))
    metrics = EngineMetrics(lambda: load)
    found = samples(metrics)
    assert (found["llamacpp:requests_processing"], found["llamacpp:requests_deferred"]) == (3, 2)
    assert [found[f"ggpy:kv_pages,group=0,use={use}"] for use in ("free", "idle", "held")] == [5, 3, 2]
    assert found["ggpy:kv_pages,group=1,use=held"] == 9
    load = EngineLoad()
    assert samples(metrics)["llamacpp:requests_processing"] == 0


def test_a_value_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    """Bounds of 0.1 and 0.15 s, and none above 5 s."""
    metrics = EngineMetrics()
    for gap_s in (0.1, 0.11, 7.0):
        metrics.inter_token(gap_s)
    found = samples(metrics)
    buckets = [found[f"ggpy:inter_token_latency_seconds_bucket,le={bound}"]
               for bound in ("0.075", "0.1", "0.15", "5.0", "+Inf")]
    assert buckets == [0, 1, 2, 2, 3]


def test_a_request_that_got_no_token_has_no_times_of_its_phases() -> None:
    """One was served, one cancelled while it waited, one refused."""
    metrics = EngineMetrics()
    metrics.queued()
    metrics.queued()
    metrics.rejected()
    metrics.finished(RequestStats("stop", n_prompt=9, n_generated=4, e2e_s=2.0, prefill_s=0.5, decode_s=1.0))
    metrics.finished(RequestStats("cancelled", n_prompt=7, n_generated=0, e2e_s=1.0))
    found = samples(metrics)
    assert (found["ggpy:requests_queued_total"], found["ggpy:requests_rejected_total"]) == (2, 1)
    assert found["ggpy:requests_finished_total,reason=stop"] == 1
    assert found["ggpy:requests_finished_total,reason=cancelled"] == 1
    assert found["ggpy:e2e_request_latency_seconds_sum"] == 3.0
    assert found["ggpy:request_prefill_time_seconds_count"] == 1
    assert found["ggpy:request_decode_time_seconds_sum"] == 1.0
    assert found["ggpy:request_prompt_tokens_sum"] == 16


def test_engines_share_nothing() -> None:
    first, second = EngineMetrics(), EngineMetrics()
    first.queued()
    assert samples(second)["ggpy:requests_queued_total"] == 0


@pytest.mark.parametrize("name", [
    "prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total", "tokens_predicted_total",
    "tokens_predicted_seconds_total", "n_decode_total", "n_tokens_max_total", "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total", "prompt_tokens_seconds",
    "predicted_tokens_seconds", "requests_processing", "requests_deferred", "n_busy_slots_per_decode"])
def test_a_fresh_engine_has_every_metric_of_llama_server(name: str) -> None:
    assert samples(EngineMetrics())[f"llamacpp:{name}"] == 0


def test_a_snapshot_is_plain() -> None:
    """Counts by name, pages by group."""
    metrics = EngineMetrics(lambda: EngineLoad(1, 0, (PageUse(5, 3, 2),)))
    metrics.looked_up(10, 4, "evicted")
    metrics.first_token(0.1)
    found = metrics.snapshot()
    assert found["pages"] == [{"free": 5, "idle": 3, "held": 2}]
    assert (found["n_running"], found["n_looked_up"], found["n_cached"], found["n_predicted"]) == (1, 10, 4, 1)
    assert found["n_missed"] == {"evicted": 1}


def test_the_page_of_metrics_lists_those_that_there_are() -> None:
    """Name and type of each, in the order of the text."""
    metrics = EngineMetrics()
    metrics.step(step(n_drafted=1, accepted=(1,)))
    exposed = [tuple(line.split()[2:]) for line in metrics.text().splitlines() if line.startswith("# TYPE")]
    page = Path(__file__).parents[2] / "docs/metrics.md"
    rows = [line.split("|")[1:3] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [(name.strip().partition("{")[0].strip("`"), kind.strip()) for name, kind in rows] == exposed
