"""Every error that ggpy raises on purpose.

GgpyError
├── ConfigError             a setting, flag or environment variable has a value that cannot work
├── GGUFError               a file is not the GGUF it claims to be
├── UnsupportedModelError   a sound file asks for something ggpy does not have
├── TokenizerError          a tokenizer cannot be built from the metadata, or an id is unknown
├── TemplateError           a chat template is missing or fails
├── RequestError            a request can't be served as it stands
│   ├── PromptTooLongError  the prompt does not fit the context
│   ├── GrammarError        a grammar or schema is broken or asks for what cannot be enforced
│   │   └── ConstraintError an answer cannot go on in its grammar
│   └── SavedStateError     a saved state is damaged, or of another model or machine
├── QueueFullError          too many requests wait already
├── DeadlineError           an answer was not finished in time
├── OutOfPagesError         the KV pool is full
├── OutOfMemoryError        the system does not give the memory that a model needs
├── EngineError             the engine's process has ended, or is not there yet
├── KernelError             a kernel cannot be compiled or loaded on this machine
└── PullError               a model could not be fetched
"""


class GgpyError(Exception):
    """Base of every error raised by ggpy; its text says what was found, what was expected and what to do next."""


class ConfigError(GgpyError):
    """A setting, flag or environment variable has a value that cannot work."""


class GGUFError(GgpyError):
    """A file is not the GGUF it claims to be; the text names file, field and byte offset."""


class UnsupportedModelError(GgpyError):
    """A sound file asks for an architecture, tensor type or feature that ggpy does not have."""


class TokenizerError(GgpyError):
    """A tokenizer cannot be built from the metadata, or a token id is not in the vocabulary."""


class TemplateError(GgpyError):
    """A chat template is missing, does not compile or fails while rendering."""


class RequestError(GgpyError):
    """A request cannot be served as it stands."""


class PromptTooLongError(RequestError):
    """The prompt does not fit the context; the text states both sizes."""


class GrammarError(RequestError):
    """A grammar or JSON schema is broken, too large or asks for what cannot be enforced; the text says where."""


class ConstraintError(GrammarError):
    """An answer cannot go on in a grammar that was in order at its beginning."""


class SavedStateError(RequestError):
    """A saved state cannot be written or used: it is damaged, or of another model, machine or version."""


class QueueFullError(GgpyError):
    """Too many requests wait already; the same request may be served later."""


class DeadlineError(GgpyError):
    """An answer was not finished in the time that its request allowed."""


class OutOfPagesError(GgpyError):
    """The KV pool has no page left for a request."""


class OutOfMemoryError(GgpyError):
    """The system does not give the memory that a model needs; the text says for what, and how to need less."""


class EngineError(GgpyError):
    """The engine's process has ended, is about to, or is not there yet; the same request may work later."""


class KernelError(GgpyError):
    """A kernel cannot be compiled or loaded on this machine."""


class PullError(GgpyError):
    """A model could not be fetched, or what arrived is not the model that was asked for."""


def printable(text: str) -> str:
    """`text` fit for a message: control characters and stray bytes, as a file may hold them, become U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def shown(value: object) -> str:
    """The beginning of `value` as Python writes it, fit for a message, whatever it is."""
    try:
        return f"{value!r:.80}"
    except ValueError:      # an integer of more digits than Python writes
        return f"a {type(value).__name__} too large to write"
