"""What references of JSON schemas point to."""

from typing import Any

import pytest

from ggpy.text.json_pointer import pointer_part, target_of

ROOT = {"$defs": {"t": 1, "a/b~c": 2, "d e": 3, "list": [4, 5]}}


@pytest.mark.parametrize(("ref", "target"), [
    ("#", ROOT), ("#/$defs/t", 1), ("#/$defs/a~1b~0c", 2), ("#/$defs/d%20e", 3), ("#/$defs/list/1", 5),
])
def test_places_in_the_document_are_found(ref: str, target: Any) -> None:
    """Parts are written as RFC 6901 has them, in a fragment of a URI."""
    assert target_of(ref, ROOT) == target


@pytest.mark.parametrize("ref", [
    "", "#junk", "#junk/$defs/t", "/$defs/t", "$defs/t", "x#/$defs/t", "#/$defs/u", "#/$defs/list/2", "#/$defs/list/01",
    "#/$defs/list/-1", "#/$defs/list/\u0661", "#/$defs/t/u",
])
def test_nothing_is_at_other_references(ref: str) -> None:
    """What stands before the first slash is not passed over."""
    assert target_of(ref, ROOT) is None


def test_a_part_is_found_again_by_what_it_is_written_as() -> None:
    """The tilde is written first, so that what stands for a slash is not read twice."""
    assert target_of(f"#/$defs/{pointer_part('a/b~c')}", ROOT) == 2
