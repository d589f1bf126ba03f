"""How two processes of ggpy on one machine reach each other: two ZeroMQ pipes that nobody else can read or write.

Where the system has them these are Unix sockets in a folder that the user alone may enter; elsewhere TCP ports of the
loopback interface, which turn away whoever does not know a secret made for the occasion.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator

USER = "ggpy"
ENDED = "inproc://ended"        # where a thread of the parent says that the child has ended
CONNECTED_MS = 5000             # how long the second pipe may take to be there, after the first
LINGER_MS = 5000                # how long what a child sends last may take to leave it
LAST_WORDS_MS = 100             # how long what has left it may take to arrive


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a parent waits for its child."""

    commands: str               # to the child
    answers: str                # from the child
    folder: str | None          # of the Unix sockets
    secret: str | None          # that TCP asks for


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is told on its standard input, which then stays open for as long as its parent lives."""

    addresses: Addresses
    path: tuple[str, ...]       # where the parent finds modules
    log_level: int
    load: bytes                 # pickled; gives the EngineCore


class ParentPipes:
    """The parent's ends. One thread sends, another receives."""

    def __init__(self, *, use_tcp: bool = False) -> None:
        self._context = zmq.Context()
        self._commands, self._answers = self._context.socket(zmq.PUSH), self._context.socket(zmq.PULL)
        for socket in (self._commands, self._answers):
            socket.set_hwm(0)           # nobody may wait for the other process: that would stall all requests
            socket.linger = 0
        self._authenticator: ThreadAuthenticator | None = None
        self._is_connected = self._has_ended = False
        folder = None if use_tcp else private_folder()
        secret = self._require_secret() if folder is None else None
        self._commands.bind("tcp://127.0.0.1:*" if folder is None else f"ipc://{folder}/commands")
        self._answers.bind("tcp://127.0.0.1:*" if folder is None else f"ipc://{folder}/answers")
        self.addresses = Addresses(endpoint(self._commands), endpoint(self._answers), folder, secret)
        self._answers.bind(ENDED)

    def send(self, data: bytes) -> None:
        """Never waits. Nothing is sent to a child that has ended, of which `receive` tells."""
        with suppress(zmq.Again):
            self._commands.send(data, zmq.NOBLOCK)

    def receive(self) -> bytes | None:
        """The next message; None if the child has ended and everything that it sent has been received.

        From the first one on the other pipe works too.
        """
        while not self._has_ended:
            data = self._answers.recv()
            if data:
                self._is_connected = self._is_connected or bool(self._commands.poll(CONNECTED_MS, zmq.POLLOUT))
                return data
            self._has_ended = True
        return self._answers.recv() if self._answers.poll(LAST_WORDS_MS) else None

    def say_ended(self) -> None:
        """Let `receive` know that the child has ended; any thread may say so."""
        with self._context.socket(zmq.PUSH) as socket:
            socket.connect(ENDED)
            socket.send(b"")

    def close(self) -> None:
        """When the child has ended and no other thread uses the pipes."""
        self._commands.close()
        self._answers.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        remove_folder(self.addresses)

    def _require_secret(self) -> str:
        secret = secrets.token_hex(32)
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_plain("*", {USER: secret})
        for socket in (self._commands, self._answers):
            socket.plain_server = True
        return secret


class ChildPipes:
    """The child's ends. One thread receives, any may send."""

    def __init__(self, addresses: Addresses) -> None:
        self._receiving, self._sending = zmq.Context(), zmq.Context()
        self._commands, self._answers = self._receiving.socket(zmq.PULL), self._sending.socket(zmq.PUSH)
        self._lock = threading.Lock()
        for socket, address in ((self._commands, addresses.commands), (self._answers, addresses.answers)):
            if addresses.secret is not None:
                socket.plain_username, socket.plain_password = USER.encode(), addresses.secret.encode()
            socket.set_hwm(0)
            socket.connect(address)

    def send(self, data: bytes) -> None:
        """Never waits."""
        with self._lock:
            self._answers.send(data)

    def receive(self) -> bytes:
        """The next message."""
        return self._commands.recv()

    def flush(self, longest_ms: int = LINGER_MS) -> None:
        """Send no more, and wait until all that was sent has left this process, but no longer than `longest_ms`."""
        with self._lock:
            self._answers.close(linger=longest_ms)
        self._sending.term()


def private_folder() -> str | None:
    """A new folder for Unix sockets that the user alone may enter; None where there are none, or paths are too long."""
    if not zmq.has("ipc"):
        return None
    folder = tempfile.mkdtemp(prefix="ggpy-")       # mode 0700
    if len(f"{folder}/commands") < zmq.IPC_PATH_MAX_LEN:
        return folder
    os.rmdir(folder)
    return None


def remove_folder(addresses: Addresses) -> None:
    """Remove the Unix sockets; whichever process ends last does so."""
    if addresses.folder is not None:
        shutil.rmtree(addresses.folder, ignore_errors=True)


def endpoint(socket: zmq.Socket[bytes]) -> str:
    """Where `socket` was bound last."""
    address = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(address, bytes)
    return address.decode().rstrip("\0")
