"""Whatever requests meet with, each gets the tokens and the logits, bit for bit, that it gets alone."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.engine.workloads import MODELS, workloads
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
    for what in ("hits", "preempted", "accepted", "constrained", "cancelled", "demand_over_200%", "one_at_a_time"):
        assert counts[what], f"no workload covers {what}"
    assert counts["drafted"] > counts["accepted"]
