"""What tests of the engine's loop ask for, and drafts that come from what it will say."""

from collections.abc import Callable
from typing import Any

from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request

MakeDriver = Callable[..., Any]     # the Driver of conftest.py


def request(prompt: list[int] | range, **params: Any) -> Request:
    """Greedy and without an end of its own, unless `params` say otherwise."""
    return Request(list(prompt), SamplingParams(**{"temperature": 0, "ignore_eos": True, "max_tokens": 4, **params}))


def expected_tokens(make_driver: MakeDriver, r: Request) -> list[int]:
    """What the same request generates alone."""
    alone = Request(list(r.prompt_tokens), r.params)
    make_driver().run(alone)
    return alone.output_tokens


def step_shape(driver: Any) -> list[tuple[int, int, int]]:
    """The sequences of the last step: first position, tokens, outputs."""
    return [(s.first_position, len(s.tokens), s.n_outputs) for s in driver.backend.steps[-1]]


class Guesser:
    """Drafts what a request will say, but each token that `luck` + 1 divides is wrong; -> any speculator."""

    def __init__(self, make_driver: MakeDriver, luck: int) -> None:
        self.make_driver, self.luck = make_driver, luck
        self.answers: dict[int, list[int]] = {}
        self.num_accepted = self.num_drafted = 0

    def draft(self, requests: list[Request]) -> None:
        for r in requests:
            if r.id not in self.answers:
                self.answers[r.id] = expected_tokens(self.make_driver, r)
            n = r.num_generated
            drafts = self.answers[r.id][n : n + 5]
            r.draft_tokens = tuple((t + 1) % 60 if (n + i) % (self.luck + 1) == 0 else t for i, t in enumerate(drafts))

    def reset(self) -> None:
        self.answers.clear()

    def saw(self, r: Request, n_drafted: int, n_accepted: int, step_s: float) -> None:
        self.num_drafted += n_drafted
        self.num_accepted += n_accepted

    def finished(self, r: Request) -> None:
        pass
