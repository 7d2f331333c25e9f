"""Drawing sentences: temperature, top-k, top-p. A sentence's draws depend on its text and the seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from regard.config import Decode
from regard.data import Batch
from regard.decode.options import NEVER, Hypothesis, Prefixes, forced, length_penalty, longest_output
from regard.decode.rules import Ban, Rows, penalize_repeats
from regard.decode.search import (
    Constraints,
    S,
    Steppable,
    bans_for,
    first_words,
    read_before,
    room,
    source_lengths,
)
from regard.text import Special


def sample(
    model: Steppable[S],
    batch: Batch,
    options: Decode,
    special: Special,
    prefixes: Prefixes = None,
    constraints: Constraints = None,
) -> list[list[Hypothesis]]:
    """For each source `options.beam` independent draws, best first."""
    drawing = Sampling(model, batch, options, special, prefixes, constraints)
    for _ in drawing.steps():
        pass
    found: list[list[Hypothesis]] = [[] for _ in source_lengths(batch)]
    for row in drawing.rows:
        found[row.source].append(row.hypothesis(options, special))
    return [sorted(draws, key=lambda h: -h.score) for draws in found]


class Sampling(Generic[S]):
    """The running draws of a batch; of each source those with the numbers `copies`."""

    def __init__(
        self,
        model: Steppable[S],
        batch: Batch,
        options: Decode,
        special: Special,
        prefixes: Prefixes = None,
        constraints: Constraints = None,
        copies: Sequence[int] | None = None,
    ) -> None:
        lengths = source_lengths(batch)
        copies = range(options.beam) if copies is None else copies
        self.model, self.options, self.special = model, options, special
        self.state = model.start(batch, len(copies))
        self.bans = bans_for(options, special, constraints, prefixes or [()] * len(lengths))
        self.before = read_before(model, batch, special)  # [N,p]
        self.rows = [
            Draw(batch, source, copy, options, prefixes) for source in range(len(lengths)) for copy in copies
        ]
        own = [lengths[row.source] for row in self.rows]
        self.limits = [
            longest_output(options, length, len(row.prefix), room(model, length), special.longest)
            for row, length in zip(self.rows, own)
        ]
        self.least = [special.shortest - length for length in own]

    def steps(self) -> Iterator[None]:
        """One more piece in each row that still runs, at each step."""
        state, running = self.state, list(range(len(self.rows)))
        last = first_words(state, self.special)
        for length in range(max(self.limits)):
            logits, state = self.model.step(state, last.to(next(iter(state.rows.values())).device))
            tokens = self.choose(logits[:, -1], running, length)
            yield
            going = [
                at
                for at, number in enumerate(running)
                if tokens[at] != self.special.end and length + 1 < self.limits[number]
            ]
            running = [running[at] for at in going]
            if not running:
                break
            last = torch.tensor([[tokens[at]] for at in going])
            state = state.select(torch.tensor(going, device=logits.device))

    def choose(self, scores: Tensor, running: Sequence[int], length: int) -> list[int]:
        """What each running row says next: [R,V]."""
        rows = [self.rows[number] for number in running]
        if self.bans or self.options.repetition_penalty != 1:
            before = self.before[[row.source for row in rows]].to(scores.device)
            scores = obey(scores, rows, before, self.bans, self.options, self.special)
        if early := [at for at, number in enumerate(running) if length < self.least[number]]:
            scores = scores.clone()
            scores[early, self.special.end] = NEVER
        log_p = log_probabilities(scores, self.options, self.special, length)
        only = [forced(self.special, self.rows[n].prefix, length, self.limits[n]) for n in running]
        return [row.next(own, token) for row, own, token in zip(rows, log_p, only)]

    @property
    def said(self) -> list[int]:
        """The pieces of the first row so far."""
        return [token for token in self.rows[0].tokens if token != self.special.end]


class Draw:
    """One row with its own stream of random numbers."""

    def __init__(self, batch: Batch, source: int, copy: int, options: Decode, prefixes: Prefixes) -> None:
        self.source = source
        self.prefix = list(prefixes[source]) if prefixes else []
        self.tokens: list[int] = []
        self.details: list[float] = []
        self.random = np.random.Generator(np.random.Philox(key=stream(batch, source, copy, options.seed)))

    def next(self, log_p: Tensor, only: int | None) -> int:
        if only is not None:
            token, log_probability = only, 0.0
        else:
            token = draw(log_p, self.random.random())
            log_probability = float(log_p[token])
        self.tokens.append(token)
        self.details.append(log_probability)
        return token

    def hypothesis(self, options: Decode, special: Special) -> Hypothesis:
        ended = self.tokens[-1] == special.end
        total = sum(self.details)
        return Hypothesis(
            tokens=tuple(self.tokens[:-1] if ended else self.tokens),
            log_probability=total,
            score=total / length_penalty(options, len(self.tokens) - len(self.prefix)),
            token_log_probabilities=tuple(self.details),
            finished=ended,
        )


def obey(
    logits: Tensor,
    rows: Sequence[Draw],
    before: Tensor,
    bans: Sequence[Ban],
    options: Decode,
    special: Special,
) -> Tensor:
    """Logits after penalty and bans [R,V]; where nothing is left to say, the sentence ends."""
    tokens = torch.tensor([row.tokens for row in rows], dtype=torch.int64, device=logits.device)  # [R,t]
    running = Rows(tokens, [row.source for row in rows], before)
    logits = penalize_repeats(logits, running.words, options.repetition_penalty)
    logits[:, list(special.forbidden)] = NEVER
    for ban in bans:
        ban(logits, running)
    logits[(logits == NEVER).all(dim=1), special.end] = 0.0
    return logits


def stream(batch: Batch, source: int, copy: int, seed: int) -> int:
    """The key of a row's random numbers, from its own words: neighbours and place do not enter."""
    if batch.source is None:
        raise ValueError("decoding needs a source")
    words = batch.source.ids[source][batch.source.positions[source] >= 0].tolist()
    digest = hashlib.blake2b(f"{seed} {copy} {words}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def log_probabilities(logits: Tensor, options: Decode, special: Special, length: int) -> Tensor:
    """log softmax(logits / temperature) over what may be said: [R,V]."""
    logits = logits.double() / options.temperature
    logits[:, list(special.forbidden)] = NEVER
    if length < options.min_length:  # unless rules left nothing but the end
        logits[(logits > NEVER).sum(dim=1) > 1, special.end] = NEVER
    if 0 < options.top_k < logits.shape[1]:
        smallest = logits.topk(options.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, NEVER)
    if options.top_p < 1:
        logits = nucleus(logits, options.top_p)
    return logits.log_softmax(dim=1).cpu()


def nucleus(logits: Tensor, share: float) -> Tensor:
    """The smallest set of most probable tokens that reaches `share` in sum (Holtzman et al. 2020)."""
    ordered, index = logits.sort(dim=1, descending=True, stable=True)
    probability = ordered.softmax(dim=1)
    before = probability.cumsum(dim=1) - probability  # of all more probable tokens
    return torch.empty_like(logits).scatter_(1, index, ordered.masked_fill(before >= share, NEVER))


def draw(log_p: Tensor, uniform: float) -> int:
    """The token at which the cumulated probability passes `uniform`."""
    cumulated = log_p.exp().cumsum(dim=0)
    point = torch.tensor(uniform, dtype=cumulated.dtype) * cumulated[-1]
    token = int(torch.searchsorted(cumulated, point, right=True))
    return min(token, int(log_p.isfinite().nonzero()[-1]))
