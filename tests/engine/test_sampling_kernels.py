"""The kernels that choose tokens are known before they are needed."""

import importlib
import inspect
import re
from typing import Any

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling import Sampler
from ggpy.engine.sampling.chain import make_chain, methods_of
from ggpy.engine.sampling.dry import NO_BREAKERS
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.sample_candidates import CALLS, COMMON, RARE
from ggpy.text import Tokenizer
from tests.text.token_data import byte_bpe


def test_the_default_chain_and_greedy_are_compiled_with_a_model() -> None:
    """A first request waits for no compiler."""
    for p in (SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_k=1)):
        chain = make_chain(p, {}, NO_BREAKERS, 0)
        needed = {entry.kernel for entry in chain} | {f"sample_order.{name}" for name in methods_of(p, chain)}
        assert needed <= set(COMMON)


KERNELS = {
    f"{name}.{attribute}": value for name in (
        "sample_rows", "sample_order", "sample_mask", "sample_penalties", "sample_dry", "sample_cuts",
        "sample_temperature", "sample_draws", "sample_left")
    for attribute, value in vars(importlib.import_module(f"ggpy.kernels.cpu.{name}")).items()
    if getattr(value, "is_kernel", False)}


def test_every_sampling_kernel_is_listed() -> None:
    """So `ggpy warm` can compile all of them."""
    assert set(KERNELS) == {*COMMON, *RARE}


def methods_called(function: Any, helpers: dict[str, Any]) -> set[str]:
    """The methods of candidates that the source of a kernel calls, itself or in its helpers."""
    source = inspect.getsource(getattr(function, "py_func", function))
    found = set(re.findall(r"call\(candidates, CANDIDATES\.(\w+)", source))
    for name, helper in helpers.items():
        if hasattr(helper, "py_func") and helper is not function and f"{name}(" in source:
            found |= methods_called(helper, helpers)
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_the_methods_that_a_kernel_calls_are_listed(name: str) -> None:
    """A request compiles what its kernels call; anything else would be a jump to nowhere."""
    function = KERNELS[name]
    assert methods_called(function, function.__globals__) == set(CALLS.get(name, "").split())


@pytest.mark.parametrize("params", [
    SamplingParams(), SamplingParams(temperature=0, ignore_eos=True), SamplingParams(mirostat=2),
    SamplingParams(dry_multiplier=0.8, xtc_probability=0.5, logit_bias=((1, 2.0),), top_k=0),
])
def test_kernels_can_be_told_before_there_is_a_sampler(
    params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those that the sampler then asks for, so a request that has to wait for some is known."""
    tokenizer = Tokenizer.from_metadata(byte_bpe())
    asked: list[str] = []

    def addresses(names: list[str]) -> dict[str, int]:
        asked.extend(names)
        return dict.fromkeys(names, 1)

    monkeypatch.setattr(object_loader, "addresses", addresses)
    Sampler.for_tokenizer(params, tokenizer, is_masked=True)
    assert sorted(asked) == sorted(Sampler.kernels(params, tokenizer, is_masked=True))
