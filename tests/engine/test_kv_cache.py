"""The tree of prefixes, told page by page. A page holds 32 tokens."""

from __future__ import annotations

import pytest

from ggpy.engine.kv_cache import Miss
from tests.engine.page_store import PageStore

FULL: int | None = None


@pytest.fixture
def store() -> PageStore:
    """One group, ten pages."""
    return PageStore([FULL], [10])


def test_prefix_is_reused_to_the_exact_token(store: PageStore) -> None:
    """Of a prompt that shares 70 tokens with an earlier one, two pages are shared and six tokens copied."""
    store.run(range(80))
    prompt = [*range(70), 7, 8, 9]
    kv = store.cache.open(prompt)
    assert kv.num_cached == kv.num_computed == 70
    assert store.num_copied == 1
    assert store.compute(kv, prompt)
    assert store.visible(kv, 0) == prompt


def test_the_last_token_is_always_left_to_compute(store: PageStore) -> None:
    """Its logits are what the request wants."""
    store.run(range(64))
    kv = store.cache.open(range(64))
    assert kv.num_cached == 63
    assert kv.miss == Miss("none", 63)


def test_a_prompt_of_one_token_reuses_nothing(store: PageStore) -> None:
    """There is nothing before its last token."""
    store.run(range(40))
    assert store.cache.open([0]).miss == Miss("none", 0)


def test_full_pages_are_shared_without_copying(store: PageStore) -> None:
    """65 tokens begin with two pages that another sequence computed: the same two."""
    store.run(range(80))
    first, second = store.cache.open(range(65)), store.cache.open(range(65))
    assert first.num_cached == second.num_cached == 64
    assert first.page_table[0, :2].tolist() == second.page_table[0, :2].tolist()
    assert store.num_copied == 0
    assert (store.cache.n_held, store.cache.n_idle, store.cache.n_free) == ((2,), (1,), (7,))


def test_live_sequences_share_as_they_go(store: PageStore) -> None:
    """What a sequence has computed can be reused while it runs, its growing last page included."""
    first = store.cache.open(range(60))
    assert store.compute(first, range(60), 40)
    second = store.cache.open([*range(39), 5])
    assert second.num_cached == 39
    assert store.compute(first, range(60))
    assert store.cache.open([*range(58), 5]).num_cached == 58
    assert store.compute(second, [*range(39), 5, 6, 7])
    assert store.visible(first, 0) == [*range(60)]
    assert store.visible(second, 0) == [*range(39), 5, 6, 7]


def test_an_idle_last_page_is_continued_in_place(store: PageStore) -> None:
    """The next turn of a conversation copies nothing."""
    first = store.run(range(40))
    second = store.cache.open(range(50))
    assert second.num_cached == 40
    assert store.num_copied == 0
    assert second.page_table[0, 1] == first.page_table[0, 1]
    third = store.cache.open([*range(40), 9])       # the page has an owner now
    assert (third.num_cached, store.num_copied) == (40, 1)


def test_same_pages_computed_twice_become_one(store: PageStore) -> None:
    """Two sequences that read the same prompt side by side end with the pages of whoever was first."""
    first, second = store.cache.open(range(64)), store.cache.open(range(64))
    assert store.compute(first, range(64), 32)
    assert store.compute(second, range(64), 32)
    assert first.page_table[0, 0] == second.page_table[0, 0]
    assert store.cache.n_held == (1,)
    store.cache.close(first)
    assert store.cache.n_held == (1,)
    assert store.compute(second, range(64))
    assert store.visible(second, 0) == [*range(64)]


