"""Whatever sequences do, each reads its own tokens, and no page is lost, shared wrongly or used after it was freed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.kv_cache import SequenceKV
from ggpy.engine.pages import pages_for
from ggpy.engine.prefix_node import PAGE_BYTES, Node, to_tokens
from tests.engine.page_store import UNWRITTEN, PageStore

TABLE_PAGES = 8
LAYOUTS = [[None], [None, 1], [None, 40], [None, 32, 100], [50], [50, 20]]


class Live:
    """A sequence that runs, and all the tokens that it will have."""

    def __init__(self, kv: SequenceKV, tokens: list[int], n_reserved: int) -> None:
        self.kv = kv
        self.tokens = tokens
        self.n_reserved = n_reserved


@st.composite
def prompts(draw: st.DrawFn) -> list[int]:
    """Tokens that often begin alike, part ways anywhere and often end with a page."""
    n = draw(st.integers(1, 200) | st.sampled_from([31, 32, 33, 64, 65, 96, 128]))
    tokens = [0] * n
    for at in draw(st.lists(st.sampled_from([0, 20, 32, 70, 96, 100, 150]), max_size=2)):
        tokens[at:] = [1] * (n - at)
    return tokens


class CacheMachine(RuleBasedStateMachine):
    """Opens, computes, closes and fails sequences in pools too small for all of them."""

    @initialize(windows=st.sampled_from(LAYOUTS), n_pages=st.integers(8, 16), n_window_pages=st.integers(8, 12))
    def start(self, windows: list[int | None], n_pages: int, n_window_pages: int) -> None:
        self.store = PageStore(windows, [n_pages, *[n_window_pages] * (len(windows) - 1)], TABLE_PAGES)
        self.cache = self.store.cache
        self.live: list[Live] = []
        self.now_s = 0.0
        self.clock = patch("ggpy.engine.idle_pages.monotonic", lambda: self.now_s)
        self.clock.start()

    def teardown(self) -> None:
        if hasattr(self, "clock"):
            self.clock.stop()

    @rule(duration_s=st.integers(1, 4))
    def wait(self, duration_s: int) -> None:
        self.now_s += duration_s

    @rule(tokens=prompts(), salt=st.sampled_from([0, 0, 0, 1]))
    def open(self, tokens: list[int], salt: int) -> None:
        found = self.cache.find(tokens, salt)
        kv = self.cache.open(tokens, salt)
        assert kv.num_cached <= found.num_cached <= len(tokens) - 1
        assert found.num_cached - kv.num_cached < PAGE_TOKENS or len(self.cache.windows) > 1
        assert kv.num_cached == kv.miss.position
        assert (kv.miss.cause == "none") == (kv.num_cached == len(tokens) - 1)
        self.live.append(Live(kv, tokens, kv.num_cached))

    @rule(tokens=prompts(), salt=st.sampled_from([0, 0, 0, 1]))
    def run(self, tokens: list[int], salt: int) -> None:
        """A whole life, if there are pages for it."""
        kv = self.cache.open(tokens, salt)
        self.store.compute(kv, tokens)
        self.cache.close(kv)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), n=st.integers(1, 200))
    def reserve(self, data: st.DataObject, n: int) -> None:
        """It succeeds if free and idle pages are enough, and else changes nothing."""
        self._reserve(data.draw(st.sampled_from(self.live)), n)

    def _reserve(self, live: Live, n: int) -> None:
        n_tokens = min(live.kv.num_computed + n, len(live.tokens))
        missing = pages_for(n_tokens) - live.kv.n_pages
        enough = all(free + idle >= missing
                     for free, idle in zip(self.cache.n_free, self.cache.n_idle, strict=True))
        before = (self.cache.n_free, self.cache.n_idle, self.cache.n_held, live.kv.page_table.tolist())
        assert self.cache.reserve(live.kv, n_tokens) == (missing <= 0 or enough)
        if missing > 0 and not enough:
            assert before == (self.cache.n_free, self.cache.n_idle, self.cache.n_held, live.kv.page_table.tolist())
        else:
            live.n_reserved = max(live.n_reserved, n_tokens)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), n=st.integers(1, 200), n_rejected=st.sampled_from([0, 0, 1, 3]))
    def compute(self, data: st.DataObject, n: int, n_rejected: int) -> None:
        """The last rows may be drafts that are not accepted."""
        live = data.draw(st.sampled_from(self.live))
        self._reserve(live, n)
        n_tokens = min(live.kv.num_computed + n, live.n_reserved)
        for position in range(live.kv.num_computed, n_tokens):
            for pages, table in zip(self.store.pages, live.kv.page_table, strict=True):
                pages[table[position // PAGE_TOKENS], position % PAGE_TOKENS] = live.tokens[position]
        self.cache.advance(live.kv, live.tokens, max(live.kv.num_computed, n_tokens - n_rejected))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """Others may have gone further with the same tokens; then reserved pages are given up."""
        live = data.draw(st.sampled_from(self.live))
        before = live.kv.num_computed
        gained = self.cache.catch_up(live.kv, live.tokens)
        assert gained >= 0
        assert before + gained == live.kv.num_computed < len(live.tokens) or not gained
        if gained:
            live.n_reserved = live.kv.num_computed

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 2), min_size=1, max_size=40))
    def generate(self, data: st.DataObject, tokens: list[int]) -> None:
        """A sequence gets more tokens."""
        live = data.draw(st.sampled_from(self.live))
        live.tokens += tokens[: TABLE_PAGES * PAGE_TOKENS - len(live.tokens)]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]),
          keep_s=st.sampled_from([0, 0, 2, 5, math.inf]))
    def end(self, data: st.DataObject, fails: bool, keep_s: float) -> None:
        live = data.draw(st.sampled_from(self.live))
        self.live.remove(live)
        if fails:
            self.cache.discard(live.kv)
        else:
            if keep_s:
                self.cache.keep(live.kv, data.draw(st.integers(0, live.kv.num_computed)), self.now_s + keep_s)
            self.cache.close(live.kv)
            n = live.kv.num_computed
            if n and len(self.cache.windows) == 1 and self._all_above_kept(live):
                assert self.cache.find([*live.tokens[:n], 9], live.kv.salt).num_cached == n

    def _all_above_kept(self, live: Live) -> bool:
        """False after a failure of one that shared its pages."""
        return any(live.tokens[: live.kv.num_computed] == tokens[: live.kv.num_computed]
                   for salt, tokens in self.cache.paths() if salt == live.kv.salt)

    @precondition(lambda self: len(self.live) > 3)
    @rule()
    def forget(self) -> None:
        self.cache.clear()
        self.live.clear()

    @invariant()
    def every_sequence_reads_its_own_tokens(self) -> None:
        """No page is written by someone else or used after it was freed."""
        for live in getattr(self, "live", []):
            kv = live.kv
            assert kv.is_open
            for group, window in enumerate(self.cache.windows):
                first = max(0, kv.num_computed - window + 1) if window is not None else 0
                assert self.store.visible(kv, group) == live.tokens[first : kv.num_computed]

    @invariant()
    def stored_pages_hold_the_tokens_of_their_node(self) -> None:
        """A page belongs to one node, thus to one path of tokens, and everything adds up."""
        if not hasattr(self, "live"):
            return
        nodes = {*self._nodes()}.union(*(live.kv.path for live in self.live))
        for group, pages in enumerate(self.store.pages):
            stored = [page for node in nodes if (page := node.pages[group]) is not None]
            reserved = [int(p) for live in self.live
                        for p in live.kv.page_table[group, len(live.kv.path) : live.kv.n_pages]]
            free = [page for page in range(len(pages)) if self.cache._pools[group]._is_free[page]]
            assert sorted(stored + reserved + free) == [*range(len(pages))]
            assert len(free) == self.cache.n_free[group]
            pages[free] = UNWRITTEN         # whoever reads it now will notice
            for node in nodes:
                if (page := node.pages[group]) is not None:
                    assert pages[page][: node.num_tokens].tolist() == to_tokens(node.key)

    @invariant()
    def holders_are_counted(self) -> None:
        """A page is idle exactly if no live sequence holds it; children stand before their parents in group 0."""
        if not hasattr(self, "live"):
            return
        for group in range(len(self.cache.windows)):
            held = [node for live in self.live for node in live.kv.path[live.kv.first_held[group] :]]
            idle = [*self.cache._idle[group]]
            assert all(node.holders[group] == held.count(node) for node in [*held, *idle])
            assert not {*held} & {*idle}
            in_tree = {node for node in self._nodes() if node.pages[group] is not None}
            assert in_tree <= {*held} | {*idle}
        assert all(len(idle._kept) <= n // 2
                   for idle, n in zip(self.cache._idle, self.cache.n_pages, strict=True))
        order = {node: i for i, node in enumerate(self.cache._idle[0])}
        assert all(order[child] < order[node] for node in order for child in node.children.values())

    @invariant()
    def the_tree_is_tidy(self) -> None:
        """Only full pages are followed by others; nobody but its owner grows a page; no page begins another one."""
        if not hasattr(self, "live"):
            return
        owners = [live.kv.path[-1] for live in self.live if live.kv.path and len(live.kv.path[-1].key) < PAGE_BYTES]
        assert len({*owners}) == len(owners)
        for node in self._nodes():
            assert node.is_leaf or len(node.key) == PAGE_BYTES
            assert node.key
            assert node.is_kept
            assert node.sorted_keys == sorted(node.children)
            assert {*node.growing} <= {*owners}
            siblings = [key for key in node.parent.sorted_keys if key != node.key and key.startswith(node.key)]
            if siblings and node in node.parent.children.values():
                assert all(None in node.parent.children[key].pages for key in siblings)

    def _nodes(self) -> Iterator[Node]:
        stack = [*self.cache._tree.roots.values()]
        while stack:
            node = stack.pop()
            stack += [*node.children.values(), *node.growing]
            if not node.is_root:
                yield node


CacheMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
test_sequences_that_come_and_go = CacheMachine.TestCase
