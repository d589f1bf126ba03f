"""An engine's metrics as Prometheus reads them: llama-server's names, and more of them under `ggpy:`.

docs/metrics.md describes them; a test holds it to the names and help texts here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ggpy.engine.metrics import EngineLoad, EngineMetrics, Histogram

__all__ = ["CONTENT_TYPE", "text"]


def text(metrics: EngineMetrics) -> str:
    """The metrics in Prometheus's text format, of type CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)       # of this text alone: two engines share nothing
    registry.register(_Families(metrics))
    return generate_latest(registry).decode().replace("# TYPE llamacpp:n_tokens_max gauge",
                                                      "# TYPE llamacpp:n_tokens_max counter")


class _Families(Collector):
    """What a registry collects: everything that there is now."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        load = self._metrics.load()
        yield from llama_server_families(self._metrics, load)
        yield from request_families(self._metrics)
        yield from engine_families(self._metrics, load)


def llama_server_families(m: EngineMetrics, load: EngineLoad) -> Iterator[Metric]:
    """The metrics of llama-server (tools/server/server-task.cpp), with its names and meanings."""
    n_steps = sum(m.step_s.counts)
    for name, help, value in (
        ("prompt_tokens", "Prompt tokens computed; those in the cache are not among them", m.prompt.n_tokens),
        ("prompt_tokens_cached", "Prompt tokens found in the cache", m.n_cached),
        ("prompt_seconds", "Time of forward passes that computed prompt tokens", m.prompt.seconds),
        ("tokens_predicted", "Tokens generated", m.n_predicted),
        ("tokens_predicted_seconds", "Time from requests' first tokens to their last, added up", m.generation.seconds),
        ("n_decode", "Forward passes", n_steps),
        ("spec_decode_num_draft_tokens", "Drafted tokens that were verified", m.n_drafted),
        ("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted", m.n_accepted),
        ("spec_decode_num_drafts", "Drafts that were verified", m.n_drafts),
    ):
        yield CounterMetricFamily(f"llamacpp:{name}", help, value)
    if m.n_accepted_at:
        family = CounterMetricFamily("llamacpp:spec_decode_num_accepted_tokens_per_pos",
                                     "Drafted tokens that were accepted, by position in the draft", labels=["position"])
        for i, n_accepted in enumerate(m.n_accepted_at):
            family.add_metric([str(i)], n_accepted)
        yield family
    for name, help, value in (
        # a counter to llama-server, which `text` makes it; the library would add "_total" to its name
        ("n_tokens_max", "Tokens of the longest request so far, prompt and answer", m.longest),
        ("prompt_tokens_seconds", "Prompt tokens computed per second since the last scrape", m.prompt.since_last()),
        ("predicted_tokens_seconds", "Tokens that a request generated per second, on average since the last scrape",
         m.generation.since_last()),
        ("requests_processing", "Requests that run", load.n_running),
        ("requests_deferred", "Requests that wait", load.n_waiting),
        ("n_busy_slots_per_decode", "Requests per forward pass, on average", m.n_running.total / max(n_steps, 1)),
    ):
        yield GaugeMetricFamily(f"llamacpp:{name}", help, value)


def request_families(m: EngineMetrics) -> Iterator[Metric]:
    """What requests met with; the names are vLLM's where it has one."""
    for histogram, name, help in (
        (m.ttft_s, "time_to_first_token_seconds", "From a request's arrival to its first token"),
        (m.gap_s, "inter_token_latency_seconds", "Between a request's tokens; those of one step come together"),
        (m.e2e_s, "e2e_request_latency_seconds", "From a request's arrival to its end"),
        (m.queue_s, "request_queue_time_seconds", "From a request's arrival until it runs"),
        (m.prefill_s, "request_prefill_time_seconds", "From a request's first step to its first token"),
        (m.decode_s, "request_decode_time_seconds", "From a request's first token to its last"),
        (m.n_prompt, "request_prompt_tokens", "Prompt tokens of a request that has ended"),
        (m.n_generated, "request_generation_tokens", "Generated tokens of a request that has ended"),
    ):
        yield histogram_family(f"ggpy:{name}", help, histogram)
    for name, help, value in (
        ("requests_queued", "Requests taken", m.n_queued),
        ("requests_rejected", "Requests refused since too many were waiting", m.n_rejected),
        ("prefix_cache_queries", "Prompt tokens looked up in the cache", m.n_looked_up),
        ("prefix_cache_hits", "Prompt tokens found in the cache", m.n_cached),
    ):
        yield CounterMetricFamily(f"ggpy:{name}", help, value)
    yield counter_by("ggpy:requests_finished", "Requests that ended, by reason", "reason", m.n_finished)
    yield counter_by("ggpy:prefix_cache_misses", "Requests, by why no more of their prompt was in the cache", "cause",
                     m.n_missed)


def engine_families(m: EngineMetrics, load: EngineLoad) -> Iterator[Metric]:
    """What the engine's steps did."""
    for histogram, name, help in (
        (m.step_s, "step_seconds", "A step, from scheduling to its last event"),
        (m.forward_s, "forward_seconds", "The forward pass of a step"),
        (m.n_rows, "step_tokens", "Tokens computed in a step"),
        (m.n_running, "step_requests", "Requests served in a step"),
    ):
        yield histogram_family(f"ggpy:{name}", help, histogram)
    for name, help, value in (
        ("num_preemptions", "Times that a request had to give up its pages", m.n_preempted),
        ("cache_audits", "Cache hits computed again and compared", m.n_audits),
        ("cache_audit_differences", "Differences that audits have found", m.n_audit_differences),
    ):
        yield CounterMetricFamily(f"ggpy:{name}", help, value)
    pages = GaugeMetricFamily("ggpy:kv_pages", "Pages of the KV cache, by group of layers and use",
                              labels=["group", "use"])
    for group, use in enumerate(load.pages):
        for name, n_pages in use._asdict().items():
            pages.add_metric([str(group), name], n_pages)
    yield pages


def counter_by(name: str, help: str, label: str, counts: Counter[str]) -> Metric:
    """A counter for each value of a label."""
    family = CounterMetricFamily(name, help, labels=[label])
    for value, n in sorted(counts.copy().items()):
        family.add_metric([value], n)
    return family


def histogram_family(name: str, help: str, histogram: Histogram) -> Metric:
    """The histogram as Prometheus has it: a bucket counts those below it, too."""
    buckets, n = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts.copy(), strict=True):
        n += count
        buckets.append((bound, n))
    return HistogramMetricFamily(name, help, buckets=buckets, sum_value=histogram.total)
