"""Speed, time to first token and memory beside llama.cpp, on this machine, in one run.

`python bench/vs_llama_cpp.py [MODEL...] --peer-bin DIR`: catalogue names or paths, by default every model that was
pulled. DIR holds llama-bench and llama-batched-bench; without it and the variable LLAMA_BENCH only ours is measured.
Each round starts a fresh process of each engine, in turns first. The groups, which --only selects:

- decode: tokens a second of 64 steps of one token from an empty context; ours greedy, through sampling and text.
- prefill: tokens a second of reading 512 tokens from an empty context; ours with a token sampled at the end.
- batch: tokens a second of 8 sequences that generate side by side, all together.
- depth: tokens a second of 16 steps of one token after 4,096 that were read before.
- first: milliseconds from the start of a process until it has read 32 tokens and says so; ours with the first token
  chosen. Files are in the page cache and our kernels compiled; "cold" is ours once without compiled kernels.
- memory: resident at most, in MB, of a process of pp512 and tg64, file pages included, child processes added.

Several builds of llama.cpp (--peer-bin amx=DIR --peer-bin plain=DIR) are measured in the same rounds, and the ratio is
to the best of them. With --level LEVEL=LABEL ours runs under GGPY_CPU=LEVEL against that build alone. --requants DIR
measures GGUF files, such as bench/requantise.py makes, in decode and prefill.

Prints a table (median and range of the rounds; a ratio above 1 means that ours is better) and one line of JSON. With
--results FILE every finished measurement is kept, and not repeated by a later run of the same commit, builds and
machine; --minutes ends a run early; --report and --plot write all that the file holds. Nothing else should run
meanwhile: the load is printed.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.choices import some_of
from bench.comparison_report import draw, page
from bench.engines import LlamaCpp, Ours
from bench.environment import commit, machine
from bench.groups import GROUPS, LEVEL_GROUPS
from bench.units import Key, Unit, append_unit, as_json, load_units, spread
from ggpy.hub import catalogue
from ggpy.tools.bench_flags import positive_numbers
from ggpy.tools.flags import positive_number, whole_number

BUSY_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Model:
    """A file and its name in the tables."""

    name: str
    path: Path
    is_requantised: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One unit to be measured: which model, and against which builds."""

    key: Key
    model: Model
    peers: Mapping[str, LlamaCpp]

    @property
    def able_peers(self) -> dict[str, LlamaCpp]:
        """Those that have a program for the group."""
        return {label: peer for label, peer in self.peers.items() if peer.can(GROUPS[self.key.group])}

    def is_told_by(self, kept: Unit | None, builds: Mapping[str, str]) -> bool:
        """Whether measuring would only repeat `kept`: it is of this commit, this machine and the same builds."""
        return kept is not None and (kept.commit, kept.machine, kept.builds) == (
            commit(), machine(), {label: builds[label] for label in self.able_peers})


def measure(job: Job, n_rounds: int, builds: Mapping[str, str]) -> Unit:
    """All rounds of a unit."""
    group = GROUPS[job.key.group]
    ours = Ours(job.key.threads, job.key.level)
    peers = job.able_peers
    our_values: list[float] = []
    their_values: dict[str, list[float]] = {label: [] for label in peers}
    before = load()
    for i in range(min(n_rounds, group.max_rounds)):
        turns: list[tuple[Ours | LlamaCpp, list[float]]] = [
            (ours, our_values), *((peer, their_values[label]) for label, peer in peers.items())]
        first = i % len(turns)
        for engine, values in turns[first:] + turns[:first]:
            values.append(engine.measure(group, job.model.path))
    return Unit(**job.key._asdict(), is_requantised=job.model.is_requantised, machine=machine(), load=before,
                commit=commit(), builds={label: builds[label] for label in peers}, ours=our_values, theirs=their_values)


