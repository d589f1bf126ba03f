"""What becomes of a request: its events, the end of its answer, and what is refused."""

import pytest

from ggpy.engine.kv_cache import Miss
from ggpy.engine.request import ContextShift
from ggpy.errors import PromptTooLongError, QueueFullError, RequestError
from tests.engine.conftest import END, N_VOCAB
from tests.engine.driving import MakeDriver, request


def test_events_carry_tokens_and_text(make_driver: MakeDriver) -> None:
    """One event a token, the reason in the last."""
    driver = make_driver()
    r = request(range(5), max_tokens=3)
    driver.run(r)
    events = driver.events[r.id]
    assert [token for event in events for token in event.tokens] == r.output_tokens
    assert [event.finish_reason for event in events] == [None, None, "length"]
    assert driver.text(r) == "".join(chr(65 + token) for token in r.output_tokens)


def test_events_say_when_their_request_was_taken_up(make_driver: MakeDriver) -> None:
    """Which is before its first token, and stays so."""
    driver = make_driver()
    r = request(range(5), max_tokens=3)
    driver.run(r)
    events = driver.events[r.id]
    assert r.admitted_s is not None
    assert [event.admitted_s for event in events] == [r.admitted_s] * 3
    assert r.added_s <= r.admitted_s < events[0].time_s


def test_the_last_event_says_why_no_more_was_reused(make_driver: MakeDriver) -> None:
    """The first prompt was new; the second one differs from it behind 40 tokens."""
    driver = make_driver()
    first, second = request(range(50)), request([*range(40), *range(10)])
    for r, expected in ((first, Miss("new_prefix", 0)), (second, Miss("edited_history", 40))):
        driver.run(r)
        *events, last = driver.events[r.id]
        assert [event.miss for event in events] == [None] * len(events)
        assert (last.miss, last.num_cached) == (expected, expected.position)


def test_a_request_may_tell_how_far_its_prompt_is_read(make_driver: MakeDriver) -> None:
    """What the cache has comes first, then what each step adds; the token comes by itself."""
    driver = make_driver()
    driver.run(request(range(10)))
    r = request([*range(10), *range(20, 50)], max_tokens=1)
    r.tells_progress = True
    driver.run(r)
    assert [(event.num_read, len(event.tokens)) for event in driver.events[r.id]] == [
        (10, 0), (26, 0), (40, 0), (None, 1)]


def test_the_end_token_ends_the_answer_and_has_no_text(make_driver: MakeDriver) -> None:
    """It is counted among the tokens."""
    driver = make_driver(n_ctx=256)
    r = request([3], ignore_eos=False, max_tokens=None, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
    driver.run(r)
    assert r.finish_reason == "stop"
    assert r.output_tokens[-1] == END
    assert len(driver.text(r)) == len(r.output_tokens) - 1


def test_control_tokens_show_where_they_are_wanted(make_driver: MakeDriver) -> None:
    """The one that ends an answer, too."""
    texts = []
    for shows_special in (False, True):
        driver = make_driver(shows_special=shows_special)
        r = request([5] * 3, ignore_eos=False, max_tokens=9, logit_bias={END: 1000})
        driver.run(r)
        texts.append(driver.text(r))
    assert texts == ["", "<end>"]


def test_a_stop_string_ends_the_answer_before_it(make_driver: MakeDriver) -> None:
    """Here it lies across the third and fourth token."""
    free = request(range(5), max_tokens=6)
    driver = make_driver()
    driver.run(free)
    text = driver.text(free)
    r = request(range(5), max_tokens=6, stop=(text[2:4],))
    driver.run(r)
    assert driver.text(r) == text[:2]
    assert (r.finish_reason, r.num_generated) == ("stop", 4)


def test_an_answer_ends_where_the_context_does(make_driver: MakeDriver) -> None:
    """Prompt and answer together fill it."""
    driver = make_driver(n_ctx=64)
    r = request(range(60), max_tokens=None)
    driver.run(r)
    assert (r.finish_reason, len(r.tokens)) == ("length", 64)


def test_a_shifted_context_keeps_its_beginning_and_its_end(make_driver: MakeDriver) -> None:
    """Of 64 tokens the first 4 stay, and the later half of the others; the answer goes on."""
    driver = make_driver(n_ctx=64)
    r = request(range(40), max_tokens=50)
    r.context_shift = ContextShift(n_keep=4)
    before: list[int] = []
    driver.add(r)
    for _ in driver.steps_left():
        if r.num_discarded:
            break
        before = list(r.tokens)
    assert r.tokens[:4] == [0, 1, 2, 3]
    assert r.tokens[4:-1] == before[-29:]
    assert r.num_discarded == 30
    for _ in driver.steps_left():
        pass
    assert (r.num_generated, r.finish_reason) == (50, "length")


def test_a_request_whose_time_is_up_ends_with_an_error(make_driver: MakeDriver) -> None:
    """Waiting or running; what it computed is there for others."""
    driver = make_driver(max_running=1)
    running, waiting, other = request(range(40)), request(range(40)), request(range(40))
    for r in (running, waiting, other):
        driver.add(r)
    driver.step()
    running.deadline_s = waiting.deadline_s = 0.0
    events = driver.step()
    assert [(event.request_id, type(event.error).__name__) for event in events] == [
        (running.id, "DeadlineError"), (waiting.id, "DeadlineError")]
    for _ in driver.steps_left():
        pass
    assert (other.num_cached, other.finish_reason) == (16, "length")


def test_a_prompt_that_cannot_fit_is_refused_with_both_sizes(make_driver: MakeDriver) -> None:
    """Nothing is queued."""
    driver = make_driver(n_ctx=64)
    with pytest.raises(PromptTooLongError, match=r"the prompt has 64 tokens but the context holds 64"):
        driver.add(request([1] * 64))
    assert not driver.core.has_work


@pytest.mark.parametrize(("prompt", "message"), [
    ([], "the prompt has no tokens"),
    ([1, N_VOCAB], "token 61 is not in the vocabulary; expected 0 to 60"),
    ([1, -1], "token -1"),
])
def test_a_prompt_that_the_model_cannot_read_is_refused(
    make_driver: MakeDriver, prompt: list[int], message: str
) -> None:
    """Before it is queued."""
    with pytest.raises(RequestError, match=message):
        make_driver().add(request(prompt))


def test_a_full_queue_refuses(make_driver: MakeDriver) -> None:
    """Nothing of the refused request stays."""
    driver = make_driver(max_queue=2)
    driver.add(request([1]))
    driver.add(request([1]))
    with pytest.raises(QueueFullError, match="2 requests are waiting already"):
        driver.add(request([1]))
    for _ in driver.steps_left():
        pass
    assert len(driver.events) == 2
