"""The models that a server offers to which none is given: those of this machine, and those of a file of presets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ggpy.errors import ConfigError, PullError
from ggpy.hub import huggingface, names
from ggpy.hub.catalogue import CATALOGUE
from ggpy.hub.resolve import made_model
from ggpy.hub.store import ModelStore
from ggpy.server.model_pool.models import Entry, known_file
from ggpy.server.model_pool.presets import read_presets
from ggpy.server.model_pool.stored_models import own_settings, stored_entries, stored_entry
from ggpy.server.settings import ServerSettings
from ggpy.tools.parser import Parser

logger = logging.getLogger("ggpy")


def find_entries(settings: ServerSettings) -> list[Entry]:
    """One for each name; of several with the same the first counts."""
    entries: dict[str, Entry] = {}
    presets = list(preset_entries(settings))
    for entry in (*(entry for entry, _ in presets), *folder_entries(settings.models_dir),
                  *stored_entries(ModelStore(), settings), *cached_entries(), *catalogue_entries()):
        entries.setdefault(entry.name, entry)
    hidden = {path for entry, hides in presets if hides for path in files_of(entry)}
    for entry in entries.values():
        entry.is_listed = entry.settings is not None or entry.source not in hidden
    return list(entries.values())


def given_entry(settings: ServerSettings, source: str) -> Entry:
    """The model that is given on the command line. The API calls it by its first alias, else as it was given."""
    name, made = min(settings.aliases, default=source), made_model(source)
    if made is None:
        return Entry(name, source, settings.aliases, settings.tags)
    entry = stored_entry(made, ModelStore(), settings)
    entry.name, entry.aliases, entry.tags = name, settings.aliases, settings.tags
    return entry


def preset_entries(settings: ServerSettings) -> Iterator[tuple[Entry, bool]]:
    """The models of the preset file, and whether each hides those of the cache that it uses. Raises ConfigError."""
    if settings.models_preset is None:
        return
    from ggpy.server.options.flag_values import server_settings, source_of
    from ggpy.server.options.flags import VARIABLES, add_arguments
    from ggpy.tools.environment import VARIABLES as COMMON

    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    switches = frozenset(flag for flag, action in parser._option_string_actions.items() if action.nargs == 0)
    for preset in read_presets(settings.models_preset, settings.argv, {**COMMON, **VARIABLES}, switches):
        args = parser.parse(preset.argv)
        source = source_of(args)
        if source is None:
            raise ConfigError(f"--models-preset {settings.models_preset}: [{preset.name}] names no model; expected a "
                              "key model or hf-repo")
        try:
            known_file(source, is_offline=settings.is_offline)
        except PullError as error:
            logger.warning("--models-preset %s: [%s] cannot be loaded: %s", settings.models_preset, preset.name, error)
        own, made = server_settings(args), made_model(source)
        yield Entry(preset.name, source, own.aliases, own.tags, stored=made,
                    settings=own if made is None else own_settings(made, ModelStore(), own),
                    loads_on_startup=preset.loads_on_startup), preset.hides_cached


def files_of(entry: Entry) -> Iterator[str]:
    """The files of the cache that a model of the preset file is, or guesses with."""
    draft = None if entry.settings is None else entry.settings.options.draft_model
    for spec in (entry.source, draft):
        if spec is not None and names.is_hub_name(str(spec)):
            path = huggingface.find_cached(names.parse(str(spec)))
            if path is not None:
                yield str(path)


def catalogue_entries() -> Iterator[Entry]:
    """What `ggpy pull` has fetched."""
    for model in CATALOGUE:
        if model.is_present:
            yield Entry(model.name, str(model.path), model.aliases)


def cached_entries() -> Iterator[Entry]:
    """What Hugging Face's cache has, but for parts of other models."""
    for model, files in huggingface.cached():
        if not files[0].name.lower().startswith("mmproj"):
            name = f"{model.repo}:{names.quant_of(files[0].name) or files[0].name}"
            yield Entry(name, str(files[0]), (names.hub_name(name), str(model)))


def folder_entries(folder: Path | None) -> Iterator[Entry]:
    """The GGUF files in `folder`, and the folders in it that hold one model each, maybe in parts."""
    if folder is None:
        return
    for path in sorted(folder.iterdir()):
        files = [path] if path.is_file() else sorted(path.glob("*.gguf")) if path.is_dir() else []
        files = [file for file in files if file.suffix == ".gguf" and not file.name.lower().startswith("mmproj")]
        if files:
            yield Entry(path.stem if path.is_file() else path.name, str(files[0]))
