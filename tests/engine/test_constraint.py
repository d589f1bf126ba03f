"""Which tokens a constraint allows, when it starts, and how it goes along with drafts."""

import threading
from collections.abc import Callable
from queue import Queue
from typing import Any, cast

import numpy as np
import pytest
from llguidance import LLMatcher

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured import constraint as constraint_module
from ggpy.engine.structured import patience
from ggpy.engine.structured.constraint import Constraint, Grammars
from ggpy.engine.structured.grammar import compiled
from ggpy.errors import ConstraintError, GrammarError, RequestError
from tests.engine.grammars import (
    CALL,
    END,
    THINK,
    accepts,
    allowed,
    bits,
    encode,
    grammars,
    sentencepiece_grammars,
    start,
    texts,
    tokenizer,
)

POINT = '{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}'
FINITE = {       # a regular expression, and all texts that it matches
    "(hello|hell)x?": {"hello", "hell", "hellox", "hellx"},
    r'\{"(12|he)"\}|null': {'{"12"}', '{"he"}', "null"},
    "a(b|ab)?b": {"ab", "abb", "aabb"},
}


@pytest.mark.parametrize("source", FINITE)
def test_masks_are_those_of_brute_force(source: str) -> None:
    """After every beginning of a text: a token may come if some text goes on with its bytes, END where one is whole.

    Where only one text may follow, it comes in the tokens that encoding it gives: it has no other spelling.
    """
    spelled = [tokenizer().token_bytes(token, special=False).decode("latin-1") for token in range(tokenizer().n_vocab)]
    for prefix in {text[:n] for text in FINITE[source] for n in range(len(text) + 1)}:
        constraint = start("regex", source)
        for byte in prefix.encode():
            constraint.accept(byte)
        expected = {token for token, piece in enumerate(spelled)
                    if piece and any(text.startswith(prefix + piece) for text in FINITE[source])}
        expected |= {END} if prefix in FINITE[source] else set()
        forced = list(constraint.forced())
        assert allowed(constraint) == [set(forced[:1]) or expected]
        assert set(forced[:1]) <= expected


def test_a_mask_has_no_bits_behind_the_vocabulary() -> None:
    """The last word is only partly used; free or constrained."""
    for constraint in (start("regex", "(?s:.)*"), start("regex", "a", after=("<call>",))):
        masks = np.full((1, grammars().n_words), -1, np.int32)
        constraint.fill(masks)
        assert bits(masks[0])[tokenizer().n_vocab:].sum() == 0


def test_control_tokens_are_no_text() -> None:
    """A string may hold the characters "<|im_end|>", never the token."""
    constraint = start("regex", "(?s:.)*")
    assert {END} == allowed(constraint)[0] & {261, END, CALL}


def test_a_finished_answer_can_only_end() -> None:
    """And after its end nothing may come."""
    constraint = start("json_schema", POINT)
    for token in encode('{"x":12}'):
        assert not constraint.is_finished
        constraint.accept(token)
    assert constraint.is_finished
    assert allowed(constraint) == [{END}]
    constraint.accept(END)
    assert constraint.is_finished
    with pytest.raises(ConstraintError, match="token 97 may not follow the end of the answer"):
        constraint.accept(97)


def test_an_answer_may_not_end_early() -> None:
    """The end is only allowed where the grammar may end, too."""
    constraint = start("json_schema", POINT)
    constraint.accept(encode('{"')[0])
    assert END not in allowed(constraint)[0]
    with pytest.raises(ConstraintError, match=f"token {END} may not come here"):
        constraint.accept(END)


def test_every_row_of_drafts_has_a_mask_of_its_own() -> None:
    """They are the masks that accepting the drafts one by one would bring, and filling changes nothing."""
    drafts = encode('{"x": 12}')
    constraint = start("json_schema", POINT)
    rows = allowed(constraint, drafts)
    assert rows == allowed(constraint, drafts)
    for i, draft in enumerate(drafts):
        assert allowed(constraint) == [rows[i]]
        constraint.accept(draft)
    assert allowed(constraint) == [rows[-1]]


def test_rows_behind_a_wrong_draft_allow_all() -> None:
    """They are never looked at: no token can equal that draft."""
    wrong = encode("ab")[0]
    rows = allowed(start("json_schema", POINT), [encode('{"')[0], wrong, wrong])
    assert wrong not in rows[1]
    assert rows[2] == rows[3] == set(range(tokenizer().n_vocab))


def test_only_valid_drafts_are_kept() -> None:
    """Up to the first that may not come; the end of the answer is no draft."""
    constraint = start("json_schema", POINT)
    drafts = encode('{"x": 12}')
    assert constraint.keep_valid([*drafts, END]) == drafts
    assert constraint.keep_valid([*drafts[:2], 7, *drafts[2:]]) == drafts[:2]
    assert constraint.keep_valid([]) == []
    assert constraint.keep_valid(drafts) == drafts, "asking changes nothing"


