"""The models that clients made by /api/create and /api/copy, as the server runs them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ggpy import config
from ggpy.engine.config import SamplingParams
from ggpy.errors import GgpyError, TemplateError
from ggpy.gguf import Metadata
from ggpy.hub import catalogue, names
from ggpy.hub.model_names import DEFAULT_TAG, ModelName
from ggpy.hub.ollama_models import ollama_models
from ggpy.hub.store import ModelStore, StoredModel, is_digest
from ggpy.made import load_options, own_template, with_parameters
from ggpy.server.model_pool.models import Entry
from ggpy.server.settings import ServerSettings
from ggpy.text.go_to_jinja import jinja_of

if TYPE_CHECKING:
    from ggpy.server.model_pool.manager import ModelManager

logger = logging.getLogger("ggpy")


def stored_entries(store: ModelStore, settings: ServerSettings) -> Iterator[Entry]:
    """One for each model of the store and, where this server stands in for Ollama, those that Ollama has pulled."""
    others = ollama_models(config.ollama_dir()) if settings.is_ollama else ()
    own = [(model, False) for model in store.models()]
    for model, is_foreign in (*own, *((with_known_template(model), True) for model in others)):
        try:
            entry = stored_entry(model, store, settings)
            entry.is_foreign = is_foreign
            yield entry
        except GgpyError as error:
            logger.warning("%s is left out: %s", model.name, error)


def with_known_template(model: StoredModel) -> StoredModel:
    """`model`, without its template if that is not understood: its file may have one, too."""
    try:
        jinja_of(model.template or "")
    except TemplateError as error:
        logger.info("%s: %s; the template in the model's file counts", model.name, error)
        return msgspec.structs.replace(model, template=None)
    return model


def stored_entry(model: StoredModel, store: ModelStore, settings: ServerSettings) -> Entry:
    """`model`, with settings of its own where it says something."""
    name = ModelName.parse(model.name)
    aliases = (str(name).removesuffix(f":{name.tag}"),) if name.tag.lower() == DEFAULT_TAG else ()
    source = str(store.blob_path(model.source)) if is_digest(model.source) else model.source
    return Entry(str(name), source, aliases, settings=own_settings(model, store, settings), stored=model,
                 keep_s=settings.sleep_idle_s)


def own_settings(model: StoredModel, store: ModelStore, settings: ServerSettings) -> ServerSettings:
    """What the server runs `model` by: the server's settings, but for what the model says.

    A context of its own has no room beyond what it was trained for, whatever its maker said.
    """
    changed = load_options(model, store)
    is_ctx_cut = "n_ctx" in changed
    if is_ctx_cut:
        changed |= {"n_ctx": changed["n_ctx"] * (1 if settings.is_unified else settings.n_slots), "pool_tokens": None}
    return dataclasses.replace(
        settings, options=dataclasses.replace(settings.options, **changed), is_ctx_cut=is_ctx_cut, aliases=(), tags=(),
        chat_template=settings.chat_template if model.template is None else own_template(model),
        sampling_of=partial(_sampling, settings, model.parameters))


def _sampling(settings: ServerSettings, parameters: Mapping[str, Any], metadata: Metadata) -> SamplingParams:
    return with_parameters(settings.sampling_of(metadata), parameters)


def lasting_source(entry: Entry) -> str:
    """What the file of a model is found by also if it is deleted and pulled again."""
    if entry.stored is not None:
        return entry.stored.source
    if catalogue.find(entry.name) is not None:
        return entry.name
    hub = next((alias for alias in entry.aliases if names.is_hub_name(alias)), None)
    is_name = hub is not None or names.is_hub_name(entry.source) or catalogue.find(entry.source) is not None
    return hub or (entry.source if is_name else str(Path(entry.source).absolute()))


async def replace_entry(models: ModelManager, model: StoredModel) -> None:
    """Keep `model`, and serve it from now on; one of the same name ends its answers before. Raises RequestError."""
    store = ModelStore()
    await asyncio.to_thread(store.save, model)
    entry = stored_entry(model, store, models.settings)
    old = next((old for old in models.entries.values() if old.name.lower() == entry.name.lower()), None)
    if old is not None:
        models.entries.pop(old.name, None)
        await models.unload(old)
    models.entries[entry.name] = entry
