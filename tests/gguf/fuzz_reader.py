"""Mutates sound GGUF files and opens them: only success or GGUFError may come of it.

By hand, for as long as wanted: `python tests/gguf/fuzz_reader.py --seconds 60`; a file that breaks the rule is kept
in the current folder. `--write-corpus` makes the corpus anew. `test_fuzz.py` runs the same mutations briefly.
"""

import argparse
import importlib
import random
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from ggpy.errors import GGUFError
from ggpy.gguf import GGUFFile, GGUFWriter, TensorType, ValueType

CORPUS = Path(__file__).parent.parent / "data" / "gguf_corpus"
MAX_CASE_S = 10                     # far above what any of these small files needs
MAX_MEMORY = 4 << 30                # address space; a fuzzed count must not get anywhere near it
NUMBERS = (0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 63, 64, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
           2**60, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1)
KINDS = ("flip", "byte", "set4", "set8", "insert", "delete", "repeat", "splice", "truncate")
Mutation = tuple[str, int, int]     # kind, position, value; both are wrapped to what fits


def mutate(data: bytes, mutations: list[Mutation], other: bytes) -> bytes:
    """`data` after all mutations in turn; `other` is the file that "splice" takes bytes from."""
    raw = bytearray(data)
    for kind, position, value in mutations:
        at = position % (len(raw) + 1)
        number = value % 2**64
        span = value % 64 + 1
        if kind == "flip" and at < len(raw):
            raw[at] ^= 1 << value % 8
        elif kind == "byte" and at < len(raw):
            raw[at] = value % 256
        elif kind == "set4":
            raw[at : at + 4] = struct.pack("<I", number % 2**32)
        elif kind == "set8":
            raw[at : at + 8] = struct.pack("<Q", number)
        elif kind == "insert":
            raw[at:at] = struct.pack("<Q", number)
        elif kind == "delete":
            del raw[at : at + span]
        elif kind == "repeat":
            raw[at:at] = raw[at : at + span]
        elif kind == "splice":
            raw[at:] = other[value % (len(other) + 1) :]
        elif kind == "truncate":
            del raw[at:]
    return bytes(raw)


def touch_everything(file: GGUFFile) -> None:
    """Decode every value and read every byte of every tensor."""
    for key in file.metadata:
        value = file.metadata[key]
        if not isinstance(value, bool | int | float | str):
            value.tolist() if hasattr(value, "tolist") else str(value)
    for tensor in file.tensors.values():
        file.prefetch(tensor)
        assert tensor.rows().size == tensor.size_bytes == tensor.data.size
        int(tensor.data.sum())
        file.advise_dontneed(tensor)


def opens(path: Path) -> str:
    """"ok", or the message of the GGUFError; anything else propagates."""
    try:
        touch_everything(GGUFFile(path))
    except GGUFError as e:
        message = str(e)
    else:
        return "ok"
    assert message.startswith(str(path.parent)), f"the message does not name the file: {message}"
    return message


