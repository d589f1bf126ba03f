"""How /api/create makes a model: from another, or from an uploaded file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ggpy.engine.config import MAX_THREADS
from ggpy.errors import GgpyError, RequestError, shown
from ggpy.gguf import GGUFFile
from ggpy.hub.model_names import ModelName
from ggpy.hub.modelfile import check_message, check_parameters, parse_modelfile
from ggpy.hub.store import ModelStore, StoredModel, check_digest
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError
from ggpy.server.model_pool.model_lookup import shown_name
from ggpy.server.model_pool.models import Entry, info_of_file
from ggpy.server.model_pool.stored_models import lasting_source, replace_entry
from ggpy.server.ollama.lines import Line
from ggpy.server.ollama.names import known_entry
from ggpy.server.ollama.pull import pulling
from ggpy.server.web.fields import Fields
from ggpy.text import ChatTemplate
from ggpy.text.go_to_jinja import jinja_of

ENDINGS = (".gguf", ".bin", ".safetensors")     # of files that clients make models of
MAX_TEXT = 1 << 20      # characters of a template, system message or licence


@dataclass(slots=True)
class Creation:
    """What is to be made; what is None is as in the model that it is made from."""

    source: str | None                          # the name of a model
    files: tuple[str, ...]                      # digests, in place of it
    adapters: tuple[str, ...] | None = None
    template: str | None = None
    system: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    messages: tuple[dict[str, str], ...] | None = None
    licenses: tuple[str, ...] | None = None


def read_creation(fields: Fields) -> Creation:
    """What the body of /api/create says; the text of a Modelfile may stand in it, too. Raises RequestError."""
    if fields.text("quantize", "quantization"):
        raise fields.error("quantize", "this server does not quantise; upload a file that is quantised already")
    text = fields.text("modelfile")
    made = Creation(None, ()) if text is None else of_modelfile(text)
    made.source = fields.text("from") or made.source
    made.files = digests(fields, "files") or made.files
    if made.source and is_file_name(made.source):
        raise RequestError(f"FROM {shown(made.source)}: expected the name of a model, or @sha256:... of an uploaded "
                           "file; paths of clients mean nothing here")
    if not made.source and not made.files:
        raise RequestError("neither 'from' or 'files' was specified")
    if made.source and made.files:
        raise RequestError("'from' and 'files' were both specified; expected one of them")
    if "adapters" in fields:
        made.adapters = digests(fields, "adapters")
    for name in ("template", "system"):
        if name in fields:
            setattr(made, name, fields.text(name))
    made.parameters |= check_parameters(fields.mapping("parameters") or {})
    if made.parameters.get("num_thread", 0) > MAX_THREADS:
        raise RequestError(f"num_thread {made.parameters['num_thread']}: expected {MAX_THREADS} at most, or 0 for all "
                           "cores")
    if "messages" in fields:
        made.messages = tuple(check_message(message.values) for message in fields.objects("messages"))
    if "license" in fields:
        made.licenses = tuple(fields.texts("license"))
    check_texts(made)
    return made


def is_file_name(source: str) -> bool:
    """Whether a client means a file of its own; of models' names only the tag may end as a file's."""
    is_file = ":" not in source and source.lower().endswith(ENDINGS)
    return is_file or source.startswith((".", "/", "~")) or "\\" in source


def of_modelfile(text: str) -> Creation:
    """What a Modelfile says. Its files are blobs here: the server opens no path of a client's."""
    found = parse_modelfile(text)
    blobs = [source.removeprefix("@") for source in found.sources if source.removeprefix("@").startswith("sha256")]
    if len(found.sources) > 1:
        raise RequestError(f"FROM {shown(found.sources[1])}: expected one FROM; models here are one file")
    return Creation(
        None if blobs else found.sources[0], tuple(map(check_digest, blobs)),
        tuple(check_digest(adapter.removeprefix("@")) for adapter in found.adapters) or None, found.template,
        found.system, found.parameters, tuple(found.messages) or None, tuple(found.licenses) or None)


def digests(fields: Fields, name: str) -> tuple[str, ...]:
    """The blobs in an object of file names and digests; the names mean nothing."""
    files: Mapping[str, Any] = fields.mapping(name) or {}
    if not all(isinstance(digest, str) for digest in files.values()):
        raise fields.error(name, "expected an object of file names and digests")
    return tuple(check_digest(digest) for digest in files.values())


