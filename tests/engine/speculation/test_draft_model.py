"""A draft model on a backend whose logits are a hash of everything that its pages hold."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, Backend, StepSequence
from ggpy.engine.request import Request
from ggpy.engine.speculation import SpeculationConfig, Speculator
from ggpy.engine.speculation.draft_model import DraftModel, best_probabilities, check_vocabularies
from ggpy.errors import ConfigError
from ggpy.text import Tokenizer
from ggpy.text.vocab import VocabType
from tests.engine.conftest import N_VOCAB, hashed_logits


class PagedHash:
    """Keeps tokens where keys and values would be, in one KV group; logits are a hash of the prefix read back."""

    def __init__(self, n_pages: int = 16, max_tokens: int = 16, max_outputs: int = 8, table_pages: int = 4) -> None:
        self.n_vocab, self.n_embd, self.n_pages, self.table_pages = N_VOCAB, 7, (n_pages,), table_pages
        self.max_tokens, self.max_outputs, self.team = max_tokens, max_outputs, None
        self.kv_groups = (SimpleNamespace(window=None, layers=(0,)),)
        self.pages = np.full((n_pages, PAGE_TOKENS), -1, np.int64)
        self.steps: list[list[tuple[int, int, int]]] = []        # first position, tokens, outputs

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        assert 0 < sum(len(s.tokens) for s in sequences) <= self.max_tokens
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        self.steps.append([(s.first_position, len(s.tokens), s.n_outputs) for s in sequences])
        for s in sequences:
            for position, token in enumerate(s.tokens, s.first_position):
                self.pages[s.page_table[0, position // PAGE_TOKENS], position % PAGE_TOKENS] = token
        return np.array([
            hashed_logits(self.pages[s.page_table[0]].ravel()[: s.first_position + len(s.tokens)])
            for s in sequences if s.n_outputs], np.float32).reshape(-1, N_VOCAB)

    def copy_page(self, group: int, source: int, target: int) -> None:
        self.pages[target] = self.pages[source]

    def close(self) -> None:
        pass


def greedy(tokens: Sequence[int], n: int) -> tuple[int, ...]:
    """What the hash model says after `tokens`."""
    result = list(tokens)
    for _ in range(n):
        result.append(int(hashed_logits(np.array(result, np.int64)).argmax()))
    return tuple(result[len(tokens):])


def model(p_min: float = 0.0, n_vocab: int = N_VOCAB, **sizes: int) -> tuple[DraftModel, PagedHash]:
    backend = PagedHash(**sizes)
    return DraftModel(cast(Backend, backend), n_vocab, p_min), backend


def test_the_guess_is_what_the_draft_model_says_greedily() -> None:
    """One step reads the prompt and gives the first token, each other token takes one."""
    drafts, backend = model()
    request = Request([1, 2, 3])
    (proposal,) = drafts.propose_all([request], 3)
    assert proposal.tokens == greedy([1, 2, 3], 3)
    assert backend.steps == [[(0, 3, 1)], [(3, 1, 1)], [(4, 1, 1)]]


def test_only_what_was_not_guessed_is_read_again() -> None:
    """Of three guesses the first two were right; the third had not been computed."""
    drafts, backend = model()
    request = Request([1, 2, 3])
    (proposal,) = drafts.propose_all([request], 3)
    request.tokens += [*proposal.tokens[:2], 50]
    drafts.propose_all([request], 1)
    assert backend.steps[-1] == [(5, 1, 1)]
    request.tokens += [51, 52]
    assert drafts.propose_all([request], 1)[0].tokens == greedy(request.tokens, 1)
    assert backend.steps[-1] == [(6, 2, 1)]


def test_a_long_prompt_is_read_in_steps_and_others_guess_meanwhile() -> None:
    """16 tokens a step; the short one comes first."""
    drafts, backend = model()
    long, short = Request(list(range(40))), Request([1, 2])
    proposals = [[p.tokens for p in drafts.propose_all([long, short], 1)] for _ in range(3)]
    assert [len(of_long) for of_long, _ in proposals] == [0, 0, 1]
    assert all(of_short == greedy([1, 2], 1) for _, of_short in proposals)
    assert proposals[2][0] == greedy(range(40), 1)
    assert backend.steps[0] == [(0, 2, 1), (0, 14, 0)]


def test_few_tokens_are_read_at_once_so_that_answers_go_on() -> None:
    """Of a prompt of 120 tokens 64 in the first step; tokens of answers are told apart, since they are paid for."""
    drafts, backend = model(max_tokens=512)
    request = Request(list(range(60)) * 2)
    request.tokens += [1, 2]
    read = []
    for _ in range(2):
        drafts.propose_all([request], 1)
        read.append((drafts.n_read, drafts.n_read_of_answers))
    assert read == [(64, 0), (58, 2)]
    assert backend.steps == [[(0, 64, 0)], [(64, 58, 1)]]


def test_a_guess_ends_before_an_improbable_token() -> None:
    """Its probability in the draft model is below p_min."""
    drafts, _ = model(p_min=0.5)
    for prompt in range(30):
        (proposal,) = drafts.propose_all([Request([prompt])], 4)
        tokens = greedy([prompt], 4)
        probabilities = [best_probabilities(hashed_logits(np.array([prompt, *tokens[:i]], np.int64))[None])[0]
                         for i in range(4)]
        n = next((i for i, p in enumerate(probabilities) if p < 0.5), 4)
        assert proposal.tokens == tokens[:n]
        assert proposal.confidences == pytest.approx(tuple(probabilities[:n]))


def test_where_pages_are_short_those_of_idle_requests_go() -> None:
    """Two pages hold one request of 33 tokens."""
    drafts, _ = model(n_pages=2, max_tokens=40)
    first, second = Request(list(range(33))), Request(list(range(1, 34)))
    assert drafts.propose_all([first], 1)[0].tokens == greedy(range(33), 1)
    assert drafts.propose_all([second], 1)[0].tokens == greedy(range(1, 34), 1)
    assert sum(bool(p.tokens) for p in drafts.propose_all([first, second], 1)) == 1
    assert drafts.propose_all([first], 1)[0].tokens == greedy(range(33), 1)


def test_beyond_the_context_of_the_draft_model_nothing_is_guessed() -> None:
    """Here 64 tokens."""
    drafts, _ = model(table_pages=2, max_tokens=64)
    assert drafts.propose_all([Request([1] * 62)], 2)[0].tokens == greedy([1] * 62, 2)
    assert drafts.propose_all([Request([1] * 63)], 2)[0].tokens == ()


def test_tokens_that_the_target_lacks_are_not_guessed() -> None:
    """Vocabularies may be padded."""
    drafts, _ = model(n_vocab=5)
    assert max(drafts.propose_all([Request([3])], 8)[0].tokens) < 5


def test_a_request_with_a_token_that_the_draft_model_lacks_gets_no_guesses() -> None:
    """The target's vocabulary is padded: no step has the token, which the draft model has no row for; others go on."""
    backend = PagedHash()
    backend.n_vocab = 20
    drafts = DraftModel(cast(Backend, backend), N_VOCAB)
    padded, other = Request([1, 2, 3, 20, 5]), Request([7, 8])
    assert [len(each.tokens) for each in drafts.propose_all([padded, other], 2)] == [0, 2]
    assert backend.steps == [[(0, 2, 1)], [(2, 1, 1)]]
    other.tokens.append(N_VOCAB - 1)        # an answer may come upon one as well
    assert [len(each.tokens) for each in drafts.propose_all([padded, other], 2)] == [0, 0]
    drafts.finished(padded)
    drafts.finished(other)
    assert len(backend.steps) == 2


