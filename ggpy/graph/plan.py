"""A plan: the tasks of a forward pass in order, with the memory each one reads and writes. No device is named here.

A task is one operation after fusion. Values live in one *arena*; a buffer holds one value, as float32 or as the int8
form that integer dot products read, for as many rows as a step may have.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ggpy.graph.ops import Attention, Embed, Op, RopeTable, Route, RowKind

ALIGNMENT = 64
ROUTING_BYTES = 40      # per slot: its expert and its place by expert (int32), a chunk (3 int64), 8 bytes to spare


@dataclass(frozen=True, eq=False, kw_only=True)
class Buffer:
    """Room for one value: `row_bytes` for each row of its kind."""

    rows: RowKind
    row_bytes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Int8Buffer(Buffer):
    """The int8 form of a value `width` wide: `n_blocks` blocks of 32, padded with zeros to an even number."""

    width: int
    n_blocks: int


@dataclass(frozen=True, eq=False, kw_only=True)
class RoutingBuffer(Buffer):
    """Which expert each slot goes to, and the slots in order of expert; the backend lays it out."""


@dataclass(eq=False, kw_only=True)
class Task:
    """One fused operation.

    `inputs` follow the inputs of `op`; where the operation reads the int8 form of its first input, `int8_in` is that
    form. The value goes to `out`, and also to `int8_out` if some consumer wants it so. A Linear adds `residual`, if
    given, to its result. `barrier` says that the next task must see all of this one's results.
    """

    op: Op
    inputs: tuple[Buffer, ...]
    out: Buffer
    int8_in: Int8Buffer | None = None
    int8_out: Int8Buffer | None = None
    residual: Buffer | None = None
    routing: RoutingBuffer | None = None
    barrier: bool = True

    def reads(self) -> tuple[Buffer, ...]:
        """Everything that the task reads; its float inputs count even where only the int8 form is used."""
        routing = None if isinstance(self.op, Route) else self.routing
        extra = (self.int8_in, self.residual, routing)
        return (*self.inputs, *(buffer for buffer in extra if buffer is not None))

    def writes(self) -> tuple[Buffer, ...]:
        """Everything that the task writes; a Route makes the routing that others read."""
        routing = self.routing if isinstance(self.op, Route) else None
        return (self.out, *(buffer for buffer in (self.int8_out, routing) if buffer is not None))


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantize(Op):
    """Makes the int8 form of inputs[0]; lowering adds it where the producer cannot do so itself."""


@dataclass(frozen=True, eq=False, kw_only=True)
class QuantizeSlots(Op):
    """Makes the int8 form of inputs[0] in order of expert; inputs are (x, route)."""


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that share one page table, because they see the same positions."""

    window: int | None
    """How many positions a token sees, itself included; None: all before it."""
    layers: tuple[int, ...]


def kv_groups(attentions: Iterable[Attention]) -> tuple[KVGroup, ...]:
    """The groups of a model's layers: those of full attention first, if there are any, then the smallest window."""
    layers: dict[int | None, list[int]] = {}
    for op in attentions:
        layers.setdefault(op.window, []).append(op.layer)
    return tuple(KVGroup(window, tuple(layers[window])) for window in sorted(layers, key=lambda w: w or 0))


@dataclass(eq=False, kw_only=True)
class Plan:
    """What a backend encodes. `offsets` places each buffer in an arena of `arena_bytes`."""

    tasks: list[Task]
    embeds: list[tuple[Embed, Buffer]]
    outputs: dict[str, Buffer]
    rope_tables: list[RopeTable]
    attentions: list[Attention]
    n_used: int = 1                         # experts that a token uses
    offsets: dict[Buffer, int] = field(default_factory=dict)
    arena_bytes: int = 0

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        return kv_groups(self.attentions)


def int8_buffer(rows: RowKind, width: int) -> Int8Buffer:
    """Room for q (1 byte a value), and da, ys (float32) and n16 (2 int32) of each block of 32."""
    n_blocks = (width + 63) // 64 * 2
    return Int8Buffer(rows=rows, row_bytes=n_blocks * 48, width=width, n_blocks=n_blocks)
