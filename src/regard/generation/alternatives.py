"""The most probable next words after the beginning of a translation.

A word may be several tokens, so tokens are appended until the word is complete: p(word) is the product of its
tokens' probabilities and of the probability that the next token starts a new word, summed over the
segmentations of the word that the search meets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import collate
from regard.generation.constraints import Lexicon
from regard.generation.processors import keep_only
from regard.generation.requests import NEG_INF, S, Steppable, end_tokens
from regard.inputs.text import SpecialTokens
from regard.models.attention import BLOCK
from regard.sample import Sample

MAX_WORD = 32  # tokens
MIN_WIDTH = 8  # incomplete words at once


@dataclass(frozen=True, slots=True)
class NextWord:
    """A next word; no text and no tokens where the translation ends."""

    text: str
    tokens: tuple[int, ...]
    log_probability: float


class NextWordSearch:
    """Incomplete words, one a row; complete ones are collected by their text."""

    def __init__(self, lexicon: Lexicon, prefix: Sequence[int], special: SpecialTokens, width: int) -> None:
        self.lexicon, self.prefix, self.special, self.width = lexicon, prefix, special, width
        self.ends = list(end_tokens(special))
        self.incomplete: list[tuple[tuple[int, ...], float]] = [((), 0.0)]  # tokens and log p of each row
        self.complete: dict[str, list[NextWord]] = {}

    def extend(self, log_p: Tensor) -> Tensor:
        """One more token for every incomplete word: log p [R,V] -> rows to continue from."""
        continuations = []
        for row, (tokens, before) in enumerate(self.incomplete):
            scores = log_p[row].clone()
            scores[list(self.special.suppressed)] = NEG_INF
            if not tokens:
                self.add((), float(scores[self.ends].logsumexp(dim=0)))
                keep_only(scores, self.lexicon.new_word_tokens(self.prefix)[:-1])
            elif self.text(tokens):
                over = self.lexicon.new_word_tokens(tokens)
                self.add(tokens, before + float(scores[over].logsumexp(dim=0)))
                scores[over] = NEG_INF
            scores[self.ends] = NEG_INF
            continuations.append(scores + before)
        every = torch.stack(continuations).flatten()  # [R*V]
        best, index = every.topk(min(self.width, len(every)))
        index = index[best > NEG_INF]
        rows, last = index // log_p.shape[1], index % log_p.shape[1]
        self.incomplete = [
            ((*self.incomplete[row][0], token), value)
            for row, token, value in zip(rows.tolist(), last.tolist(), best.tolist())
        ]
        return rows

    def text(self, tokens: Sequence[int]) -> str:
        return self.lexicon.bytes_of(tokens).decode(errors="replace").strip()

    def add(self, tokens: tuple[int, ...], log_probability: float) -> None:
        if log_probability > NEG_INF:
            text = self.text(tokens)
            self.complete.setdefault(text, []).append(NextWord(text, tokens, log_probability))

    def best(self) -> list[NextWord]:
        """The complete words, most probable first; the segmentations of a word are summed."""
        words = []
        for text, ways in self.complete.items():
            likeliest = max(ways, key=lambda way: way.log_probability)
            total = math.log(math.fsum(math.exp(way.log_probability) for way in ways))
            words.append(NextWord(text, likeliest.tokens, total))
        return sorted(words, key=lambda word: -word.log_probability)

    def is_done(self, count: int) -> bool:
        """Whether no incomplete word can become one of the best."""
        if not self.incomplete or len(self.incomplete[0][0]) >= MAX_WORD:
            return True
        best = self.best()
        return len(best) >= count and self.incomplete[0][1] <= best[count - 1].log_probability


def next_words(
    model: Steppable[S],
    sample: Sample,
    prefix: Sequence[int],
    count: int,
    special: SpecialTokens,
    lexicon: Lexicon,
    device: torch.device,
) -> list[NextWord]:
    """The `count` most probable words that follow a prefix, different as text."""
    words = NextWordSearch(lexicon, prefix, special, max(2 * count, MIN_WIDTH))
    state = model.start(collate([Sample(source=sample.source)], BLOCK).to(device))
    tokens = torch.tensor([[special.start, *prefix]], device=device)
    while True:
        logits, state = model.step(state, tokens)
        rows = words.extend(logits[:, -1].float().log_softmax(dim=1))
        if words.is_done(count):
            return words.best()[:count]
        state = state.select(rows)
        tokens = torch.tensor([[each[-1]] for each, _ in words.incomplete], device=device)