def test_pages_of_finished_requests_are_reused() -> None:
    """The next request with the same beginning reads only the rest; a reset forgets even these."""
    drafts, backend = model(max_tokens=64)
    request = Request(list(range(50)))
    drafts.propose_all([request], 4)
    drafts.finished(request)
    drafts.propose_all([Request([*range(45), 60])], 1)
    assert backend.steps[-1] == [(45, 1, 1)]
    drafts.reset()
    assert drafts.propose_all([Request(list(range(50)))], 1)[0].tokens == greedy(range(50), 1)
    assert backend.steps[-1] == [(0, 50, 1)]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_guesses_are_right_whatever_became_of_earlier_ones(data: st.DataObject) -> None:
    """Requests come, accept some tokens, are left out for a while, and end; pages are short."""
    drafts, _ = model(n_pages=6, max_tokens=24, max_outputs=3)
    live = [Request([i, *range(10 * i)]) for i in range(4)]
    for _ in range(data.draw(st.integers(1, 25))):
        chosen = [request for request in live if data.draw(st.booleans())]
        n_max = data.draw(st.integers(1, 4))
        for request, proposal in zip(chosen, drafts.propose_all(chosen, n_max), strict=True):
            assert proposal.tokens in ((), greedy(request.tokens, n_max))
            n_accepted = data.draw(st.integers(0, len(proposal.tokens)))
            if len(request.tokens) < 90:
                request.tokens += [*proposal.tokens[:n_accepted], data.draw(st.integers(0, 3))]
        if data.draw(st.integers(0, 9)) == 0:
            drafts.finished(live.pop(0))
            live.append(Request([*live[0].tokens[:20], 9]))


