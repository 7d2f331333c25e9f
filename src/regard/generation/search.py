"""Beam search for every model: it knows `start`, `step`, `select` and `join`, nothing of Transformers.

With one beam it is greedy search. Stopping and scores follow transformers (`early_stopping`). The batch is
open: sources enter between steps, leave when they are done or dropped, and each has its own age.
Shapes: N sources under way, K beams, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.generation.options import NEVER, Hypothesis, forced, length_penalty
from regard.generation.rules import Rows, bans_of, penalize_repeats
from regard.generation.sources import (
    Manner,
    S,
    Source,
    Steppable,
    Wish,
    batch_of,
    behind_nothing,
    enter,
    first_words,
)
from regard.inputs.text import Special


@dataclass(frozen=True, slots=True)
class Candidates:
    """Continuations to choose from, W for each source: [N,W] each."""

    total: Tensor  # what ranks: the beam's score and the token's
    own: Tensor  # log p of the token
    token: Tensor
    beam: Tensor  # which of the K beams goes on


class Observer(Protocol):
    """Told of each step of a search before its beams go on; see `BeamSearch.choose` for what it is told."""

    def __call__(self, candidates: Candidates, closing: Tensor, chosen: Tensor, kept: Tensor) -> None: ...


class BeamSearch(Generic[S]):
    """The beams of all sources under way."""

    observer: Observer | None = None
    state: S  # there is one as long as there are sources

    def __init__(self, model: Steppable[S], special: Special, device: torch.device, manner: Manner) -> None:
        self.model, self.special, self.device, self.manner = model, special, device, manner
        self.beams = manner.beams  # K, at least the number of hypotheses that are wanted
        self.clock = 0  # steps done
        self.never = torch.tensor(special.forbidden, dtype=torch.int64, device=device)
        self.bans = bans_of(manner.no_repeat_ngram, special)
        self.looks_back = bool(self.bans) or manner.repetition_penalty != 1
        self.may_stick = bool(self.bans)  # rules can leave a source with nothing to say
        self.forcing = self.banning = False
        self.free_from = 0  # the step from which on every source may end
        self.alive: list[Source] = []  # of each group of K rows
        self.limit = torch.empty(0, dtype=torch.int64, device=device)  # the last step of each source: [N]
        self.scores = torch.empty((0, self.beams), device=device)  # sums of what ranks: [N,K]
        # what each beam said, behind -1 where another source is older; before it, if rules look back, what
        # stood there before: [N,K,t], and log p of each piece: [N,K,t]
        self.words = torch.empty((0, self.beams, 0), dtype=torch.int64, device=device)
        self.details = torch.empty((0, self.beams, 0), device=device)
        self.last = torch.empty((0, 1), dtype=torch.int64, device=device)  # what is fed next: [R,1]

    def admit(self, wishes: Sequence[Wish]) -> list[Source]:
        """Let sources enter; where that fails, for want of memory, nothing has changed."""
        sources = [self.enter(wish) for wish in wishes]
        state = self.model.start(batch_of(wishes, self.device), self.beams)
        last = first_words(state, self.special)
        if self.alive:
            state = type(state).join([self.state, state])
        before = behind_nothing([source.before if self.looks_back else () for source in sources], self.device)
        scores = torch.full((len(sources), self.beams), NEVER, device=self.device)
        scores[:, 0] = 0.0  # all beams begin alike: only one may count
        limits = torch.tensor([self.clock + source.limit for source in sources], device=self.device)
        self.state, self.last = state, torch.cat([self.last, last])
        self.words = ending_together(self.words, before[:, None].expand(-1, self.beams, -1), -1)
        self.details = ending_together(self.details, scores[:, :, None][:, :, :0], 0)
        self.scores, self.limit = torch.cat([self.scores, scores]), torch.cat([self.limit, limits])
        self.alive = [*self.alive, *sources]
        self.free_from = max(self.free_from, *(self.clock + source.least for source in sources))
        self.forcing = self.forcing or any(self.forces(source) for source in sources)
        self.banning = self.banning or any(source.bans for source in sources)
        self.may_stick = self.may_stick or self.banning
        return sources

    def enter(self, wish: Wish) -> Source:
        source = enter(self.model, wish, self.special, self.clock)
        source.least = max(wish.options.min_length, source.least)
        return source

    def forces(self, source: Source) -> bool:
        """Whether there are places where only one piece may come."""
        return bool(source.prefix) or self.special.first is not None or self.special.last is not None

    def drop(self, source: Source) -> None:
        """A source that nobody waits for leaves at once."""
        self.keep([number for number, each in enumerate(self.alive) if each is not source])

    def step(self) -> list[Source]:
        """One more piece in each beam; the sources that are done leave and are returned."""
        logits, self.state = self.model.step(self.state, self.last)
        return self.advance(logits[:, -1].float())

    def run(self, wishes: Sequence[Wish]) -> list[list[Hypothesis]]:
        """A fixed batch: all enter now, and the answers of each come together in the end."""
        sources = self.admit(wishes)
        while self.alive:
            self.step()
        return [source.found for source in sources]

    def said(self, source: Source) -> Sequence[int]:
        """What is certain of a source under way; of several beams nothing is before the end."""
        if self.beams > 1:
            return ()
        return tail(self.words[self.alive.index(source), 0], self.clock - source.entered).tolist()

    def advance(self, logits: Tensor) -> list[Source]:
        """Choose among the continuations, collect those that end, drop sources that are done."""
        found = self.candidates(logits)
        closing, chosen, kept = self.choose(found)
        if self.observer is not None:
            self.observer(found, closing, chosen, kept)
        if bool(closing.any()):
            self.collect(closing, found)
        best = chosen[:, 0].tolist()
        if self.may_stick:
            self.rescue(best)
        parent = found.beam.gather(1, kept)  # [N,K]
        self.append(kept, parent, found)
        self.scores = chosen
        self.clock += 1
        groups, done = [], []
        for number, source in enumerate(self.alive):
            if self.is_done(source, best[number]):
                done.append(source)
            else:
                groups.append(number)
        self.keep(groups, parent)
        return done

    def candidates(self, logits: Tensor) -> Candidates:
        """The best continuations of each source."""
        log_total = log_sum_exp(logits)  # [R,1]
        self.forbid(logits)
        ranking, shift = self.penalized(logits, log_total)
        best, token = self.pick(ranking)  # [R,k]
        log_p = best - shift  # log softmax, only where it is needed
        own = log_p if ranking is logits else logits.gather(1, token) - log_total
        if self.forcing:
            self.force(log_p, token)
            if own is not log_p:
                self.force(own, token)
        total = (self.scores.view(-1, 1) + log_p).view(len(self.alive), -1)  # [N,K*k]
        return self.shortlist(total, own.view(total.shape), token.view(total.shape))

    def forbid(self, logits: Tensor) -> None:
        """Take away what may never be said, the end before the minimum length, and what rules ban."""
        logits.index_fill_(1, self.never, NEVER)
        if self.clock < self.free_from:
            early = [
                row for row, source in enumerate(self.owners()) if self.clock - source.entered < source.least
            ]
            logits[early, self.special.end] = NEVER
        if self.bans:
            rows = Rows(self.words.flatten(0, 1), [self.clock - each.entered for each in self.owners()])
            for ban in self.bans:
                ban(logits, rows)
        if self.banning:
            for number, source in enumerate(self.alive):
                if source.bans:
                    self.ban(logits, number, source)

    def ban(self, logits: Tensor, number: int, source: Source) -> None:
        """One source's own bans."""
        for beam, said in enumerate(tail(self.words[number], self.clock - source.entered).tolist()):
            for ban in source.bans:
                ban(logits[number * self.beams + beam], said)

    def owners(self) -> list[Source]:
        """The source of each row."""
        return [source for source in self.alive for _ in range(self.beams)]

    def penalized(self, logits: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor]:
        """What ranks tokens, and what to take from it: as in transformers log p, in greedy search logits."""
        penalty, words = self.manner.repetition_penalty, self.words.flatten(0, 1)
        if penalty == 1 or self.beams == 1:
            return penalize_repeats(logits, words, penalty), log_total
        return penalize_repeats(logits - log_total, words, penalty), torch.zeros_like(log_total)

    def pick(self, ranking: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens worth a look for each row: [R,V] -> values and ids [R,k], best first."""
        return top(ranking, min(2 * self.beams, ranking.shape[1]))

    def shortlist(self, total: Tensor, own: Tensor, token: Tensor) -> Candidates:
        """The 2K best of each source. Of these at most K end, so K can always go on."""
        width = total.shape[1] // self.beams
        total, index = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return Candidates(total, own.gather(1, index), token.gather(1, index), index // width)

    def choose(self, found: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """Which candidates become hypotheses [N,W], and the scores and numbers of those that go on [N,K]."""
        ends = found.token == self.special.end
        closing = (ends | (self.limit <= self.clock + 1)[:, None]) & (found.total > NEVER)
        closing[:, self.beams :] = False  # only the K best count; the rest keeps K beams running
        chosen, kept = found.total.masked_fill(ends, NEVER).topk(self.beams, dim=1)
        return closing, chosen, kept

    def force(self, log_p: Tensor, token: Tensor) -> None:
        """Where only one token may come, it is the only candidate and costs nothing."""
        for number, source in enumerate(self.alive):
            only = forced(self.special, source.prefix, self.clock - source.entered, source.limit)
            if only is not None:
                rows = slice(number * self.beams, (number + 1) * self.beams)
                log_p[rows] = NEVER
                log_p[rows, 0] = 0.0
                token[rows, 0] = only

    def append(self, kept: Tensor, parent: Tensor, found: Candidates) -> None:
        """The beams' histories go on from those of their parents."""
        token, own = found.token.gather(1, kept).unsqueeze(2), found.own.gather(1, kept).unsqueeze(2)
        if self.beams > 1:
            self.words, self.details = following(self.words, parent), following(self.details, parent)
        self.words = torch.cat([self.words, token], dim=2)
        self.details = torch.cat([self.details, own], dim=2)
        self.last = token.view(-1, 1)

    def collect(self, closing: Tensor, found: Candidates) -> None:
        """Turn candidates that end, by the end token or by the limit, into hypotheses; keep the K best."""
        for number, candidate in closing.nonzero().tolist():
            row, source = int(found.beam[number, candidate]), self.alive[number]
            words, details = self.history(number, row)
            words.append(int(found.token[number, candidate]))
            details.append(float(found.own[number, candidate]))
            self.finish(source, words, details, float(found.total[number, candidate]))

    def history(self, number: int, beam: int) -> tuple[list[int], list[float]]:
        """What a beam said so far, and log p of each piece."""
        count = self.clock - self.alive[number].entered
        words, details = tail(self.words[number, beam], count), tail(self.details[number, beam], count)
        return words.tolist(), details.tolist()

    def finish(self, source: Source, words: list[int], details: list[float], total: float) -> None:
        ended = words[-1:] == [self.special.end]
        options = source.wish.options
        hypothesis = Hypothesis(
            tokens=tuple(words[:-1] if ended else words),
            log_probability=math.fsum(details),
            score=total / length_penalty(options, len(words) - len(source.prefix)),
            token_log_probabilities=tuple(details),
            finished=ended,
        )
        source.found = sorted([*source.found, hypothesis], key=lambda h: -h.score)[: options.beam]

    def rescue(self, best: Sequence[float]) -> None:
        """Where rules leave nothing to say and nothing has ended, the best beam is given out as it is."""
        for number, source in enumerate(self.alive):
            if best[number] == NEVER and not source.found:
                self.finish(source, *self.history(number, 0), float(self.scores[number, 0]))

    def is_done(self, source: Source, best: float) -> bool:
        """Whether nothing better can come; `best` is the score of the best beam."""
        length, options = self.clock - source.entered, source.wish.options
        if length >= source.limit:
            return True
        if self.may_stick and best == NEVER:
            return True
        if len(source.found) < options.beam:
            return False
        if options.early_stopping is True or self.beams == 1:
            return True
        generated = length - len(source.prefix)
        if options.early_stopping == "never" and options.length_penalty > 0:
            generated = source.limit - len(source.prefix)
        return best / length_penalty(options, generated) <= source.found[-1].score

    def keep(self, groups: list[int], parent: Tensor | None = None) -> None:
        """Go on with these sources; the rows of each follow their beams' parents."""
        all_stay, groups = len(groups) == len(self.alive), closing_up(groups)
        if all_stay and (self.beams == 1 or parent is None):
            return
        group = torch.tensor(groups, dtype=torch.int64, device=self.device)
        if parent is None:
            parent = torch.arange(self.beams, device=self.device).expand(len(self.alive), -1)
        rows = (group[:, None] * self.beams + parent[group]).view(-1)  # [N'*K]
        if not all_stay:
            self.alive = [self.alive[number] for number in groups]
            self.scores, self.limit = self.scores[group], self.limit[group]
            oldest = max((self.clock - source.entered for source in self.alive), default=0)
            reach = max((self.clock - s.entered + len(s.before) for s in self.alive), default=0)
            self.words = tail(self.words[group], reach if self.looks_back else oldest)
            self.details = tail(self.details[group], oldest)
            self.last = self.last.view(-1, self.beams)[group].view(-1, 1)
        if groups:
            self.state = self.state.select(rows)
        else:
            del self.state


def log_sum_exp(logits: Tensor) -> Tensor:
    """log sum_v exp(z_v), in fewer passes than torch's: max z - log max softmax(z). [R,V] -> [R,1]."""
    highest = logits.amax(dim=1, keepdim=True)
    return highest - logits.softmax(dim=1).amax(dim=1, keepdim=True).log()


def closing_up(groups: Sequence[int]) -> list[int]:
    """The same groups, the last of them in the places of those that left: so most need not be moved."""
    places = set(range(len(groups)))
    last = iter(group for group in groups if group not in places)
    staying = set(groups)
    return [place if place in staying else next(last) for place in range(len(groups))]


def ending_together(old: Tensor, new: Tensor, nothing: float) -> Tensor:
    """[N,K,t] and [M,K,u] as [N+M,K,max(t,u)], with nothing before the shorter ones."""
    longest = max(old.shape[2] if len(old) else 0, new.shape[2])
    padded = [F.pad(each, (longest - each.shape[2], 0), value=nothing) for each in (old, new)]
    return torch.cat(padded)


def tail(values: Tensor, count: int) -> Tensor:
    """The last so many of the last axis."""
    return values[..., values.shape[-1] - count :]


def following(values: Tensor, parent: Tensor) -> Tensor:
    """The beams' parents instead of the beams: [N,K,t], [N,K] -> [N,K,t]."""
    return values.gather(1, parent.unsqueeze(2).expand(-1, -1, values.shape[2]))


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