def check_texts(made: Creation) -> None:
    """Raise RequestError for texts that are too long, and for a template that does not compile."""
    for name, text in (("template", made.template), ("system", made.system)):
        if text is not None and len(text) > MAX_TEXT:
            raise RequestError(f"{name} has {len(text):,} characters; expected {MAX_TEXT:,} at most")
    if made.template:
        ChatTemplate(jinja_of(made.template), variants=None, key="template")


async def creating(server: Server, name: ModelName, made: Creation) -> AsyncGenerator[Line, None]:
    """Make the model, and tell of each step. What fails leaves nothing: no model, and no blob that none uses."""
    store = ModelStore()
    try:
        await asyncio.to_thread(store.sweep)
        if made.files:
            yield {"status": "parsing GGUF"}
            await asyncio.to_thread(check_files, store, made)
            model = StoredModel(name=str(name), source=made.files[0])
        else:
            assert made.source is not None
            async with aclosing(pulled(server, made.source)) as lines:
                async for line in lines:
                    yield line
            model = based_on(found(server, made.source), name)
            await asyncio.to_thread(check_adapters, store, made)
        model = with_changes(model, made)
        for digest in model.digests:
            yield {"status": f"using existing layer {digest}"}
        yield {"status": "writing manifest"}
        await replace_entry(server.models, model)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(store.prune, (*made.files, *(made.adapters or ()))))
        raise
    yield {"status": "success"}


async def pulled(server: Server, source: str) -> AsyncGenerator[Line, None]:
    """Bring the model that another is made from onto this machine if it is not here."""
    if known_entry(server, source) is None:
        async with aclosing(pulling(server, source)) as lines:
            async for line in lines:
                if line["status"] != "success":
                    yield line


def found(server: Server, source: str) -> Entry:
    entry = known_entry(server, source)
    if entry is None:
        raise NotFoundError(f"model '{source}' not found")
    return entry


def check_files(store: ModelStore, made: Creation) -> None:
    """Raise RequestError unless the uploaded file is a model, and what goes with it adapters."""
    if len(made.files) > 1:
        raise RequestError(f"files: found {len(made.files)} files, expected one GGUF file: models here see no "
                           "pictures, and parts are to be merged first")
    gguf = opened(store, made.files[0])
    if gguf.metadata.get("general.type", "model") != "model":
        raise RequestError(f"the file is of type {shown(gguf.metadata['general.type'])}, expected a model")
    info_of_file(gguf)
    check_adapters(store, made)


def check_adapters(store: ModelStore, made: Creation) -> None:
    for digest in made.adapters or ():
        kind = opened(store, digest).metadata.get("general.type")
        if kind != "adapter":
            raise RequestError(f"adapter {digest} is of type {shown(kind)}, expected a LoRA adapter as GGUF")


def opened(store: ModelStore, digest: str) -> GGUFFile:
    if not store.has_blob(digest):
        raise RequestError(f"blob {digest} is not here; upload it by POST /api/blobs/{digest} first")
    try:
        return GGUFFile(store.blob_path(digest))
    except GgpyError as error:
        raise RequestError(f"the uploaded file is no model: {error}") from error


def based_on(entry: Entry, name: ModelName) -> StoredModel:
    """The same model under another name."""
    parent, stored = shown_name(entry), entry.stored
    if stored is None:
        return StoredModel(name=str(name), source=lasting_source(entry), parent=parent)
    return StoredModel(
        name=str(name), source=stored.source, adapters=stored.adapters, template=stored.template, system=stored.system,
        parameters=stored.parameters, messages=stored.messages, licenses=stored.licenses, parent=parent)


def with_changes(model: StoredModel, made: Creation) -> StoredModel:
    """`model` with what `made` says in place of its own; parameters one by one."""
    def either(new: Any, old: Any) -> Any:
        return old if new is None else new

    return StoredModel(
        name=model.name, source=model.source, adapters=either(made.adapters, model.adapters),
        template=either(made.template, model.template) or None, system=either(made.system, model.system) or None,
        parameters={**model.parameters, **made.parameters}, messages=either(made.messages, model.messages),
        licenses=either(made.licenses, model.licenses), parent=model.parent)
