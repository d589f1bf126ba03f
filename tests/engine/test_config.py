"""What the engine's configuration says about itself."""

import pytest

from ggpy.engine.config import EngineConfig


@pytest.mark.parametrize(("n_ctx_train", "way"), [
    (None, ", or load the model with a larger context by -c on the command line or n_ctx in Python"),
    (256, ", or load the model with a larger context, up to 256, by -c on the command line or n_ctx in Python"),
    (64, ": the model was trained for 64"),
])
def test_the_way_to_a_larger_context_ends_at_the_trained_length(n_ctx_train: int | None, way: str) -> None:
    """Told to those at the command line and to those who write Python."""
    assert EngineConfig(n_ctx=64, n_ctx_train=n_ctx_train).way_to_more == way
