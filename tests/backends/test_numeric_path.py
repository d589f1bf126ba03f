"""What kept keys and values are said to follow from."""

import pytest

from ggpy.backends.cpu import numeric_path as module
from ggpy.backends.cpu.numeric_path import numeric_path
from ggpy.kernels.cpu.level import LEVELS


def path_at(level_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "current_level", lambda: next(each for each in LEVELS if each.name == level_name))
    return numeric_path(["q4_k.linear"], [])


def test_levels_of_the_same_bits_share_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMX only multiplies in another way; AVX2 is a path of its own."""
    amx, avx512vnni, avx2 = (path_at(name, monkeypatch) for name in ("amx", "avx512vnni", "avx2"))
    assert amx == avx512vnni != avx2
    assert amx.startswith("avx512vnni-")
