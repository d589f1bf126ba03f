"""The CPU backend: one model's weights, KV pool and tape, and the thread team that runs it."""

import logging
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggpy.backends.base import PAGE_TOKENS, Adapter, Compute, KVIdentity, KVType, Repack, StepSequence
from ggpy.backends.cpu.adapters import AdapterMemory
from ggpy.backends.cpu.encode import Encoder
from ggpy.backends.cpu.kv_pools import KVPools
from ggpy.backends.cpu.memory import Arena, aligned
from ggpy.backends.cpu.numeric_path import numeric_path
from ggpy.backends.cpu.step import RopeMemory, StepMemory
from ggpy.backends.cpu.tape import Tape
from ggpy.backends.cpu.trace import StepTrace, Work, work_of
from ggpy.backends.cpu.weights import WeightStore, packed_bytes
from ggpy.backends.key_offset import key_offset
from ggpy.errors import ConfigError, RequestError
from ggpy.formats import dequantize
from ggpy.gguf import GGUFFile, TensorInfo
from ggpy.graph.lower import lower
from ggpy.graph.ops import ExpertLinear, Graph, Linear, Route, RowKind
from ggpy.graph.plan import Plan
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import LINEAR_BYTES, ROUTE_SCRATCH_BYTES
from ggpy.kernels.cpu.attention_memory import attention_partials_bytes, attention_scratch_bytes
from ggpy.kernels.cpu.packing import embed_kernel, packing_of
from ggpy.kernels.cpu.sample_candidates import COMMON as COMMON_SAMPLERS
from ggpy.kernels.cpu.team import Team
from ggpy.machine import available_memory_bytes

logger = logging.getLogger("ggpy")

MEMORY_SHARE = 0.9          # of the available memory that packed weights may take


