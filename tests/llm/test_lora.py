"""Low-rank adapters through the library: what a request gets, and that none sees what another has read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy import LLM, SamplingParams
from ggpy.errors import ConfigError, GGUFError, RequestError
from ggpy.loading import ModelOptions, adapter_files
from tests.models.adapter_data import random_factors, write_adapter
from tests.models.arch_data import ArchModel

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPT = list(range(5, 45))


@pytest.fixture
def files(tiny: ArchModel, tmp_path: Path) -> list[Path]:
    """Two adapters."""
    names = ("blk.0.attn_v.weight", "blk.1.ffn_down.weight")
    return [write_adapter(tmp_path / f"{i}.gguf", random_factors(tiny, names, seed=i)) for i in range(2)]


def test_each_request_has_its_own_adapters(load: Callable[..., LLM], files: list[Path]) -> None:
    """Also when one prompt is asked with several, one after the other or at once; drafts change nothing."""
    alone = [load(lora=[(files[0], a), (files[1], b)]).generate(PROMPT, GREEDY).tokens
             for a, b in ((0, 0), (1, 0), (0, 0.5))]
    assert len({tuple(tokens) for tokens in alone}) == 3
    llm = load(lora=files, pool_tokens=512, n_ctx=128)
    scales: list[dict[int, float]] = [{}, {0: 1}, {1: 0.5}]
    assert [llm.generate(PROMPT, GREEDY, lora=lora).tokens for lora in scales] == alone
    again = [llm.generate(PROMPT, GREEDY, lora=lora) for lora in scales]
    assert [answer.tokens for answer in again] == alone
    assert [answer.n_cached for answer in again] == [len(PROMPT) - 1] * 3
    streams = [llm.stream([*PROMPT], GREEDY, lora=lora) for lora in scales]
    assert [stream.finish().tokens for stream in streams] == alone


def test_the_usual_scales_can_be_changed(load: Callable[..., LLM], files: list[Path]) -> None:
    """For answers, logits and embeddings."""
    plain, llm = load(), load(lora=(files[0], 0.5))
    assert [(info.path, info.scale) for info in llm.adapters] == [(str(files[0]), 0.5)]
    adapted = llm.logits(PROMPT)
    assert not np.allclose(adapted, plain.logits(PROMPT))
    assert not np.allclose(llm.embed(["abc"]), plain.embed(["abc"]))
    llm.set_lora({})
    assert np.array_equal(llm.logits(PROMPT), plain.logits(PROMPT))
    assert np.array_equal(llm.embed(["abc"]), plain.embed(["abc"]))
    assert llm.generate(PROMPT, GREEDY).tokens == plain.generate(PROMPT, GREEDY).tokens
    llm.set_lora({0: 0.5})
    assert np.array_equal(llm.logits(PROMPT), adapted)


def test_an_adapter_that_is_not_there_is_refused(load: Callable[..., LLM], files: list[Path], tmp_path: Path) -> None:
    """When the model is opened, or at the call."""
    llm = load(lora=files[0])
    with pytest.raises(RequestError, match="lora: id 1: there is no such adapter, expected 0 to 0"):
        llm.generate(PROMPT, GREEDY, lora={1: 1.0})
    with pytest.raises(RequestError, match="lora=5: expected a mapping"):
        llm.generate(PROMPT, GREEDY, lora=5)        # type: ignore[arg-type]
    with pytest.raises(GGUFError, match=r"absent.gguf: no such file"):
        load(lora=tmp_path / "absent.gguf")


@pytest.mark.parametrize(("lora", "expected"), [
    ("a", [("a", 1)]), (Path("a"), [("a", 1)]), (("a", 0.5), [("a", 0.5)]), (["a", ("b", 2)], [("a", 1), ("b", 2)]),
    (("a", "b"), [("a", 1), ("b", 1)]), ((("a", 1), ("b", 2)), [("a", 1), ("b", 2)]), ((), []), ([], []),
])
def test_adapters_may_be_named_in_several_ways(lora: Any, expected: list[tuple[str, float]]) -> None:
    """One or several, with scales or without."""
    assert list(adapter_files(lora)) == expected
    assert ModelOptions(lora=ModelOptions(lora=lora).lora).lora == tuple(expected)


@pytest.mark.parametrize("lora", [[5], [("a", "b", "c")], [("a", float("nan"))], ("a", None), [("a", True)], 5])
def test_what_names_no_adapter_is_refused(lora: Any) -> None:
    """With what was found."""
    with pytest.raises(ConfigError, match="lora="):
        adapter_files(lora)
