"""Texts with gaps in, the words that were left out: BERT guesses a piece for each gap, T5 writes several."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import torch

from regard.errors import UsageError
from regard.generation import Hypothesis, answers, decode
from regard.generation.score import TOKENS_PER_BATCH
from regard.inputs.text import Tokenizer
from regard.models import EncoderDecoder, EncoderOnly
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.traceable import Traceable
from regard.tasks.translator import decode_options

GAP = re.compile(r"<mask>|\[MASK\]|_{3,}")  # how a person writes a gap
LEAST_BEAM = 4  # of T5's search


class Guess(NamedTuple):
    piece: str  # without the space before it
    probability: float


@dataclass(frozen=True)
class Candidate:
    text: str
    probability: float  # of all that was filled in


@dataclass(frozen=True)
class Filling:
    """A text with its gaps filled: whole texts, and the guesses at each gap, best first."""

    source: str
    candidates: list[Candidate]
    guesses: list[list[Guess]]  # of each gap

    @property
    def text(self) -> str:
        return self.candidates[0].text


@dataclass(frozen=True)
class Span:
    """What is put into a gap."""

    ids: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class Gapped:
    """A text cut at its gaps: one part more than there are gaps."""

    source: str
    parts: list[str]
    ids: list[list[int]]

    @property
    def gaps(self) -> int:
        return len(self.parts) - 1


class Filler(Traceable):
    """An opened model of hidden words (BERT) or hidden spans (T5).

    BERT guesses one piece for each gap, and several gaps each by itself: its guesses know nothing of one
    another. T5 writes as many pieces as it likes, each span after those before.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.source
        spans = isinstance(folder.model, EncoderDecoder) and bool(folder.source.sentinels)
        words = isinstance(folder.model, EncoderOnly) and folder.config.head in (None, "words")
        if not spans and not (words and folder.source.mask is not None):
            raise UsageError(f"{folder.path}: this model has not learned to fill gaps (task fill: bert, t5)")
        self.device = next(folder.model.parameters()).device
        self.longest = folder.config.max_length - 2  # pieces of a text beside its start and end
        self.cutter = Cutter(folder.source)

    @overload
    def fill(self, text: str, count: int = 5) -> Filling: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Sequence[str], count: int = 5) -> list[Filling]: ...
    def fill(self, text: str | Sequence[str], count: int = 5) -> Filling | list[Filling]:
        """Fill `<mask>` in one text or in many, with the `count` best guesses and texts."""
        texts = [text] if isinstance(text, str) else list(text)
        found = self.fill_lines(texts, count)
        return found[0] if isinstance(text, str) else found

    def fill_lines(
        self, texts: Sequence[str], count: int = 5, numbers: Sequence[int] | None = None
    ) -> list[Filling]:
        """`numbers` are those of the lines, for messages."""
        where = [f"line {number}: " for number in numbers] if numbers else [""] * len(texts)
        gapped = [self.cut(text, place) for text, place in zip(texts, where)]
        if isinstance(self.model, EncoderOnly):
            return [self.combined(each, own) for each, own in zip(gapped, self.guess(gapped, count))]
        return [self.told(each, own, count) for each, own in zip(gapped, self.search(gapped, count))]

    def cut(self, text: str, where: str) -> Gapped:
        found = self.cutter.cut(text)
        most = len(self.tokenizer.sentinels) - 1  # the last one closes T5's answer
        if not found.gaps:
            raise UsageError(
                f'{where}"{shortened(text)}" has no gap; write <mask> where a word is missing, '
                'as in "The <mask> sleeps."'
            )
        if isinstance(self.model, EncoderDecoder) and found.gaps > most:
            raise UsageError(f"{where}the text has {found.gaps} gaps, the model knows signs for {most}")
        pieces = sum(map(len, found.ids)) + found.gaps
        if pieces > self.longest:
            raise UsageError(
                f"{where}the text has {pieces} pieces, but the model reads {self.longest} at once; shorten it"
            )
        return found

    # BERT: a piece for each gap

    def guess(self, texts: Sequence[Gapped], count: int) -> list[list[list[Span]]]:
        """The `count` most probable pieces of each gap of each text."""
        rows = [self.hidden_words(text) for text in texts]
        assert isinstance(self.model, EncoderOnly)
        logits = answers(self.model, [Sample(source=row) for row in rows], TOKENS_PER_BATCH, self.device)
        silent = [*self.tokenizer.never_said, self.tokenizer.end]
        found = []
        for row, own in zip(rows, logits):
            gaps = [place for place, piece in enumerate(row) if piece == self.tokenizer.mask]
            log_p = own[gaps].log_softmax(dim=1)  # [gaps,V]
            log_p[:, silent] = -torch.inf
            best, ids = log_p.topk(min(count, log_p.shape[1] - len(set(silent))), dim=1)
            found.append(
                [[Span((i,), p) for i, p in zip(*pair)] for pair in zip(ids.tolist(), best.tolist())]
            )
        return found

    def hidden_words(self, text: Gapped) -> list[int]:
        """`<s>` text `</s>` with the mask in each gap."""
        mask = self.tokenizer.mask
        assert mask is not None
        inside = [piece for ids in text.ids for piece in (mask, *ids)][1:]
        return [self.tokenizer.start, *inside, self.tokenizer.end]

    def combined(self, text: Gapped, gaps: Sequence[Sequence[Span]]) -> Filling:
        """The best texts: p = product of the guesses', since each gap is guessed by itself."""
        best: list[tuple[float, tuple[Span, ...]]] = [(0.0, ())]
        for guesses in gaps:
            longer = [(p + each.log_probability, (*own, each)) for p, own in best for each in guesses]
            best = heapq.nlargest(len(gaps[0]), longer, key=lambda pair: pair[0])
        candidates = [Candidate(self.cutter.join(text, own), math.exp(p)) for p, own in best]
        return Filling(text.source, candidates, [self.readable(guesses) for guesses in gaps])

    # T5: spans one after another

    def search(self, texts: Sequence[Gapped], count: int) -> list[list[Hypothesis]]:
        assert isinstance(self.model, EncoderDecoder)
        # more than are told: what is written behind the last gap makes no other text
        options = decode_options(self.folder.decode, {"beam": max(LEAST_BEAM, 4 * count), "sample": False})
        samples = [Sample(source=self.hidden_spans(text)) for text in texts]
        return decode(self.model, samples, options, self.folder.special, self.device)

    def hidden_spans(self, text: Gapped) -> list[int]:
        """Text `</s>` with a sign in each gap, `<extra_id_0>` in the first."""
        signs = self.tokenizer.sentinels
        rest = [piece for sign, ids in zip(signs, text.ids[1:]) for piece in (sign, *ids)]
        return [*text.ids[0], *rest, self.tokenizer.end]

    def told(self, text: Gapped, found: Sequence[Hypothesis], count: int) -> Filling:
        by_text: dict[str, tuple[float, list[Span]]] = {}
        for each in found:  # the best first
            spans = self.spans_of(each, text.gaps)
            by_text.setdefault(self.cutter.join(text, spans), (math.exp(each.log_probability), spans))
        best = list(by_text.items())[:count]
        candidates = [Candidate(whole, probability) for whole, (probability, _) in best]
        answers = [spans for _, (_, spans) in best]
        return Filling(text.source, candidates, [self.readable(distinct(own)) for own in zip(*answers)])

    def spans_of(self, found: Hypothesis, gaps: int) -> list[Span]:
        """The span after each sign in what was written; empty where a sign is missing."""
        signs = {sign: number for number, sign in enumerate(self.tokenizer.sentinels)}
        ids: list[list[int]] = [[] for _ in range(gaps)]
        log_p = [-math.inf] * gaps
        gap = gaps  # none yet
        for piece, own in zip(found.tokens, found.token_log_probabilities):
            if piece in signs:
                gap = signs[piece]
                if gap < gaps:
                    log_p[gap] = 0.0
            elif gap < gaps:
                ids[gap].append(piece)
                log_p[gap] += own
        return [Span(tuple(own), p) for own, p in zip(ids, log_p)]

    def readable(self, spans: Sequence[Span]) -> list[Guess]:
        return [Guess(self.cutter.spelling(span.ids)[1], math.exp(span.log_probability)) for span in spans]


