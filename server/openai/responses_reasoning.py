"""Reasoning in the form that clients of responses send back without looking into it.

Some keep only an item's `encrypted_content`, which hosted models fill, and leave out the text itself. The text stands
there once more, so that the model finds its own reasoning again. It is no secret: the client has it anyway.
"""

from __future__ import annotations

import base64
import binascii

SEALED = "reasoning.encrypted_content"      # what `include` calls it
PREFIX = "ggpy1:"


def sealed(text: str) -> str:
    """What stands for the reasoning `text`."""
    return PREFIX + base64.b64encode(text.encode()).decode()


def unsealed(data: str) -> str:
    """The reasoning that `data` stands for; none if another server made it."""
    if not data.startswith(PREFIX):
        return ""
    try:
        return base64.b64decode(data.removeprefix(PREFIX), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
