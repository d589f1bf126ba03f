"""The comparison with llama-server: its flags, its start and end, and what a stream waits while a prompt is read."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))      # bench is no part of an installed ggpy

from bench import llama_server, serving
from bench.stalls import Stall, measure_stall, worst_gap
from ggpy.tools.bench_serve_targets import Answer
from tests.models.arch_data import ArchModel
from tests.tools.test_bench_serve_load import FakeTarget

FAKE_SERVER = """\
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
assert sys.argv[1:3] == ["-m", "model.gguf"] and "-np" in sys.argv
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def program(tmp_path: Path, source: str) -> Path:
    """An executable that runs Python source."""
    path = tmp_path / "llama-server"
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(0o755)
    return path


def value(flags: Sequence[str], name: str) -> str:
    return flags[list(flags).index(name) + 1]


def test_a_pool_for_all_is_slots_and_a_cache_of_prompts() -> None:
    """Eight requests of 1,000 tokens in a pool of 10,000: 2,000 tokens of 1 KiB are left, which is 1 MiB."""
    flags = llama_server.flags(8, 2, n_longest=1000, pool_tokens=10_000, token_bytes=1024)
    assert [value(flags, name) for name in ("-np", "-c", "-cram", "-t")] == ["8", "8000", "1", "2"]


def test_a_small_pool_has_fewer_slots() -> None:
    """So that the cache of all slots never overflows, which would end their requests."""
    flags = llama_server.flags(8, 2, n_longest=1000, pool_tokens=3_500, token_bytes=1024)
    assert [value(flags, name) for name in ("-np", "-c", "-cram")] == ["3", "3000", "0"]
    assert value(llama_server.flags(8, 2, 1000, 500, 1024), "-np") == "1"


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_the_server_is_ended_with_the_benchmark(tmp_path: Path) -> None:
    """It was healthy within, and nobody listens afterwards."""
    async def run() -> None:
        async with llama_server.running([str(program(tmp_path, FAKE_SERVER))], Path("model.gguf"), ["-np", "8"]) as url:
            assert url.startswith("http://127.0.0.1:")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))

    asyncio.run(run())


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_server_that_does_not_start_leaves_its_last_words(tmp_path: Path) -> None:
    """Such as that it cannot read the model."""
    async def run() -> None:
        async with llama_server.running([str(program(tmp_path, "raise SystemExit('no such model')"))], Path("m"), []):
            pass

    with pytest.raises(SystemExit, match="did not become ready: no such model"):
        asyncio.run(run())


def test_the_worst_gap_is_that_of_the_prompts_time() -> None:
    """Gaps before and after do not count, those across its ends do."""
    times_s = [0.0, 5.0, 5.1, 5.3, 5.6, 5.7, 9.0]
    assert worst_gap(times_s, 5.05, 5.58) == pytest.approx(0.3)
    assert worst_gap(times_s, 5.0, 5.2) == pytest.approx(5.0)
    with pytest.raises(SystemExit, match="the stream did not last"):
        worst_gap(times_s, 5.0, 9.5)


def test_a_gap_is_small_by_either_measure() -> None:
    """Four idle gaps, or 100 ms."""
    assert Stall("t", 100, 10, 90, 200, 150).gap_limit_ms == 100
    assert Stall("t", 100, 40, 90, 200, 150).gap_limit_ms == 160
    assert Stall("t", 100, 40, 90, 200, 150).share == 0.75


class SteadyTarget(FakeTarget):
    """A token every 10 ms; reading a long prompt takes 100 ms alone and 200 ms beside a stream."""

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        answer = Answer() if answer is None else answer
        self.n_busy += 1
        if len(prompt) > 100:
            await asyncio.sleep(0.1 * self.n_busy)
        for i in range(n_output):
            await asyncio.sleep(0.01)
            answer.arrived([i], time.perf_counter())
        self.n_busy -= 1
        return answer


def test_a_prompt_is_measured_alone_and_beside_a_stream() -> None:
    """Twice the time is half the speed."""
    stall = asyncio.run(measure_stall(SteadyTarget(), range(4096), n_prompt=1000, n_ctx=2000))
    assert (stall.target, stall.n_prompt) == ("fake", 1000)
    assert stall.idle_gap_ms >= 10
    assert stall.worst_gap_ms >= stall.idle_gap_ms
    assert stall.share < 1


def test_all_cases_run_without_the_peer(
    arch_model: Callable[[str], ArchModel], capsys: pytest.CaptureFixture[str]
) -> None:
    """Small ones, with one engine: the tables have no ratio."""
    args = argparse.Namespace(path=arch_model("llama_headdim").path, threads=1, no_drafts=False,
                              case=["agent", "chats", "edit"], peer_bin=None, peer_flags="",
                              pool=["all", "half"], sessions=2, requests=2, clients=2, prompt=64, scale=0.02, seed=0)
    results = asyncio.run(serving.compare(args))
    assert [result["case"] for result in results] == ["agents, all", "agents, half", "chats", "edit"]
    assert all(run["n_ok"] == run["n_requests"] for result in results for run in result["runs"])
    assert " ratio " not in capsys.readouterr().out
