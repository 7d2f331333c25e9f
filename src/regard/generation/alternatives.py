"""The most probable next words after the beginning of a translation.

A word may be several pieces, so pieces are put together until the word is over: p(word) is the product of its
pieces' probabilities and of the probability that the next piece begins something new, summed over the ways to
cut the word that were met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import collate
from regard.generation.forbid import keep, opening
from regard.generation.options import NEVER
from regard.generation.phrases import Lexicon
from regard.generation.sources import S, Steppable
from regard.inputs.text import Special
from regard.models.state import BLOCK
from regard.sample import Sample

LONGEST_WORD = 32  # pieces
LEAST_WIDTH = 8  # unfinished words at once


@dataclass(frozen=True, slots=True)
class Word:
    """A next word; no text and no pieces where the translation ends here."""

    text: str
    pieces: tuple[int, ...]
    log_probability: float


class NextWords:
    """Words under way, row by row; whole ones are collected by their text."""

    def __init__(self, lexicon: Lexicon, prefix: Sequence[int], special: Special, width: int) -> None:
        self.lexicon, self.prefix, self.special, self.width = lexicon, prefix, special, width
        self.begun: list[tuple[tuple[int, ...], float]] = [((), 0.0)]  # pieces and log p of each row
        self.whole: dict[str, list[Word]] = {}

    def grow(self, log_p: Tensor) -> Tensor:
        """One more piece for every word that is not over: log p [R,V] -> rows to go on from."""
        continuations = []
        for row, (pieces, before) in enumerate(self.begun):
            own = log_p[row].clone()
            own[list(self.special.forbidden)] = NEVER
            if not pieces:
                self.add((), float(own[self.special.end]))
                keep(own, opening(self.lexicon, self.prefix)[:-1])
            elif self.text(pieces):
                over = opening(self.lexicon, pieces)
                self.add(pieces, before + float(own[over].logsumexp(dim=0)))
                own[over] = NEVER
            own[self.special.end] = NEVER
            continuations.append(own + before)
        every = torch.stack(continuations).flatten()  # [R*V]
        best, index = every.topk(min(self.width, len(every)))
        rows, tokens = index // log_p.shape[1], index % log_p.shape[1]
        there = best > NEVER
        self.begun = [
            ((*self.begun[row][0], token), value)
            for row, token, value in zip(
                rows[there].tolist(), tokens[there].tolist(), best[there].tolist(), strict=True
            )
        ]
        return rows[there]

    def text(self, pieces: Sequence[int]) -> str:
        return self.lexicon.bytes_of(pieces).decode(errors="replace").strip()

    def add(self, pieces: tuple[int, ...], log_probability: float) -> None:
        if log_probability > NEVER:
            text = self.text(pieces)
            self.whole.setdefault(text, []).append(Word(text, pieces, log_probability))

    def best(self) -> list[Word]:
        """The whole words, most probable first; the ways to cut one are added up."""
        found = []
        for text, ways in self.whole.items():
            likeliest = max(ways, key=lambda way: way.log_probability)
            total = math.log(math.fsum(math.exp(way.log_probability) for way in ways))
            found.append(Word(text, likeliest.pieces, total))
        return sorted(found, key=lambda word: -word.log_probability)

    def is_done(self, count: int) -> bool:
        """Whether no word under way can become one of the best."""
        if not self.begun or len(self.begun[0][0]) >= LONGEST_WORD:
            return True
        found = self.best()
        return len(found) >= count and self.begun[0][1] <= found[count - 1].log_probability


def next_words(
    model: Steppable[S],
    sample: Sample,
    prefix: Sequence[int],
    count: int,
    special: Special,
    lexicon: Lexicon,
    device: torch.device,
) -> list[Word]:
    """The `count` most probable words that follow a prefix, different as text."""
    words = NextWords(lexicon, prefix, special, max(2 * count, LEAST_WIDTH))
    state = model.start(collate([Sample(source=sample.source)], BLOCK).to(device))
    tokens = torch.tensor([[special.start, *prefix]], device=device)
    while True:
        logits, state = model.step(state, tokens)
        rows = words.grow(logits[:, -1].float().log_softmax(dim=1))
        if words.is_done(count):
            return words.best()[:count]
        state = state.select(rows)
        tokens = torch.tensor([[pieces[-1]] for pieces, _ in words.begun], device=device)
