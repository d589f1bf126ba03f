"""Lowering a graph: what is fused, what is dropped, what shares memory, where threads meet."""

import itertools

import numpy as np
import pytest

from ggpy.gguf import TensorInfo, TensorType
from ggpy.graph.lower import lower
from ggpy.graph.memory import size_bytes
from ggpy.graph.ops import Activation, Add, Attention, Graph, Linear, Op, RmsNorm, RowKind
from ggpy.graph.plan import Buffer, Plan, Quantize

CAPACITY: dict[RowKind, int] = {"tokens": 8, "outputs": 2, "slots": 8}


def weight(name: str, *shape: int, kind: TensorType = TensorType.Q8_0) -> TensorInfo:
    return TensorInfo(name, kind, shape, 0, 0, np.zeros(0, np.uint8))


def lowered(graph: Graph) -> Plan:
    return lower(graph, wants_int8=lambda tensor: tensor.type is TensorType.Q8_0, max_tokens=8, max_outputs=2)


def decoder(n_layer: int = 2) -> Graph:
    """A small pre-norm decoder of width 64 with 2 heads."""
    g = Graph()
    x: Op = g.embed(weight("token_embd", 100, 64))
    norm = weight("norm", 64, kind=TensorType.F32)
    for layer in range(n_layer):
        h = g.rms_norm(x, norm, 1e-5)
        q, k, v = (g.linear(h, weight(f"{name}.{layer}", 64, 64)) for name in "qkv")
        a = g.attention(q, k, v, layer=layer, n_head=2, n_head_kv=2, scale=1.0)
        x = g.add(x, g.linear(a, weight(f"o.{layer}", 64, 64)))
        h = g.rms_norm(x, norm, 1e-5)
        gate, up = (g.linear(h, weight(f"{name}.{layer}", 128, 64)) for name in ("gate", "up"))
        x = g.add(x, g.linear(g.activation("silu", gate, up), weight(f"down.{layer}", 64, 128)))
    g.output("logits", g.linear(g.rms_norm(g.take_outputs(x), norm, 1e-5), weight("output", 100, 64)))
    return g


def names(plan: Plan) -> list[str]:
    return [type(task.op).__name__ for task in plan.tasks]


def test_residual_additions_become_part_of_their_linear() -> None:
    """No Add is left, and the linear after attention and the last of the feed-forward carry a residual."""
    plan = lowered(decoder())
    assert Add.__name__ not in names(plan)
    carriers = [task.op.weight.name for task in plan.tasks if isinstance(task.op, Linear) and task.residual]
    assert carriers == ["o.0", "down.0", "o.1", "down.1"]


def test_int8_form_is_made_by_the_producer_once_for_all_readers() -> None:
    """Norms, attention and the activation quantise; q, k and v read the same int8 form; no Quantize task is needed."""
    plan = lowered(decoder())
    assert Quantize.__name__ not in names(plan)
    producers = [task for task in plan.tasks if isinstance(task.op, RmsNorm | Attention | Activation)]
    assert all(task.int8_out is not None for task in producers)
    q, k, v = (next(t for t in plan.tasks if isinstance(t.op, Linear) and t.op.weight.name == f"{n}.0") for n in "qkv")
    assert q.int8_in is k.int8_in is v.int8_in is plan.tasks[0].int8_out


def test_float_weights_read_floats() -> None:
    """A linear with a float32 weight gets no int8 input, and its producer makes none."""
    g = Graph()
    x = g.rms_norm(g.embed(weight("e", 10, 64)), None, 1e-5)
    g.output("logits", g.linear(x, weight("w", 10, 64, kind=TensorType.F32)))
    norm, linear = lowered(g).tasks
    assert norm.int8_out is None
    assert linear.int8_in is None


def test_value_without_a_quantising_producer_gets_a_quantize_task() -> None:
    """An embedding that goes straight into an int8 linear is quantised by a task of its own."""
    g = Graph()
    g.output("logits", g.linear(g.embed(weight("e", 10, 64)), weight("w", 10, 64)))
    assert names(lowered(g)) == ["Quantize", "Linear"]


