"""Beam search for every model: it knows `start`, `step` and `select`, nothing of Transformers.

With one beam it is greedy search. Stopping and scores follow transformers (`early_stopping`).
Shapes: N sources still running, K beams, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from regard.config import Decode
from regard.data import Batch
from regard.decode.forbid import ForbiddenPhrases, WordBegins
from regard.decode.options import NEVER, Hypothesis, Prefixes, forced, length_penalty, longest_output
from regard.decode.phrases import Constraint
from regard.decode.rules import Ban, Rows, bans_of, penalize_repeats
from regard.text import Special

Constraints = Sequence[Constraint] | None


class Running(Protocol):
    """What a search asks of a state."""

    @property
    def rows(self) -> Mapping[str, Tensor]: ...
    def select(self, rows: Tensor) -> Self: ...


S = TypeVar("S", bound=Running)


class Steppable(Protocol[S]):
    """What a search asks of a model."""

    @property
    def longest_target(self) -> int | None: ...
    def start(self, batch: Batch, beams: int = 1) -> S: ...
    def step(self, state: S, tokens: Tensor) -> tuple[Tensor, S]: ...


@dataclass(frozen=True, slots=True)
class Candidates:
    """Continuations to choose from, W for each source: [N,W] each."""

    total: Tensor  # what ranks: the beam's score and the token's
    own: Tensor  # log p of the token
    token: Tensor
    beam: Tensor  # which of the K beams goes on


class Observer(Protocol):
    """Told of each step of a search before its beams go on; see `BeamSearch.choose` for what it is told."""

    def __call__(self, found: Candidates, closing: Tensor, chosen: Tensor, kept: Tensor) -> None: ...


def beam_search(
    model: Steppable[S],
    batch: Batch,
    options: Decode,
    special: Special,
    prefixes: Prefixes = None,
    constraints: Constraints = None,
) -> list[list[Hypothesis]]:
    """For each source its `options.beam` best hypotheses, best first."""
    return BeamSearch(model, batch, options, special, prefixes, constraints).run()


class BeamSearch(Generic[S]):
    """The running beams of a batch. Sources that are done leave at once, so later steps are smaller."""

    observer: Observer | None = None

    def __init__(
        self,
        model: Steppable[S],
        batch: Batch,
        options: Decode,
        special: Special,
        prefixes: Prefixes,
        constraints: Constraints = None,
        beams: int | None = None,
    ) -> None:
        lengths = source_lengths(batch)
        self.model, self.options, self.special = model, options, special
        self.beams = beams or options.beam  # K, at least the number of hypotheses that are wanted
        self.state = model.start(batch, self.beams)
        self.device = device = next(iter(self.state.rows.values())).device
        self.prefixes = prefixes or [()] * len(lengths)
        extra = [constraint.size for constraint in constraints] if constraints else [0] * len(lengths)
        self.limits = [
            longest_output(options, length + more, len(prefix), room(model, length), special.longest)
            for length, more, prefix in zip(lengths, extra, self.prefixes)
        ]
        self.least = [max(options.min_length, special.shortest - length) for length in lengths]
        self.limit = torch.tensor(self.limits, device=device)  # of those alive: [N]
        self.never = torch.tensor(special.forbidden, dtype=torch.int64, device=device)
        self.bans = bans_for(options, special, constraints, self.prefixes)
        self.before = read_before(model, batch, special)  # [N,p]
        self.may_stick = bool(self.bans)  # rules can leave a source with nothing to say
        self.alive = list(range(len(lengths)))  # the source of each group of K rows
        self.finished: list[list[Hypothesis]] = [[] for _ in lengths]
        self.scores = torch.full(
            (len(lengths), self.beams), NEVER, device=device
        )  # sums of what ranks: [N,K]
        self.scores[:, 0] = 0.0  # all beams begin alike: only one may count
        self.tokens = torch.empty((len(lengths), self.beams, 0), dtype=torch.int64, device=device)  # [N,K,t]
        self.details = torch.empty((len(lengths), self.beams, 0), device=device)  # log p of each: [N,K,t]

    def run(self) -> list[list[Hypothesis]]:
        for _ in self.steps():
            pass
        return self.finished

    def steps(self) -> Iterator[None]:
        """One more piece in each beam, at each step."""
        last = first_words(self.state, self.special)
        while self.alive:
            logits, self.state = self.model.step(self.state, last)
            self.advance(logits[:, -1].float())
            last = self.tokens[:, :, -1:].reshape(-1, 1)
            yield

    @property
    def said(self) -> Sequence[int]:
        """The pieces of the only source so far; of several beams nothing is certain before the end."""
        if self.alive:
            return self.tokens[0, 0].tolist() if self.beams == 1 else ()
        return self.finished[0][0].tokens

    def advance(self, logits: Tensor) -> None:
        """One step: choose among the continuations, collect those that end, drop sources that are done."""
        found = self.candidates(logits)
        length = self.tokens.shape[2] + 1
        closing, chosen, kept = self.choose(found, length)
        if self.observer is not None:
            self.observer(found, closing, chosen, kept)
        if bool(closing.any()):
            self.collect(closing, found)
        if self.may_stick:
            self.rescue(chosen)
        self.append(kept, found)
        self.scores = chosen
        groups = [number for number in range(len(self.alive)) if not self.is_done(number, length)]
        self.keep(groups, found.beam.gather(1, kept))

    def candidates(self, logits: Tensor) -> Candidates:
        """The best continuations of each source."""
        log_total = logits.logsumexp(dim=1, keepdim=True)  # [R,1]
        self.forbid(logits)
        ranking, shift = self.penalized(logits, log_total)
        best, token = self.pick(ranking)  # [R,k]
        log_p = best - shift  # log softmax, only where it is needed
        own = log_p if ranking is logits else logits.gather(1, token) - log_total
        self.force(log_p, token)
        if own is not log_p:
            self.force(own, token)
        total = (self.scores.view(-1, 1) + log_p).view(len(self.alive), -1)  # [N,K*k]
        return self.shortlist(total, own.view(total.shape), token.view(total.shape))

    def forbid(self, logits: Tensor) -> None:
        """Take away what may never be said, the end before the minimum length, and what rules ban."""
        logits.index_fill_(1, self.never, NEVER)
        at = self.tokens.shape[2]
        if not self.bans and at >= max(self.least):
            return
        sources = [source for source in self.alive for _ in range(self.beams)]
        early = [row for row, source in enumerate(sources) if at < self.least[source]]
        logits[early, self.special.end] = NEVER
        if self.bans:
            rows = Rows(self.tokens.flatten(0, 1), sources, self.before[sources])
            for ban in self.bans:
                ban(logits, rows)

    def penalized(self, logits: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor]:
        """What ranks tokens, and what to take from it: as in transformers log p, in greedy search logits."""
        penalty = self.options.repetition_penalty
        if penalty == 1:
            return logits, log_total
        sources = [source for source in self.alive for _ in range(self.beams)]
        tokens = Rows(self.tokens.flatten(0, 1), sources, self.before[sources]).words
        if self.beams == 1:
            return penalize_repeats(logits, tokens, penalty), log_total
        return penalize_repeats(logits - log_total, tokens, penalty), torch.zeros_like(log_total)

    def pick(self, ranking: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens worth a look for each row: [R,V] -> values and ids [R,k], best first."""
        return top(ranking, min(2 * self.beams, ranking.shape[1]))

    def shortlist(self, total: Tensor, own: Tensor, token: Tensor) -> Candidates:
        """The 2K best of each source. Of these at most K end, so K can always go on."""
        width = total.shape[1] // self.beams
        total, index = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return Candidates(total, own.gather(1, index), token.gather(1, index), index // width)

    def choose(self, found: Candidates, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Which candidates become hypotheses [N,W], and the scores and numbers of those that go on [N,K]."""
        ends = found.token == self.special.end
        closing = (ends | (self.limit <= length)[:, None]) & (found.total > NEVER)
        closing[:, self.beams :] = False  # only the K best count; the rest keeps K beams running
        chosen, kept = found.total.masked_fill(ends, NEVER).topk(self.beams, dim=1)
        return closing, chosen, kept

    def force(self, log_p: Tensor, token: Tensor) -> None:
        """Where only one token may come, it is the only candidate and costs nothing."""
        at = self.tokens.shape[2]
        for number, source in enumerate(self.alive):
            only = forced(self.special, self.prefixes[source], at, self.limits[source])
            if only is not None:
                rows = slice(number * self.beams, (number + 1) * self.beams)
                log_p[rows] = NEVER
                log_p[rows, 0] = 0.0
                token[rows, 0] = only

    def append(self, kept: Tensor, found: Candidates) -> None:
        parent = found.beam.gather(1, kept)  # [N,K]
        history = parent.unsqueeze(2).expand(-1, -1, self.tokens.shape[2])
        token, own = found.token.gather(1, kept).unsqueeze(2), found.own.gather(1, kept).unsqueeze(2)
        self.tokens = torch.cat([self.tokens.gather(1, history), token], dim=2)
        self.details = torch.cat([self.details.gather(1, history), own], dim=2)

    def collect(self, closing: Tensor, found: Candidates) -> None:
        """Turn candidates that end, by the end token or by the limit, into hypotheses; keep the K best."""
        for number, candidate in closing.nonzero().tolist():
            row = int(found.beam[number, candidate])
            words = [*self.tokens[number, row].tolist(), int(found.token[number, candidate])]
            details = [*self.details[number, row].tolist(), float(found.own[number, candidate])]
            self.finish(number, words, details, float(found.total[number, candidate]))

    def finish(self, number: int, words: list[int], details: list[float], total: float) -> None:
        source = self.alive[number]
        ended = words[-1:] == [self.special.end]
        generated = len(words) - len(self.prefixes[source])
        hypothesis = Hypothesis(
            tokens=tuple(words[:-1] if ended else words),
            log_probability=math.fsum(details),
            score=total / length_penalty(self.options, generated),
            token_log_probabilities=tuple(details),
            finished=ended,
        )
        best = [*self.finished[source], hypothesis]
        self.finished[source] = sorted(best, key=lambda h: -h.score)[: self.options.beam]

    def rescue(self, chosen: Tensor) -> None:
        """Where rules leave nothing to say and nothing has ended, the best beam is given out as it is."""
        for number, best in enumerate(chosen[:, 0].tolist()):
            if best == NEVER and not self.finished[self.alive[number]]:
                words, details = self.tokens[number, 0].tolist(), self.details[number, 0].tolist()
                self.finish(number, words, details, float(self.scores[number, 0]))

    def is_done(self, number: int, length: int) -> bool:
        source = self.alive[number]
        done = self.finished[source]
        if length >= self.limits[source]:
            return True
        if self.may_stick and float(self.scores[number, 0]) == NEVER:
            return True
        if len(done) < self.options.beam:
            return False
        if self.options.early_stopping is True or self.beams == 1:
            return True
        generated = length - len(self.prefixes[source])
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            generated = self.limits[source] - len(self.prefixes[source])
        hope = float(self.scores[number, 0]) / length_penalty(self.options, generated)
        return hope <= done[-1].score

    def keep(self, groups: list[int], parent: Tensor) -> None:
        """Go on with these sources; the rows of each follow their beams' parents."""
        if self.beams == 1 and len(groups) == len(self.alive):
            return
        group = torch.tensor(groups, dtype=torch.int64, device=self.device)
        rows = (group[:, None] * self.beams + parent[group]).view(-1)  # [N'*K]
        if len(groups) < len(self.alive):
            self.alive = [self.alive[number] for number in groups]
            self.scores, self.limit = self.scores[group], self.limit[group]
            self.tokens, self.details = self.tokens[group], self.details[group]
        if groups:
            self.state = self.state.select(rows)


def room(model: Steppable[S], source_length: int) -> int | None:
    """Pieces that a model can read of what it writes, its start included; a prompt takes from it."""
    limit = model.longest_target
    if limit is None or not getattr(model, "reads_prompts", False):
        return limit
    return max(1, limit - source_length + 1)


def read_before(model: Steppable[S], batch: Batch, special: Special) -> Tensor:
    """What stands before the first word of each answer: the prompt behind some -1, or the start."""
    if batch.source is None:
        raise ValueError("decoding needs a source")
    ids, there = batch.source.ids, batch.source.positions >= 0
    if not getattr(model, "reads_prompts", False):
        return torch.full_like(ids[:, :1], special.start)
    order = there.long().argsort(dim=1, stable=True)  # what is not there goes to the left
    return ids.masked_fill(~there, -1).gather(1, order)


def first_words(state: S, special: Special) -> Tensor:
    """What a search feeds first: the start, or the last word of each row's prompt. [R,1]."""
    any_row = next(iter(state.rows.values()))
    first = state.rows.get("first")
    start = torch.full((len(any_row),), special.start, device=any_row.device)
    return (start if first is None else first)[:, None]


def top(values: Tensor, count: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, exactly `values.topk`, in two stages: blocks, then inside them."""
    rows, columns = values.shape
    blocks = columns // block
    if blocks <= 4 * count:
        return values.topk(count, dim=1)
    whole = values[:, : blocks * block].view(rows, blocks, block)
    chosen = whole.amax(dim=2).topk(count, dim=1).indices  # no other block can hold one of the best
    inside = (chosen[:, :, None] * block + torch.arange(block, device=values.device)).view(rows, -1)
    rest = torch.arange(blocks * block, columns, device=values.device).expand(rows, -1)
    index = torch.cat([inside, rest], dim=1)
    best, where = values.gather(1, index).topk(count, dim=1)
    return best, index.gather(1, where)


def bans_for(
    options: Decode, special: Special, constraints: Constraints, prefixes: Sequence[Sequence[int]]
) -> list[Ban]:
    """The rules of this run; usually none, and then none costs anything."""
    bans = bans_of(options, special)
    if constraints and any(each.forbid for each in constraints):
        bans.append(ForbiddenPhrases(constraints))
    if constraints and any(each.whole_prefix for each in constraints):
        bans.append(WordBegins(constraints, prefixes))
    return bans


def source_lengths(batch: Batch) -> list[int]:
    if batch.source is None:
        raise ValueError("decoding needs a source")
    return (batch.source.positions >= 0).sum(dim=1).tolist()