def test_one_of_those_that_read_the_same_prompt_computes_it(store: PageStore) -> None:
    """The second was opened at the same time and has begun; it goes on from where the first is."""
    prompt = [*range(100)]
    first, second = store.cache.open(prompt), store.cache.open(prompt)
    assert store.compute(first, prompt, 20)
    assert store.compute(second, prompt, 10)
    assert store.cache.catch_up(second, prompt) == 0        # not a page yet
    assert store.compute(first, prompt, 70)
    assert store.cache.catch_up(second, prompt) == 60
    assert (second.num_computed, second.num_cached) == (70, 60)
    assert store.cache.n_held == (4,)
    assert store.compute(second, prompt)
    assert store.visible(second, 0) == prompt
    assert store.cache.catch_up(first, prompt) == 29        # all but the last token
    assert store.visible(first, 0) == prompt[:99]


def test_a_sequence_that_has_computed_everything_has_nothing_to_catch_up_with(store: PageStore) -> None:
    """It would lose its last token, since none reuses that."""
    store.run(range(40))
    kv = store.cache.open(range(40))
    assert store.compute(kv, range(40))
    store.run(range(40))
    assert store.cache.catch_up(kv, range(40)) == 0
    full = store.cache.open(range(100, 164))
    assert store.compute(full, range(100, 164))
    assert store.cache.catch_up(full, range(100, 164)) == 0
    assert (kv.num_computed, full.num_computed) == (40, 64)


def test_a_sequence_behind_a_failed_one_does_not_catch_up(store: PageStore) -> None:
    """What it would find begins with pages that nobody else finds."""
    failed = store.cache.open(range(100))
    assert store.compute(failed, range(100), 64)
    second = store.cache.open(range(33))
    third = store.cache.open(range(65))
    store.cache.discard(failed)
    assert store.compute(third, range(100))
    assert store.cache.catch_up(second, range(100)) == 0
    assert store.visible(second, 0) == [*range(32)]


def test_a_last_page_that_another_one_continues_is_dropped(store: PageStore) -> None:
    """Of three sequences one of which has all tokens of the others, one page stays."""
    long, short, longest = (store.cache.open([5]) for _ in range(3))
    assert store.compute(long, range(20))
    assert store.compute(short, range(10))
    assert store.compute(longest, range(32))
    store.cache.close(long)
    store.cache.close(short)        # its tokens are those of `long`
    assert store.cache.n_idle == (0,)       # and those of `long` are in the full page
    store.cache.close(longest)
    assert store.cache.n_idle == (1,)
    assert [*store.cache.paths()] == [(0, [*range(32)])]


def test_a_shorter_last_page_goes_when_a_longer_one_ends(store: PageStore) -> None:
    """The older page is of no use: all it has, the newer one has."""
    long = store.cache.open([5])
    assert store.compute(long, range(20), 5)
    store.run(range(10))
    assert store.compute(long, range(20))
    assert store.cache.n_idle == (1,)
    store.cache.close(long)
    assert [*store.cache.paths()] == [(0, [*range(20)])]


def test_pages_reserved_but_not_computed_are_free_afterwards(store: PageStore) -> None:
    """Drafts that were not accepted and prompts that were not read leave nothing."""
    kv = store.cache.open(range(200))
    assert store.cache.reserve(kv, 200)
    assert store.cache.n_held == (7,)
    store.cache.close(kv)
    assert store.cache.n_free == (10,)
    store.cache.close(kv)
    assert store.cache.n_free == (10,)


def test_least_recently_used_goes_first_and_leaves_before_what_they_follow(store: PageStore) -> None:
    """Three conversations share a page; the one used again stays, and so does the page in common."""
    shared = [*range(32)]
    for first_token in (100, 200, 300):
        store.run([*shared, *range(first_token, first_token + 64)])
    store.cache.close(store.cache.open([*shared, *range(100, 165)]))
    other = store.cache.open([7])
    assert store.cache.reserve(other, 5 * 32)       # three pages are free
    assert store.cache.find([*shared, *range(100, 165)]).num_cached == 96
    assert store.cache.find([*shared, *range(200, 265)]).num_cached == 32
    assert store.cache.find([*shared, *range(300, 365)]).num_cached == 96
    assert store.cache.reserve(other, 10 * 32 - 32)
    assert [*store.cache.paths()] == [(0, shared)]


