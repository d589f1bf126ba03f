"""What a maker said of his model, as commands tell it."""

from __future__ import annotations

from ggpy.errors import printable
from ggpy.hub.modelfile import parameter_lines
from ggpy.hub.store import StoredModel

SHORT = 200         # characters of a text where there is little room


def modelfile_rows(made: StoredModel) -> list[tuple[str, str]]:
    """The instructions of its Modelfile, and what they are given in one line each; of a license only how it begins."""
    rows = [("from", made.source + (f", by way of {made.parent}" if made.parent not in ("", made.source) else ""))]
    rows += [("adapter", adapter) for adapter in made.adapters]
    if made.template is not None:
        rows.append(("template", "in place of the file's; --template prints it"))
    if made.system:
        rows.append(("system", made.system))
    rows += [(f"parameter {name}", value) for name, value in parameter_lines(made.parameters)]
    rows += [(f"message {message['role']}", message["content"]) for message in made.messages]
    rows += [("license", next(filter(None, text.splitlines()), "")) for text in made.licenses]
    return [(name, printable(" ".join(text.split()))) for name, text in rows]


def preface_rows(made: StoredModel) -> dict[str, str]:
    """Where the model comes from, and the messages that stand in front of each conversation with it, in short."""
    said = " ".join(f"{message['role']}: {message['content']}" for message in made.messages)
    short = " ".join(said.split())
    rows = {"made of": made.source}
    if short:
        rows["in front"] = short if len(short) <= SHORT else f"{short[:SHORT - 3]}..."
    return rows
