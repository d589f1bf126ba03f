"""From a plan to a tape: which kernel runs each task, and its argument block."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from ggpy.backends.cpu.adapters import AdapterMemory
from ggpy.backends.cpu.kv_pools import KVPools
from ggpy.backends.cpu.step import RopeMemory
from ggpy.backends.cpu.weights import WeightStore
from ggpy.graph.ops import (
    Activation,
    Add,
    Attention,
    EmbedIndex,
    ExpertLinear,
    ExpertSum,
    LayerNorm,
    Linear,
    Op,
    RmsNorm,
    Rope,
    RopeTable,
    Route,
    RowKind,
    Scale,
    Softcap,
    Softmax,
    TakeOutputs,
)
from ggpy.graph.plan import Buffer, Int8Buffer, Plan, Quantize, QuantizeSlots, RoutingBuffer, Task
from ggpy.kernels.cpu import arguments
from ggpy.kernels.cpu.arguments import EMBED, argument_block
from ggpy.kernels.cpu.attention_memory import attention_items
from ggpy.kernels.cpu.packing import embed_kernel
from ggpy.kernels.cpu.step import STEP

ROWS = {"tokens": STEP.n_tokens, "outputs": STEP.n_outputs, "slots": STEP.n_slots}
INDEX: dict[EmbedIndex, int] = {"token": STEP.tokens, "position": STEP.positions, "none": 0}
KernelCalls = list[tuple[str, Any, dict[str, int | float]]]      # kernel, layout of its arguments, their values
LOW_RANK_KERNEL = "low_rank.add"
NO_INT8 = {"q": 0, "da": 0, "ys": 0, "n16": 0, "n_blocks": 0}
MAX_ITEMS_PER_THREAD = 4
ITEM_BYTES = 128 * 1024     # of weights; reading these takes longer than claiming an item by far


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a tape before it is bound to addresses; `op` is what it does, for tracing.

    It is shared out in `n_items` parts, 0: one for each thread.
    """

    kernel: str
    block: npt.NDArray[np.int64]
    op: Op
    barrier: bool = True
    n_items: int = 0


