"""How much of each adapter a request gets, and what that means for the cache."""

import math
from typing import Any

import pytest

from ggpy.engine.adapters import AdapterInfo, Adapters
from ggpy.errors import RequestError

TWO = (AdapterInfo("a.gguf", 0.5, fingerprint="f"), AdapterInfo("b.gguf", 0.0, "sums", "Add: ", "g"))


def test_who_does_not_say_gets_what_is_usual() -> None:
    """Adapters that get nothing are left out; what is usual can be changed."""
    adapters = Adapters(TWO)
    assert adapters.scales_of(None) == ((0, 0.5),)
    assert adapters.scales_of(()) == ()
    assert adapters.scales_of(((1, 2), (0, 0))) == ((1, 2.0),)
    adapters.set_defaults(((1, -1),))
    assert adapters.scales_of(None) == ((1, -1.0),)
    assert [(info.path, info.scale) for info in adapters.infos] == [("a.gguf", 0.0), ("b.gguf", -1.0)]
    assert (adapters.infos[1].task_name, adapters.infos[1].prompt_prefix) == ("sums", "Add: ")


@pytest.mark.parametrize(("wanted", "message"), [
    (((2, 1.0),), "lora: id 2: there is no such adapter, expected 0 to 1"),
    (((-1, 1.0),), "lora: id -1"),
    ((("0", 1.0),), "lora: id '0'"),
    (((0, 1.0), (0, 2.0)), "lora: id 0 is there twice"),
    (((0, math.nan),), "lora: id 0: scale nan: expected a finite number"),
    (((0, None),), "lora: id 0: scale None"),
])
def test_scales_that_make_no_sense_are_refused(wanted: Any, message: str) -> None:
    """With the number of the adapter; the usual ones stay."""
    adapters = Adapters(TWO)
    with pytest.raises(RequestError, match=message):
        adapters.set_defaults(wanted)
    assert adapters.scales_of(None) == ((0, 0.5),)
    with pytest.raises(RequestError, match="expected none: the model was opened without adapters"):
        Adapters().scales_of(((0, 1.0),))


def test_other_adapters_or_scales_are_another_salt() -> None:
    """The salt of who has none is its own; that of an adapter is the file's, whatever its number."""
    adapters, turned = Adapters(TWO), Adapters(TWO[::-1])
    assert adapters.salted(7, ()) == 7
    salts = {adapters.salted(salt, scales) for salt in (0, 7)
             for scales in (((0, 0.5),), ((0, 1.0),), ((1, 0.5),), ((0, 0.5), (1, 0.5)))}
    assert len(salts) == 8
    assert all(0 <= salt < 2**63 for salt in salts)
    assert adapters.salted(0, ((0, 0.5),)) == turned.salted(0, ((1, 0.5),))