def load() -> float | None:
    """How many processes ran in the last minute, on average."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def print_unit(unit: Unit) -> None:
    """A line of the table."""
    label = f"{unit.kind.row} [{unit.kind.unit}]"
    conditions = f"{unit.threads}t {unit.level}".strip()
    against = f"  {unit.best}" if unit.best is not None and (len(unit.theirs) > 1 or unit.level) else ""
    print(f"{unit.model:<20} {label:<24} {conditions:<14} {spread(unit.ours, 1):>26} {spread(unit.best_values, 1):>26} "
          f"{spread(unit.ratios, 2):>20}{against}", flush=True)


def find_models(names: Sequence[str], requants: str | None) -> list[Model]:
    """The models that the command line asks for; all that were pulled if it names none and no folder."""
    models = []
    for name in names:
        entry = catalogue.find(name)
        path = entry.path if entry is not None else Path(name)
        if not path.is_file():
            raise SystemExit(f"{name} is neither a file nor a pulled model; `ggpy list` shows the models")
        models.append(Model(entry.name if entry is not None else path.stem, path))
    if requants is not None:
        files = sorted(Path(requants).glob("*.gguf"))
        if not files:
            raise SystemExit(f"{requants}: there are no GGUF files; bench/requantise.py makes them")
        models += [Model(file.stem, file, is_requantised=True) for file in files]
    elif not models:
        models = [Model(entry.name, entry.path) for entry in catalogue.CATALOGUE if entry.is_present]
    if not models:
        raise SystemExit("no model was pulled; give a path, or run `ggpy pull smollm2`")
    return models


def peer_bin(text: str) -> tuple[str, Path]:
    """Label and folder of a build, from [LABEL=]DIR; what has a separator in it is no label, but a path with a "="."""
    label, is_given, folder = text.partition("=")
    if not is_given or not label or "/" in label or os.sep in label:
        return "llama.cpp", Path(text)
    return label, Path(folder)


def find_peers(args: argparse.Namespace) -> dict[str, Path]:
    """Label -> folder of the builds of llama.cpp."""
    folders = dict(args.peer_bin)
    if args.llama_bench and not folders:
        folders["llama.cpp"] = Path(args.llama_bench).parent
    for label, folder in folders.items():
        if not (folder / "llama-bench").is_file():
            raise SystemExit(f"{label}: there is no llama-bench in {folder}")
    return folders


def jobs(args: argparse.Namespace, folders: Mapping[str, Path]) -> Iterator[Job]:
    """What is to be measured, group by group."""
    models = find_models(args.models, args.requants)
    levels: list[tuple[str, list[str]]] = [("", list(folders))]
    if args.level:
        levels = [(level, [label]) for level, _, label in (text.partition("=") for text in args.level)]
        for level, labels in levels:
            if labels[0] not in folders:
                raise SystemExit(f"--level {level}={labels[0]}: there is no --peer-bin {labels[0]}=DIR")
    for name in args.only:
        for threads in args.threads:
            for level, labels in levels:
                for model in models:
                    if (level or model.is_requantised) and name not in LEVEL_GROUPS:
                        continue
                    peers = {label: LlamaCpp(folders[label], threads) for label in labels}
                    yield Job(Key(name, model.name, threads, level), model, peers)


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--peer-bin", type=peer_bin, action="append", default=[], metavar="[LABEL=]DIR",
                        help="a build of llama.cpp; may be repeated with different labels")
    parser.add_argument("--llama-bench", default=os.environ.get("LLAMA_BENCH"), metavar="PATH",
                        help="the same: llama-bench, with llama-batched-bench beside it")
    parser.add_argument("--only", type=some_of(list(GROUPS)), default=list(GROUPS), metavar="GROUPS",
                        help=f"separated by commas: {','.join(GROUPS)} (default: all)")
    parser.add_argument("-t", "--threads", type=positive_numbers, default=[2], metavar="N,...",
                        help="threads of each engine (default 2)")
    parser.add_argument("--level", action="append", default=[], metavar="LEVEL=LABEL",
                        help="ours under GGPY_CPU=LEVEL against the build LABEL; may be repeated")
    parser.add_argument("--requants", metavar="DIR", help="measure the GGUF files in it too")
    parser.add_argument("--rounds", type=whole_number(1), default=5,
                        help="rounds at most (default 5); slow groups take fewer")
    parser.add_argument("--minutes", type=positive_number, help="begin nothing after so many minutes")
    parser.add_argument("--no-cold", action="store_true", help="leave out the run that compiles all kernels")
    parser.add_argument("--results", type=Path, metavar="FILE",
                        help="keep what is measured; do not repeat what is kept")
    parser.add_argument("--again", action="store_true", help="repeat it nevertheless")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    parser.add_argument("--report", type=Path, metavar="FILE.md", help="write a page about all that --results holds")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw its ratios; needs matplotlib")
    args = parser.parse_args()
    labels = [label for label, _ in args.peer_bin]
    if len(set(labels)) < len(labels):
        parser.error(f"--peer-bin: two builds have the label {max(labels, key=labels.count)}; give each its own, as in "
                     "--peer-bin plain=DIR --peer-bin amx=DIR")
    if args.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: python -m pip install matplotlib")
    if args.no_cold:
        args.only = [name for name in args.only if name != "cold"]
    return args


def run(args: argparse.Namespace, units: dict[Key, Unit]) -> None:
    """Measures what `units` lacks, adds it, and prints a line for each."""
    folders = find_peers(args)
    builds = {label: LlamaCpp(folder, 1).build() for label, folder in folders.items()}
    todo = list(jobs(args, folders))
    if (busy := load()) is not None and busy > BUSY_LOAD:
        print(f"warning: the load is {busy}: what else runs here slows both engines, not equally", file=sys.stderr)
    peer_names = ", ".join(f"{label} {build}" for label, build in builds.items()) or "no llama.cpp given: ours only"
    print(f"{machine()}, load {busy}; at most {args.rounds} rounds; ggpy {commit()}, {peer_names}")
    print(f"{'model':<20} {'':<24} {'':<14} {'ggpy':>26} {'llama.cpp':>26} {'ratio':>20}", flush=True)
    shown = []
    warm: set[tuple[Path, str]] = set()
    start = time.monotonic()
    for job in todo:
        if args.again or not job.is_told_by(units.get(job.key), builds):
            if args.minutes is not None and time.monotonic() - start > 60 * args.minutes:
                print(f"{args.minutes:g} minutes are over; run this again to go on", file=sys.stderr)
                break
            if (job.model.path, job.key.level) not in warm:
                Ours(job.key.threads, job.key.level).warm_up(job.model.path)
                warm.add((job.model.path, job.key.level))
            units[job.key] = measure(job, args.rounds, builds)
            append_unit(args.results, units[job.key])
        print_unit(units[job.key])
        shown.append(units[job.key])
    print(json.dumps({"bench": "vs_llama_cpp", "units": [as_json(unit) for unit in shown]}))


def main() -> None:
    """Command line."""
    args = parse_arguments()
    units = load_units(args.results)
    if not args.report_only:
        run(args, units)
    if args.plot is not None:
        draw(list(units.values()), args.plot)
    if args.report is not None:
        plot = os.path.relpath(args.plot, args.report.parent) if args.plot is not None else None
        args.report.write_text(page(list(units.values()), plot), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
