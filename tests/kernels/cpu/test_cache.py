"""The files of compiled kernels: their names, and who may read them."""

import os
from pathlib import Path

import pytest

from ggpy.errors import KernelError
from ggpy.kernels.cpu import cache, object_loader
from ggpy.kernels.cpu.cache import cache_folder, object_path, read_object, write_object
from ggpy.kernels.cpu.level import LEVELS


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such permissions")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_kernels_are_for_others_to_read_as_the_umask_has_it(tmp_path: Path, umask: int, mode: int) -> None:
    """An image whose kernels root compiled runs them as another user."""
    before = os.umask(umask)
    try:
        write_object(tmp_path / "k.o", b"machine code")
    finally:
        os.umask(before)
    assert (tmp_path / "k.o").stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["k.o"]


def test_kernels_that_may_not_be_read_are_compiled_anew_or_said_to_have_no_place(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user's counts as absent; that nothing can be put in its place is an error with advice."""
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(object_loader, "_addresses", {})
    write_object(object_path("elementwise.scale"), b"machine code")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert read_object(object_path("elementwise.scale")) is None
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(KernelError, match=r"Permission denied.*set GGPY_HOME to a folder that you can write to"):
        object_loader.addresses(["elementwise.scale"])


def test_what_a_process_is_allowed_is_no_part_of_a_folders_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who compiles and who runs may differ in it, and have to find the same files."""
    monkeypatch.setattr("ggpy.kernels.cpu.level.host_features", lambda: frozenset(["amx-tile"]))
    allowed = cache_folder(LEVELS[0])
    monkeypatch.setattr("ggpy.kernels.cpu.level.host_features", lambda: frozenset[str]())
    assert cache_folder(LEVELS[0]) == allowed
    monkeypatch.setattr(cache, "processor_features", lambda: frozenset(["another"]))
    assert cache_folder(LEVELS[0]) != allowed


def test_a_kernels_name_follows_its_home_and_level_at_any_time(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of sources and processor says nothing of the environment."""
    before = object_path("norm.rms")
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    assert object_path("norm.rms").is_relative_to(tmp_path)
    monkeypatch.setenv("GGPY_CPU", "portable")
    path = object_path("norm.rms")
    assert path.parent.name.startswith("portable-")
    assert path.name == before.name
