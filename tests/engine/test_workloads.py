"""Whatever requests meet with, each gets the tokens and the logits, bit for bit, that it gets alone."""

from collections import Counter
from collections.abc import Callable

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Generate
from ggpy.engine.service import requests_of
from tests.engine.workloads import MODELS, Arrival, serve, workloads
from tests.models.arch_data import ArchModel

N_WORKLOADS = 10        # of each model


@pytest.mark.parametrize("name", MODELS)
def test_requests_of_random_workloads_get_what_they_get_alone(
    name: str, arch_model: Callable[[str], ArchModel]
) -> None:
    """Batches, budgets, threads, pools, layouts, drafts, constraints, priorities and reuse differ; no bit does."""
    found, counts = [], Counter[str]()
    with workloads(arch_model(name)) as some:
        for seed in range(N_WORKLOADS):
            outcome = some.run(seed)
            found += outcome.differences
            counts.update(outcome.counts)
    assert found == []
    for what in ("hits", "audits", "preempted", "accepted", "constrained", "cancelled", "demand_over_200%",
                 "one_at_a_time"):
        assert counts[what], f"no workload covers {what}"
    assert counts["drafted"] > counts["accepted"]


def test_several_answers_to_one_prompt_read_it_once(arch_model: Callable[[str], ArchModel]) -> None:
    """The others copy the last page, which is not full, and compute the last token: each has to choose after it."""
    with workloads(arch_model("llama_q8_0")) as some:
        requests = requests_of(Generate(prompt_tokens=[*range(90)], n=3, params=SamplingParams(seed=1, max_tokens=5)))
        serve(some.alone, [(Arrival(0, Generate(prompt_tokens=()), None), r) for r in requests])
        metrics = some.alone.metrics
    assert [r.num_cached for r in requests] == [0, 89, 89]
    assert (metrics.n_looked_up, metrics.n_cached) == (270, 178)
    assert metrics.n_rows.total == 90 + 2 + 3 * 4
