"""How many tokens are guessed for which request, and by whom."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from ggpy.engine.request import Request
from ggpy.engine.speculation.config import SpeculationConfig
from ggpy.engine.speculation.draft_model import MOST_NEW, DraftModel
from ggpy.engine.speculation.ngram import PromptLookup
from ggpy.engine.speculation.past_outputs import PastOutputs
from ggpy.engine.speculation.proposer import NOTHING, Kind, Proposal, Proposer
from ggpy.engine.speculation.step_times import StepTimes
from ggpy.engine.speculation.track import FREE_PROPOSING, INCOME, Rate, Track

TRY_LENGTH = 2          # tokens of a draft that is made to learn, unless so few are not wanted
FIRST_DRAFT_PART = 0.3  # of a step's time: what a draft model takes for a token until it is known
FIRST_PROPOSING_S = 2e-5    # what it takes to ask proposers for a request until it is known
LEAST_ROW = 0.03        # of the time of one row: what each further row takes at least, however lucky a measurement
PLAIN_EVERY = 64        # steps without drafts are due so often, for they show what the others cost


class Speculator:
    """Guesses tokens for requests as far as that pays.

    A draft is worth its row where the chance that it and all before it are right outweighs what the row adds to the
    step's time. Both are learnt: the chance by kind of proposal, the time by number of rows. With more requests, rows
    cost each of them more, so drafts become shorter by themselves. Whatever is learnt may be wrong for a while, so
    what a request may lose is bounded: see Track.

    `max_rows` is how many rows with an output a step may have, `n_ctx` how many tokens a request may. One thread calls
    the methods, in the order of a step: `draft`, then `saw` for each request that got tokens, then `finished`.
    """

    def __init__(self, config: SpeculationConfig, *, n_vocab: int, n_ctx: int, max_rows: int,
                 draft_model: DraftModel | None = None) -> None:
        self.config = config
        self._n_vocab, self._n_ctx, self._max_rows = n_vocab, n_ctx, max_rows
        self._draft_model = draft_model if "draft" in config.proposers else None
        self.reset()

    def reset(self) -> None:
        """Forget all requests and what was learnt, whatever state a failure left them in."""
        config, n_vocab = self.config, self._n_vocab
        self._proposers: list[Proposer] = []
        if "ngram" in config.proposers:
            self._proposers.append(PromptLookup(n_vocab, config.ngram_min, config.ngram_max))
        if "past" in config.proposers and config.past_tokens:
            self._proposers.append(PastOutputs(n_vocab, config.past_tokens, config.p_min))
        if self._draft_model is not None:
            self._draft_model.reset()
        self._times = StepTimes()
        self._draft_times = StepTimes()             # of the draft model, for one token of each request
        self._rates: dict[Kind, Rate] = {}          # of all requests
        self._tracks: defaultdict[int, Track] = defaultdict(Track)      # by request
        self._results: list[tuple[Track, int, int]] = []        # of the step: track, drafted, accepted
        self._step_s: float | None = None
        self._drafting_s = 0.0                      # of it, the time of `draft`
        self._proposing_s = FIRST_PROPOSING_S       # a request and a step, lately
        self._most_rows = 1                         # of a step so far
        self._n_since_plain = PLAIN_EVERY           # steps; the first one is plain

    def draft(self, requests: Sequence[Request]) -> None:
        """Set `draft_tokens` of `requests`, those that generate, for the next step."""
        start = time.perf_counter()
        self._learn()
        for request in requests:
            request.draft_tokens = ()
        self._n_since_plain += 1
        if self.config.synthetic_rates:
            self._draft_always(requests)
        elif requests and self._n_since_plain <= PLAIN_EVERY:
            self._draft(requests)
        self._drafting_s = time.perf_counter() - start

    def _draft_always(self, requests: Sequence[Request]) -> None:
        """Whatever it costs."""
        limits = [min(self._limit(request, len(requests)), len(self.config.synthetic_rates)) for request in requests]
        asked = [request for request, limit in zip(requests, limits, strict=True) if limit]
        if not asked or self._draft_model is None:
            return
        n_max = min(limit for limit in limits if limit)
        for request, proposal in zip(asked, self._draft_model.propose_all(asked, n_max), strict=True):
            request.draft_tokens = proposal.tokens

    def _draft(self, requests: Sequence[Request]) -> None:
        start = time.perf_counter()
        tracks = [self._tracks[request.id] for request in requests]
        asked: list[tuple[Request, Track, int]] = []        # with the most tokens that it may draft
        for request, track in zip(requests, tracks, strict=True):
            track.proposal, track.chances, track.is_try = NOTHING, [], False
            limit = self._limit(request, len(requests))
            if limit and track.balance > 0:
                asked.append((request, track, limit))
                self._ask(request, track, limit)
        if asked:
            self._charge_proposing(tracks, (time.perf_counter() - start) / len(asked))
            self._ask_draft_model(asked, len(requests))
        for request, track, length in zip(requests, tracks, self._lengths(tracks), strict=True):
            request.draft_tokens = track.proposal.tokens[:length]

    def saw(self, request: Request, n_drafted: int, n_accepted: int, step_s: float | None) -> None:
        """Learn that `n_drafted` tokens of `request` were checked and `n_accepted` of them were right.

        To be called for requests without drafts too. `step_s` is the time of the whole step, from `draft` to the choice
        of tokens, the same in each call; None if the step also read prompts, and so cannot be compared with others.
        """
        track = self._tracks[request.id]
        n = len(request.draft_tokens)
        if request.draft_tokens != track.proposal.tokens[:n]:       # a grammar knew better what must follow
            track.proposal = NOTHING
        self._results.append((track, n_drafted, n_accepted))
        self._step_s = step_s

    def shifted(self, request: Request) -> None:
        """Some of the tokens of `request` are gone: what was computed of those behind them is wrong."""
        if self._draft_model is not None:
            self._draft_model.finished(request)

    def finished(self, request: Request) -> None:
        """`request` gets no more tokens, whatever the reason."""
        self._tracks.pop(request.id, None)
        for proposer in self._proposers:
            proposer.finished(request)
        if self._draft_model is not None:
            self._draft_model.finished(request)

    def close(self) -> None:
        """Free the draft model."""
        if self._draft_model is not None:
            self._draft_model.close()

    def _limit(self, request: Request, n_requests: int) -> int:
        """Drafts that a request may have: each step adds one token more than it has drafts."""
        limit = min(self.config.n_max, self._n_ctx - len(request.tokens) - 1, self._max_rows // n_requests - 1)
        if request.params.max_tokens is not None:
            limit = min(limit, request.params.max_tokens - request.num_generated - 1)
        return max(0, limit)

    def _ask(self, request: Request, track: Track, limit: int) -> None:
        """Keep the proposal that most tokens are expected of."""
        most = 0.0
        for proposer in self._proposers:
            proposal = proposer.propose(request, limit)
            chances = track.chances_of(proposal, self._rates)
            if sum(chances) > most:
                track.proposal, track.chances, most = proposal, chances, sum(chances)

    def _ask_draft_model(self, asked: Sequence[tuple[Request, Track, int]], n_requests: int) -> None:
        """Where it promises more than other proposers do, have the draft model guess as many tokens as pay."""
        if self._draft_model is None:
            return
        n_max = min(limit for _, _, limit in asked)
        promise = Proposal((0,) * n_max, (1.0,) * n_max, "draft")
        chosen, chances = [], []
        for request, track, _ in asked:
            promised = track.chances_of(promise, self._rates)
            if sum(promised) > sum(track.chances):
                chosen.append((request, track))
                chances.append(promised)
        length = self._draft_length(chances, n_max, n_requests)
        if not length:          # now and then one is tried all the same
            chosen = [(request, track) for request, track in chosen if track.may_try(promise.kind_at(0))][:1]
            length = min(self._try_length, n_max)
            for _, track in chosen:
                track.is_try = True
        if chosen:
            least = min(track.balance for _, track in chosen)
            affordable = int(least / self._draft_cost(len(chosen), n_requests))
            length = min(n_max, max(1, self.config.n_min, min(length, affordable)))     # fewer would be for nothing
            self._take_drafts(self._draft_model, chosen, length, n_requests)

    def _draft_length(self, chances: Sequence[Sequence[float]], n_max: int, n_requests: int) -> int:
        """How many tokens of the draft model, for each request in `chances`, make the tokens per second most."""
        n_chosen = len(chances)
        token_s = self._draft_token_s(n_chosen)
        expected = float(n_requests)
        best_length, best = 0, expected / self._times.seconds(n_requests)
        for n in range(1, n_max + 1):
            expected += sum(each[n - 1] for each in chances if n <= len(each))
            speed = expected / (self._step_time(n_requests, n * n_chosen) + n * token_s)
            if speed > best:
                best_length, best = n, speed
        return best_length

    def _take_drafts(self, model: DraftModel, chosen: Sequence[tuple[Request, Track]], length: int,
                     n_requests: int) -> None:
        """Let `model` propose, and requests pay for it, but not for its reading of their prompts."""
        start = time.perf_counter()
        proposals = model.propose_all([request for request, _ in chosen], length)
        elapsed_s = time.perf_counter() - start
        n_ready = sum(bool(proposal.tokens) for proposal in proposals)
        if n_ready and model.n_read <= MOST_NEW * n_ready:
            self._draft_times.saw(n_ready, elapsed_s / length)
        guessing_s = length * self._draft_token_s(n_ready) if n_ready else 0.0
        reading_s = max(0.0, elapsed_s - guessing_s) * model.n_read_of_answers / max(1, model.n_read)
        cost = (guessing_s + reading_s) / len(chosen) * n_requests / self._times.seconds(n_requests)
        for (_, track), proposal in zip(chosen, proposals, strict=True):
            track.balance -= cost
            if proposal.tokens:
                track.proposal, track.chances = proposal, track.chances_of(proposal, self._rates)

    def _draft_cost(self, n_chosen: int, n_requests: int) -> float:
        """What the draft model costs each of `n_chosen` requests for a token, in the unit of Track."""
        return self._draft_token_s(n_chosen) / n_chosen * n_requests / self._times.seconds(n_requests)

    def _draft_token_s(self, n_requests: int) -> float:
        """Seconds that the draft model takes for a token of each of so many requests."""
        if self._draft_times.is_known:
            return self._draft_times.seconds(n_requests)
        return FIRST_DRAFT_PART * self._times.seconds(n_requests)

    def _lengths(self, tracks: Sequence[Track]) -> list[int]:
        """How many tokens of its proposal each request drafts.

        Rows go to the likeliest drafts of all requests, as many as make the tokens expected per second most.
        """
        n_requests = len(tracks)
        chances: list[tuple[float, int]] = []
        likeliest = max((track.chances[0] for track in tracks if track.chances), default=0.0)
        if likeliest > n_requests * least_of(n_requests):       # else none is worth even the least that a row takes
            chances = sorted(((chance, i) for i, track in enumerate(tracks) for chance in track.chances), reverse=True)
        n_best, expected = 0, float(n_requests)
        best = expected / self._times.seconds(n_requests)
        for n, (chance, _) in enumerate(chances[: self._room(n_requests)], 1):
            expected += chance
            speed = expected / self._step_time(n_requests, n)
            if speed > best:
                n_best, best = n, speed
        lengths = [0] * n_requests
        for _, i in chances[:n_best]:
            lengths[i] += 1
        self._add_try(tracks, lengths)
        return self._affordable(tracks, lengths)

    def _room(self, n_requests: int) -> int:
        """Rows that a step has for drafts: at most twice as many rows in all as any step had before.

        But as many as a draft has at least.
        """
        wanted = max(2 * max(n_requests, self._most_rows), n_requests + self.config.n_min)
        return max(0, min(self._max_rows, wanted) - n_requests)

    @property
    def _try_length(self) -> int:
        """Tokens of a draft that is made to learn."""
        return max(TRY_LENGTH, self.config.n_min)

    def _add_try(self, tracks: Sequence[Track], lengths: list[int]) -> None:
        """Let one request whose drafts do not seem to pay have a short one now and then, to learn."""
        room, least = self._room(len(tracks)) - sum(lengths), max(1, self.config.n_min)
        for i, track in enumerate(tracks):
            proposal = track.proposal
            if lengths[i] < least and proposal.tokens and room + lengths[i] > 0 and track.may_try(proposal.kind_at(0)):
                lengths[i] = min(self._try_length, room + lengths[i], len(proposal.tokens))
                track.is_try = True
                return

    def _affordable(self, tracks: Sequence[Track], lengths: list[int]) -> list[int]:
        """`lengths`, cut to what each request has to lose; what a draft model has already worked on is used."""
        if not any(lengths):
            return lengths
        cost = self._row_cost(len(tracks), sum(lengths))
        for i, track in enumerate(tracks):
            if lengths[i] * cost > max(0.0, track.balance) and track.proposal.proposer != "draft":
                affordable = int(track.balance / cost)
                lengths[i] = min(lengths[i], max(self.config.n_min, affordable)) if track.balance > 0 else 0
            if lengths[i] < self.config.n_min:
                lengths[i] = 0
        return lengths

    def _row_cost(self, n_requests: int, n_drafts: int) -> float:
        """What each of `n_drafts` rows beside those of `n_requests` costs, in the unit of Track."""
        if n_drafts == 0:
            return 0.0
        plain_s = self._times.seconds(n_requests)
        return n_requests * (self._step_time(n_requests, n_drafts) - plain_s) / plain_s / n_drafts

    def _step_time(self, n_requests: int, n_drafts: int) -> float:
        """Seconds of a step of `n_requests` rows and as many more as there are drafts."""
        least = 1 + n_drafts * least_of(n_requests)
        return max(self._times.seconds(n_requests + n_drafts), self._times.seconds(n_requests) * least)

    def _charge_proposing(self, tracks: Sequence[Track], seconds: float) -> None:
        """Let requests pay for being asked, but not for much more than usual, as when a prompt is looked at first.

        `seconds` is of each.
        """
        known = self._proposing_s
        self._proposing_s = 0.9 * known + 0.1 * min(seconds, 2 * known)
        if self._times.is_known:
            part = min(self._proposing_s, seconds) * len(tracks) / self._times.seconds(len(tracks))
            for track in tracks:
                if track.balance > 0:
                    track.balance -= max(0.0, part - FREE_PROPOSING)

    def _learn(self) -> None:
        """Take in what the last step brought."""
        results, self._results = self._results, []
        if not results:
            return
        n_drafts = sum(n_drafted for _, n_drafted, _ in results)
        self._most_rows = max(self._most_rows, len(results) + n_drafts)
        if self._step_s is not None:
            self._times.saw(len(results) + n_drafts, self._step_s - self._drafting_s)
        if n_drafts == 0:
            self._n_since_plain = 0
        cost = self._row_cost(len(results), n_drafts)
        for track, n_drafted, n_accepted in results:
            track.earn(INCOME + n_accepted - n_drafted * cost)
            if n_drafted and track.proposal.tokens:
                track.learn(n_drafted, n_accepted, self._rates)


def least_of(n_requests: int) -> float:
    """What each row beside those of `n_requests` takes at least, as a part of a step without it."""
    return LEAST_ROW / (1 + LEAST_ROW * n_requests)
