"""Streams that go on without their client, and are read again."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ggpy.server.web.recordings import MAX_BYTES, MAX_RECORDINGS, Recording, Recordings
from tests.server.conftest import TIMEOUT_S, Served

LONG = {"prompt": [40, 41, 42], "n_predict": 200, "ignore_eos": True, "stream": True}
SHORT = {**LONG, "n_predict": 5}


def until(condition: Callable[[], Any]) -> Any:
    """What `condition` returns as soon as it is true."""
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return found


def found(server: Served, name: str) -> Any:
    """What /v1/streams/lookup tells of the stream `name`; None if there is none."""
    return next(iter(server.post("/v1/streams/lookup", {"conversation_ids": [name]}).json), None)


def stopped(server: Served, name: str) -> None:
    assert server.ask("DELETE", f"/v1/stream?conv_id={name}").status == 204


def test_a_stream_is_read_again_from_any_byte(server: Served) -> None:
    """It is what the client got; names may hold slashes and a model behind them."""
    data = server.ask("POST", "/completion", SHORT, {"X-Conversation-Id": "a/b::tiny"}).data
    told = until(lambda: (one := found(server, "a/b")) and one["is_done"] and one)
    assert (told["conversation_id"], told["total_bytes"]) == ("a/b::tiny", len(data))
    assert told["completed_at"] >= told["started_at"] > 0
    whole = server.get("/v1/stream?conv_id=a%2Fb%3A%3Atiny")
    assert (whole.status, whole.headers["content-type"], whole.data) == (200, "text/event-stream", data)
    assert server.get("/v1/stream?conv_id=a%2Fb%3A%3Atiny&from=10").data == data[10:]


def test_a_stream_goes_on_when_its_client_is_gone(server: Served) -> None:
    """And whoever reads it again gets the rest as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    connection.request("POST", "/completion", json.dumps(LONG), {"X-Conversation-Id": "gone"})
    connection.getresponse().read(20)
    connection.close()
    events = server.get("/v1/stream?conv_id=gone").events
    assert events[-1]["tokens_predicted"] == 200


def test_a_stop_ends_the_stream_for_its_client(server: Served) -> None:
    """As if it had come to its end; nothing is kept, and to stop it once more is no error."""
    loaded = server.server.models.single.loaded
    assert loaded is not None
    generate = loaded.client.generate

    async def endless(request: Any) -> Any:
        async for output in generate(request):
            yield output
            await asyncio.sleep(TIMEOUT_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded.client, "generate", endless)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        connection.request("POST", "/completion", json.dumps(LONG), {"X-Conversation-Id": "stopped"})
        response = connection.getresponse()
        response.read(20)
        stopped(server, "stopped")
        assert b'"stop":true' not in response.read()
        connection.close()
    assert server.get("/v1/stream?conv_id=stopped").status == 404
    stopped(server, "stopped")


def test_a_stop_before_the_first_event_is_an_error(server: Served) -> None:
    """The client waits for the model's two slots, which others have, and is told."""
    loaded = server.server.models.single.loaded
    assert loaded is not None
    replies: list[Any] = []
    begin = threading.Event()

    async def never(_: Any) -> Any:
        begin.set()
        await asyncio.sleep(TIMEOUT_S)
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded.client, "generate", never)
        thread = threading.Thread(target=lambda: replies.append(
            server.ask("POST", "/completion", SHORT, {"X-Conversation-Id": "early"})))
        thread.start()
        assert begin.wait(TIMEOUT_S)
        stopped(server, "early")
        thread.join(TIMEOUT_S)
    [reply] = replies
    assert (reply.status, "cancelled" in reply.error["message"]) == (400, True)


def test_what_is_no_stream_is_not_kept(server: Served) -> None:
    """A whole reply, and an error."""
    for body in ({**SHORT, "stream": False}, {"prompt": 5, "stream": True}):
        server.ask("POST", "/completion", body, {"X-Conversation-Id": "none"})
        until(lambda: found(server, "none") is None)


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?conv_id=", 400), ("?conv_id=unknown", 404)])
def test_what_is_not_there_is_not_read(server: Served, query: str, status: int) -> None:
    """Without a name it is the request that is wrong."""
    assert server.get(f"/v1/stream{query}").status == status


def test_an_offset_is_a_number_of_bytes(server: Served) -> None:
    """Nothing else."""
    server.ask("POST", "/completion", SHORT, {"X-Conversation-Id": "offset"})
    for start in ("-1", "x", "9" * 30):
        assert server.get(f"/v1/stream?conv_id=offset&from={start}").status == 400


def test_a_long_recording_loses_its_beginning() -> None:
    """Offsets count from what was sent first."""
    recording = Recording("long")
    for _ in range(3):
        recording.add(bytes(MAX_BYTES // 2))
    assert (recording.n_bytes, recording.n_lost) == (3 * MAX_BYTES // 2, MAX_BYTES // 2)


def test_a_name_belongs_to_the_last_who_took_it() -> None:
    """The one before is stopped."""
    recordings = Recordings()
    first = recordings.begin("a")
    second = recordings.begin("a")
    recordings.drop(first)
    assert (first.is_stopped, recordings.find("a")) == (True, second)


def test_the_last_recordings_are_kept() -> None:
    """Those that have not ended are kept whatever their number."""
    recordings = Recordings()
    for i in range(MAX_RECORDINGS + 3):
        recordings.begin(str(i)).end()
    going_on = recordings.begin("going on")
    assert recordings.find("going on") is going_on
    assert recordings.find("0") is None
    assert recordings.find(str(MAX_RECORDINGS)) is not None
