"""What the metrics are told of steps and requests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ggpy.engine.metrics import RequestStats, StepStats
from ggpy.engine.request import Request
from ggpy.engine.scheduler import Chunk
from ggpy.engine.step_result import StepResult


def step_stats(chunks: Sequence[Chunk], results: Sequence[StepResult], *, step_s: float, forward_s: float,
               n_preempted: int) -> StepStats:
    """A step that computed `chunks`, of which `results` got tokens."""
    drafting = [result for result in results if result.num_drafted]
    n_rows = n_prompt_rows = longest = 0
    for chunk in chunks:
        n_rows += chunk.n_rows
        n_prompt_rows += 0 if chunk.is_answer else chunk.length
        longest = max(longest, len(chunk.request.tokens))
    return StepStats(
        n_rows=n_rows, n_running=len(chunks), n_prompt_rows=n_prompt_rows, step_s=step_s, forward_s=forward_s,
        longest=longest, n_preempted=n_preempted,
        n_drafted=sum(result.num_drafted for result in drafting), accepted=[result.num_accepted for result in drafting])


def request_stats(request: Request) -> RequestStats:
    """A request that ends now."""
    admitted_s, first_s, last_s = request.admitted_s, request.first_token_s, request.last_token_s
    return RequestStats(
        finish_reason=request.finish_reason or "cancelled", n_prompt=len(request.prompt_tokens),
        n_generated=request.num_generated, e2e_s=time.perf_counter() - request.added_s,
        prefill_s=None if first_s is None or admitted_s is None else first_s - admitted_s,
        decode_s=None if first_s is None or last_s is None else last_s - first_s)
