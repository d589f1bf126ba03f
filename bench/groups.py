"""What a comparison with llama.cpp measures: a group is a row of its tables."""

from dataclasses import dataclass

from bench.engine_process import DEPTH, N_BATCHED, N_DEEP, N_FIRST, N_GENERATE, N_PROMPT, N_SEQUENCES


@dataclass(frozen=True, slots=True)
class Group:
    """One measurement, of both engines in turns, each in a fresh process."""

    row: str                        # its name in tables
    unit: str
    measures: tuple[str, ...]       # of engine_process.py
    llama_bench: tuple[str, ...] = ()       # the same for llama-bench; with `batched` for llama-batched-bench
    batched: bool = False
    max_rounds: int = 5             # slow ones are repeated less often
    is_time: bool = False           # until the process prints, not what it prints
    is_memory: bool = False         # that the process takes
    is_cold: bool = False           # without compiled kernels, which llama.cpp has nothing like

    @property
    def lower_is_better(self) -> bool:
        return self.is_time or self.is_memory


GROUPS = {
    "decode": Group(f"tg{N_GENERATE}", "tok/s", ("decode",), ("-p", "0", "-n", str(N_GENERATE))),
    "prefill": Group(f"pp{N_PROMPT}", "tok/s", ("prefill",), ("-p", str(N_PROMPT), "-n", "0")),
    "batch": Group(f"tg{N_BATCHED} x {N_SEQUENCES}", "tok/s", ("batch",),
                   ("-c", str(N_SEQUENCES * (N_BATCHED + 1)), "-npp", "1", "-ntg", str(N_BATCHED),
                    "-npl", str(N_SEQUENCES)), batched=True, max_rounds=3),
    "depth": Group(f"tg{N_DEEP} @ d{DEPTH}", "tok/s", ("depth",),
                   ("-p", "0", "-n", str(N_DEEP), "-d", str(DEPTH)), max_rounds=2),
    "first": Group("first token", "ms", ("first",), ("-p", str(N_FIRST), "-n", "0", "--no-warmup"), is_time=True),
    "cold": Group("first token, cold", "ms", ("first",), max_rounds=1, is_time=True, is_cold=True),
    "memory": Group("memory", "MB", ("prefill", "decode"), ("-p", str(N_PROMPT), "-n", str(N_GENERATE)),
                    max_rounds=2, is_memory=True),
}
LEVEL_GROUPS = ("decode", "prefill")        # what matters of processors and quantisations
