"""An engine in a process of its own, as seen from there. `process_client.py` is the other side."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

from ggpy.engine.core import EngineCore
from ggpy.engine.loop import described
from ggpy.engine.messages import Answer, Failure, Progress, Shutdown, StartFailed, decode_commands, encode
from ggpy.engine.service import EngineService
from ggpy.engine.transport import Addresses, ChildPipes, Start, remove_folder
from ggpy.errors import EngineError, GgpyError

KernelProgress = Callable[[str, int, int], None]        # kernel just compiled, how many are done, of how many
Load = Callable[[KernelProgress], EngineCore]           # opens the model; it has to be a function that pickle can name

logger = logging.getLogger("ggpy")


def main() -> None:
    """Be an engine's process: open the model, serve, and end with the parent or when it says so."""
    for number in (signal.SIGINT, signal.SIGTERM):      # those that a whole group gets are the parent's to answer
        signal.signal(number, signal.SIG_IGN)
    stdin = sys.stdin.buffer
    start: Start = pickle.load(stdin)
    threading.Thread(target=end_with_parent, args=(stdin, start.addresses), name="ggpy-parent", daemon=True).start()
    logging.basicConfig(level=start.log_level, format="%(name)s: %(message)s")
    sys.path.extend(entry for entry in start.path if entry not in sys.path)
    pipes = ChildPipes(start.addresses)
    code = 1
    try:
        code = serve(start.load, pipes)
    except BaseException:
        logger.exception("the engine's process fails")
    finally:
        pipes.flush()
        sys.stderr.flush()
        os._exit(code)          # whatever other threads do: nothing of theirs is to be kept


def end_with_parent(stdin: BinaryIO, addresses: Addresses) -> None:
    """End this process as soon as the other end of `stdin` is closed, which the system does when the parent dies."""
    stdin.read()
    remove_folder(addresses)
    os._exit(1)


def serve(load: bytes, pipes: ChildPipes) -> int:
    """Open the model and obey the parent until it says Shutdown; returns the exit code."""
    def send(answers: list[Answer]) -> None:
        pipes.send(encode(answers))

    try:
        core = opened(load, lambda progress: send([progress]))
    except GgpyError as error:
        send([StartFailed(Failure.of(error))])
        return 1
    gc.freeze()         # the vocabulary lives as long as the process: looking through it would stall streams for 50 ms
    service = EngineService(core, send)
    threading.Thread(target=obey, args=(service, pipes), name="ggpy-commands", daemon=True).start()
    send([service.ready])
    service.run()
    return 0


def opened(load: bytes, report: Callable[[Progress], None]) -> EngineCore:
    """The engine that `load` makes. Raises GgpyError, whatever goes wrong."""
    try:
        report(Progress("loading"))
        function: Load = pickle.loads(load)
        return function(lambda name, done, of: report(Progress("compiling", name, done, of)))
    except GgpyError:
        raise
    except Exception as error:
        logger.exception("the engine cannot start")
        raise EngineError(f"the engine cannot start ({described(error)})") from error


def obey(service: EngineService, pipes: ChildPipes) -> None:
    """Pass on what the parent asks. A message that cannot be read ends the process: the two do not fit each other."""
    try:
        while True:
            for command in decode_commands(pipes.receive()):
                service.obey(command)
                if isinstance(command, Shutdown):
                    return
    except BaseException:
        logger.exception("the engine's process fails")
        sys.stderr.flush()
        os._exit(1)
