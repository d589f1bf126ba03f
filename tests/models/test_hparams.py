"""Hyperparameters that are not one number for all layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy.errors import UnsupportedModelError
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import Attention
from ggpy.models import build_model, gemma3, hparams_of
from ggpy.models.hparams import Keys
from tests.models.arch_data import ArchModel, arch_names
from tests.models.test_build import changed

Load = Callable[[str], ArchModel]
ALL, W = None, 16                    # the tiny models slide over 16 tokens


@pytest.mark.parametrize(("name", "pattern", "window"), [
    ("gemma2", None, (W, ALL, W, ALL)),
    ("gemma2", 4, (W, W, W, ALL)),
    ("gemma2", 0, (W, W, W, W)),
    ("gemma2", [False, True, True, False], (ALL, W, W, ALL)),
    ("gemma3", None, (W, W, W, W, W, ALL, W)),
    ("gpt-oss", None, (W, ALL, W)),
    ("cohere2", None, (W, W, W, ALL, W)),
    ("olmo2_swa", None, (W, W, W, ALL, W)),
    ("llama_swa_key", None, (ALL, ALL)),
])
def test_which_layers_slide(name: str, pattern: Any, window: tuple[int | None, ...], arch_model: Load,
                            tmp_path: Path) -> None:
    """All but the last of each period do, or those that the file lists; llama models never."""
    arch = name.partition("_")[0]
    gguf = changed(arch_model(name).path, tmp_path, {f"{arch}.attention.sliding_window_pattern": pattern})
    assert build_model(gguf).hparams.window == window


@pytest.mark.parametrize(("key", "value", "what"), [
    ("nextn_predict_layers", 1, "layers that predict further tokens"),
    ("rope.dimension_sections", [16, 24, 24, 0], "multimodal rotary positions"),
])
def test_what_ggpy_lacks_is_refused(key: str, value: Any, what: str, arch_model: Load, tmp_path: Path) -> None:
    """A GLM-4 file that relies on more than this form is not run as if it did not."""
    gguf = changed(arch_model("glm4").path, tmp_path, {f"glm4.{key}": value})
    with pytest.raises(UnsupportedModelError, match=f"key glm4.{key} asks for {what}"):
        build_model(gguf)


@pytest.mark.parametrize(("n_layer", "scale"), [(7, 24**-0.5), (62, 16**-0.5)])
def test_the_largest_gemma3_scales_scores_by_its_width(n_layer: int, scale: float, arch_model: Load,
                                                        tmp_path: Path) -> None:
    """The 27B alone divides by the root of n_embd / n_head (32 / 2), the others by that of the head size 24."""
    gguf = changed(arch_model("gemma3").path, tmp_path, {"gemma3.block_count": n_layer})
    assert gemma3.hparams(Keys(gguf, "gemma3")).attention_scale == pytest.approx(scale)


@pytest.mark.parametrize("name", arch_names())
def test_keys_and_values_take_what_the_sizes_say(name: str, arch_model: Load) -> None:
    """The attention layers of the graph together, though no graph is built to tell it."""
    gguf = GGUFFile(arch_model(name).path)
    attentions = [op for op in build_model(gguf).graph.nodes if isinstance(op, Attention)]
    assert hparams_of(gguf).k_width == sum(op.n_head_kv * op.head_dim_k for op in attentions)
    assert hparams_of(gguf).v_width == sum(op.n_head_kv * op.head_dim_v for op in attentions)