def test_held_pages_are_never_evicted(store: PageStore) -> None:
    """A reservation that would need them is refused and changes nothing."""
    held = store.cache.open(range(96))
    assert store.compute(held, range(96))
    store.run(range(200, 264))
    other = store.cache.open([7])
    assert not store.cache.reserve(other, 8 * 32)
    assert store.cache.n_idle == (2,)
    assert store.cache.reserve(other, 7 * 32)
    assert (store.cache.n_held, store.cache.n_idle, store.cache.n_free) == ((10,), (0,), (0,))
    assert store.visible(held, 0) == [*range(96)]


def test_without_a_page_to_copy_to_less_is_reused() -> None:
    """All three pages are held: the full one is shared, the copy of the other has no place."""
    store = PageStore([FULL], [3])
    first = store.cache.open(range(64))
    assert store.compute(first, range(40))
    assert store.cache.reserve(first, 96)
    second = store.cache.open([*range(36), 5])
    assert second.num_cached == 32
    assert second.miss == Miss("evicted", 32)


def test_an_idle_page_is_cut_where_there_is_none_to_copy_it_to() -> None:
    """It would have been evicted to make room for its own copy."""
    store = PageStore([FULL], [2])
    store.run(range(50))
    kv = store.cache.open([*range(36), 5])
    assert kv.num_cached == 36
    assert store.compute(kv, [*range(36), 5])
    assert store.visible(kv, 0) == [*range(36), 5]
    store.cache.close(kv)
    assert [*store.cache.paths()] == [(0, [*range(36), 5])]


def test_nothing_of_a_failed_computation_is_reused(store: PageStore) -> None:
    """What others had from it they keep while they run; nobody else finds it."""
    store.run(range(40))
    failed = store.cache.open(range(80))
    assert store.compute(failed, range(80))
    sharing = store.cache.open([*range(70), 5])
    store.cache.discard(failed)
    assert store.cache.find(range(80)).num_cached == 32
    assert store.compute(sharing, [*range(70), 5, *range(40)])
    assert store.visible(sharing, 0) == [*range(70), 5, *range(40)]
    assert [*store.cache.paths()] == [(0, [*range(32)])]
    store.cache.close(sharing)
    assert (store.cache.n_idle, store.cache.n_held) == ((1,), (0,))


def test_a_failure_forgets_no_page_that_was_there_before(store: PageStore) -> None:
    """Two sequences computed the first page at the same time; the one whose page was dropped for the other's fails."""
    first, failed = store.cache.open(range(40)), store.cache.open(range(40))
    assert store.compute(first, range(40), 32)
    assert store.compute(failed, range(40), 32)
    store.cache.discard(failed)
    assert store.cache.find(range(40)).num_cached == 32


def test_a_salt_may_come_back_while_a_failed_page_of_it_is_held(store: PageStore) -> None:
    """What others have stored under the salt by then is not lost when that page goes."""
    failed = store.cache.open(range(64))
    assert store.compute(failed, range(64))
    sharing = store.cache.open(range(33))
    store.cache.discard(failed)
    store.run(range(100, 140))
    other = store.cache.open([7])
    assert store.cache.reserve(other, 9 * 32)       # nothing is left under the salt
    store.cache.close(other)
    store.run(range(100, 140))
    store.cache.close(sharing)
    assert [*store.cache.paths()] == [(0, [*range(100, 140)])]


def test_everything_is_forgotten_at_once(store: PageStore) -> None:
    """Closing a sequence from before then does nothing."""
    kv = store.cache.open(range(80))
    assert store.compute(kv, range(80))
    store.cache.clear()
    assert store.cache.n_free == (10,)
    store.cache.close(kv)
    store.cache.discard(kv)
    assert store.cache.n_free == (10,)
    assert store.cache.find(range(80)).num_cached == 0


# Windows: group 0 sees everything, group 1 the last 40 positions, itself included.


@pytest.fixture
def windowed() -> PageStore:
    return PageStore([FULL, 40], [20, 8])