def distinct(spans: Sequence[Span]) -> list[Span]:
    """Each span once, as probable as it ever was, best first."""
    best: dict[tuple[int, ...], Span] = {}
    for span in sorted(spans, key=lambda span: -span.log_probability):
        best.setdefault(span.ids, span)
    return list(best.values())


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True)
class Cutter:
    """Cuts a text at its gaps as training cut it: as a whole, before pieces of it were hidden.

    A word's piece holds the space before it. So the space before a gap is the gap's, and the text after one
    is cut as it would be in the middle of a line.
    """

    tokenizer: Tokenizer

    @cached_property
    def spaced(self) -> bool:
        """Whether pieces hold the space before a word."""
        pieces = self.tokenizer.pieces(range(len(self.tokenizer)))
        return any(len(piece) > 1 and piece.startswith(" ") for piece in pieces)

    def cut(self, text: str) -> Gapped:
        parts = GAP.split(text)
        bare = [self.bare(part) for part in parts[:-1]] + parts[-1:]
        ids = [self.tokenizer.encode(bare[0]), *(self.tokenizer.encode_inside(part) for part in bare[1:])]
        return Gapped(text, parts, ids)

    def bare(self, part: str) -> str:
        """A part without the space that belongs to the gap behind it."""
        return part.removesuffix(" ") if self.spaced else part

    def join(self, text: Gapped, spans: Sequence[Span]) -> str:
        """The text with the gaps filled."""
        found = ""
        for part, span in zip(text.parts, spans):
            glued, word = self.spelling(span.ids)
            found += self.bare(part)
            if self.spaced and not glued and found:
                found += " "
            elif not self.spaced and glued:
                found = found.rstrip(" ")
            found += word
        return found + text.parts[-1]

    def spelling(self, ids: Sequence[int]) -> tuple[bool, str]:
        """Whether pieces stand right behind the text before them, and their text."""
        word = self.tokenizer.decode(ids)
        first = self.tokenizer.pieces(ids[:1])
        if self.spaced:
            return not first or not first[0].startswith(" "), word
        glued = word.startswith("##") and len(word) > 2  # WordPiece's sign for a piece inside a word
        return glued, word[2:] if glued else word
