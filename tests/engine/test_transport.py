"""How an engine's process and who started it meet."""

import asyncio
from dataclasses import replace
from functools import partial

from ggpy.engine.process_client import ProcessClient
from ggpy.engine.transport import ChildPipes, ParentPipes
from tests.engine.asking import expected_tokens, hashed, job, tokens_of


def test_processes_that_have_no_unix_sockets_meet_on_a_port() -> None:
    """With the same answers."""
    async def ask() -> list[int]:
        async with hashed(partial(ProcessClient.start, use_tcp=True)) as client:
            return await tokens_of(client, job(5, 4))

    assert asyncio.run(ask()) == expected_tokens(5, 4)


def test_a_port_turns_away_who_does_not_know_the_secret() -> None:
    """It reads nothing of what is sent, and what it sends arrives nowhere."""
    parent = ParentPipes(use_tcp=True)
    stranger = ChildPipes(replace(parent.addresses, secret="wrong"))
    stranger.send(b"hello")
    child = ChildPipes(parent.addresses)
    child.send(b"first")
    assert parent.receive() == b"first"
    parent.send(b"for the child")
    assert child.receive() == b"for the child"
    parent.say_ended()
    assert parent.receive() is None
    stranger.flush(0)
    child.flush()
    parent.close()
