"""Templates of Modelfiles: Jinja as it stands; Go's are translated."""

from __future__ import annotations

import re

from ggpy.errors import RequestError

_GO = re.compile(r"\{\{-?\s*(?:[.$(]|if\b|range\b|with\b|else\b|end\b|define\b|template\b|block\b|break\b)")
_JINJA = re.compile(r"\{%")


def jinja_of(template: str) -> str:
    """The Jinja source that writes what `template` does. Raises RequestError."""
    if _JINJA.search(template) or not _GO.search(template):
        return template
    raise RequestError("template: this is a Go template, which is not understood here; write it in Jinja, or leave it "
                       "out: the model's own is used then")
