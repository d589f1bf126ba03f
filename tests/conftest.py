"""Fixtures that every test may use."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ggpy import config
from ggpy.hub import catalogue
from tests.models.arch_data import ArchModel, load_arch
from tests.models.encoder_data import EncoderModel, load_encoder


def pytest_configure() -> None:
    """Makes Ctrl-C what it is on a terminal: a shell starts what runs in its background with the signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """Finds a pulled model by its catalogue name; never downloads.

    A test whose model is absent is skipped, or fails when GGPY_REQUIRE_MODELS=1.
    """
    pulled = {entry.name: entry.path for entry in catalogue.CATALOGUE if entry.is_present}

    def find(name: str) -> Path:
        entry = catalogue.find(name)
        assert entry is not None, catalogue.unknown_name(name)
        if entry.name in pulled:
            return pulled[entry.name]
        reason = f"model {entry.name} is absent: run `ggpy pull {entry.name}`"
        if config.require_models():
            pytest.fail(reason)
        pytest.skip(reason)

    return find


@pytest.fixture(scope="session")
def arch_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ArchModel]:
    """Loads a tiny random model with llama.cpp's logits; `tests.models.arch_data.arch_names` lists them."""
    folder = tmp_path_factory.mktemp("arch")
    return lambda name: load_arch(name, folder)


@pytest.fixture(scope="session")
def encoder_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], EncoderModel]:
    """Loads a tiny random encoder with llama.cpp's hidden states; `encoder_names` of `encoder_data` lists them."""
    folder = tmp_path_factory.mktemp("encoders")
    return lambda name: load_encoder(name, folder)