def test_forced_tokens_are_free_drafts() -> None:
    """The name of a required property is known before the model says it."""
    constraint = start("json_schema", '{"type": "object", "properties": {"hello": {"const": true}}, "required": '
                                      '["hello"], "additionalProperties": false}')
    for token in encode('{"'):
        constraint.accept(token)
    forced = list(constraint.forced())
    assert tokenizer().decode(forced) == "hello"
    assert constraint.keep_valid(forced) == forced
    for token in encode('hello":true}'):
        constraint.accept(token)
    assert not constraint.forced()


def test_a_constraint_starts_behind_a_text() -> None:
    """Until then everything may come, the end of the answer too."""
    constraint = start("regex", "12?|he", after=("</think>", "<call>"))
    assert allowed(constraint) == [set(range(tokenizer().n_vocab))]
    assert list(constraint.forced()) == []
    for token in encode("hello 12 </thin"):
        constraint.accept(token)
        assert END in allowed(constraint)[0]
        assert not constraint.is_finished
    constraint.accept(ord("k"))
    constraint.accept(ord(">"))
    assert texts(constraint) == {"1", "12", "h", "he"}


@pytest.mark.parametrize("token", [THINK, CALL])
def test_a_text_may_be_one_token(token: int) -> None:
    """A token of its own in most vocabularies, a control token in some."""
    constraint = start("regex", "12?|he", after=("</think>", "<call>"))
    constraint.accept(token)
    assert texts(constraint) == {"1", "12", "h", "he"}


def test_the_answer_may_begin_in_the_token_that_ends_the_free_text() -> None:
    """Where the vocabulary joins both, and only if the grammar can begin so."""
    constraint = start("regex", "12?|he", after=("</think>",))
    for byte in b"</think":
        constraint.accept(byte)
    assert set(range(tokenizer().n_vocab)) - allowed(constraint)[0] == {PIECE_X}
    rows = allowed(constraint, [PIECE_1, ord("2")])
    assert rows[1:] == [{ord("2"), END}, {END}]
    assert constraint.keep_valid([PIECE_1, ord("2"), ord("2")]) == [PIECE_1, ord("2")]
    with pytest.raises(ConstraintError, match="may not come here"):
        constraint.accept(PIECE_X)
    constraint.accept(PIECE_1)
    assert allowed(constraint) == [{ord("2"), END}]


PIECE_X, PIECE_1 = 271, 272         # ">x" and ">1"


def test_drafts_may_cross_into_the_constraint() -> None:
    """Each row has the mask of its own place."""
    constraint = start("regex", "12?|he", after=("<call>",))
    rows = allowed(constraint, [97, CALL, ord("1")])
    assert [len(row) for row in rows[:2]] == [tokenizer().n_vocab] * 2
    assert [texts_of(row) for row in rows[2:]] == [{"1", "12", "h", "he"}, {"2", "<|im_end|>"}]
    assert allowed(constraint) == [set(range(tokenizer().n_vocab))], "it is where it was"


def texts_of(row: set[int]) -> set[str]:
    return {tokenizer().token_bytes(token).decode() for token in row}


def test_an_empty_text_to_start_behind_is_refused() -> None:
    """It would stand everywhere."""
    with pytest.raises(GrammarError, match="expected texts of one character at least"):
        start("regex", "a", after=("",))


@pytest.mark.parametrize("text", ["{}", '{"a":[1,null,{"b":"c"}]}', '{\n  "a": true\n}'])
def test_any_json_object(text: str) -> None:
    """`json` is what response_format json_object asks for."""
    assert accepts("json", "", text)


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a"}', '{"a":    1}', "{}\n", "{\n\n\n}"])
def test_what_is_no_json_object(text: str) -> None:
    """White space is bounded: a model that has nothing to say would fill the context with it."""
    assert not accepts("json", "", text)


def test_tokens_of_sentencepiece_models_spell_their_bytes() -> None:
    """Byte tokens, and pieces with a space at their front; the forced text gets no space of its own."""
    constraint = sentencepiece_grammars().start(ConstraintSpec("regex", "a(bc| ab)"))
    masks = np.zeros((1, sentencepiece_grammars().n_words), np.int32)
    constraint.fill(masks)
    assert np.flatnonzero(bits(masks[0])).tolist() == [3 + 97, 260, 263]          # <0x61>, a, ab
    constraint.accept(263)
    assert list(constraint.forced()) == [262]                                     # c
    constraint = sentencepiece_grammars().start(ConstraintSpec("regex", "a(bc| ab)"))
    constraint.accept(260)
    constraint.fill(masks)
    assert np.flatnonzero(bits(masks[0])).tolist() == [3 + 32, 3 + 98, 259, 261, 264, 265, 266]


