"""Messages between processes: what arrives is what was sent, and anything else is a clear error."""

import math

import numpy as np
import pytest

from ggpy.engine.adapters import AdapterInfo
from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.kv_cache import Miss
from ggpy.engine.messages import (
    VERSION,
    AdapterList,
    Array,
    Cancel,
    ComputeLogits,
    Embed,
    EraseState,
    Failure,
    Generate,
    GetAdapters,
    GetMetrics,
    GetStatus,
    Progress,
    Ready,
    Reply,
    RestoreState,
    SavedTokens,
    SaveState,
    SetAdapters,
    Shutdown,
    StartFailed,
    Status,
    Tokens,
    decode_answers,
    decode_commands,
    encode,
)
from ggpy.engine.metrics import PageUse
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.engine.request import ContextShift, Event
from ggpy.errors import ConfigError, EngineError, GgpyError, PromptTooLongError


def test_commands_arrive_as_they_were_sent() -> None:
    """Parameters too, infinity included."""
    params = SamplingParams(temperature=0.3, logit_bias=((7, -math.inf),), stop=("\n", "é"), seed=2**32 - 1)
    constraint = ConstraintSpec("json_schema", '{"type": "object"}', ("</think>",))
    commands = [Generate(id=3, prompt_tokens=[1, 2**31 - 1], params=params, n=2, constraint=constraint,
                         priority=-1, deadline_s=2.5, salt=2**40,
                         probabilities=ProbabilitySpec(5, after_sampling=True), adapters=((0, 0.5),),
                         context_shift=ContextShift(3, 4), tells_progress=True, keeps=((3, 300.0), (1, 3600.0))),
                GetAdapters(10), SetAdapters(11, ((1, -2.0),)),
                Cancel(3), GetStatus(5), GetMetrics(6), ComputeLogits(4, [1, 2], 2), Embed(9, [[1], [2, 3]], "cls"),
                SaveState(7, "/a/é", [1], 3, b"\0\xff"), RestoreState(8, "/a", 12, 5),
                EraseState(12, [1, 2], 3), Shutdown()]
    assert decode_commands(encode(commands)) == commands


def test_answers_arrive_as_they_were_sent() -> None:
    """Whatever a step brings is one message."""
    probability = TokenProbability(5, -math.inf, ((6, -0.25), (5, -math.inf)))
    answers = [Progress("compiling", "q4_k.linear", 1, 9), Ready(4096, 61, 7, 4, True, "rank", 1, 512),
               StartFailed(Failure("GgpyError", "x")),
               Tokens(3, 1, (5,), "ab", "stop", None, 32, Miss("evicted", 32), 1.5, (probability,), admitted_s=1.25),
               Reply(4, Status(1, 2, (PageUse(1, 2, 3),))), Reply(5, "text"),
               Reply(8, AdapterList((AdapterInfo("/a.gguf", 0.5, "sums", "Add: ", "f"),))),
               Reply(7, SavedTokens([1], 2, 3)),
                Reply(6, error=Failure("RequestError", "no"))]
    assert decode_answers(encode(answers)) == answers


def test_rows_of_numbers_keep_their_bits() -> None:
    """Also nan and those that are not contiguous."""
    rows = np.array([[1, math.nan, 3], [-0.0, 1e-45, math.inf]], np.float32).T
    [reply] = decode_answers(encode([Reply(1, Array.of(rows))]))
    assert isinstance(reply, Reply)
    assert isinstance(reply.value, Array)
    assert reply.value.rows().tobytes() == rows.copy(order="C").tobytes()
    assert reply.value.rows().shape == (3, 2)


def test_rows_that_are_not_all_there_are_an_error() -> None:
    """Their shape is not believed."""
    with pytest.raises(EngineError, match="sent 4 bytes for 1,000,000 rows of 8 numbers"):
        Array((1_000_000, 8), b"1234").rows()


def test_an_error_keeps_its_class_and_words() -> None:
    """That of a class which only the other side knows is a plain one."""
    failure = Tokens.of(Event(1, finish_reason="error", error=PromptTooLongError("too long"))).error
    assert failure is not None
    assert type(failure.exception()) is PromptTooLongError
    assert str(failure.exception()) == "too long"
    assert [type(Failure(kind, "").exception()) for kind in ("NewError", "shown", "__doc__")] == [GgpyError] * 3


@pytest.mark.parametrize(("data", "words"), [
    (b"", f"has nothing at all, expected version {VERSION}"),
    (bytes([VERSION + 1]) + encode([Shutdown()])[1:], f"has version {VERSION + 1}, expected version {VERSION}"),
    (encode([Shutdown()])[:-1], "cannot be read"),
    (encode([GetStatus(1)]) + b"x", "cannot be read"),
    (bytes([VERSION]) + b"\x91" * 100_000, "cannot be read"),
    (encode([Ready(1, 2, 3, 4)]), "Invalid value 'Ready'"),
    (bytes([VERSION]) + b"\x91\x83\xa4type\xa9GetStatus\xa2id\x01\xa3new\x01", "unknown field `new`"),
])
def test_what_is_not_a_message_is_an_error(data: bytes, words: str) -> None:
    """Old, cut off, too deep, of the other direction, with a field that nobody knows."""
    with pytest.raises(EngineError, match=words):
        decode_commands(data)


def test_parameters_are_checked_where_they_arrive() -> None:
    """As anywhere."""
    data = encode([Generate(prompt_tokens=[1], params=SamplingParams(top_p=0.25))])
    with pytest.raises(ConfigError, match="top_p=-0"):
        decode_commands(data.replace(np.array(0.25, ">f8").tobytes(), np.array(-0.25, ">f8").tobytes()))
