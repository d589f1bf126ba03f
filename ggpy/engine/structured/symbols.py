"""Texts in grammars of llguidance."""

from __future__ import annotations

from ggpy.engine.structured.tokens import GrammarTokens


def symbols(text: str, tokens: GrammarTokens) -> str:
    """`text` in a grammar: control tokens that it spells are tokens, the rest is text."""
    found: list[str] = []
    pending = b""
    for token in tokens.encode(text, parse_special=True):
        if token in tokens.special:
            found += [literal(pending.decode())] if pending else []
            found.append(f"<[{token}]>")
            pending = b""
        else:
            pending += tokens.pieces[token]
    found += [literal(pending.decode())] if pending else []
    return " ".join(found) or '""'


def literal(text: str) -> str:
    """`text` in a rule or a lexeme."""
    return "/" + "".join(f"\\x{{{ord(c):X}}}" for c in text) + "/" if text else '""'