def test_pages_that_a_window_has_left_become_idle(windowed: PageStore) -> None:
    """The token at 103 sees 64 and on: group 1 holds two pages, group 0 all four."""
    kv = windowed.cache.open(range(200))
    assert windowed.compute(kv, range(200), 102)
    assert (windowed.cache.n_held, windowed.cache.n_idle) == ((4, 3), (0, 1))
    assert windowed.compute(kv, range(200), 103)
    assert (windowed.cache.n_held, windowed.cache.n_idle) == ((4, 2), (0, 2))
    assert windowed.visible(kv, 1) == [*range(64, 103)]


def test_a_prefix_is_reused_where_its_window_is_stored(windowed: PageStore) -> None:
    """The sequence has gone on, but what a token at 70 sees has not been needed yet."""
    windowed.run(range(200))
    kv = windowed.cache.open([*range(70), 5])
    assert kv.num_cached == 70
    assert windowed.visible(kv, 1) == [*range(31, 70)]
    assert windowed.visible(kv, 0) == [*range(70)]


def test_a_prefix_whose_window_is_gone_ends_earlier(windowed: PageStore) -> None:
    """Of 200 tokens the first two pages of group 1 are needed by another; then no token before 103 sees its window."""
    windowed.run(range(200))                                # seven pages of group 1, the eighth is free
    other = windowed.cache.open([7])
    assert windowed.cache.reserve(other, 3 * 32)
    assert windowed.cache.n_idle == (7, 5)
    assert windowed.cache.find([*range(102), 5]).num_cached == 0
    assert windowed.cache.find([*range(102), 5]).miss == Miss("evicted", 0)
    kv = windowed.cache.open([*range(103), 5])
    assert kv.num_cached == 103
    assert windowed.visible(kv, 1) == [*range(64, 103)]


def test_of_pages_that_begin_alike_one_is_reused_that_every_window_has() -> None:
    """Two prompts have 20 tokens in common; the first one's page has left group 1."""
    store = PageStore([FULL, 40], [8, 2])
    for last in (100, 200):
        store.run([*range(20), *range(last, last + 12)])
    other = store.cache.open([7])
    assert store.cache.reserve(other, 32)
    assert store.cache.find([*range(20), 5]).num_cached == 20


def test_nobody_catches_up_with_what_a_window_has_lost(windowed: PageStore) -> None:
    """The page after its own is there in group 0 only."""
    second = windowed.cache.open(range(200))
    assert windowed.compute(second, range(200), 10)
    first = windowed.cache.open(range(200))
    assert windowed.compute(first, range(200))
    other = windowed.cache.open([7])
    assert windowed.cache.reserve(other, 3 * 32)
    assert windowed.cache.catch_up(second, range(200)) == 0
    assert windowed.visible(second, 1) == [*range(10)]


def test_a_window_page_that_went_is_stored_again_when_it_is_computed_again(windowed: PageStore) -> None:
    """The page in group 0 stays the one that it was."""
    windowed.run(range(200))
    other = windowed.cache.open([7])
    assert windowed.cache.reserve(other, 3 * 32)
    windowed.cache.close(other)
    again = windowed.run([*range(102), 5])
    assert again.num_cached == 0
    assert windowed.cache.n_idle[0] == 8                    # seven, and the last page of the shorter one
    assert windowed.cache.find([*range(102), 5]).num_cached == 102
    assert windowed.cache.find([*range(70), 5]).num_cached == 70


def test_without_a_page_to_copy_to_an_earlier_window_may_be_gone() -> None:
    """A token at 103 would see its window, one at 96 does not: then nothing can be reused."""
    store = PageStore([FULL, 40], [10, 8])
    first = store.cache.open(range(200))
    assert store.compute(first, range(200))
    other = store.cache.open([7])
    assert store.cache.reserve(other, 3 * 32)               # as above; and group 0 is full
    assert store.cache.find([*range(103), 5]).num_cached == 103
    assert store.cache.open([*range(103), 5]).miss == Miss("evicted", 0)


