"""Beam search for every model: it knows `start`, `step` and `select`, nothing of Transformers.

With one beam it is greedy search. Stopping and scores follow transformers (`early_stopping`).
Shapes: N sources still running, K beams, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from regard.config import Decode
from regard.data import Batch
from regard.decode.options import NEVER, Hypothesis, Prefixes, Special, length_penalty, longest_output
from regard.model import State


class Steppable(Protocol):
    """What a search asks of a model."""

    @property
    def longest_target(self) -> int | None: ...
    def start(self, batch: Batch, beams: int = 1) -> State: ...
    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]: ...


def beam_search(
    model: Steppable, batch: Batch, options: Decode, special: Special, prefixes: Prefixes = None
) -> list[list[Hypothesis]]:
    """For each source its `options.beam` best hypotheses, best first."""
    return BeamSearch(model, batch, options, special, prefixes).run()


class BeamSearch:
    """The running beams of a batch. Sources that are done leave at once, so later steps are smaller."""

    def __init__(
        self, model: Steppable, batch: Batch, options: Decode, special: Special, prefixes: Prefixes
    ) -> None:
        lengths = source_lengths(batch)
        self.model, self.options, self.special = model, options, special
        self.beams = options.beam
        self.state = model.start(batch, self.beams)
        self.device = device = next(iter(self.state.rows.values())).device
        self.prefixes = prefixes or [()] * len(lengths)
        self.limits = [
            longest_output(options, length, len(prefix), model.longest_target)
            for length, prefix in zip(lengths, self.prefixes)
        ]
        self.limit = torch.tensor(self.limits, device=device)  # of those alive: [N]
        self.never = torch.tensor(special.forbidden, dtype=torch.int64, device=device)
        self.alive = list(range(len(lengths)))  # the source of each group of K rows
        self.finished: list[list[Hypothesis]] = [[] for _ in lengths]
        self.scores = torch.full((len(lengths), self.beams), NEVER, device=device)  # sum of log p: [N,K]
        self.scores[:, 0] = 0.0  # all beams begin alike: only one may count
        self.tokens = torch.empty((len(lengths), self.beams, 0), dtype=torch.int64, device=device)  # [N,K,t]
        self.details = torch.empty((len(lengths), self.beams, 0), device=device)  # log p of each: [N,K,t]

    def run(self) -> list[list[Hypothesis]]:
        last = torch.full((len(self.alive) * self.beams, 1), self.special.start, device=self.device)
        while self.alive:
            logits, self.state = self.model.step(self.state, last)
            self.advance(logits[:, -1].float())
            last = self.tokens[:, :, -1:].reshape(-1, 1)
        return self.finished

    def advance(self, logits: Tensor) -> None:
        """One step: choose among the continuations, collect those that end, drop sources that are done."""
        log_p, token, beam = self.candidates(logits)  # [N,2K] each, best first
        length = self.tokens.shape[2] + 1
        ends = token == self.special.end
        closing = (ends | (self.limit <= length)[:, None]) & (log_p > NEVER)  # [N,2K]
        closing[:, self.beams :] = False  # only the K best count; the rest keeps K beams running
        if bool(closing.any()):
            self.collect(closing, log_p, token, beam)
        going_on = log_p.masked_fill(ends, NEVER)
        chosen, kept = going_on.topk(self.beams, dim=1)  # [N,K]
        self.append(kept, log_p, token, beam)
        self.scores = chosen
        groups = [number for number in range(len(self.alive)) if not self.is_done(number, length)]
        self.keep(groups, beam.gather(1, kept))

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The 2K best continuations of each source. Of these at most K end, so K can always go on."""
        vocabulary = logits.shape[1]
        log_total = logits.logsumexp(dim=1, keepdim=True)  # [R,1]
        self.forbid(logits)
        best, token = top(logits, min(2 * self.beams, vocabulary))  # [R,k]
        log_p = best - log_total  # log softmax, only where it is needed
        self.force(log_p, token)
        total = (self.scores.view(-1, 1) + log_p).view(len(self.alive), -1)  # [N,K*k]
        width = best.shape[1]
        total, index = total.topk(min(2 * self.beams, total.shape[1]), dim=1)
        return total, token.view(len(self.alive), -1).gather(1, index), index // width

    def forbid(self, logits: Tensor) -> None:
        """Take away what may never be said, and the end before the minimum length."""
        logits.index_fill_(1, self.never, NEVER)
        if self.tokens.shape[2] < self.options.min_length:
            logits[:, self.special.end] = NEVER

    def force(self, log_p: Tensor, token: Tensor) -> None:
        """Where a prefix still runs, its next token is the only candidate and costs nothing."""
        at = self.tokens.shape[2]
        for number, source in enumerate(self.alive):
            if at < len(self.prefixes[source]):
                rows = slice(number * self.beams, (number + 1) * self.beams)
                log_p[rows] = NEVER
                log_p[rows, 0] = 0.0
                token[rows, 0] = self.prefixes[source][at]

    def append(self, kept: Tensor, log_p: Tensor, token: Tensor, beam: Tensor) -> None:
        parent = beam.gather(1, kept)  # [N,K]
        before = self.scores.gather(1, parent)
        own = (log_p.gather(1, kept) - before).unsqueeze(2)
        history = parent.unsqueeze(2).expand(-1, -1, self.tokens.shape[2])
        self.tokens = torch.cat([self.tokens.gather(1, history), token.gather(1, kept).unsqueeze(2)], dim=2)
        self.details = torch.cat([self.details.gather(1, history), own], dim=2)

    def collect(self, closing: Tensor, log_p: Tensor, token: Tensor, beam: Tensor) -> None:
        """Turn candidates that end, by the end token or by the limit, into hypotheses; keep the K best."""
        for number, candidate in closing.nonzero().tolist():
            source, row = self.alive[number], int(beam[number, candidate])
            total = float(log_p[number, candidate])
            words = [*self.tokens[number, row].tolist(), int(token[number, candidate])]
            own = total - float(self.scores[number, row])
            ended = words[-1] == self.special.end
            generated = len(words) - len(self.prefixes[source])
            hypothesis = Hypothesis(
                tokens=tuple(words[:-1] if ended else words),
                log_probability=total,
                score=total / length_penalty(self.options, generated),
                token_log_probabilities=(*self.details[number, row].tolist(), own),
                finished=ended,
            )
            best = [*self.finished[source], hypothesis]
            self.finished[source] = sorted(best, key=lambda h: -h.score)[: self.beams]

    def is_done(self, number: int, length: int) -> bool:
        source = self.alive[number]
        done = self.finished[source]
        if length >= self.limits[source]:
            return True
        if len(done) < self.beams:
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


def source_lengths(batch: Batch) -> list[int]:
    if batch.source is None:
        raise ValueError("decoding needs a source")
    return (batch.source.positions >= 0).sum(dim=1).tolist()
