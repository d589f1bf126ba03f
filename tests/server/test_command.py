"""`ggpy serve` as a process: its start, its end, and what it loads."""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ggpy.engine.recording import read_trace

TIMEOUT_S = 60.0


@contextmanager
def serving(*flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port; it is killed at the end if it still runs."""
    process = subprocess.Popen([sys.executable, "-m", "ggpy", "serve", "--port", "0", *flags], stderr=subprocess.PIPE,
                               text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"listening on http://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", line)
        assert found is not None, line
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def rest(process: subprocess.Popen[str]) -> str:
    """What it says behind its first line, until it ends; `communicate` would miss what was read together with that."""
    assert process.stderr is not None
    return process.stderr.read()


def ask(port: int, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request(method, path, None if body is None else json.dumps(body))
    return connection.getresponse()


def wait_ready(port: int) -> list[int]:
    """The statuses of /health until it is 200."""
    statuses = []
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        statuses.append(ask(port, "GET", "/health").status)
        if statuses[-1] == 200:
            return statuses
        time.sleep(0.02)
    pytest.fail(f"not ready: {statuses[-3:]}")


def test_health_says_when_the_model_is_there_and_ctrl_c_ends_it(tiny_model: Path) -> None:
    """503 until then; the exit code is 0."""
    with serving("-m", str(tiny_model), "-c", "256", "-t", "1") as (process, port):
        statuses = wait_ready(port)
        assert set(statuses[:-1]) <= {503}
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0


def test_an_answer_that_runs_comes_to_its_end(tiny_model: Path) -> None:
    """SIGTERM waits for it, and nobody can connect any more."""
    with serving("-m", str(tiny_model), "-c", "256", "-t", "1") as (process, port):
        wait_ready(port)
        reply = ask(port, "POST", "/completion", {"prompt": [40, 41], "n_predict": 250, "ignore_eos": True,
                                                  "stream": True})
        assert reply.readline().startswith(b"data: ")
        process.send_signal(signal.SIGTERM)
        events = [json.loads(line[6:]) for line in reply.read().splitlines() if line.startswith(b"data: ")]
        assert events[-1]["tokens_predicted"] == 250
        assert process.wait(TIMEOUT_S) == 0
        with pytest.raises(ConnectionRefusedError):
            ask(port, "GET", "/health")


def stream(port: int) -> http.client.HTTPResponse:
    """An answer that has begun and goes on for long."""
    reply = ask(port, "POST", "/completion", {"prompt": [40, 41], "n_predict": 100_000, "ignore_eos": True,
                                              "stream": True})
    assert reply.readline().startswith(b"data: ")
    return reply


ENDLESS = ("-c", "131072", "-t", "1", "--context-shift")


@pytest.mark.parametrize(("drain_s", "n_signals"), [("600", 2), ("0", 1)])
def test_answers_are_cut_off_by_a_second_ctrl_c_and_when_they_take_too_long(
        tiny_model: Path, drain_s: str, n_signals: int) -> None:
    """A stream ends with an error event, another client gets 503; the exit code is 0."""
    with serving("-m", str(tiny_model), *ENDLESS, "--drain-seconds", drain_s) as (process, port):
        wait_ready(port)
        reply = stream(port)
        process.send_signal(signal.SIGINT)
        lines = iter(process.stderr or ())
        assert any("waiting for 1 answer; Ctrl-C again ends it" in line for line in lines)
        if n_signals == 2:
            process.send_signal(signal.SIGINT)
        last = [line for line in reply.read().splitlines() if line.startswith(b"data: ")][-1]
        assert json.loads(last[6:])["error"]["message"] == "the server ended before the answer did"
        assert process.wait(TIMEOUT_S) == 0


def test_an_answer_in_one_piece_that_is_cut_off_is_an_error(tiny_model: Path) -> None:
    """A 503, in the shape of the dialect."""
    with serving("-m", str(tiny_model), *ENDLESS, "--drain-seconds", "600") as (process, port):
        wait_ready(port)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request("POST", "/completion", json.dumps({"prompt": [40], "n_predict": 100_000,
                                                              "ignore_eos": True}))
        while not json.load(ask(port, "GET", "/slots"))[0]["is_processing"]:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert any("waiting for 1 answer" in line for line in process.stderr or ())
        process.send_signal(signal.SIGTERM)
        reply = connection.getresponse()
        assert reply.status == 503
        assert json.load(reply)["error"]["message"] == "the server ended before the answer did"
        assert process.wait(TIMEOUT_S) == 0


def test_what_was_asked_is_recorded_and_can_be_sent_again(tiny_model: Path, tmp_path: Path) -> None:
    """A line for each answer, also of several to a prompt, and also of one whose client is gone; no text."""
    trace = tmp_path / "trace.jsonl"
    with serving("-m", str(tiny_model), "-c", "256", "-t", "1", "--record", str(trace)) as (process, port):
        wait_ready(port)
        prompt = list(range(40, 110))
        body = {"n_predict": 6, "ignore_eos": True, "temperature": 0, "return_tokens": True}
        first = json.load(ask(port, "POST", "/completion", {**body, "prompt": prompt}))
        turn = [*prompt, *first["tokens"], 7, 8]
        json.load(ask(port, "POST", "/completion", {**body, "prompt": turn, "n": 2}))
        left = ask(port, "POST", "/completion", {**body, "prompt": [40], "n_predict": 200, "stream": True})
        left.readline()
        left.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    lines = read_trace(trace)
    assert [(line.input_length, line.parent) for line in lines] == [(70, None), (78, 0), (78, 0), (1, None)]
    assert [line.output_length for line in lines[:3]] == [6, 6, 6]
    assert lines[0].hash_ids[:2] == lines[1].hash_ids[:2]
    bench = subprocess.run([sys.executable, "-m", "ggpy", "bench", "serve", str(tiny_model), "--trace", str(trace),
                            "-c", "256", "-o", "jsonl"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert json.loads(bench.stdout)["n_ok"] == 4


def test_it_says_what_there_is_and_where(tiny_model: Path) -> None:
    """The file, how many tokens fit, and the page; nothing of a page that is not there."""
    flags = ("-m", str(tiny_model), "-c", "256", "-np", "2", "-t", "1")
    with serving(*flags) as (process, port):
        wait_ready(port)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert f"the model is ready: {tiny_model.name}: 128 tokens for a request, 256 for all together\n" in said
        assert f"chat with it at http://127.0.0.1:{port}/\n" in said


def test_without_a_model_it_says_which_there_are_and_where(tiny_model: Path, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Only "listening on" was said; without any, what brings one."""
    for name in ("GGPY_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    models = tmp_path / "models"
    models.mkdir()
    for names, line in (("", "there are no models on this machine; `ggpy pull smollm2` fetches one"),
                        ("ab", "models that requests may name: a, b")):
        for name in names:
            (models / f"{name}.gguf").symlink_to(tiny_model)
        with serving("--models-dir", str(models)) as (process, port):
            wait_ready(port)
            process.send_signal(signal.SIGINT)
            assert rest(process).splitlines()[:2] == [f"ggpy: {line}", f"ggpy: chat with it at http://127.0.0.1:{port}/"]


@pytest.mark.parametrize(("flags", "is_warned"), [([], True), (["--api-key", "k"], False)])
def test_who_serves_others_without_a_key_is_warned(flags: list[str], is_warned: bool) -> None:
    """Behind the addresses."""
    with serving("--host", "0.0.0.0", *flags) as (process, port):
        wait_ready(port)
        process.send_signal(signal.SIGINT)
        assert rest(process).startswith("ggpy: warning: whoever reaches this machine may ask") is is_warned


def test_a_port_that_is_taken_is_said_in_plain_words() -> None:
    """The address once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run([sys.executable, "-m", "ggpy", "serve", "--port", str(port)], capture_output=True,
                                text=True, timeout=TIMEOUT_S, check=False)
    assert result.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}: {os.strerror(errno.EADDRINUSE)}; --host and" in result.stderr


def test_a_wrong_name_is_said_before_it_listens() -> None:
    """Whoever waits for the address does not go on."""
    result = subprocess.run([sys.executable, "-m", "ggpy", "serve", "--port", "0", "no-such-model"],
                            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert result.returncode == 1
    assert "no-such-model" in result.stderr
    assert "listening" not in result.stderr


def test_a_model_that_cannot_be_loaded_ends_it(tmp_path: Path) -> None:
    """With the reason and exit code 1, before it listens."""
    (tmp_path / "bad.gguf").write_bytes(b"GGUF but not")
    result = subprocess.run([sys.executable, "-m", "ggpy", "serve", "--port", "0", "-m", str(tmp_path / "bad.gguf")],
                            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert result.returncode == 1
    assert "ggpy serve:" in result.stderr
    assert "bad.gguf" in result.stderr
    assert "listening" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("flags", "message"), [
    (["--ssl-key-file", __file__], "--ssl-key-file and --ssl-cert-file are needed together"),
    (["--slot-save-path", "/nowhere/at/all"], "there is no such folder"),
    (["-np", "1000"], "expected a whole number from 1 to 64, or -1"),
    (["--api-prefix", "x"], "--api-prefix x: expected a path such as /llm"),
    (["--port", "0", "--record", __file__], "exists; a recording needs a file of its own"),
    (["--port", "0", "--record", "/nowhere/at/all"], "a recording needs a file that can be written"),
    (["--host", "192.0.2.7", "--port", "1"], "cannot listen on 192.0.2.7, port 1"),
])
def test_what_cannot_work_is_said(flags: list[str], message: str) -> None:
    """In one line, with exit code 2."""
    result = subprocess.run([sys.executable, "-m", "ggpy", "serve", *flags], capture_output=True, text=True,
                            timeout=TIMEOUT_S, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_process_that_speaks_http_loads_no_compiler() -> None:
    """The engine has a process of its own."""
    code = ("import sys, ggpy.server.command, ggpy.server.run, ggpy.server.model_pool.discovery; "
            "print(*sorted({'numba', 'llvmlite'} & set(sys.modules)))")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert result.stdout.strip() == ""
