"""How a model is run that was made under a name of its own: by what its Modelfile says beside which file it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ggpy.engine.config import MAX_COUNT, MAX_SEED, SamplingParams
from ggpy.errors import ConfigError, RequestError, TemplateError
from ggpy.machine import usable_cores
from ggpy.text.go_to_jinja import jinja_of

if TYPE_CHECKING:
    from ggpy.hub.store import ModelStore, StoredModel

# parameter that is called as its field of SamplingParams -> its limits; what is beyond them is taken for them
LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0, math.inf), "top_k": (0, MAX_COUNT), "top_p": (0, 1), "min_p": (0, 1), "typical_p": (0, 1),
    "repeat_penalty": (1e-6, math.inf), "presence_penalty": (-math.inf, math.inf),
    "frequency_penalty": (-math.inf, math.inf),
}


def sampling_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of SamplingParams, from those of a Modelfile's `parameters` that are about sampling."""
    values: dict[str, Any] = {name: min(max(parameters[name], low), high)
                              for name, (low, high) in LIMITS.items() if name in parameters}
    if "repeat_last_n" in parameters:
        n = parameters["repeat_last_n"]
        values["repeat_last_n"] = None if n < 0 else min(n, MAX_COUNT)
    if "seed" in parameters:
        seed = parameters["seed"]
        values["seed"] = None if seed < 0 else seed & MAX_SEED
    if "num_predict" in parameters:
        n = parameters["num_predict"]
        values["max_tokens"] = None if n < 0 else min(max(n, 1), MAX_COUNT)
    if stop := [text for text in parameters.get("stop", ()) if text]:
        values["stop"] = tuple(stop)
    return values


def with_parameters(params: SamplingParams, parameters: Mapping[str, Any]) -> SamplingParams:
    """`params` with those of a Modelfile's `parameters` in their place that are about sampling. Raises RequestError."""
    try:
        return replace(params, **sampling_values(parameters))
    except ConfigError as error:
        raise RequestError(str(error)) from error


def load_options(model: StoredModel, store: ModelStore | None = None) -> dict[str, Any]:
    """What `model` says of how it is loaded: n_ctx, n_threads and lora, where it says something.

    Threads beyond the cores that there are would wait for one another, so there are no more.
    """
    from ggpy.hub.store import ModelStore

    n_ctx, n_threads = (model.parameters.get(name, 0) for name in ("num_ctx", "num_thread"))
    options: dict[str, Any] = {**({"n_ctx": n_ctx} if n_ctx > 1 else {}),
                               **({"n_threads": min(n_threads, usable_cores())} if n_threads > 0 else {})}
    if model.adapters:
        options["lora"] = adapters_of(model, store or ModelStore())
    return options


def adapters_of(model: StoredModel, store: ModelStore) -> tuple[str, ...]:
    """Where the low-rank adapters of `model` lie."""
    from ggpy.hub.store import is_digest

    return tuple(str(store.blob_path(adapter)) if is_digest(adapter) else adapter for adapter in model.adapters)


def own_template(model: StoredModel) -> str | None:
    """The Jinja source of its template; None: the file's counts. Raises TemplateError, which names the model."""
    if model.template is None:
        return None
    try:
        return jinja_of(model.template)
    except TemplateError as error:
        raise TemplateError(f"{model.name}: {error}") from error


def with_preface(messages: Sequence[Mapping[str, Any]], model: StoredModel | None) -> list[Any]:
    """`messages` with what the model's maker put there: his system prompt where they begin with none, and his messages
    behind that."""
    if model is None:
        return list(messages)
    if model.system and not (messages and messages[0].get("role") == "system"):
        messages = [{"role": "system", "content": model.system}, *messages]
    return behind_system(messages, model.messages)


def behind_system(messages: Sequence[Mapping[str, Any]], examples: Sequence[Mapping[str, Any]]) -> list[Any]:
    """`examples` between the system messages that `messages` begin with, which many templates want in front, and the
    rest of them."""
    n_system = next((i for i, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    return [*messages[:n_system], *map(dict, examples), *messages[n_system:]]