def test_int8_rows_are_padded_to_pairs_of_blocks() -> None:
    """96 values are three blocks of 32, which take the room of four."""
    g = Graph()
    g.output("logits", g.linear(g.embed(weight("e", 10, 96)), weight("w", 10, 96)))
    quantize = lowered(g).tasks[0]
    assert quantize.out.row_bytes == 4 * (32 + 4 + 4 + 8)


def test_what_no_output_needs_is_dropped() -> None:
    """A branch that ends nowhere leaves no task."""
    g = Graph()
    x = g.embed(weight("e", 10, 64))
    g.rms_norm(x, None, 1e-5)
    g.output("logits", g.scale(x, 2.0))
    assert names(lowered(g)) == ["Scale"]


def test_addition_of_a_value_used_twice_is_not_fused() -> None:
    """If something else reads the linear's own result, the addition stays an operation."""
    g = Graph()
    x = g.embed(weight("e", 10, 64))
    y = g.linear(x, weight("w", 64, 64))
    g.output("logits", g.add(g.add(x, y), y))
    assert names(lowered(g)).count("Add") == 2


def test_routing_is_something_that_its_route_writes() -> None:
    """What brings slots in order of expert reads the routing, so it runs after a barrier behind the route."""
    g = Graph()
    x = g.embed(weight("e", 10, 64))
    route = g.route(g.linear(x, weight("gate", 4, 64, kind=TensorType.F32)), 2)
    slots = g.expert_linear(x, route, weight("up", 4, 64, 64))
    g.output("logits", g.expert_sum(slots, route))
    plan = lowered(g)
    router = next(task for task in plan.tasks if task.op is route)
    assert router.routing in router.writes()
    assert router.routing not in router.reads()
    assert router.barrier


@pytest.mark.parametrize("n_layer", [1, 2, 5])
def test_buffers_in_use_together_never_overlap(n_layer: int) -> None:
    """At each task, everything that is still to be read stands apart in memory."""
    plan = lowered(decoder(n_layer))
    last_use: dict[Buffer, int] = {}
    first_use: dict[Buffer, int] = {buffer: -1 for _, buffer in plan.embeds}
    for i, task in enumerate(plan.tasks):
        for buffer in (*task.reads(), *task.writes()):
            first_use.setdefault(buffer, i)
            last_use[buffer] = i
    for buffer in plan.outputs.values():
        last_use[buffer] = len(plan.tasks)
    for a, b in itertools.combinations(last_use, 2):
        if first_use[a] <= last_use[b] and first_use[b] <= last_use[a]:
            a_end = plan.offsets[a] + size_bytes(a, CAPACITY)
            b_end = plan.offsets[b] + size_bytes(b, CAPACITY)
            assert a_end <= plan.offsets[b] or b_end <= plan.offsets[a]


def test_arena_does_not_grow_with_depth() -> None:
    """Layers reuse the memory of the layers before them."""
    assert lowered(decoder(2)).arena_bytes == lowered(decoder(8)).arena_bytes


def test_independent_linears_run_without_a_barrier_between() -> None:
    """Threads meet after v, not after q and k; after up, not after gate."""
    plan = lowered(decoder(1))
    barriers = {task.op.weight.name: task.barrier for task in plan.tasks if isinstance(task.op, Linear)}
    assert [barriers[f"{name}.0"] for name in ("q", "k", "v", "gate", "up")] == [False, False, True, False, True]


def test_every_dependency_crosses_a_barrier() -> None:
    """A task that reads what another wrote, or overwrites what another reads, runs after a barrier between the two."""
    plan = lowered(decoder(3))

    def ranges(buffers: tuple[Buffer, ...]) -> list[tuple[int, int]]:
        return [(plan.offsets[b], plan.offsets[b] + size_bytes(b, CAPACITY)) for b in buffers]

    def touch(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> bool:
        return any(s < e2 and s2 < e for s, e in a for s2, e2 in b)

    for i, j in itertools.combinations(range(len(plan.tasks)), 2):
        earlier, later = plan.tasks[i], plan.tasks[j]
        dependent = touch(ranges(earlier.writes()), ranges((*later.reads(), *later.writes()))) or touch(
            ranges(earlier.reads()), ranges(later.writes()))
        if dependent:
            assert any(task.barrier for task in plan.tasks[i:j])