def test_a_node_of_the_tree_goes_in_all_groups(windowed: PageStore) -> None:
    """Without its page in group 0 a prefix is of no use to anyone."""
    windowed.run(range(100))
    other = windowed.cache.open([7])
    assert windowed.cache.reserve(other, 4 * 32)
    windowed.cache.close(other)
    small = PageStore([FULL, 40], [4, 8])
    small.run(range(100))
    other = small.cache.open([7])
    assert small.cache.reserve(other, 32)
    assert small.cache.n_idle == (3, 3)
    assert windowed.cache.n_idle == (4, 4)


def test_a_window_of_one_token_needs_nothing_stored() -> None:
    """Then a prefix ends where group 0 says, at a page's end."""
    store = PageStore([FULL, 1], [8, 3])
    for start in (0, 1000):
        kv = store.cache.open(range(start, start + 64))
        for n in (32, 64):
            assert store.compute(kv, range(start, start + 64), n)
        store.cache.close(kv)
    kv = store.cache.open(range(70))
    assert kv.num_cached == 64
    assert store.visible(kv, 1) == []
    assert store.compute(kv, range(70))


# Salts and causes.


def test_other_salts_share_nothing(store: PageStore) -> None:
    """A tenant does not learn from the time it takes what others have asked."""
    store.run(range(80), salt=1)
    kv = store.cache.open(range(80), salt=2)
    assert (kv.num_cached, kv.miss) == (0, Miss("other_salt", 0))
    assert store.cache.open(range(80), salt=1).num_cached == 79


def test_a_salt_that_nobody_uses_leaves_nothing(store: PageStore) -> None:
    """One salt per request is a way to reuse nothing, and must not fill memory."""
    for salt in range(100):
        store.run(range(40), salt)
    assert len(store.cache._tree.roots) == 5     # ten pages, two each


@pytest.mark.parametrize(("prompt", "miss"), [
    ([*range(80)], Miss("none", 79)),
    ([*range(80), 1, 2], Miss("new_prefix", 80)),
    ([*range(50), 1, 2], Miss("edited_history", 50)),
    ([*range(64), 1, 2], Miss("edited_history", 64)),
    ([5, 6, 7], Miss("new_prefix", 0)),
])
def test_why_a_prompt_reuses_no_more(store: PageStore, prompt: list[int], miss: Miss) -> None:
    """80 tokens are stored."""
    store.run(range(80))
    assert store.cache.find(prompt).miss == miss


def test_evicted_pages_are_remembered(store: PageStore) -> None:
    """The last two of three pages went: a prompt that would have used them says so."""
    store.run(range(96))
    other = store.cache.open([7])
    assert store.cache.reserve(other, 9 * 32)
    assert store.cache.find(range(96)).miss == Miss("evicted", 32)
    assert store.cache.find([*range(32), 1, 2]).miss == Miss("new_prefix", 32)


def test_finding_changes_nothing(store: PageStore) -> None:
    """What is found is still the least recently used."""
    store.run(range(32))
    store.run(range(100, 132))
    assert store.cache.find([*range(32), 5]).num_cached == 32
    other = store.cache.open([7])
    assert store.cache.reserve(other, 9 * 32)
    assert [*store.cache.paths()] == [(0, [*range(100, 132)])]


def test_what_is_erased_is_not_found_again(store: PageStore) -> None:
    """The page that another text needs too stays."""
    store.run(range(80))
    store.run([*range(40), *range(100, 120)])
    store.cache.erase(range(80))
    assert store.cache.find(range(90)).num_cached == 40
    assert store.cache.find([*range(40), *range(100, 121)]).num_cached == 60


def test_what_a_live_sequence_has_is_not_erased(store: PageStore) -> None:
    """It goes on as if nothing were."""
    store.run(range(64))
    kv = store.cache.open(range(70))
    store.cache.erase(range(64))
    assert store.compute(kv, range(70))
    assert store.visible(kv, 0) == list(range(70))