def write_corpus(folder: Path) -> None:
    """Small files with what real ones have: hyperparameters, a vocabulary, a template, tensors of many types."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_model(folder / "model.gguf", alignment=32, version=3)
    _write_model(folder / "aligned-v2.gguf", alignment=64, version=2)
    GGUFWriter(folder / "empty.gguf").write()
    nested = GGUFWriter(folder / "nested.gguf")
    nested.add("nested", [[1, 2], ["a", "b"], [[0.5], [True]]])
    nested.add("empty", [], ValueType.STRING)
    nested.write()
    for i in range(2):
        part = GGUFWriter(folder / f"split-{i + 1:05d}-of-00002.gguf")
        part.add("split.no", i, ValueType.UINT16)
        part.add("split.count", 2, ValueType.UINT16)
        part.add("split.tensors.count", 4, ValueType.INT32)
        for name in ("a", "b"):
            part.add_tensor(f"blk.{i}.{name}", np.arange(4, dtype=np.float32))
        part.write()


def _write_model(path: Path, *, alignment: int, version: int) -> None:
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path, alignment=alignment, version=version)
    writer.add("general.architecture", "llama")
    writer.add("general.name", "a tiny model for fuzzing")
    for key, n in (("block_count", 1), ("embedding_length", 256), ("context_length", 4096), ("vocab_size", 40)):
        writer.add(f"llama.{key}", n)
    writer.add("llama.rope.freq_base", 10000.0)
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.tokens", [b"\xff", *(f"token{i}" for i in range(39))])
    writer.add("tokenizer.ggml.scores", rng.standard_normal(40).astype(np.float32))
    writer.add("tokenizer.ggml.token_type", [1] * 40)
    writer.add("tokenizer.ggml.merges", [f"t {i}" for i in range(20)])
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
    writer.add("bools", [True, False])
    for value_type, n in ((ValueType.UINT8, 1), (ValueType.INT64, -1), (ValueType.UINT64, 2**64 - 1)):
        writer.add(f"scalar.{value_type.name}", n, value_type)
    writer.add_tensor("token_embd.weight", rng.standard_normal((3, 32)).astype(np.float16))
    writer.add_tensor("output_norm.weight", rng.standard_normal(5).astype(np.float32))
    for type_ in (TensorType.Q4_0, TensorType.Q4_K, TensorType.Q8_0, TensorType.IQ4_XS):
        row = 256 // type_.block_size * type_.block_bytes
        writer.add_tensor(f"blk.0.{type_.name.lower()}", rng.integers(0, 256, (2, 1, row), np.uint8), type_)
    writer.write()


def random_mutations(rng: random.Random, size: int) -> list[Mutation]:
    """One to four mutations; most touch the header, where the numbers are."""
    def value() -> int:
        return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.getrandbits(rng.choice((8, 16, 32, 64)))
    return [(rng.choice(KINDS), rng.randrange(rng.choice((24, 1500, size + 1))), value())
            for _ in range(rng.randint(1, 4))]


def run_case(path: Path, data: bytes) -> str:
    """Open `data` under the name `path`, giving up after MAX_CASE_S."""
    path.unlink(missing_ok=True)            # a new file: an older one may still be mapped
    path.write_bytes(data)
    signal.alarm(MAX_CASE_S)
    try:
        return opens(path)
    finally:
        signal.alarm(0)


def fuzz(seconds: float, seed: int) -> int:
    """Run random cases; returns the number of those that broke the rule."""
    rng = random.Random(seed)
    seeds = {p.name: p.read_bytes() for p in sorted(CORPUS.glob("*.gguf"))}
    outcomes: Counter[str] = Counter()
    n_broken, end = 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            for name, data in seeds.items():        # the sound siblings of a split file
                (Path(folder) / name).write_bytes(data)
            for _ in range(200):
                name = rng.choice(list(seeds))
                data = mutate(seeds[name], random_mutations(rng, len(seeds[name])), rng.choice(list(seeds.values())))
                try:
                    outcomes["ok" if run_case(Path(folder) / name, data) == "ok" else "refused"] += 1
                except Exception:
                    n_broken += 1
                    kept = Path(f"fuzz-{seed}-{n_broken}-{name}")
                    kept.write_bytes(data)
                    print(f"{kept}:\n{traceback.format_exc()}")
                (Path(folder) / name).unlink()
                (Path(folder) / name).write_bytes(seeds[name])
    print(f"seed {seed}: {dict(outcomes)}, {n_broken} broken")
    return n_broken


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--write-corpus", action="store_true")
    args = parser.parse_args()
    if args.write_corpus:
        write_corpus(CORPUS)
        return 0
    resource = importlib.import_module("resource")      # absent on Windows, where pytest still imports this file
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    return 1 if fuzz(args.seconds, args.seed) else 0


def _too_slow(signum: int, frame: object) -> None:
    raise TimeoutError(f"one file took more than {MAX_CASE_S} s")


if __name__ == "__main__":
    raise SystemExit(main())
