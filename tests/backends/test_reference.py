"""The meaning of each operation, on values small enough to check by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.backends.reference import evaluate
from ggpy.errors import RequestError
from ggpy.gguf import TensorInfo, TensorType
from ggpy.graph.ops import Graph, Op, RopeTable, Route


def tensor(values: object, name: str = "t") -> TensorInfo:
    """A float32 tensor in memory."""
    array = np.array(values, np.float32)
    return TensorInfo(name, TensorType.F32, array.shape, 0, 0, np.frombuffer(array.tobytes(), np.uint8))


def rows(g: Graph, values: list[list[float]]) -> Op:
    """A value whose row t is values[t], when the tokens are 0, 1, 2, ..."""
    return g.embed(tensor(values))


def run(g: Graph, x: Op, n: int) -> NDArray[np.float32]:
    """Value x for n tokens."""
    g.output("hidden", x)
    return evaluate(g, range(n))["hidden"]


def test_embedding_takes_rows_by_token_or_position() -> None:
    """Tokens 2, 0 take rows 2, 0; by position they take rows 0, 1, and by nothing row 0."""
    g, table = Graph(), tensor([[1], [2], [3]])
    g.output("logits", g.embed(table, scale=10))
    g.output("hidden", g.embed(table, index="position"))
    g.output("scores", g.embed(table, index="none"))
    out = evaluate(g, [2, 0])
    assert out["logits"].ravel().tolist() == [30, 10]
    assert out["hidden"].ravel().tolist() == [1, 2]
    assert out["scores"].ravel().tolist() == [1, 1]


@pytest.mark.parametrize("token", [3, -1])
def test_a_token_without_a_row_is_refused(token: int) -> None:
    """An id outside the table is an error, not another row."""
    g = Graph()
    g.output("logits", g.embed(tensor([[1], [2], [3]])))
    with pytest.raises(RequestError, match=r"token .* is out of range: t has 3 rows"):
        evaluate(g, [0, token])


def test_rms_norm_of_a_row_and_of_groups() -> None:
    """3, 4 have a mean square of 12.5; in groups of one every value becomes its sign."""
    g = Graph()
    x = rows(g, [[3, 4]])
    assert run(g, g.rms_norm(x, tensor([1, 10]), 0.0), 1)[0] == pytest.approx([3 / 12.5**0.5, 40 / 12.5**0.5])
    assert run(g, g.rms_norm(x, tensor([2]), 0.0, groups=2), 1)[0] == pytest.approx([2, 2])
    assert run(g, g.rms_norm(x, None, 12.5), 1)[0] == pytest.approx([3 / 5, 4 / 5])


def test_layer_norm_of_a_row_and_of_groups() -> None:
    """1, 3 have mean 2 and variance 1; each group has its own mean, variance and part of the weight."""
    g = Graph()
    x = rows(g, [[1, 3, 10, 30]])
    assert run(g, g.layer_norm(rows(g, [[1, 3]]), tensor([1, 2]), tensor([5, 5]), 0.0), 1)[0] == pytest.approx([4, 7])
    y = run(g, g.layer_norm(x, tensor([[1, 2], [3, 4]]), None, 0.0, groups=2), 1)
    assert y[0] == pytest.approx([-1, 2, -3, 4])


def test_linear_adds_its_bias() -> None:
    """x (2,) times weight (3, 2)."""
    g = Graph()
    y = run(g, g.linear(rows(g, [[1, 2]]), tensor([[1, 0], [0, 1], [1, 1]]), tensor([0, 0, 10])), 1)
    assert y.tolist() == [[1, 2, 13]]


def test_rope_is_interleaved_or_neox() -> None:
    """At position 1 the first pair turns by a quarter, the second stays; dims beyond the table are left alone."""
    table = RopeTable(inv_freq=np.array([math.pi / 2, 0.0]))
    for pairing, expected in (("interleaved", [-2, 1, 3, 4, 5]), ("neox", [-3, 2, 1, 4, 5])):
        g = Graph()
        x = rows(g, [[0, 0, 0, 0, 0], [1, 2, 3, 4, 5]])
        y = run(g, g.rope(x, table, 1, pairing), 2)      # type: ignore[arg-type]
        assert y[1] == pytest.approx(expected, abs=1e-6)


def test_rope_temperature_grows_with_position() -> None:
    """With a period of 2, positions 0 and 1 keep their length, 2 and 3 grow by 1 + ln 2."""
    table = RopeTable(inv_freq=np.zeros(1), magnitude=3.0, temperature=1.0, temperature_period=2)
    g = Graph()
    y = run(g, g.rope(rows(g, [[1, 0]] * 4), table, 1, "neox"), 4)
    assert y[:, 0] == pytest.approx([3, 3, 3 * (1 + math.log(2)), 3 * (1 + math.log(2))])


def attend(scores: list[float], **options: object) -> NDArray[np.float32]:
    """Attention of one head: key j scores scores[j] at every row, value j is one-hot, so rows come out as weights."""
    g, n = Graph(), len(scores)
    q, k, v = rows(g, [[1.0]] * n), rows(g, [[s] for s in scores]), rows(g, np.eye(n).tolist())
    return run(g, g.attention(q, k, v, layer=0, n_head=1, n_head_kv=1, scale=1.0, **options), n)  # type: ignore[arg-type]


def test_attention_is_causal() -> None:
    """Row i weighs keys 0 to i by the softmax of their scores."""
    assert attend([0.0, math.log(3), 0.0]) == pytest.approx(
        np.array([[1, 0, 0], [1 / 4, 3 / 4, 0], [1 / 5, 3 / 5, 1 / 5]]))


def test_attention_without_causality_sees_what_comes_after_a_row() -> None:
    """Every row weighs all keys alike."""
    assert attend([0.0, math.log(3), 0.0], causal=False) == pytest.approx(np.array([[1 / 5, 3 / 5, 1 / 5]] * 3))


def test_alibi_takes_the_distance_off_scores() -> None:
    """With a slope of ln 2 each position of distance halves a weight, in both directions."""
    slopes = (math.log(2),)
    assert attend([0.0] * 3, alibi=slopes)[2] == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert attend([0.0] * 3, alibi=slopes, causal=False)[1] == pytest.approx([1 / 4, 1 / 2, 1 / 4])


def test_attention_window_counts_the_row_itself() -> None:
    """A window of 2 leaves the row and the one before it."""
    assert attend([0.0] * 4, window=2) == pytest.approx(
        np.array([[1, 0, 0, 0], [.5, .5, 0, 0], [0, .5, .5, 0], [0, 0, .5, .5]]))


def test_attention_softcap_bounds_scores() -> None:
    """A score of 1000 becomes the cap."""
    assert attend([0.0, 1000.0], softcap=math.log(3))[1] == pytest.approx([1 / 4, 3 / 4])


def test_attention_sink_takes_its_share() -> None:
    """A sink of ln 2 counts as two more keys of score 0 that have no value."""
    assert attend([0.0, 0.0], sinks=tensor([math.log(2)])) == pytest.approx(np.array([[1 / 3, 0], [1 / 4, 1 / 4]]))


def test_query_heads_share_the_keys_of_their_group() -> None:
    """Four query heads over two key/value heads: heads 0 and 1 read the first, 2 and 3 the second."""
    g = Graph()
    q, k, v = rows(g, [[1, 1, 1, 1]]), rows(g, [[0, 0]]), rows(g, [[5, 7]])
    assert run(g, g.attention(q, k, v, layer=0, n_head=4, n_head_kv=2, scale=1.0), 1).tolist() == [[5, 5, 7, 7]]


@pytest.mark.parametrize(("kind", "expected"), [
    ("silu", 2 / (1 + math.exp(-2))), ("gelu", 1.9545977), ("gelu_quick", 2 / (1 + math.exp(-3.404))), ("relu", 2),
    ("relu_squared", 4),
])
def test_activations(kind: str, expected: float) -> None:
    """act(2), and times 3 in the gated form; large negative values vanish."""
    g = Graph()
    x, up = rows(g, [[2, -100]]), rows(g, [[3, 3]])
    assert run(g, g.activation(kind, x), 1)[0] == pytest.approx([expected, 0], abs=1e-6)        # type: ignore[arg-type]
    assert run(g, g.activation(kind, x, up), 1)[0] == pytest.approx([3 * expected, 0], abs=1e-6)  # type: ignore[arg-type]


def test_gpt_oss_activation_is_clamped() -> None:
    """Gate 9 counts as 7, up 9 as 7 and -9 as -7."""
    g = Graph()
    y = run(g, g.activation("swiglu_oai", rows(g, [[9, 7]]), rows(g, [[9, -9]])), 1)
    assert y[0] == pytest.approx([7 * 8, 7 * -6], rel=1e-4)


ROUTE_LOGITS = [math.log(2), 0.0, math.log(5), 0.0]


@pytest.mark.parametrize(("options", "weights"), [
    ({"normalise": False}, [5 / 9, 2 / 9]),
    ({}, [5 / 7, 2 / 7]),
    ({"scale": 2.0}, [10 / 7, 4 / 7]),
    ({"scoring": "softmax_after", "normalise": False}, [5 / 7, 2 / 7]),
    ({"scoring": "sigmoid", "normalise": False}, [5 / 6, 2 / 3]),
    ({"normalise": False, "selection_bias": tensor([0, 9, 0, 0])}, [1 / 9, 5 / 9]),
])
def test_route_weights_are_best_first(options: dict[str, object], weights: list[float]) -> None:
    """Logits stand for 2, 1, 5, 1; a bias chooses expert 1 first but does not weigh it."""
    g = Graph()
    route = g.route(rows(g, [ROUTE_LOGITS]), 2, **options)      # type: ignore[arg-type]
    assert run(g, route, 1)[0] == pytest.approx(weights)


def doubled(g: Graph, x: Op, route: Route) -> Op:
    """Expert e multiplies by e + 1 and adds 100 (e + 1)."""
    return g.expert_linear(x, route, tensor([[[1]], [[2]], [[3]]]), tensor([[100], [200], [300]]))


def test_experts_run_in_rank_order_and_are_summed_by_weight() -> None:
    """Token 0 uses experts 2 and 0, token 1 has a tie and takes the lower index first."""
    g = Graph()
    route = g.route(rows(g, [[math.log(2), -9, math.log(6)], [0, 0, -9]]), 2, scoring="softmax_after", normalise=False)
    slots = doubled(g, rows(g, [[1], [10]]), route)
    assert run(g, slots, 2).ravel().tolist() == [303, 101, 110, 220]
    assert run(g, doubled(g, slots, route), 2).ravel().tolist() == [1209, 201, 210, 640]
    assert run(g, g.expert_sum(slots, route), 2).ravel() == pytest.approx([303 * .75 + 101 * .25, 165])


def test_a_route_of_one_gates_a_value_per_token() -> None:
    """The sigmoid of 0 halves the row: a gated shared expert."""
    g = Graph()
    route = g.route(rows(g, [[0.0]]), 1, scoring="sigmoid", normalise=False)
    assert run(g, g.expert_sum(rows(g, [[4, 6]]), route), 1).tolist() == [[2, 3]]


def test_softmax_of_each_row() -> None:
    """Only differences count."""
    g = Graph()
    y = run(g, g.softmax(rows(g, [[1000, 1000 + math.log(3)], [0, 0]])), 2)
    assert y == pytest.approx(np.array([[1 / 4, 3 / 4], [1 / 2, 1 / 2]]), rel=1e-4)


def test_scale_add_and_softcap() -> None:
    """3 * 2 + 3, and a cap of 1."""
    g = Graph()
    x = rows(g, [[3]])
    assert run(g, g.add(g.scale(x, 2.0), x), 1).tolist() == [[9]]
    assert run(g, g.softcap(x, 1.0), 1)[0, 0] == pytest.approx(math.tanh(3))
