"""Beam search for every model: it uses `start`, `step`, `select` and `join`, nothing of Transformers.

With one beam it is greedy search. Stopping and scores follow transformers (`early_stopping`). The batch is
open: requests enter between steps and leave when they are done or dropped.
Shapes: N active requests, K beams, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.generation.processors import RunningRows, forced_tokens, processors, repetition_penalty
from regard.generation.requests import (
    NEG_INF,
    ActiveRequest,
    BatchKey,
    Hypothesis,
    Request,
    S,
    Steppable,
    activate,
    collate_requests,
    end_tokens,
    first_tokens,
    left_pad,
    length_penalty,
    make_hypothesis,
)
from regard.inputs.text import SpecialTokens


@dataclass(frozen=True, slots=True)
class Candidates:
    """Continuations to choose from, W for each request: [N,W] each."""

    total: Tensor  # for ranking: the beam's score plus the token's
    log_p: Tensor  # log p of the token
    token: Tensor
    beam: Tensor  # which of the K beams it continues


class Observer(Protocol):
    """Called at each step before the beams are reordered; see `BeamSearch.choose` for the arguments."""

    def __call__(self, candidates: Candidates, closing: Tensor, chosen: Tensor, kept: Tensor) -> None: ...


class BeamSearch(Generic[S]):
    """The beams of all active requests: candidates -> choose -> reorder."""

    observer: Observer | None = None
    state: S  # set while there are active requests

    def __init__(
        self, model: Steppable[S], special: SpecialTokens, device: torch.device, key: BatchKey
    ) -> None:
        self.model, self.special, self.device, self.key = model, special, device, key
        self.beams = key.beams  # K, at least the number of hypotheses of a request
        self.steps = 0
        self.ends = end_tokens(special)
        self.end_ids = torch.tensor(self.ends, device=device)
        # candidates a request: at most K end with each end token, so K beams can always continue
        self.width = (1 + len(self.ends)) * self.beams
        self.processors = processors(key, special, device)
        self.active: list[ActiveRequest] = []  # each has K neighbouring rows
        self.limit = torch.empty(0, dtype=torch.int64, device=device)  # the last step of each request: [N]
        self.scores = torch.empty((0, self.beams), device=device)  # for ranking: [N,K]
        # context and generated tokens, left-padded with -1, and log p of each of them: [N,K,t]
        self.tokens = torch.empty((0, self.beams, 0), dtype=torch.int64, device=device)
        self.log_p = torch.empty((0, self.beams, 0), device=device)
        self.last = torch.empty((0, 1), dtype=torch.int64, device=device)  # fed next: [R,1]

    def admit(self, requests: Sequence[Request]) -> list[ActiveRequest]:
        """Let requests enter. If this raises, for want of memory, nothing has changed."""
        entering = [activate(self.model, request, self.special, self.steps) for request in requests]
        state = self.model.start(collate_requests(requests, self.device), self.beams)
        last = first_tokens(state, self.special, self.device)
        if self.active:
            state = type(state).join([self.state, state])
        context = left_pad([each.context for each in entering], self.device)[:, None]
        scores = torch.full((len(entering), self.beams), NEG_INF, device=self.device)
        scores[:, 0] = 0.0  # all beams start alike: only one counts
        limits = torch.tensor([self.steps + each.limit for each in entering], device=self.device)
        self.state, self.last = state, torch.cat([self.last, last])
        self.tokens = cat_right_aligned(self.tokens, context.expand(-1, self.beams, -1), -1)
        self.log_p = cat_right_aligned(self.log_p, scores[:, :, None][:, :, :0], 0)
        self.scores, self.limit = torch.cat([self.scores, scores]), torch.cat([self.limit, limits])
        self.active = [*self.active, *entering]
        return entering

    def drop(self, active: ActiveRequest) -> None:
        """Remove a request that is not needed any more."""
        self.reorder([number for number, each in enumerate(self.active) if each is not active])

    def step(self) -> list[ActiveRequest]:
        """One more token in each beam; the requests that are done leave and are returned."""
        logits, self.state = self.model.step(self.state, self.last)
        candidates = self.candidates(logits[:, -1].float())
        closing, chosen, kept = self.choose(candidates)
        if self.observer is not None:
            self.observer(candidates, closing, chosen, kept)
        self.collect(closing, candidates)
        best = chosen[:, 0].tolist()
        self.finish_stuck(best)
        parent = self.append(kept, candidates)
        self.scores = chosen
        self.steps += 1
        done = [each for each, score in zip(self.active, best) if self.is_done(each, score)]
        self.reorder([number for number, each in enumerate(self.active) if each not in done], parent)
        return done

    def run(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """The hypotheses of a fixed batch."""
        entered = self.admit(requests)
        while self.active:
            self.step()
        return [each.hypotheses for each in entered]

    def candidates(self, logits: Tensor) -> Candidates:
        """The best continuations of each request: [R,V] -> [N,W]."""
        log_z = log_sum_exp(logits)  # [R,1]
        owners = [each for each in self.active for _ in range(self.beams)]
        tokens = self.tokens.flatten(0, 1)  # [R,t]
        rows = RunningRows(tokens, owners, [self.steps - each.entered for each in owners])
        for process in self.processors:
            process(logits, rows)
        if forced := forced_tokens(logits, rows):
            log_z[forced] = 0.0
        # as in transformers the penalty changes log p, in greedy search logits; it is used for ranking alone
        penalty, shift, ranking = self.key.repetition_penalty, log_z, logits
        if penalty != 1:
            if self.beams > 1:
                ranking, shift = logits - log_z, torch.zeros_like(log_z)
            ranking = repetition_penalty(ranking, tokens, penalty)
        if self.special.renormalize:
            shift = log_sum_exp(ranking)
        best, token = self.top_tokens(ranking, rows)  # [R,k]
        score = best - shift  # log softmax, only of the best
        log_p = score if ranking is logits else logits.gather(1, token) - log_z
        total = (self.scores.view(-1, 1) + score).view(len(self.active), -1)  # [N,K*k]
        return self.shortlist(total, log_p.view(total.shape), token.view(total.shape))

    def top_tokens(self, ranking: Tensor, rows: RunningRows) -> tuple[Tensor, Tensor]:
        """Candidate tokens of each row: [R,V] -> values and ids [R,k], best first."""
        return top(ranking, min(self.width, ranking.shape[1]))

    def shortlist(self, total: Tensor, log_p: Tensor, token: Tensor) -> Candidates:
        """The best candidates of each request: [N,K*k] -> [N,W]."""
        per_beam = total.shape[1] // self.beams
        total, index = total.topk(min(self.width, total.shape[1]), dim=1)
        return Candidates(total, log_p.gather(1, index), token.gather(1, index), index // per_beam)

    def choose(self, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """Which candidates become hypotheses [N,W], and scores and indices of those that continue [N,K]."""
        ends = (candidates.token[..., None] == self.end_ids).any(dim=2)
        closing = (ends | (self.limit <= self.steps + 1)[:, None]) & (candidates.total > NEG_INF)
        closing[:, self.beams :] = False  # only the K best count; the rest keeps K beams running
        chosen, kept = candidates.total.masked_fill(ends, NEG_INF).topk(self.beams, dim=1)
        return closing, chosen, kept

    def append(self, kept: Tensor, candidates: Candidates) -> Tensor:
        """Continue the histories of the chosen beams; their parents: [N,K]."""
        parent = candidates.beam.gather(1, kept)
        token, log_p = (
            candidates.token.gather(1, kept).unsqueeze(2),
            candidates.log_p.gather(1, kept).unsqueeze(2),
        )
        if self.beams > 1:
            self.tokens, self.log_p = gather_beams(self.tokens, parent), gather_beams(self.log_p, parent)
        self.tokens = torch.cat([self.tokens, token], dim=2)
        self.log_p = torch.cat([self.log_p, log_p], dim=2)
        self.last = token.view(-1, 1)
        return parent

    def reorder(self, groups: list[int], parent: Tensor | None = None) -> None:
        """Continue with these requests; the rows of each follow their beams' parents."""
        all_stay, groups = len(groups) == len(self.active), compact_order(groups)
        if all_stay and (self.beams == 1 or parent is None):
            return
        group = torch.tensor(groups, dtype=torch.int64, device=self.device)
        if parent is None:
            parent = torch.arange(self.beams, device=self.device).expand(len(self.active), -1)
        rows = (group[:, None] * self.beams + parent[group]).view(-1)  # [N'*K]
        if not all_stay:
            self.active = [self.active[number] for number in groups]
            self.scores, self.limit = self.scores[group], self.limit[group]
            ages = [self.steps - each.entered for each in self.active]
            lengths = [age + len(each.context) for age, each in zip(ages, self.active)]
            self.tokens = tail(self.tokens[group], max(lengths, default=0))
            self.log_p = tail(self.log_p[group], max(ages, default=0))
            self.last = self.last.view(-1, self.beams)[group].view(-1, 1)
        if groups:
            self.state = self.state.select(rows)
        else:
            del self.state

    def collect(self, closing: Tensor, candidates: Candidates) -> None:
        """Turn candidates that end, by an end token or by the limit, into hypotheses; keep the K best."""
        for number, candidate in closing.nonzero().tolist():
            tokens, log_p = self.history(number, int(candidates.beam[number, candidate]))
            tokens.append(int(candidates.token[number, candidate]))
            log_p.append(float(candidates.log_p[number, candidate]))
            self.finish(self.active[number], tokens, log_p, float(candidates.total[number, candidate]))

    def history(self, number: int, beam: int) -> tuple[list[int], list[float]]:
        """The generated tokens of a beam, and log p of each."""
        count = self.steps - self.active[number].entered
        tokens, log_p = tail(self.tokens[number, beam], count), tail(self.log_p[number, beam], count)
        return tokens.tolist(), log_p.tolist()

    def finish(self, active: ActiveRequest, tokens: list[int], log_p: list[float], total: float) -> None:
        hypothesis = make_hypothesis(active, tokens, log_p, total, self.ends)
        every: list[Hypothesis] = sorted([*active.hypotheses, hypothesis], key=lambda h: -h.score)
        active.hypotheses = every[: active.request.options.beam]

    def finish_stuck(self, best: Sequence[float]) -> None:
        """If no token is allowed and no hypothesis has ended, the best beam is the result."""
        for number, active in enumerate(self.active):
            if best[number] == NEG_INF and not active.hypotheses:
                self.finish(active, *self.history(number, 0), float(self.scores[number, 0]))

    def is_done(self, active: ActiveRequest, best: float) -> bool:
        """Whether no better hypothesis can follow; `best` is the score of the best beam."""
        length, options = self.steps - active.entered, active.request.options
        if length >= active.limit or best == NEG_INF:
            return True
        if len(active.hypotheses) < options.beam:
            return False
        if options.early_stopping is True or self.beams == 1:
            return True
        generated = length - len(active.prefix)
        if options.early_stopping == "never" and options.length_penalty > 0:
            generated = active.limit - len(active.prefix)
        return best / length_penalty(options, generated) <= active.hypotheses[-1].score

    def certain(self, active: ActiveRequest) -> Sequence[int]:
        """The tokens of a running request that cannot change; with several beams none before the end."""
        if self.beams > 1:
            return ()
        return tail(self.tokens[self.active.index(active), 0], self.steps - active.entered).tolist()


def log_sum_exp(logits: Tensor) -> Tensor:
    """log sum_v exp(z_v), in fewer passes than torch's: max z - log max softmax(z). [R,V] -> [R,1]."""
    highest = logits.amax(dim=1, keepdim=True)
    return highest - logits.softmax(dim=1).amax(dim=1, keepdim=True).log()


def compact_order(groups: Sequence[int]) -> list[int]:
    """The same groups, the last ones in the places of those that left, so that most need not move."""
    places, staying = set(range(len(groups))), set(groups)
    last = iter(group for group in groups if group not in places)
    return [place if place in staying else next(last) for place in range(len(groups))]


def cat_right_aligned(old: Tensor, new: Tensor, fill: float) -> Tensor:
    """[N,K,t] and [M,K,u] as [N+M,K,max(t,u)], left-padded."""
    longest = max(old.shape[2] if len(old) else 0, new.shape[2])
    padded = [F.pad(each, (longest - each.shape[2], 0), value=fill) for each in (old, new)]
    return torch.cat(padded)


def tail(values: Tensor, count: int) -> Tensor:
    """The last `count` entries of the last axis."""
    return values[..., values.shape[-1] - count :]


def gather_beams(values: Tensor, parent: Tensor) -> Tensor:
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