class CpuBackend:
    """Computes steps of one model on the CPU.

    The pool of each KV group has `n_pages` pages, one number for all groups or one for each; a page table has
    `table_pages` columns, by default as many as group 0 has pages. `compute` "int8" multiplies quantised weights with
    int8 activations; "f32" turns every weight into float32 (the truth path: slow, large, exact). `repack` "off" reads
    quantised weights where the file has them instead of packing a copy, "auto" does so if the copy would not fit the
    available memory; the bits are the same. Keys are kept as `cache_type_k`, values as `cache_type_v`; "q8_0" needs
    heads of whole blocks of 32. Rows may ask for some of each of the low-rank `adapters`, by number. `progress` is told
    of each kernel compiled. Raises ConfigError for values that cannot work and KernelError if a kernel cannot be
    compiled.
    """

    def __init__(self, gguf: GGUFFile, graph: Graph, *, n_threads: int, n_pages: int | Sequence[int],
                 table_pages: int | None = None, max_tokens: int = 512, max_outputs: int | None = None,
                 compute: Compute = "int8",
                 cache_type_k: KVType = "f16", cache_type_v: KVType = "f16", repack: Repack = "auto",
                 adapters: Sequence[Adapter] = (), progress: object_loader.Progress | None = None) -> None:
        if n_threads < 1 or max_tokens < 1:
            raise ConfigError(f"n_threads={n_threads}, max_tokens={max_tokens}: each must be at least 1")
        self._gguf, self.max_tokens = gguf, max_tokens
        self.max_outputs = max_tokens if max_outputs is None else max_outputs
        float32 = compute == "f32"
        self.plan = lower(graph, wants_int8=lambda tensor: packing_of(tensor.type, float32=float32).int8,
                          max_tokens=max_tokens, max_outputs=self.max_outputs)
        self.kv_groups = self.plan.kv_groups
        self.n_pages = _pages_of_groups(n_pages, len(self.kv_groups))
        self.table_pages = self.n_pages[0] if table_pages is None else table_pages
        self._kv = KVPools(self.plan.attentions, self.n_pages, self.table_pages, (cache_type_k, cache_type_v))
        self.weights = WeightStore(gguf, _matrices(self.plan), float32=float32,
                                   mapped=_stays_mapped(repack, _matrices(self.plan), float32))
        self._adapters = AdapterMemory(adapters, max_tokens)
        self._place_values()
        self._make_work_memory(n_threads)
        self._key_offsets = _key_offsets(self.plan, cache_type_k)
        self._encode(n_threads, has_adapters=bool(adapters))
        addresses = object_loader.addresses(self.kernel_names(), progress)
        self.team = Team(n_threads, addresses)
        self.weights.load(self.team, addresses)
        self._tape = Tape(self.entries, addresses, self.plan)
        self._adapted_tape = Tape(self._adapted_entries, addresses, self.plan)  # of steps in which a row asks for some
        logger.info("cpu: %d tape entries, weights %.0f MB, arena %.0f MB, KV %.0f MB", len(self.entries),
                    self.weights.arena.size_bytes / 1e6, self.plan.arena_bytes / 1e6, self._kv.size_bytes / 1e6)

    def _place_values(self) -> None:
        """Makes the arena of the plan's values, and views of those that Python fills or reads."""
        plan = self.plan
        self._arena = Arena(plan.arena_bytes, "activations")
        self._outputs = {kind: self._arena.floats(plan.offsets[buffer], self.max_outputs, buffer.row_bytes // 4)
                         for kind, buffer in plan.outputs.items()}
        self.n_vocab = next(op.weight.shape[0] for op, _ in plan.embeds if op.index == "token")
        self._n_positions = min((op.weight.shape[0] for op, _ in plan.embeds if op.index == "position"),
                                default=self.table_pages * PAGE_TOKENS)
        self.n_embd = self._outputs["hidden"].shape[1]
        self.n_classes = self._outputs["scores"].shape[1] if "scores" in self._outputs else 0
        self.is_encoder = "logits" not in self._outputs
        self._embeds = [(op, op.weight.rows(), self._arena.floats(plan.offsets[buffer], self.max_tokens, op.width))
                        for op, buffer in plan.embeds]
        self._embeds_without_kernel = [embed for embed in self._embeds if embed_kernel(embed[0].weight) is None]
        self._rope = {table: RopeMemory(table, self.max_tokens, self.table_pages * PAGE_TOKENS)
                      for table in plan.rope_tables}

    def _make_work_memory(self, n_threads: int) -> None:
        """Makes what threads write to between kernels, and the step's description, which says where that is."""
        stride = self._scratch_stride()
        self._scratch = Arena(stride * n_threads, "work memory of the threads")
        self._partials = Arena(max((attention_partials_bytes(op, n_threads, self.table_pages * PAGE_TOKENS)
                                    for op in self.plan.attentions), default=0), "partial sums of attention")
        self._step = StepMemory(self.max_tokens, self.max_outputs, self.plan.n_used,
                                table_shape=(len(self.kv_groups), self.table_pages),
                                scratch_address=self._scratch.address, scratch_stride=stride)

    def _encode(self, n_threads: int, *, has_adapters: bool) -> None:
        """Makes the entries of the tapes, with adapters and without, and the set of their kernels."""
        capacity: dict[RowKind, int] = {
            "tokens": self.max_tokens, "outputs": self.max_outputs, "slots": self.max_tokens * self.plan.n_used}
        encoder = Encoder(
            plan=self.plan, arena=self._arena.address, capacity=capacity, weights=self.weights, kv=self._kv,
            key_offsets=self._key_offsets, rope=self._rope, partials=self._partials.address, n_threads=n_threads,
            adapters=self._adapters)
        self.entries = encoder.encode()
        self._adapted_entries = encoder.encode(with_adapters=True) if has_adapters else self.entries
        self._kernels = {entry.kernel for entry in (*self.entries, *self._adapted_entries)}

    def kernel_names(self) -> list[str]:
        """Every kernel that this model needs here, and those that choose tokens unless a request wants others."""
        return sorted({*self._kernels, *self.weights.pack_kernels(), *object_loader.TEAM_KERNELS, *COMMON_SAMPLERS})

    def forward(self, sequences: Sequence[StepSequence]) -> npt.NDArray[np.float32]:
        """Logits of one step; see Backend.forward."""
        return self._outputs["logits"][: self._run(sequences)]

    def hidden(self, sequences: Sequence[StepSequence]) -> npt.NDArray[np.float32]:
        """Hidden states of one step; see Backend.hidden."""
        return self._outputs["hidden"][: self._run(sequences, hidden=True)]

    def scores(self, sequences: Sequence[StepSequence]) -> npt.NDArray[np.float32]:
        """Scores of one step; see Backend.scores."""
        return self._outputs["scores"][: self._run(sequences)]

    def _run(self, sequences: Sequence[StepSequence], *, hidden: bool = False) -> int:
        """Runs one step, up to its hidden states or to its end; returns how many rows of output it has."""
        n_outputs, tape = self._prepare(sequences)
        self.team.run(tape.hidden if hidden else tape.whole, self._step.address)
        return n_outputs

    def _prepare(self, sequences: Sequence[StepSequence]) -> tuple[int, Tape]:
        """Lays out the rows of a step, and embeds their tokens where the tape does not; returns how many rows of output
        it has, and its tape."""
        n_tokens, n_outputs = self._step.fill(sequences)
        self._check_rows(n_tokens)
        has_adapters = self._adapters.fill(sequences)
        adds_to_embeddings = has_adapters and self._adapters.has_embeddings
        for op, weights, rows in self._embeds if adds_to_embeddings else self._embeds_without_kernel:
            index = self._step.embed_rows(op.index)
            with np.errstate(all="ignore"):     # damaged weights show as logits that are no numbers
                values = dequantize(weights[index], op.weight.type)
                np.multiply(values, np.float32(op.scale), out=rows[:n_tokens])
            if adds_to_embeddings and op.index == "token":
                self._adapters.add_to_embeddings(sequences, rows)
        for memory in self._rope.values():
            memory.fill(self._step.positions[:n_tokens], self._step.n_positions)
        return n_outputs, self._adapted_tape if has_adapters else self._tape

    def _check_rows(self, n_tokens: int) -> None:
        """Raises RequestError unless the embeddings have all rows of the step: kernels read wherever they are sent."""
        tokens = self._step.tokens[:n_tokens]
        if tokens.view(np.uint32).max(initial=0) >= self.n_vocab:       # negative ones are large ones there
            token = next(token for token in tokens.tolist() if not 0 <= token < self.n_vocab)
            raise RequestError(f"token {token} is not in the vocabulary; expected 0 to {self.n_vocab - 1:,}")
        if self._step.n_positions > self._n_positions:
            raise RequestError(f"position {self._step.n_positions - 1:,} is beyond the model's last one, "
                               f"{self._n_positions - 1:,}; take fewer tokens")

    def work(self, sequences: Sequence[StepSequence]) -> list[Work]:
        """What each entry of the tape has to read and compute in a step of `sequences`, without adapters."""
        return work_of(self.entries, self.weights, sequences, n_used=self.plan.n_used, cache_types=self._kv.types)

    def trace(self, sequences: Sequence[StepSequence]) -> StepTrace:
        """Runs a step as `forward` does, without adapters, and tells when each thread was at each entry of the tape."""
        cycles = np.zeros((len(self.entries), self.team.n_threads, 2), np.int64)
        begin_s = time.perf_counter()
        self._prepare(sequences)
        tape_s = time.perf_counter()
        self.team.run(self._tape.whole, self._step.address, cycles)
        end_s = time.perf_counter()
        return StepTrace(self.work(sequences), cycles, begin_s, tape_s, end_s)

    def kv_identity(self) -> KVIdentity:
        """See Backend.kv_identity."""
        path = numeric_path(self._kernels, self.plan.rope_tables)
        return KVIdentity(self._gguf.fingerprint, path, self._kv.types)

    def copy_page(self, group: int, source: int, target: int) -> None:
        """See Backend.copy_page."""
        self._kv.copy_page(group, source, target)

    def page_bytes(self, group: int) -> int:
        """See Backend.page_bytes."""
        return self._kv.page_bytes(group)

    def read_page(self, group: int, page: int) -> bytes:
        """See Backend.read_page."""
        return self._kv.read_page(group, page)

    def write_page(self, group: int, page: int, data: bytes) -> None:
        """See Backend.write_page."""
        self._kv.write_page(group, page, data)

    def close(self) -> None:
        """Ends the threads; the backend is of no use afterwards."""
        self.team.close()

    def _scratch_stride(self) -> int:
        """Bytes of work memory a thread needs: a linear's sums and mapped weights, attention's tiles, or routing."""
        mapped = max((self.weights.matrix(tensor).packing.mapped_scratch_bytes(tensor.shape[-1])
                     for tensor in _matrices(self.plan) if self.weights.matrix(tensor).mapped), default=0)
        attention = max((attention_scratch_bytes(op) for op in self.plan.attentions), default=0)
        routing = max((ROUTE_SCRATCH_BYTES * task.op.inputs[0].width for task in self.plan.tasks
                       if isinstance(task.op, Route)), default=0)
        return aligned(max(LINEAR_BYTES + mapped, attention, routing, 4 * self._adapters.max_rank), 4096)


def _matrices(plan: Plan) -> list[TensorInfo]:
    return [task.op.weight for task in plan.tasks if isinstance(task.op, Linear | ExpertLinear)]


def _stays_mapped(repack: Repack, matrices: list[TensorInfo], float32: bool) -> bool:
    """Whether quantised weights are read where the file has them."""
    if repack != "auto":
        return repack == "off"
    needed, available = packed_bytes(matrices, float32=float32), available_memory_bytes()
    if available is None or needed <= MEMORY_SHARE * available:
        return False
    logger.warning("packed weights need %.1f GB and %.1f GB are available: they are read from the file, which is "
                   "slower (repack \"on\" packs them anyway)", needed / 1e9, available / 1e9)
    return True


def _key_offsets(plan: Plan, cache_type_k: KVType) -> dict[int, npt.NDArray[np.float32]]:
    """What is taken off the keys of each layer: those of q8_0, where they have a bias."""
    if cache_type_k != "q8_0":
        return {}
    offsets = ((op.layer, key_offset(op)) for op in plan.attentions)
    return {layer: offset for layer, offset in offsets if offset is not None}


def _pages_of_groups(n_pages: int | Sequence[int], n_groups: int) -> tuple[int, ...]:
    """Pages of each group's pool. Raises ConfigError unless there is a number of 1 or more for each."""
    pages = (n_pages,) * n_groups if isinstance(n_pages, int) else tuple(n_pages)
    if len(pages) != n_groups or min(pages) < 1:
        raise ConfigError(f"n_pages={n_pages}: the model has {n_groups} KV groups; expected 1 or more pages for each")
    return pages
