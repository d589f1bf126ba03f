"""A comparison as a page for docs/ and as a plot."""

import importlib
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.groups import GROUPS, Group
from bench.units import Unit, in_order, spread

INTRODUCTION = """# ggpy and llama.cpp, side by side

Written by `python bench/vs_llama_cpp.py --report FILE`. Each value is the median of rounds, with their range; in a
round each engine runs once in a process of its own, in turns first. A ratio above 1 means that ggpy is better; it is
taken round by round, against the build of llama.cpp whose median is best. ggpy's speeds include choosing tokens and
turning them into text; llama-bench's do not.
"""
MEANINGS = {
    "decode": "Tokens a second, one after the other, from an empty context.",
    "prefill": "Tokens a second of reading a prompt into an empty context.",
    "batch": "Tokens a second of all sequences together, which generate side by side.",
    "depth": "Tokens a second, one after the other, after a long prompt that was read before.",
    "first": "Milliseconds from the start of a process until it has read 32 tokens and says so; kernels are compiled "
             "and the file is in the page cache. ggpy has chosen a token by then.",
    "cold": "The same without compiled kernels, as after an installation.",
    "memory": "MB resident at most while reading a prompt and generating, file pages and child processes included.",
}


def page(units: Sequence[Unit], plot: str | None = None) -> str:
    """Markdown; `plot` is the picture's address in it."""
    parts = [INTRODUCTION, _where(units)]
    if plot is not None:
        parts.append(f"![Ratios to llama.cpp]({plot})\n")
    for name, group in GROUPS.items():
        of_group = [unit for unit in in_order(units) if unit.group == name]
        if of_group:
            parts.append(_section(name, group, of_group))
    return "\n".join(parts)


def _where(units: Sequence[Unit]) -> str:
    """Machines, commits, builds and loads."""
    machines = sorted({unit.machine for unit in units})
    commits = sorted({unit.commit for unit in units})
    builds = sorted({f"{label}: {build}" for unit in units for label, build in unit.builds.items()})
    loads = [unit.load for unit in units if unit.load is not None]
    lines = [f"- machine: {', '.join(machines)}", f"- ggpy: commit {', '.join(commits)}",
             f"- llama.cpp: {', '.join(builds) or 'none'}"]
    if loads:
        lines.append(f"- load when a measurement began: at most {max(loads):.1f}")
    return "\n".join([*lines, ""])


def _section(name: str, group: Group, units: Sequence[Unit]) -> str:
    has_level = any(unit.level for unit in units)
    headings = ["model", "threads", *["level"] * has_level, f"ggpy, {group.unit}", f"llama.cpp, {group.unit}", "build",
                "ratio"]
    lines = [f"## {name}: {group.row}\n", f"{MEANINGS[name]}\n", f"| {' | '.join(headings)} |",
             f"|{'---|' * len(headings)}"]
    for unit in units:
        cells = [unit.model, str(unit.threads), *[unit.level or "best"] * has_level, spread(unit.ours, 1),
                 spread(unit.best_values, 1), unit.best or "-", spread(unit.ratios, 2)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def draw(units: Sequence[Unit], file: Path) -> None:
    """Bars of the median ratios with their range: a cluster for each row of the tables, a bar for each model."""
    importlib.import_module("matplotlib").use("agg")        # here, since nothing else needs it
    pyplot = importlib.import_module("matplotlib.pyplot")
    most = max((unit.threads for unit in units), default=0)
    shown = [unit for unit in in_order(units) if unit.ratios and not unit.level and not unit.is_requantised
             and unit.threads == most]
    groups = list(dict.fromkeys(unit.group for unit in shown))
    models = list(dict.fromkeys(unit.model for unit in shown))
    width = 0.8 / max(1, len(models))
    figure, axes = pyplot.subplots(figsize=(1.5 + 1.6 * len(groups), 4))
    for i, model in enumerate(models):
        ratios = {groups.index(unit.group): unit.ratios for unit in shown if unit.model == model}
        medians = [statistics.median(values) for values in ratios.values()]
        below = [median - min(values) for median, values in zip(medians, ratios.values(), strict=True)]
        above = [max(values) - median for median, values in zip(medians, ratios.values(), strict=True)]
        axes.bar([place + (i - (len(models) - 1) / 2) * width for place in ratios], medians, width,
                 yerr=(below, above), label=model, error_kw={"linewidth": 0.8})
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(groups)), [GROUPS[name].row for name in groups])
    axes.set_ylabel(f"times llama.cpp, {most} threads")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
