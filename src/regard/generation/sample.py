"""Drawing sentences: temperature, top-k, top-p. A sentence's draws depend on its text and the seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from regard.config import Decode
from regard.device import precise
from regard.generation.options import NEVER, Hypothesis, forced, length_penalty
from regard.generation.rules import Rows, bans_of, penalize_repeats
from regard.generation.sources import (
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


class Sampling(Generic[S]):
    """The draws of all sources under way, each a row of its own; as open as `BeamSearch`."""

    state: S  # there is one as long as there are rows

    def __init__(self, model: Steppable[S], special: Special, device: torch.device) -> None:
        self.model, self.special, self.device = model, special, device
        self.clock = 0  # steps done
        self.draws: dict[Source, list[Draw]] = {}  # all of each source under way
        self.rows: list[Draw] = []  # those that go on
        self.last = torch.empty((0, 1), dtype=torch.int64, device=device)  # what is fed next: [R,1]

    @property
    def alive(self) -> list[Source]:
        return list(self.draws)

    def admit(self, wishes: Sequence[Wish]) -> list[Source]:
        """Let sources enter; where that fails, for want of memory, nothing has changed."""
        sources = [enter(self.model, wish, self.special, self.clock) for wish in wishes]
        draws = [[Draw(source, copy) for copy in source.wish.draws] for source in sources]
        each = [number for number, own in enumerate(draws) for _ in own]
        state = self.model.start(batch_of(wishes, self.device)).select(torch.tensor(each, device=self.device))
        last = first_words(state, self.special)
        self.state = type(state).join([self.state, state]) if self.rows else state
        self.last = torch.cat([self.last, last])
        self.draws |= dict(zip(sources, draws))
        self.rows = [*self.rows, *(draw for own in draws for draw in own)]
        return sources

    def drop(self, source: Source) -> None:
        """A source that nobody waits for leaves at once."""
        del self.draws[source]
        self.keep([at for at, draw in enumerate(self.rows) if draw.source is not source])

    def step(self) -> list[Source]:
        """One more piece in each row; the sources whose draws have all ended leave and are returned."""
        logits, self.state = self.model.step(self.state, self.last)
        tokens = self.choose(logits[:, -1])
        self.clock += 1
        self.last = torch.tensor(tokens, dtype=torch.int64, device=self.device)[:, None]
        going, touched = [], set()
        for at, draw in enumerate(self.rows):
            if tokens[at] == self.special.end or len(draw.tokens) >= draw.source.limit:
                touched.add(draw.source)
            else:
                going.append(at)
        self.keep(going)
        done = [source for source in self.draws if source in touched and not self.is_running(source)]
        for source in done:
            found = [draw.hypothesis(self.special) for draw in self.draws.pop(source)]
            source.found = sorted(found, key=lambda h: -h.score)
        return done

    def is_running(self, source: Source) -> bool:
        return any(draw.source is source for draw in self.rows)

    def keep(self, going: list[int]) -> None:
        """Go on with these rows."""
        if len(going) == len(self.rows):
            return
        index = torch.tensor(going, dtype=torch.int64, device=self.device)
        self.rows, self.last = [self.rows[at] for at in going], self.last[index]
        if going:
            self.state = self.state.select(index)
        else:
            del self.state

    def choose(self, logits: Tensor) -> list[int]:
        """What each row says next, those with the same options together: [R,V]."""
        alike: dict[Hashable, list[int]] = {}
        for at, draw in enumerate(self.rows):
            alike.setdefault(draw.manner, []).append(at)
        tokens = [0] * len(self.rows)
        for rows in alike.values():
            draws = [self.rows[at] for at in rows]
            own = logits if len(alike) == 1 else logits[torch.tensor(rows, device=logits.device)]
            options, length = draws[0].source.wish.options, len(draws[0].tokens)
            scores = obey(own, draws, options, self.special)
            for at, draw, log_p in zip(rows, draws, log_probabilities(scores, options, self.special, length)):
                tokens[at] = draw.next(log_p, self.special)
        return tokens

    def said(self, source: Source) -> Sequence[int]:
        """What is certain of a source under way: of several draws nothing, because the best comes first."""
        first, *others = self.draws[source]
        return () if others else [token for token in first.tokens if token != self.special.end]


class Draw:
    """One row with its own stream of random numbers."""

    def __init__(self, source: Source, copy: int) -> None:
        self.source = source
        self.tokens: list[int] = []
        self.details: list[float] = []
        key = stream(source.wish.ids, copy, source.wish.options.seed)
        self.random = np.random.Generator(np.random.Philox(key=key))

    @property
    def manner(self) -> Hashable:
        """What rows must share to be looked at together."""
        options = self.source.wish.options
        rules = (options.no_repeat_ngram, options.repetition_penalty)
        early = len(self.tokens) < options.min_length
        return (options.temperature, options.top_k, options.top_p, *rules, early)

    def next(self, log_p: Tensor, special: Special) -> int:
        only = forced(special, self.source.prefix, len(self.tokens), self.source.limit)
        if only is not None:
            token, log_probability = only, 0.0
        else:
            token = draw(log_p, self.random.random())
            log_probability = float(log_p[token])
        self.tokens.append(token)
        self.details.append(log_probability)
        return token

    def hypothesis(self, special: Special) -> Hypothesis:
        options = self.source.wish.options
        ended = self.tokens[-1] == special.end
        total = sum(self.details)
        return Hypothesis(
            tokens=tuple(self.tokens[:-1] if ended else self.tokens),
            log_probability=total,
            score=total / length_penalty(options, len(self.tokens) - len(self.source.prefix)),
            token_log_probabilities=tuple(self.details),
            finished=ended,
        )


def obey(logits: Tensor, draws: Sequence[Draw], options: Decode, special: Special) -> Tensor:
    """Logits after penalty and bans [R,V]; where rules leave nothing to say, the sentence ends."""
    bans = bans_of(options.no_repeat_ngram, special)
    if bans or options.repetition_penalty != 1 or any(draw.source.bans for draw in draws):
        logits = logits.clone()
        logits[:, list(special.forbidden)] = NEVER
        words = behind_nothing([[*draw.source.before, *draw.tokens] for draw in draws], logits.device)
        logits = penalize_repeats(logits, words, options.repetition_penalty)
        for ban in bans:
            ban(logits, Rows(words, [len(draw.tokens) for draw in draws]))
        for row, draw in enumerate(draws):
            for own in draw.source.bans:
                own(logits[row], draw.tokens)
        logits[(logits == NEVER).all(dim=1), special.end] = 0.0
    if early := [row for row, draw in enumerate(draws) if len(draw.tokens) < draw.source.least]:
        logits = logits.clone()
        logits[early, special.end] = NEVER
    return logits


def stream(words: Sequence[int], copy: int, seed: int) -> int:
    """The key of a row's random numbers, from its own words: neighbours and place do not enter."""
    told = [int(word) for word in words]
    digest = hashlib.blake2b(f"{seed} {copy} {told}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def log_probabilities(logits: Tensor, options: Decode, special: Special, length: int) -> Tensor:
    """log softmax(logits / temperature) over what may be said: [R,V]."""
    logits = precise(logits) / options.temperature
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