@dataclass(kw_only=True)
class Encoder:
    """What the argument blocks point to: the arena, the weights, KV pools and work memory."""

    plan: Plan
    arena: int
    capacity: Mapping[RowKind, int]
    weights: WeightStore
    kv: KVPools
    key_offsets: Mapping[int, npt.NDArray[np.float32]]
    rope: Mapping[RopeTable, RopeMemory]
    partials: int
    n_threads: int
    adapters: AdapterMemory

    def encode(self, *, with_adapters: bool = False) -> list[Entry]:
        """The tape's entries in order, those of low-rank adapters among them only if they are wanted.

        Where adapters add to embeddings, these are there before the tape runs.
        """
        entries = [] if with_adapters and self.adapters.has_embeddings else self._embeds()
        return entries + [entry for task in self.plan.tasks for entry in self._entries(task, with_adapters)]

    def _embeds(self) -> list[Entry]:
        """The embeddings that kernels look up."""
        entries = []
        for op, buffer in self.plan.embeds:
            kernel = embed_kernel(op.weight)
            if kernel is not None:
                entries.append(Entry(kernel, argument_block(
                    EMBED, weight=int(op.weight.data.ctypes.data), row_bytes=op.weight.row_bytes, width=op.width,
                    index=INDEX[op.index], scale=float(op.scale), out=self.address(buffer)), op))
        return entries

    def _entries(self, task: Task, with_adapters: bool) -> list[Entry]:
        """The entries of one task: a barrier after each but the last, where the plan decides."""
        parts: KernelCalls = self._task(task.op, task)
        if with_adapters and isinstance(task.op, Linear):
            parts += self._low_rank(task.op, task)
        n_items = 0
        if isinstance(task.op, Linear | ExpertLinear):
            n_items = n_items_of(task.op.weight.size_bytes, self.n_threads)
        elif isinstance(task.op, Attention):
            n_items = attention_items(self.n_threads)
        return [Entry(name, argument_block(layout, **values), task.op, task.barrier or i + 1 < len(parts), n_items)
                for i, (name, layout, values) in enumerate(parts)]

    def address(self, buffer: Buffer) -> int:
        return self.arena + self.plan.offsets[buffer]

    def int8(self, buffer: Int8Buffer | None) -> dict[str, int]:
        """The five int8 fields of a kernel that reads or makes `buffer`."""
        if buffer is None:
            return NO_INT8
        n_blocks = self.capacity[buffer.rows] * buffer.n_blocks
        q = self.address(buffer)
        return {"q": q, "da": q + n_blocks * 32, "ys": q + n_blocks * 36, "n16": q + n_blocks * 40,
                "n_blocks": buffer.n_blocks}

    def _routing(self, buffer: RoutingBuffer | None) -> dict[str, int]:
        assert buffer is not None
        base, n_slots = self.address(buffer), self.capacity["slots"]
        chunks = base + n_slots * 8
        return {"experts": base, "slot_order": base + n_slots * 4, "chunks": chunks, "n_chunks": chunks + n_slots * 24}

    def _key_offset(self, layer: int) -> int:
        """Address of what is taken off a layer's keys; 0: nothing."""
        return int(self.key_offsets[layer].ctypes.data) if layer in self.key_offsets else 0

    @singledispatchmethod
    def _task(self, op: Op, task: Task) -> KernelCalls:
        raise TypeError(f"no kernel for {type(op).__name__}")

    @_task.register
    def _quantize(self, op: Quantize, task: Task) -> KernelCalls:
        assert isinstance(task.out, Int8Buffer)
        return [("quantize.quantize", arguments.QUANTIZE, {
            "x": self.address(task.inputs[0]), **self.int8(task.out), "n_filled": op.width // 32,
            "n_rows": ROWS[op.rows]})]

    @_task.register
    def _rms_norm(self, op: RmsNorm, task: Task) -> KernelCalls:
        part = op.width // op.groups
        shared = op.weight is None or op.weight.n_elements == part
        return [("norm.rms", arguments.RMS_NORM, {
            "x": self.address(task.inputs[0]), "weight": self.weights.vector(op.weight),
            "weight_stride": 0 if shared else part, "groups": op.groups, "eps": float(op.eps), "width": op.width,
            "out": self.address(task.out), **self.int8(task.int8_out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _layer_norm(self, op: LayerNorm, task: Task) -> KernelCalls:
        return [("norm.layer", arguments.LAYER_NORM, {
            "x": self.address(task.inputs[0]), "weight": self.weights.vector(op.weight),
            "bias": self.weights.vector(op.bias), "groups": op.groups, "eps": float(op.eps), "width": op.width,
            "out": self.address(task.out), **self.int8(task.int8_out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _linear(self, op: Linear, task: Task) -> KernelCalls:
        weight = self.weights.matrix(op.weight)
        values: dict[str, int | float] = {
            "weight": weight.address, "n_out": weight.n_out, "out": self.address(task.out),
            "group_bytes": weight.packing.group_bytes(weight.n_in),
            "bias": self.weights.vector(op.bias), "n_rows": ROWS[op.rows],
            "residual": self.address(task.residual) if task.residual is not None else 0}
        module = weight.packing.module
        if not weight.packing.int8:
            return [(f"{module}.linear", arguments.FLOAT_LINEAR,
                     {**values, "x": self.address(task.inputs[0]), "n_in": weight.n_in})]
        values |= self.int8(task.int8_in)
        if weight.mapped:
            return [(f"{module}.mapped_linear", arguments.MAPPED_LINEAR,
                     {**values, "n_in": weight.n_in, "row_bytes": weight.row_bytes})]
        return [(f"{module}.linear", arguments.LINEAR, values)]

    def _low_rank(self, op: Linear, task: Task) -> KernelCalls:
        """What adapters add to the product."""
        terms = self.adapters.terms(op.weight.name)
        if not terms:
            return []
        return [(LOW_RANK_KERNEL, arguments.LOW_RANK, {
            "x": self.address(task.inputs[0]), "n_in": op.inputs[0].width, "out": self.address(task.out),
            "n_out": op.width, "terms": terms, "n_adapters": self.adapters.n_adapters,
            "scales": int(self.adapters.scales.ctypes.data), "row_is_output": int(op.rows == "outputs"),
            "n_rows": ROWS[op.rows]})]

    @_task.register
    def _rope(self, op: Rope, task: Task) -> KernelCalls:
        memory = self.rope[op.table]
        return [(f"rope.{op.pairing}", arguments.ROPE, {
            "x": self.address(task.inputs[0]), "n_head": op.n_head, "head_dim": op.head_dim,
            "n_rot": 2 * len(op.table.inv_freq), "cos": int(memory.cos.ctypes.data),
            "sin": int(memory.sin.ctypes.data), "out": self.address(task.out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _attention(self, op: Attention, task: Task) -> KernelCalls:
        q, k, v = (self.address(buffer) for buffer in task.inputs)
        heads = {"n_head_kv": op.n_head_kv, "head_dim_k": op.head_dim_k, "head_dim_v": op.head_dim_v}
        pages = self.kv.addresses(op.layer)
        store: dict[str, int | float] = {
            "k": k, "v": v, **pages, "k_offset": self._key_offset(op.layer), **heads}
        attend: dict[str, int | float] = {
            "x": q, **pages, "n_head": op.n_head, **heads, "scale": float(op.scale), "window": op.window or 0,
            "softcap": float(op.softcap or 0.0), "causal": int(op.causal), "alibi": self.weights.numbers(op.alibi),
            "sinks": self.weights.vector(op.sinks), "partials": self.partials, "out": self.address(task.out),
            **self.int8(task.int8_out)}
        types = "_".join(self.kv.types)
        return [(f"kv_store.store_{types}", arguments.KV_STORE, store),
                (f"attention.attend_{types}", arguments.ATTENTION, attend),
                ("attention.combine", arguments.ATTENTION, attend)]

    @_task.register
    def _activation(self, op: Activation, task: Task) -> KernelCalls:
        x, up = (*(self.address(buffer) for buffer in task.inputs), 0)[:2]
        return [(f"activation.{op.kind}", arguments.ACTIVATION, {
            "x": x, "up": up, "width": op.width, "out": self.address(task.out), **self.int8(task.int8_out),
            "n_rows": ROWS[op.rows]})]

    @_task.register
    def _add(self, op: Add, task: Task) -> KernelCalls:
        a, b = (self.address(buffer) for buffer in task.inputs)
        return [("elementwise.add", arguments.ADD, {
            "a": a, "b": b, "width": op.width, "out": self.address(task.out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _scale(self, op: Scale, task: Task) -> KernelCalls:
        return [("elementwise.scale", arguments.SCALE, {
            "x": self.address(task.inputs[0]), "factor": float(op.factor), "width": op.width,
            "out": self.address(task.out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _softcap(self, op: Softcap, task: Task) -> KernelCalls:
        return [("elementwise.softcap", arguments.SOFTCAP, {
            "x": self.address(task.inputs[0]), "cap": float(op.cap), "width": op.width,
            "out": self.address(task.out), "n_rows": ROWS[op.rows]})]

    @_task.register
    def _softmax(self, op: Softmax, task: Task) -> KernelCalls:
        return [("elementwise.softmax", arguments.SOFTMAX, {
            "x": self.address(task.inputs[0]), "width": op.width, "out": self.address(task.out),
            "n_rows": ROWS[op.rows]})]

    @_task.register
    def _take_outputs(self, op: TakeOutputs, task: Task) -> KernelCalls:
        return [("elementwise.take_rows", arguments.TAKE_ROWS, {
            "x": self.address(task.inputs[0]), "width": op.width, "out": self.address(task.out)})]

    @_task.register
    def _route(self, op: Route, task: Task) -> KernelCalls:
        values: dict[str, int | float] = {
            "logits": self.address(task.inputs[0]), "n_expert": op.inputs[0].width, "n_used": op.n_used,
            "normalise": int(op.normalise), "scale": float(op.scale), "bias": self.weights.vector(op.selection_bias),
            "out": self.address(task.out), **self._routing(task.routing), "n_rows": ROWS[op.rows]}
        return [(f"experts.route_{op.scoring}", arguments.ROUTE, values), ("experts.arrange", arguments.ROUTE, values)]

    @_task.register
    def _quantize_slots(self, op: QuantizeSlots, task: Task) -> KernelCalls:
        assert isinstance(task.out, Int8Buffer)
        return [("experts.quantize", arguments.EXPERT_QUANTIZE, {
            "x": self.address(task.inputs[0]), "x_per_slot": int(task.inputs[0].rows == "slots"),
            "n_used": _n_used(op), **self.int8(task.out), "n_filled": op.width // 32, **self._routing(task.routing),
            "n_rows": STEP.n_tokens})]

    @_task.register
    def _expert_linear(self, op: ExpertLinear, task: Task) -> KernelCalls:
        weight = self.weights.matrix(op.weight)
        values: dict[str, int | float] = {
            "weight": weight.address, "expert_bytes": weight.expert_bytes, "n_out": weight.n_out,
            "group_bytes": weight.packing.group_bytes(weight.n_in), "n_used": _n_used(op),
            "out": self.address(task.out), "bias": self.weights.vector(op.bias), **self._routing(task.routing),
            "n_rows": STEP.n_tokens}
        if weight.packing.int8:
            return [(f"{weight.packing.module}.expert_linear", arguments.EXPERT_LINEAR,
                     {**values, **self.int8(task.int8_in)})]
        return [(f"{weight.packing.module}.expert_linear", arguments.EXPERT_FLOAT_LINEAR,
                 {**values, "x": self.address(task.inputs[0]), "x_per_slot": int(task.inputs[0].rows == "slots"),
                  "n_in": weight.n_in})]

    @_task.register
    def _expert_sum(self, op: ExpertSum, task: Task) -> KernelCalls:
        slots, weights = (self.address(buffer) for buffer in task.inputs)
        return [("experts.sum", arguments.EXPERT_SUM, {
            "slots": slots, "weights": weights, "n_used": _n_used(op), "width": op.width,
            "out": self.address(task.out), "n_rows": ROWS[op.rows]})]


def n_items_of(weight_bytes: int, n_threads: int) -> int:
    """In how many items a product is shared out: several for each thread, so that a slow one does fewer of them."""
    if n_threads == 1:
        return 1
    return n_threads * min(MAX_ITEMS_PER_THREAD, max(1, weight_bytes // (ITEM_BYTES * n_threads)))


def _n_used(op: Op) -> int:
    route = op.inputs[1]
    assert isinstance(route, Route)
    return route.n_used
