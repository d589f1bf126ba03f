"""Errors as HTTP tells them: one table from an error's class to its status and kind.

How a dialect writes the object in the body is the dialect's own; `llama_body` is that of llama-server and OpenAI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ggpy import errors
from ggpy.errors import GgpyError, PromptTooLongError, RequestError

RETRY_AFTER_S = 1       # what a client is told that finds the queue full or the model loading


class FieldError(RequestError):
    """A field of a request is absent, of the wrong type or out of range."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"Field '{field}': {problem}")
        self.field = field


class ContextSizeError(PromptTooLongError):
    """A prompt leaves no room for an answer; the text and fields are those of llama-server."""

    def __init__(self, n_prompt: int, n_ctx: int, *, is_least: bool = False) -> None:
        least = "at least " if is_least else ""
        super().__init__(f"request ({least}{n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), try "
                         "increasing it")
        self.details = {"n_prompt_tokens": n_prompt, "n_ctx": n_ctx}


class AuthenticationError(GgpyError):
    """The API key is missing or wrong."""


class ForbiddenError(GgpyError):
    """The server does not do this for whoever asks."""


class NotFoundError(GgpyError):
    """There is no such path, model or other thing."""


class UnknownModelError(NotFoundError):
    """No model goes by the name that was given."""

    def __init__(self, name: str) -> None:
        super().__init__(f"model '{name}' not found")


class TooLargeError(GgpyError):
    """The body is larger than the server reads."""


class NotSupportedError(GgpyError):
    """The server was started without this, or the model cannot do it."""


class LoadingError(GgpyError):
    """The model is not there yet, or the server ends; the same request may be served later."""


# the first class that an error is of counts
STATUSES: tuple[tuple[type[GgpyError], int, str], ...] = (
    (PromptTooLongError, 400, "exceed_context_size_error"),
    (RequestError, 400, "invalid_request_error"),
    (errors.ConfigError, 400, "invalid_request_error"),
    (errors.TemplateError, 400, "invalid_request_error"),
    (errors.TokenizerError, 400, "invalid_request_error"),
    (AuthenticationError, 401, "authentication_error"),
    (ForbiddenError, 403, "permission_error"),
    (NotFoundError, 404, "not_found_error"),
    (errors.PullError, 404, "not_found_error"),
    (TooLargeError, 413, "invalid_request_error"),
    (NotSupportedError, 501, "not_supported_error"),
    (LoadingError, 503, "unavailable_error"),
    (errors.QueueFullError, 503, "unavailable_error"),
    (errors.EngineError, 503, "unavailable_error"),
    (errors.DeadlineError, 504, "server_error"),
)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What a client is told of an error."""

    status: int                     # of HTTP
    kind: str                       # llama-server's name of it, such as "invalid_request_error"
    message: str
    field: str | None = None        # of the request, that is wrong
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)      # further members of llama-server's object

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(RETRY_AFTER_S)} if self.status == 503 else {}


Body = Callable[[ErrorInfo], Any]       # the JSON value that a dialect makes of it


def info_of(error: GgpyError) -> ErrorInfo:
    """What a client is told of `error`."""
    status, kind = next(((status, kind) for cls, status, kind in STATUSES if isinstance(error, cls)),
                        (500, "server_error"))
    message = str(error)
    if isinstance(error, errors.GrammarError) and not isinstance(error, errors.ConstraintError):
        message = f"Failed to initialize samplers: failed to parse grammar: {message}"
    return ErrorInfo(status, kind, message, getattr(error, "field", None), getattr(error, "details", {}))


def unforeseen(error: Exception) -> ErrorInfo:
    """What a client is told of an error that is the server's own fault."""
    return ErrorInfo(500, "server_error", f"the server failed ({type(error).__name__})")


def llama_body(info: ErrorInfo) -> dict[str, Any]:
    """The object of llama-server, whose `code` is the status, with OpenAI's `param`, which is the field."""
    return {"error": {"code": info.status, "message": info.message, "type": info.kind, "param": info.field,
                      **info.details}}
