"""Which slot a task gets."""

import pytest

from ggpy.server.model_pool.slots import RUN, SlotBoard, Task, common_prefix


@pytest.mark.parametrize("n", [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN + 5])
def test_a_common_prefix_ends_at_the_first_token_that_differs(n: int) -> None:
    """Wherever that stands, and also where one of both ends."""
    shared = list(range(1000, 1000 + n))
    assert common_prefix([*shared, 1, 5], [*shared, 2, 5, 6]) == n
    assert common_prefix(shared, (*shared, 2)) == n
    assert common_prefix(tuple(shared), shared) == n


def test_a_task_gets_the_slot_that_begins_most_like_its_prompt() -> None:
    """Of three idle ones the second has all of it but one token."""
    board = SlotBoard(3, similarity=0.5)
    for slot, tokens in zip(board.slots, ([1, 2, 9, 9], [1, 2, 3, 9], [9]), strict=True):
        slot.tokens = tokens
    task = Task([1, 2, 3, 4])
    board.enter(task)
    assert task.slot_id == 1


def test_a_task_that_no_slot_begins_like_gets_the_one_that_was_idle_for_longest() -> None:
    """Two tokens of four are not more than a half of the prompt."""
    board = SlotBoard(2, similarity=0.5)
    board.slots[0].tokens, board.slots[0].used = [1, 2, 9], 2
    board.slots[1].used = 1
    task = Task([1, 2, 3, 4])
    board.enter(task)
    assert task.slot_id == 1
