"""Lowering: from a model's graph to a plan, by fusing, ordering and placing in memory.

Three fusions: an addition to the result of a linear becomes that linear's residual; the int8 form of a value is made by
whoever makes the value, once for all who read it; what nobody reads is dropped. Tasks that depend on nothing newer are
brought together, so that q, k and v (or gate and up) run without a barrier between them.
"""

from collections import Counter
from collections.abc import Callable

from ggpy.gguf import TensorInfo
from ggpy.graph.memory import place_buffers, set_barriers
from ggpy.graph.ops import (
    Activation,
    Add,
    Attention,
    Embed,
    ExpertLinear,
    ExpertSum,
    Graph,
    LayerNorm,
    Linear,
    Op,
    RmsNorm,
    Rope,
    Route,
    RowKind,
)
from ggpy.graph.plan import (
    ROUTING_BYTES,
    Buffer,
    Int8Buffer,
    Plan,
    Quantize,
    QuantizeSlots,
    RoutingBuffer,
    Task,
    int8_buffer,
)

MAKES_INT8 = (RmsNorm, LayerNorm, Activation, Attention)      # operations that can leave their value in int8 as well


def lower(graph: Graph, *, wants_int8: Callable[[TensorInfo], bool], max_tokens: int, max_outputs: int) -> Plan:
    """The plan of `graph` for steps of up to `max_tokens` rows and `max_outputs` outputs.

    `wants_int8` says whether a linear with this weight reads int8 activations on the device at hand.
    """
    lowering = _Lowering(graph, wants_int8)
    plan = Plan(tasks=lowering.tasks(), embeds=lowering.embeds,
                outputs={kind: lowering.values[op] for kind, op in graph.outputs.items()},
                rope_tables=list(dict.fromkeys(op.table for op in lowering.live if isinstance(op, Rope))),
                attentions=[op for op in lowering.live if isinstance(op, Attention)])
    plan.n_used = max((op.n_used for op in lowering.live if isinstance(op, Route)), default=1)
    capacity: dict[RowKind, int] = {
        "tokens": max_tokens, "outputs": max_outputs, "slots": max_tokens * plan.n_used}
    place_buffers(plan, capacity)
    set_barriers(plan, capacity)
    return plan


class _Lowering:
    """One lowering: which operations live, which are fused away, and the buffer of each value."""

    def __init__(self, graph: Graph, wants_int8: Callable[[TensorInfo], bool]) -> None:
        self.wants_int8 = wants_int8
        self.live = _reachable(graph)
        self.n_readers = Counter(source for op in self.live for source in op.inputs)
        self.n_readers.update(graph.outputs.values())
        self.residual_of: dict[Op, Op] = {}         # linear -> what is added to it
        self.fused_into: dict[Op, Op] = {}          # addition -> the linear that does it
        self._fuse_residuals()
        self.values: dict[Op, Buffer] = {}
        self.int8: dict[Op, Int8Buffer] = {}
        self.slot_int8: dict[tuple[Op, Op], Int8Buffer] = {}
        self.routing: dict[Op, RoutingBuffer] = {}
        self.embeds: list[tuple[Embed, Buffer]] = []

    def _fuse_residuals(self) -> None:
        for op in self.live:
            if not isinstance(op, Add):
                continue
            for linear, other in (op.inputs[::-1], op.inputs):
                if isinstance(linear, Linear) and self.n_readers[linear] == 1 and linear not in self.residual_of:
                    self.residual_of[linear], self.fused_into[op] = other, linear
                    break

    def tasks(self) -> list[Task]:
        tasks: list[Task] = []
        for op in self._in_order():
            if isinstance(op, Embed):
                self.values[op] = Buffer(rows="tokens", row_bytes=op.width * 4)
                self.embeds.append((op, self.values[op]))
            elif op in self.fused_into:
                self.values[op] = self.values[self.fused_into[op]]
            else:
                tasks += self._preparation(op)
                tasks.append(self._task(op))
        return tasks

    def _in_order(self) -> list[Op]:
        """Live operations by depth: first what needs nothing, then what needs only that, ...

        A linear with a residual counts as deep as the addition that it does.
        """
        depth: dict[Op, int] = {}
        for op in self.live:
            sources = [*op.inputs, *([self.residual_of[op]] if self._residual_is_ready(op, depth) else [])]
            depth[op] = max((depth[source] + 1 for source in sources), default=0)
        return sorted(self.live, key=lambda op: depth[op])

    def _residual_is_ready(self, op: Op, depth: dict[Op, int]) -> bool:
        """Whether op's residual, if any, is made before it; else the addition is not fused after all."""
        if op not in self.residual_of:
            return False
        if self.residual_of[op] in depth:
            return True
        del self.residual_of[op]
        self.fused_into = {add: linear for add, linear in self.fused_into.items() if linear is not op}
        return False

    def _reads_int8(self, op: Op) -> bool:
        return isinstance(op, Linear | ExpertLinear) and self.wants_int8(op.weight)

    def _preparation(self, op: Op) -> list[Task]:
        """The tasks that bring op's input into int8, where its maker has not done so."""
        if not self._reads_int8(op):
            return []
        x = op.inputs[0]
        if isinstance(op, ExpertLinear):
            key = (x, op.inputs[1])
            if key in self.slot_int8:
                return []
            self.slot_int8[key] = out = int8_buffer("slots", x.width)
            quantize = QuantizeSlots(inputs=key, width=x.width, rows="slots")
            return [Task(op=quantize, inputs=(self.values[x], self.values[key[1]]), out=out,
                         routing=self.routing[key[1]])]
        if x in self.int8:
            return []
        self.int8[x] = out = int8_buffer(x.rows, x.width)
        return [Task(op=Quantize(inputs=(x,), width=x.width, rows=x.rows), inputs=(self.values[x],), out=out)]

    def _task(self, op: Op) -> Task:
        out = self.values[op] = Buffer(rows=op.rows, row_bytes=op.width * 4)
        task = Task(op=op, inputs=tuple(self.values[source] for source in op.inputs), out=out)
        if isinstance(op, MAKES_INT8) and any(
                self._reads_int8(reader) and isinstance(reader, Linear) and reader.inputs[0] is op
                for reader in self.live):
            task.int8_out = self.int8[op] = int8_buffer(op.rows, op.width)
        if isinstance(op, Route):
            self.routing[op] = RoutingBuffer(rows="slots", row_bytes=ROUTING_BYTES)
        if isinstance(op, Route | ExpertLinear | ExpertSum):
            route = op if isinstance(op, Route) else op.inputs[1]
            task.routing = self.routing[route]
        if self._reads_int8(op):
            task.int8_in = (self.int8[op.inputs[0]] if isinstance(op, Linear)
                            else self.slot_int8[op.inputs[0], op.inputs[1]])
        if op in self.residual_of:
            task.residual = self.values[self.residual_of[op]]
        return task


def _reachable(graph: Graph) -> list[Op]:
    """The nodes that some output needs, in the order in which they were built."""
    needed: set[Op] = set()
    stack = list(graph.outputs.values())
    while stack:
        op = stack.pop()
        if op not in needed:
            needed.add(op)
            stack += op.inputs
    return [op for op in graph.nodes if op in needed]