def test_the_speculator_drafts_with_the_model_and_stops_where_it_errs() -> None:
    """The target agrees with the draft model at first, then never; plain steps take far longer than drafting."""
    drafts, _ = model(max_tokens=64, n_pages=64, table_pages=64)
    made = Speculator(SpeculationConfig(proposers=("draft",), n_max=4), n_vocab=N_VOCAB, n_ctx=2000, max_rows=8,
                      draft_model=drafts)
    request = Request([1])
    n_drafted = [0, 0, 0]
    for step in range(300):
        made.draft([request])
        n = len(request.draft_tokens)
        n_drafted[step // 100] += n
        n_accepted = n if step < 100 else 0
        request.tokens += [*request.draft_tokens[:n_accepted], 60]
        made.saw(request, n, n_accepted, 1.0 + 0.05 * n)
    made.finished(request)
    assert n_drafted[0] > 300
    assert n_drafted[2] < 25


def tokenizer(tokens: list[bytes], **changes: Any) -> Tokenizer:
    """As far as check_vocabularies looks at one."""
    values = {"vocab_type": VocabType.BPE, "bos_id": 0, "eos_id": 1, **changes}
    return cast(Tokenizer, SimpleNamespace(n_vocab=len(tokens), token_bytes=tokens.__getitem__, **values))


VOCABULARY = [b"<s>", b"</s>", *(b"%d" % i for i in range(300))]


@pytest.mark.parametrize(("draft", "message"), [
    (tokenizer(VOCABULARY, vocab_type=VocabType.SPM), r"is SPM, expected BPE; a draft model \(-md\) needs"),
    (tokenizer(VOCABULARY, eos_id=2), "eos_id is 2, expected 1"),
    (tokenizer(VOCABULARY[:100]), "it has 100 tokens, expected 302, or at most 128 more or fewer"),
    (tokenizer([*VOCABULARY[:7], b"x", *VOCABULARY[8:]]), "token 7 is b'x', expected b'5'"),
])
def test_a_draft_model_with_another_vocabulary_is_refused(draft: Tokenizer, message: str) -> None:
    """The message says what differs."""
    with pytest.raises(ConfigError, match=message):
        check_vocabularies(tokenizer(VOCABULARY), draft)


def test_a_padded_vocabulary_is_accepted() -> None:
    """The tokens that both have are the same."""
    check_vocabularies(tokenizer(VOCABULARY), tokenizer([*VOCABULARY, b"pad", b"pad"]))
