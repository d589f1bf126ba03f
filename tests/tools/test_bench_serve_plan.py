"""Workloads and plans: always the same for a seed, of the right shape, and no other after a way through a trace."""

from pathlib import Path

import numpy as np
import pytest

from ggpy.engine.recording import Recorder, TraceLine, read_trace, write_trace
from ggpy.tools.bench_serve_bound import Access, Bound, bound
from ggpy.tools.bench_serve_plan import (
    N_SYMBOLS,
    Plan,
    PlannedRequest,
    cut_to,
    expected_answer,
    expected_prompts,
    from_trace,
    sessions,
    to_trace,
    with_rate,
)
from ggpy.tools.bench_serve_workloads import WORKLOADS, Size, agent, chat, edit, shared

SMALL = Size(12, scale=0.1, seed=3)


def facts(plan: Plan) -> list[tuple[object, ...]]:
    return [(r.added.tolist(), r.n_output, r.session, r.parent, r.arrival_s) for r in plan]


def plan_bound(plan: Plan) -> Bound:
    """The hits of an ideal cache if answers are the expected ones."""
    return bound(Access([*prompt.tolist(), *expected_answer(plan, i).tolist()], len(prompt))
                 for i, prompt in enumerate(expected_prompts(plan)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_always_makes_the_same_plan(name: str) -> None:
    """And another one another plan."""
    workload = WORKLOADS[name]
    assert facts(workload(SMALL)) == facts(workload(SMALL))
    assert facts(workload(SMALL)) != facts(workload(Size(12, 0.1, seed=4)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_parents_come_first_and_symbols_have_bounds(name: str) -> None:
    """Whatever a workload is like."""
    for scale in (0.001, 0.1):
        plan = WORKLOADS[name](Size(12, scale))
        assert all(r.parent is None or r.parent < i for i, r in enumerate(plan))
        assert [r.arrival_s for r in plan] == sorted(r.arrival_s for r in plan)
        assert all(len(r.added) and r.n_output >= 1 for r in plan)
        assert all(r.added.min() >= 0 and r.added.max() < N_SYMBOLS for r in plan)


def test_chat_has_the_lengths_of_its_source() -> None:
    """Means within a fifth, since the longest are cut; nothing is shared."""
    plan = chat(Size(4000))
    lengths = np.array([len(r.added) for r in plan])
    assert 0.8 * 161 < lengths.mean() < 1.2 * 161
    assert 0.7 * 338 < np.mean([r.n_output for r in plan]) < 338
    assert (lengths.min(), lengths.max()) == (4, 1024)
    assert plan_bound(plan[:50]).hit_rate < 0.001


def test_shared_prompts_begin_alike_in_groups() -> None:
    """Four texts of 102 tokens, three requests each."""
    plan = shared(SMALL)
    assert len({tuple(r.added[:102]) for r in plan}) == 4
    assert len({tuple(r.added) for r in plan}) == 12
    assert plan_bound(plan).n_cached >= 8 * 102


def test_an_edit_repeats_the_beginning_of_its_text() -> None:
    """The model is to go on."""
    first = edit(SMALL)[0]
    assert (len(first.added), first.n_output) == (51 + 5, 30)
    assert first.added[-5:].tolist() == first.added[:5].tolist()


def test_agents_share_system_prompts_and_their_own_history() -> None:
    """Fifty sessions: nearly all of the prompts has been read before, some sessions are forks, some results long."""
    plan = agent(Size(50))
    assert len(sessions(plan)) == 50
    assert all(4 <= len(turns) <= 8 for turns in sessions(plan))
    assert plan_bound(plan).hit_rate > 0.85
    firsts = [plan[turns[0]] for turns in sessions(plan)]
    assert 2 <= sum(r.parent is not None for r in firsts) <= 12
    assert len({tuple(r.added[:900]) for r in firsts if r.parent is None}) == 3
    assert sum(len(r.added) >= 600 for r in plan if r.parent is not None) > 10
    assert all(r.parent is not None for turns in sessions(plan) for r in map(plan.__getitem__, turns[1:]))


def test_a_turn_continues_its_parent_to_the_token() -> None:
    """Prompt, expected answer, what is added."""
    plan = [PlannedRequest(np.arange(5, dtype=np.int32), 3, 0),
            PlannedRequest(np.array([7, 8], np.int32), 2, 0, parent=0)]
    assert expected_prompts(plan)[1].tolist() == [0, 1, 2, 3, 4, *expected_answer(plan, 0).tolist(), 7, 8]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_survives_a_trace(name: str, tmp_path: Path) -> None:
    """Times, lengths, sessions and what can be shared, but for parts of blocks; the same trace comes out again."""
    plan, path = WORKLOADS[name](SMALL), tmp_path / "trace.jsonl"
    write_trace(path, to_trace(plan))
    again = from_trace(read_trace(path))
    assert [(len(r.added), r.n_output, r.session, r.parent) for r in again] == [
        (len(r.added), r.n_output, r.session, r.parent) for r in plan]
    assert [r.arrival_s for r in again] == pytest.approx([r.arrival_s for r in plan], abs=1e-5)
    assert [line.hash_ids for line in to_trace(again)] == [line.hash_ids for line in to_trace(plan)]
    assert 0 <= plan_bound(plan).n_cached - plan_bound(again).n_cached < 32 * len(plan)


def test_a_recording_of_a_plan_is_that_plan(tmp_path: Path) -> None:
    """Which requests continue which is found in their tokens."""
    plan = agent(SMALL)
    recorder = Recorder(tmp_path / "trace.jsonl")
    for i, (planned, prompt) in enumerate(zip(plan, expected_prompts(plan), strict=True)):
        recorder.add(planned.arrival_s, prompt.tolist(), expected_answer(plan, i).tolist())
    recorder.close()
    again = from_trace(read_trace(tmp_path / "trace.jsonl"))
    assert [(r.parent, len(r.added), r.n_output) for r in again] == [(r.parent, len(r.added), r.n_output) for r in plan]
    assert 0 <= plan_bound(plan).n_cached - plan_bound(again).n_cached < 32 * len(plan)


def test_a_trace_may_be_out_of_order_and_without_sessions() -> None:
    """As a recording, which notes what has ended, and as Mooncake's files: each line is a session of its own."""
    plan = from_trace([TraceLine(2000, 20, 4, (0,)), TraceLine(1000, 40, 4, (1, 2)),
                       TraceLine(3000, 60, 4, (1, 3), parent=1)])
    assert [(r.arrival_s, r.parent, len(r.added)) for r in plan] == [(1.0, None, 40), (2.0, None, 20), (3.0, 0, 16)]
    assert len({r.session for r in plan}) == 3


def test_a_line_too_short_for_its_parent_stands_alone() -> None:
    """A prompt as long as what came before adds nothing to it."""
    plan = from_trace([TraceLine(0, 20, 4, (0,)), TraceLine(1, 24, 4, (1,), parent=0)])
    assert (plan[1].parent, len(plan[1].added)) == (None, 24)


def test_a_rate_spreads_sessions_and_keeps_the_time_within_them() -> None:
    """Ten a second; turns stay as far from the first one as they were, and nobody comes before a parent."""
    plan = agent(Size(200, scale=0.05))
    spread = with_rate(plan, 10.0, seed=1)
    starts = np.array([spread[turns[0]].arrival_s for turns in sessions(spread)])
    assert 0.8 * 200 / 10 < starts.max() < 1.4 * 200 / 10
    assert [r.arrival_s for r in spread] == sorted(r.arrival_s for r in spread)
    assert all(r.parent is None or r.parent < i for i, r in enumerate(spread))
    assert len(spread) == len(plan)


def test_what_a_context_does_not_hold_is_left_out_with_what_follows() -> None:
    """A prompt of 30 tokens in a context of 20, its next turn, and a session that fits."""
    plan = [PlannedRequest(np.zeros(30, np.int32), 2, 0), PlannedRequest(np.zeros(10, np.int32), 2, 1),
            PlannedRequest(np.zeros(1, np.int32), 2, 0, parent=0),
            PlannedRequest(np.zeros(5, np.int32), 2, 1, parent=1)]
    assert [(r.session, r.parent) for r in cut_to(plan, 20)] == [(1, None), (1, 0)]
