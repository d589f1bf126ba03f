"""Adapters on the compiled backend, from their file to an answer: requests beside each other, drafts, saved states."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.core import EngineCore
from ggpy.engine.request import Request
from ggpy.engine.saved_state import restore_state, save_state
from ggpy.loading import ModelOptions, load_core
from tests.models.adapter_data import random_factors, write_adapter
from tests.models.arch_data import ArchModel

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
NAMES = ("blk.0.attn_k.weight", "blk.1.ffn_down.weight")
PROMPT = [5, 6, 7, 8] * 10
SCALES: list[tuple[tuple[int, float], ...]] = [(), ((0, 1.0),), ((1, 0.5),), ((0, 1.0), (1, -1.0))]


@pytest.fixture
def opened(arch_model: Callable[[str], ArchModel], tmp_path: Path) -> Callable[..., Any]:
    """Opens a tiny quantised model with two adapters, which nobody gets who does not ask."""
    model = arch_model("llama_q8_0")
    files = [(write_adapter(tmp_path / f"{i}.gguf", random_factors(model, NAMES, seed=i)), 0.0) for i in range(2)]

    @contextmanager
    def open_model(lora: Any = files, **options: Any) -> Iterator[EngineCore]:
        core = load_core(model.path, ModelOptions(lora=lora, n_ctx=128, pool_tokens=1024, n_threads=2, **options))
        try:
            yield core
        finally:
            core.close()

    return open_model


def answers(core: EngineCore, *scales: Any) -> list[list[int]]:
    """Of requests that run side by side."""
    requests = [Request(PROMPT, PARAMS, adapters=each) for each in scales]
    for request in requests:
        core.add(core.prepare(request))
    while core.has_work:
        core.step()
    return [request.output_tokens for request in requests]


def test_requests_beside_each_other_get_what_they_get_alone(opened: Callable[..., Any]) -> None:
    """Also those that come later and find much in the cache; repetitions in the prompt are guessed from."""
    with opened(lora=()) as core:
        plain = answers(core, None)
    alone = []
    for scales in SCALES:
        with opened() as core:
            alone += answers(core, scales)
    assert alone[0] == plain[0]
    assert len(set(map(tuple, alone))) == 4
    with opened(cache_audit=1) as core:
        assert answers(core, *SCALES) == alone
        assert answers(core, *SCALES, None) == [*alone, plain[0]]
        assert core.metrics.n_audits > 0
        assert core.metrics.n_audit_differences == 0


def test_a_saved_state_belongs_to_its_adapters(opened: Callable[..., Any], tmp_path: Path) -> None:
    """It is found again by requests with these scales, and by no others."""
    with opened() as core:
        core.adapters.set_defaults(((0, 1.0),))
        [expected] = answers(core, None)
        save_state(tmp_path / "state", core.backend, core.cache, PROMPT, core.salt_of(0))
    with opened() as core:
        restore_state(tmp_path / "state", core.backend, core.cache)
        found, plain = Request(PROMPT, PARAMS, adapters=((0, 1.0),)), Request(PROMPT, PARAMS)
        for request in (found, plain):
            core.add(core.prepare(request))
        while core.has_work:
            core.step()
        assert (found.num_cached, plain.num_cached) == (len(PROMPT) - 1, 0)
        assert found.output_tokens == expected
