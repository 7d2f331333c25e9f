"""Sampling: temperature, top-k, top-p. The draws of a text depend on its tokens and the seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from regard.config import Decode
from regard.generation.processors import RunningRows, processors, repetition_penalty
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
    make_hypothesis,
)
from regard.inputs.text import SpecialTokens
from regard.models.layers import to_float64
from regard.sample import Source

COLD = 1e-6  # temperatures below this mean the most probable token


class Sampling(Generic[S]):
    """The draws of all active requests, one row each; requests enter and leave as in `BeamSearch`."""

    state: S  # set while there are rows

    def __init__(
        self, model: Steppable[S], special: SpecialTokens, device: torch.device, key: BatchKey
    ) -> None:
        self.model, self.special, self.device, self.key = model, special, device, key
        self.steps = 0
        self.ends = end_tokens(special)
        self.draws: dict[ActiveRequest, list[Draw]] = {}  # all of each active request
        self.rows: list[Draw] = []  # those that continue
        self.last = torch.empty((0, 1), dtype=torch.int64, device=device)  # fed next: [R,1]

    @property
    def active(self) -> list[ActiveRequest]:
        return list(self.draws)

    def admit(self, requests: Sequence[Request]) -> list[ActiveRequest]:
        """Let requests enter. If this raises, for want of memory, nothing has changed."""
        entering = [activate(self.model, request, self.special, self.steps) for request in requests]
        draws = [[Draw(active, number) for number in active.request.draws] for active in entering]
        owner = torch.tensor([at for at, each in enumerate(draws) for _ in each], device=self.device)
        state = self.model.start(collate_requests(requests, self.device)).select(owner)
        last = first_tokens(state, self.special, self.device)
        self.state = type(state).join([self.state, state]) if self.rows else state
        self.last = torch.cat([self.last, last])
        self.draws |= dict(zip(entering, draws))
        self.rows = [*self.rows, *(draw for each in draws for draw in each)]
        return entering

    def drop(self, active: ActiveRequest) -> None:
        """Remove a request that is not needed any more."""
        del self.draws[active]
        self.reorder([at for at, draw in enumerate(self.rows) if draw.active is not active])

    def step(self) -> list[ActiveRequest]:
        """One more token in each row; the requests whose draws have all ended leave and are returned."""
        logits, self.state = self.model.step(self.state, self.last)
        tokens = self.choose(logits[:, -1])
        self.steps += 1
        self.last = torch.tensor(tokens, dtype=torch.int64, device=self.device)[:, None]
        over = [
            token in self.ends or len(draw.tokens) >= draw.active.limit
            for draw, token in zip(self.rows, tokens)
        ]
        ended = {draw.active for draw, is_over in zip(self.rows, over) if is_over}
        self.reorder([at for at, is_over in enumerate(over) if not is_over])
        running = {draw.active for draw in self.rows}
        done = [active for active in self.draws if active in ended and active not in running]
        for active in done:
            hypotheses = [draw.hypothesis(self.ends) for draw in self.draws.pop(active)]
            active.hypotheses = sorted(hypotheses, key=lambda h: -h.score)
        return done

    def reorder(self, kept: list[int]) -> None:
        """Continue with these rows."""
        if len(kept) == len(self.rows):
            return
        index = torch.tensor(kept, dtype=torch.int64, device=self.device)
        self.rows, self.last = [self.rows[at] for at in kept], self.last[index]
        if kept:
            self.state = self.state.select(index)
        else:
            del self.state

    def choose(self, logits: Tensor) -> list[int]:
        """The next token of each row, rows with the same options together: [R,V]."""
        groups: dict[Hashable, list[int]] = {}
        for at, draw in enumerate(self.rows):
            groups.setdefault(draw.key, []).append(at)
        tokens = [0] * len(self.rows)
        for rows in groups.values():
            draws = [self.rows[at] for at in rows]
            part = logits if len(groups) == 1 else logits[torch.tensor(rows, device=logits.device)]
            options = draws[0].active.request.options
            part = self.processed(part, draws, options)
            for at, draw, log_p in zip(rows, draws, log_probabilities(part, options)):
                tokens[at] = draw.next(log_p)
        return tokens

    def processed(self, logits: Tensor, draws: Sequence[Draw], options: Decode) -> Tensor:
        """Logits after processors and penalty [R,V]; if they allow no token, the text ends."""
        key = BatchKey("draws", 1, options.no_repeat_ngram, options.repetition_penalty)
        tokens = left_pad([[*draw.active.context, *draw.tokens] for draw in draws], logits.device)
        rows = RunningRows(tokens, [draw.active for draw in draws], [len(draw.tokens) for draw in draws])
        for process in processors(key, self.special, self.device):
            process(logits, rows)
        logits = repetition_penalty(logits, tokens, options.repetition_penalty)
        logits[(logits == NEG_INF).all(dim=1), self.special.end] = 0.0
        return logits

    def certain(self, active: ActiveRequest) -> Sequence[int]:
        """The tokens of a running request that cannot change; of several draws none, as the best is first."""
        first, *others = self.draws[active]
        return () if others else [token for token in first.tokens if token not in self.ends]


class Draw:
    """One row with its own random numbers."""

    def __init__(self, active: ActiveRequest, number: int) -> None:
        self.active = active
        self.tokens: list[int] = []
        self.log_p: list[float] = []
        key = random_key(active.request.ids, number, active.request.options.seed)
        self.random = np.random.Generator(np.random.Philox(key=key))

    @property
    def key(self) -> Hashable:
        """What rows must share to be processed together."""
        options = self.active.request.options
        rules = (options.no_repeat_ngram, options.repetition_penalty)
        return (options.temperature, options.top_k, options.top_p, *rules)

    def next(self, log_p: Tensor) -> int:
        token, log_probability = self.active.forced.get(len(self.tokens)), 0.0
        if token is None:
            token = draw(log_p, self.random.random())
            log_probability = float(log_p[token])
        self.tokens.append(token)
        self.log_p.append(log_probability)
        return token

    def hypothesis(self, ends: Sequence[int]) -> Hypothesis:
        return make_hypothesis(self.active, self.tokens, self.log_p, sum(self.log_p), ends)


def random_key(source: Source, number: int, seed: int) -> int:
    """The key of a draw's random numbers, from the request's own source: batch and order do not enter."""
    is_frames = isinstance(source, np.ndarray) and source.ndim == 2
    ids = hashlib.blake2b(np.asarray(source).tobytes()).hexdigest() if is_frames else [int(x) for x in source]
    digest = hashlib.blake2b(f"{seed} {number} {ids}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def log_probabilities(logits: Tensor, options: Decode) -> Tensor:
    """log softmax(logits / temperature) over the tokens of top-k and top-p: [R,V].

    The limit for temperature 0: the most probable token has probability 1.
    """
    if options.temperature < COLD:
        best = logits.argmax(dim=1, keepdim=True)
        return torch.full_like(logits, NEG_INF, dtype=torch.float64).scatter_(1, best, 0.0).cpu()
    logits = to_float64(logits) / options.temperature
    if 0 < options.top_k < logits.shape[1]:
        smallest = logits.topk(options.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, NEG_INF)
    if options.top_p < 1:
        logits = nucleus(logits, options.top_p)
    return logits.log_softmax(dim=1).cpu()


def nucleus(logits: Tensor, share: float) -> Tensor:
    """The smallest set of most probable tokens that reaches `share` in sum (Holtzman et al. 2020)."""
    ordered, index = logits.sort(dim=1, descending=True, stable=True)
    probability = ordered.softmax(dim=1)
    before = probability.cumsum(dim=1) - probability  # of all more probable tokens
    return torch.empty_like(logits).scatter_(1, index, ordered.masked_fill(before >= share, NEG_INF))


def draw(log_p: Tensor, uniform: float) -> int:
    """The token at which the cumulative probability exceeds `uniform`."""
    cumulative = log_p.exp().cumsum(dim=0)
    point = torch.tensor(uniform, dtype=cumulative.dtype) * cumulative[-1]
    token = int(torch.searchsorted(cumulative, point, right=True))
    return min(token, int(log_p.isfinite().nonzero()[-1]))
