"""What clients are told of errors."""

import pytest

from ggpy.errors import ConstraintError, GrammarError, RequestError
from ggpy.server.errors import info_of


@pytest.mark.parametrize(("error", "message"), [
    (GrammarError("$.type: expected"), "Failed to initialize samplers: failed to parse grammar: $.type: expected"),
    (ConstraintError("token 97 may not come here"), "token 97 may not come here"),
    (RequestError("no"), "no"),
])
def test_only_what_cannot_be_prepared_failed_to_parse(error: RequestError, message: str) -> None:
    """An answer that fails in the middle of its grammar has been parsed long before."""
    assert (info_of(error).status, info_of(error).message) == (400, message)
