"""Folders and environment variables."""

from pathlib import Path

import pytest

from ggpy import config
from ggpy.errors import ConfigError


def test_everything_lies_below_ggpy_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GGPY_HOME need not exist yet."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path / "new"))
    assert config.home() == tmp_path / "new"
    assert config.models_dir() == tmp_path / "new" / "models"
    assert config.kernels_dir() == tmp_path / "new" / "kernels"
    assert config.state_dir() == tmp_path / "new" / "state"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_the_default_home_is_the_users_cache(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset and empty mean the same."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, appauthor: f"/caches/{name}")
    monkeypatch.delenv("GGPY_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("GGPY_HOME", value)
    assert config.home() == Path("/caches/ggpy")


def test_a_home_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable and its value."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("GGPY_HOME", str(file))
    with pytest.raises(ConfigError, match=r"GGPY_HOME=.*file: a file has that name"):
        config.home()


def test_a_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder named ~nouser beside the user's files is nothing that anybody wants."""
    monkeypatch.setenv("GGPY_HOME", "~nouser/x")
    with pytest.raises(ConfigError, match="GGPY_HOME=~nouser/x: there is no such home folder"):
        config.home()


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("Yes", True), ("0", False), ("off", False), ("", False)])
def test_flags_are_yes_or_no(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual words, in any case."""
    monkeypatch.setenv("GGPY_REQUIRE_MODELS", value)
    assert config.require_models() is expected


def test_any_other_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error is not taken for a no."""
    monkeypatch.setenv("GGPY_REQUIRE_MODELS", "ture")
    with pytest.raises(ConfigError, match="GGPY_REQUIRE_MODELS=ture: expected 1 or 0"):
        config.require_models()
