"""How long it takes to open a GGUF file and to decode its vocabulary, against the `gguf` package's reader.

`python bench/gguf_open.py [MODEL]`, MODEL a path or a catalogue name; by default the smallest model that was pulled.
Prints a table and one line of JSON. The file is in the page cache: this measures parsing, not the disk.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf

from ggpy.gguf import GGUFFile
from ggpy.hub import catalogue

TOKENS = "tokenizer.ggml.tokens"


def milliseconds(run: Callable[[], Any], repeats: int) -> list[float]:
    """Times of `repeats` runs after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return times


def find_model(name: str | None) -> Path:
    """The file that the command line asks for."""
    if name is None:
        present = [entry.path for entry in catalogue.CATALOGUE if entry.is_present]
        if not present:
            raise SystemExit("no model was pulled; give a path, or run `ggpy pull smollm2:135m`")
        return min(present, key=lambda p: p.stat().st_size)
    if Path(name).exists():
        return Path(name)
    entry = catalogue.find(name)
    if entry is None or not entry.is_present:
        raise SystemExit(f"{name} is neither a file nor a pulled model; run `ggpy pull {name}`")
    return entry.path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--repeats", type=int, default=10, help="runs of ours (default 10)")
    parser.add_argument("--repeats-gguf", type=int, default=3, help="runs of the slower gguf package (default 3)")
    args = parser.parse_args()
    path = find_model(args.model)

    ours, theirs = GGUFFile(path), gguf.GGUFReader(path)
    tokens, their_tokens = ours.metadata[TOKENS], theirs.fields[TOKENS]
    assert tokens.tolist() == their_tokens.contents()
    rows = {
        "open": (milliseconds(lambda: GGUFFile(path), args.repeats),
                 milliseconds(lambda: gguf.GGUFReader(path), args.repeats_gguf)),
        "all tokens": (milliseconds(tokens.tolist, args.repeats),
                       milliseconds(their_tokens.contents, args.repeats_gguf)),
    }

    print(f"{path.name}: {ours.size_bytes:,} bytes, {len(ours.tensors)} tensors, {len(tokens):,} tokens")
    print(f"{'ms, median (min-max)':<22}{'ggpy':>26}{'gguf ' + version('gguf'):>28}{'ratio':>9}")
    result: dict[str, Any] = {"bench": "gguf_open", "model": path.name, "machine": platform.machine(),
                              "commit": commit(), "gguf": version("gguf"), "n_tokens": len(tokens)}
    for name, (our_times, their_times) in rows.items():
        cells = [f"{statistics.median(t):.1f} ({min(t):.1f}-{max(t):.1f})" for t in (our_times, their_times)]
        ratio = statistics.median(their_times) / statistics.median(our_times)
        print(f"{name:<22}{cells[0]:>26}{cells[1]:>28}{ratio:>8.1f}x")
        result[name] = {"ggpy_ms": [round(t, 3) for t in our_times],
                        "gguf_ms": [round(t, 3) for t in their_times], "ratio": round(ratio, 2)}
    print(json.dumps(result))


def commit() -> str:
    """Commit of the checkout that this script lies in, or "unknown" outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
