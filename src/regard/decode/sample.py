"""Drawing sentences: temperature, top-k, top-p. A sentence's draws depend on its text and the seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Decode
from regard.data import Batch
from regard.decode.options import NEVER, Hypothesis, Prefixes, Special, length_penalty, longest_output
from regard.decode.rules import Ban, Rows, penalize_repeats
from regard.decode.search import Constraints, S, Steppable, bans_for, source_lengths


def sample(
    model: Steppable[S],
    batch: Batch,
    options: Decode,
    special: Special,
    prefixes: Prefixes = None,
    constraints: Constraints = None,
) -> list[list[Hypothesis]]:
    """For each source `options.beam` independent draws, best first."""
    lengths = source_lengths(batch)
    state = model.start(batch, options.beam)
    bans = bans_for(options, constraints, prefixes or [()] * len(lengths))
    rows = [
        Draw(batch, source, copy, options, prefixes)
        for source in range(len(lengths))
        for copy in range(options.beam)
    ]
    limits = [
        longest_output(options, lengths[row.source], len(row.prefix), model.longest_target) for row in rows
    ]
    running = list(range(len(rows)))
    last = torch.full((len(rows), 1), special.start, dtype=torch.int64)
    for length in range(max(limits)):
        logits, state = model.step(state, last.to(next(iter(state.rows.values())).device))
        scores = logits[:, -1]
        if bans or options.repetition_penalty != 1:
            scores = obey(scores, [rows[number] for number in running], bans, options, special)
        log_p = log_probabilities(scores, options, special, length)
        tokens = [rows[number].next(log_p[at]) for at, number in enumerate(running)]
        going = [
            at
            for at, number in enumerate(running)
            if tokens[at] != special.end and length + 1 < limits[number]
        ]
        running = [running[at] for at in going]
        if not running:
            break
        last = torch.tensor([[tokens[at]] for at in going])
        state = state.select(torch.tensor(going, device=logits.device))
    found: list[list[Hypothesis]] = [[] for _ in lengths]
    for row in rows:
        found[row.source].append(row.hypothesis(options, special))
    return [sorted(draws, key=lambda h: -h.score) for draws in found]


class Draw:
    """One row with its own stream of random numbers."""

    def __init__(self, batch: Batch, source: int, copy: int, options: Decode, prefixes: Prefixes) -> None:
        self.source = source
        self.prefix = list(prefixes[source]) if prefixes else []
        self.tokens: list[int] = []
        self.details: list[float] = []
        self.random = np.random.Generator(np.random.Philox(key=stream(batch, source, copy, options.seed)))

    def next(self, log_p: Tensor) -> int:
        at = len(self.tokens)
        if at < len(self.prefix):
            token, log_probability = self.prefix[at], 0.0
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
    logits: Tensor, rows: Sequence[Draw], bans: Sequence[Ban], options: Decode, special: Special
) -> Tensor:
    """Logits after penalty and bans [R,V]; where nothing is left to say, the sentence ends."""
    tokens = torch.tensor([row.tokens for row in rows], dtype=torch.int64, device=logits.device)  # [R,t]
    logits = penalize_repeats(logits, tokens, options.repetition_penalty)
    logits[:, list(special.forbidden)] = NEVER
    running = Rows(tokens, [row.source for row in rows])
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