def test_a_grammar_is_compiled_once() -> None:
    """And every request begins at its beginning, whichever thread asks."""
    shared = Grammars(tokenizer())
    spec = ConstraintSpec("json_schema", POINT)
    started = [shared.start(spec)]
    started[0].accept(encode('{"')[0])

    def work() -> None:
        for _ in range(20):
            each = shared.start(spec)
            for token in encode('{"x":12}'):
                each.accept(token)
            started.append(each)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 81
    assert sum(each.is_finished for each in started) == 80
    assert allowed(started[0], encode('"x":12}')) == allowed(start("json_schema", POINT), encode('{"x":12}'))[1:]


class Panic(BaseException):
    """What a panic of llguidance looks like: no Exception."""


class Panicking:
    """In place of llguidance's matcher."""

    def __getattr__(self, name: str) -> Any:
        raise Panic("index out of bounds")


@pytest.mark.parametrize("use", [
    lambda c: c.fill(np.zeros((1, 100), np.int32)), lambda c: c.accept(encode("1")[0]), lambda c: c.forced(),
    lambda c: c.keep_valid(encode("1")), lambda c: c.is_finished,
], ids=["fill", "accept", "forced", "keep_valid", "is_finished"])
def test_a_panic_of_llguidance_is_an_error_of_the_grammar(use: Callable[[Constraint], Any]) -> None:
    """So it is the trouble of one request, wherever it happens."""
    constraint = start("regex", "[0-9]+")
    constraint._matcher = cast(LLMatcher, Panicking())
    with pytest.raises(ConstraintError, match="llguidance fails with this grammar: index out of bounds"):
        use(constraint)


def test_a_panic_at_the_beginning_is_an_error_of_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked hears of it."""
    def panic(spec: ConstraintSpec, tokens: Any) -> None:
        raise Panic("index out of bounds")

    monkeypatch.setattr(constraint_module, "compiled", panic)
    with pytest.raises(GrammarError, match="index out of bounds"):
        Grammars(tokenizer()).start(ConstraintSpec("regex", "[0-9]+"))


def test_what_compiles_for_ever_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own requests fail and others are compiled, until too many go on though nobody waits for them."""
    may_end, begun = threading.Event(), Queue[str]()

    def slowly(spec: ConstraintSpec, tokens: Any) -> LLMatcher:
        if spec.source.startswith("slow"):
            begun.put(spec.source)
            may_end.wait()
        return compiled(spec, tokens)

    monkeypatch.setattr(constraint_module, "compiled", slowly)
    several = Grammars(tokenizer())
    several.start(ConstraintSpec("regex", "known"))
    monkeypatch.setattr(patience, "MAX_S", 0.01)
    try:
        for source in ("slow0", "slow1", "slow1", "slow2"):
            with pytest.raises(GrammarError, match=r"this takes longer than 0\.01 s to compile"):
                several.start(ConstraintSpec("regex", source))
        monkeypatch.setattr(patience, "MAX_S", 60.0)
        assert {begun.get() for _ in range(3)} == {"slow0", "slow1", "slow2"}
        assert begun.empty()
        several.start(ConstraintSpec("regex", "known"))
        with pytest.raises(GrammarError, match="3 others take longer than 60 s each to compile"):
            several.start(ConstraintSpec("regex", "other"))
    finally:
        may_end.set()
    for _, thread in several._patience._lost:
        thread.join()
    assert not several.start(ConstraintSpec("regex", "other")).is_finished
    assert not several.start(ConstraintSpec("regex", "slow1")).is_finished


def test_ctrl_c_is_no_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends what it is to end."""
    def interrupt(spec: ConstraintSpec, tokens: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(constraint_module, "compiled", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Grammars(tokenizer()).start(ConstraintSpec("regex", "[0-9]+"))


@pytest.mark.parametrize(("kind", "source", "message"), [
    ("regex", "a(b", "unclosed group"),
    ("regex", "a(?=b)", "look-around"),
    ("regex", "[a", "unclosed character class"),
    ("regex", "x" * 70_000, "the regex has 70,000 characters, expected 65,536 at most"),
    ("json_schema", "{", r"\$: line 1, column 2: not JSON"),
    ("json_schema", '{"$ref": "#"}', "there is no text that this json_schema constraint allows"),
    ("ebnf", "a", "constraint of kind 'ebnf'; expected json_schema, json, regex, gbnf, lark or tools"),
])
def test_what_cannot_be_compiled_is_the_requests_fault(kind: str, source: str, message: str) -> None:
    """The server answers 400, with the place."""
    with pytest.raises(GrammarError, match=message) as caught:
        start(kind, source)
    assert isinstance(caught.value, RequestError)
