"""Models through the official OpenAI client."""

from __future__ import annotations

import openai
import pytest


def test_the_model_is_listed(openai_client: openai.OpenAI) -> None:
    """With the fields that the client's type has."""
    models = list(openai_client.models.list())
    assert [(model.id, model.object, model.owned_by) for model in models] == [("tiny", "model", "llamacpp")]
    assert isinstance(models[0].created, int)


def test_a_model_is_found_by_its_name(openai_client: openai.OpenAI) -> None:
    """The same object as in the list."""
    model = openai_client.models.retrieve("tiny")
    assert (model.id, model.object) == ("tiny", "model")


def test_an_unknown_model_is_not_found(openai_client: openai.OpenAI) -> None:
    """Names may hold slashes and colons."""
    with pytest.raises(openai.NotFoundError, match="model 'some/model:tag' not found"):
        openai_client.models.retrieve("some/model:tag")


def test_a_wrong_key_is_refused(openai_client: openai.OpenAI) -> None:
    """With the status that the client knows as an authentication error."""
    with pytest.raises(openai.AuthenticationError, match="Invalid API Key"):
        openai_client.with_options(api_key="another").models.list()
