"""Names of models as Ollama has them."""

from __future__ import annotations

import pytest

from ggpy.errors import RequestError
from ggpy.hub.model_names import ModelName


@pytest.mark.parametrize(("text", "shown"), [
    ("llama3.2", "llama3.2:latest"),
    ("llama3.2:1b", "llama3.2:1b"),
    ("me/model", "me/model:latest"),
    ("library/model:x", "model:x"),
    ("registry.ollama.ai/library/model", "model:latest"),
    ("https://registry.ollama.ai/me/model", "me/model:latest"),
    ("hf.co/user.name/repo-GGUF:Q8_0", "hf.co/user.name/repo-GGUF:Q8_0"),
    ("localhost:5000/me/model:v1", "localhost:5000/me/model:v1"),
])
def test_a_name_is_shown_in_its_shortest_form(text: str, shown: str) -> None:
    """With the tag."""
    assert str(ModelName.parse(text)) == shown


def test_names_that_mean_the_same_have_one_key() -> None:
    """Whatever the case of letters, and what is left out."""
    assert ModelName.parse("Model").key == ModelName.parse("registry.ollama.ai/library/model:LATEST").key
    assert ModelName.parse("model:a").key != ModelName.parse("model:b").key


def test_a_repository_of_hugging_face_is_pulled_by_its_name() -> None:
    """The tag is the quantisation; without one, the usual one is meant."""
    assert ModelName.parse("hf.co/user/repo:Q4_0").hub_name == "hf:user/repo:Q4_0"
    assert ModelName.parse("huggingface.co/user/repo").hub_name == "hf:user/repo"
    assert not ModelName.parse("user/repo").is_on_hub


@pytest.mark.parametrize("text", [
    "", ":tag", "model:", "/model", "model/", "../model", "a/../b", ".model", "-model", "model:..", "a/b/c/d", "a b",
    "a\\b", "mod\0el", "modèle", "a" * 81, "na.mespace/model", "a:b:c", "x/model:a/b",
])
def test_what_is_no_name_is_refused(text: str) -> None:
    """Above all what could be a path."""
    with pytest.raises(RequestError, match="invalid model name"):
        ModelName.parse(text)
