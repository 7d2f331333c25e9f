"""Fill gaps in texts: BERT predicts one token for each gap, T5 writes a span."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.generation import Hypothesis, answers, decode
from regard.generation.score import TOKENS_PER_BATCH
from regard.inputs.text import Tokenizer
from regard.models.encoder import EncoderOnly
from regard.models.transformer import EncoderDecoder
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.methods import FillMethods
from regard.tasks.results import FilledText, Filling, Guess
from regard.tasks.task_model import TooLong
from regard.tasks.translation import decode_options

GAP = re.compile(r"<mask>|\[MASK\]|_{3,}")  # how users write a gap
MIN_BEAM = 4  # of T5's search


@dataclass(frozen=True)
class GapSpan:
    """Tokens that fill a gap."""

    ids: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class GappedText:
    """A text split at its gaps: one part more than there are gaps."""

    source: str
    parts: list[str]
    ids: list[list[int]]
    truncated: bool = False  # the ids are those around the gaps
    skipped: bool = False

    @property
    def gaps(self) -> int:
        return len(self.parts) - 1

    @property
    def tokens(self) -> int:
        return sum(map(len, self.ids)) + self.gaps


class Filler(FillMethods):
    """A masked language model (BERT) or a model of span corruption (T5).

    BERT predicts one token for each gap, several gaps independently of one another. T5 writes spans of any
    length, each given those before it.
    """

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.source
        spans = isinstance(folder.model, EncoderDecoder) and bool(folder.source.sentinels)
        words = isinstance(folder.model, EncoderOnly) and folder.config.head in (None, "words")
        if not spans and not (words and folder.source.mask is not None):
            raise UsageError(f"{folder.path}: this model was not trained to fill gaps (task fill: bert, t5)")
        self.device = next(folder.model.parameters()).device
        self.longest = folder.config.max_length - 2  # tokens of a text, without start and end
        self.cutter = GapCutter(folder.source)
        self.use_engines([folder], precision)

    def _fill(
        self, texts: Sequence[str], num_results: int, on_too_long: TooLong, first_line: int
    ) -> list[Filling]:
        gapped = [
            self.split_gaps(text, f"line {number}: ", on_too_long) if text.strip() else None
            for number, text in enumerate(texts, first_line)
        ]
        read = [each for each in gapped if each is not None and not each.skipped]
        if isinstance(self.model, EncoderOnly):
            fillings = (self.combine(each, spans) for each, spans in zip(read, self.guess(read, num_results)))
        else:
            beams = self.search(read, num_results) if read else []
            fillings = (self.fillings(each, some, num_results) for each, some in zip(read, beams))
        return [
            Filling(text, "" if each else text, [], [], skipped=each is not None, precision=self.precision)
            if each is None or each.skipped
            else next(fillings)
            for text, each in zip(texts, gapped)
        ]

    def split_gaps(self, text: str, where: str = "", on_too_long: TooLong = "error") -> GappedText:
        gapped = self.cutter.cut(text)
        limit = len(self.tokenizer.sentinels) - 1  # the last sentinel ends T5's output
        if not gapped.gaps:
            raise UsageError(
                f'{where}"{shortened(text)}" has no gap; write <mask> where a word is missing, '
                'as in "The <mask> sleeps."',
                code="E_FILL_GAP",
            )
        if isinstance(self.model, EncoderDecoder) and gapped.gaps > limit:
            raise UsageError(f"{where}the text has {gapped.gaps} gaps, the model has sentinels for {limit}")
        if gapped.tokens <= self.longest:
            return gapped
        if on_too_long == "skip":
            return replace(gapped, skipped=True)
        room = self.longest - (gapped.tokens - len(gapped.ids[0]) - len(gapped.ids[-1]))
        if on_too_long == "error" or room < 0:
            raise UsageError(
                f"{where}the text has {gapped.tokens} tokens, but the model reads {self.longest}; shorten it",
                code="E_TOO_LONG",
            )
        before = min(len(gapped.ids[0]), max(room // 2, room - len(gapped.ids[-1])))
        first, last = gapped.ids[0][len(gapped.ids[0]) - before :], gapped.ids[-1][: room - before]
        return replace(gapped, ids=[first, *gapped.ids[1:-1], last], truncated=True)

    # BERT: a token for each gap

    def guess(self, texts: Sequence[GappedText], count: int) -> list[list[list[GapSpan]]]:
        """The `count` most probable tokens of each gap of each text."""
        rows = [self.with_masks(text) for text in texts]
        assert isinstance(self.model, EncoderOnly)
        logits = answers(self.model, [Sample(source=row) for row in rows], TOKENS_PER_BATCH, self.device)
        return [self.guess_row(*pair, count) for pair in zip(rows, logits)]

    def guess_row(self, row: Sequence[int], logits: Tensor, count: int) -> list[list[GapSpan]]:
        """The `count` most probable tokens of each gap, from logits [S,V]."""
        suppressed = [*self.tokenizer.suppressed, self.tokenizer.end]
        log_p = logits[self.gaps(row)].log_softmax(dim=1)  # [gaps,V]
        log_p[:, suppressed] = -torch.inf
        best, ids = log_p.topk(min(count, log_p.shape[1] - len(set(suppressed))), dim=1)
        return [[GapSpan((i,), p) for i, p in zip(*pair)] for pair in zip(ids.tolist(), best.tolist())]

    def gaps(self, row: Sequence[int]) -> list[int]:
        """The positions of the masks."""
        return [place for place, token in enumerate(row) if token == self.tokenizer.mask]

    def with_masks(self, text: GappedText) -> list[int]:
        """`<s>` text `</s>` with the mask in each gap."""
        mask = self.tokenizer.mask
        assert mask is not None
        inside = [token for ids in text.ids for token in (mask, *ids)][1:]
        return [self.tokenizer.start, *inside, self.tokenizer.end]

    def combine(self, text: GappedText, gaps: Sequence[Sequence[GapSpan]]) -> Filling:
        """The best texts: p is the product over the gaps, which BERT fills independently."""
        best: list[tuple[float, tuple[GapSpan, ...]]] = [(0.0, ())]
        for guesses in gaps:
            longer = [(p + each.log_probability, (*spans, each)) for p, spans in best for each in guesses]
            best = heapq.nlargest(len(gaps[0]), longer, key=lambda pair: pair[0])
        candidates = [FilledText(self.cutter.join(text, spans), math.exp(p)) for p, spans in best]
        return self.filling(text, candidates, [self.readable(guesses) for guesses in gaps])

    # T5: one span after another

    def search(self, texts: Sequence[GappedText], count: int) -> list[list[Hypothesis]]:
        assert isinstance(self.model, EncoderDecoder)
        # a wider beam than `count`: hypotheses that differ only after the last gap give the same text
        options = decode_options(self.folder.decode, {"beam": max(MIN_BEAM, 4 * count), "sample": False})
        samples = [Sample(source=self.with_sentinels(text)) for text in texts]
        return decode(self.engines[0], samples, options, self.folder.special, self.device)

    def with_sentinels(self, text: GappedText) -> list[int]:
        """Text `</s>` with a sentinel in each gap, `<extra_id_0>` in the first."""
        sentinels = self.tokenizer.sentinels
        rest = [token for sentinel, ids in zip(sentinels, text.ids[1:]) for token in (sentinel, *ids)]
        return [*text.ids[0], *rest, self.tokenizer.end]

    def fillings(self, text: GappedText, beams: Sequence[Hypothesis], count: int) -> Filling:
        """The `count` best distinct texts of the hypotheses."""
        by_text: dict[str, tuple[float, list[GapSpan]]] = {}
        for each in beams:  # best first
            spans = self.spans_of(each, text.gaps)
            by_text.setdefault(self.cutter.join(text, spans), (math.exp(each.log_probability), spans))
        best = list(by_text.items())[:count]
        candidates = [FilledText(whole, probability) for whole, (probability, _) in best]
        by_gap = zip(*(spans for _, (_, spans) in best))
        return self.filling(text, candidates, [self.readable(distinct(spans)) for spans in by_gap])

    def spans_of(self, hypothesis: Hypothesis, gaps: int) -> list[GapSpan]:
        """The span after each sentinel of the output; empty where a sentinel is missing."""
        gap_of = {sentinel: number for number, sentinel in enumerate(self.tokenizer.sentinels)}
        ids: list[list[int]] = [[] for _ in range(gaps)]
        log_p = [-math.inf] * gaps
        gap = gaps  # before the first sentinel
        for token, token_log_p in zip(hypothesis.tokens, hypothesis.token_log_probabilities):
            if token in gap_of:
                gap = gap_of[token]
                if gap < gaps:
                    log_p[gap] = 0.0
            elif gap < gaps:
                ids[gap].append(token)
                log_p[gap] += token_log_p
        return [GapSpan(tuple(span), p) for span, p in zip(ids, log_p)]

    def filling(self, text: GappedText, candidates: list[FilledText], guesses: list[list[Guess]]) -> Filling:
        best = candidates[0].text
        return Filling(text.source, best, candidates, guesses, text.truncated, precision=self.precision)

    def readable(self, spans: Sequence[GapSpan]) -> list[Guess]:
        return [Guess(self.cutter.spelling(span.ids)[1], math.exp(span.log_probability)) for span in spans]


def distinct(spans: Sequence[GapSpan]) -> list[GapSpan]:
    """Each span once, with its highest probability, best first."""
    best: dict[tuple[int, ...], GapSpan] = {}
    for span in sorted(spans, key=lambda span: -span.log_probability):
        best.setdefault(span.ids, span)
    return list(best.values())


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True)
class GapCutter:
    """Splits a text at its gaps into the tokens of training, where tokens were masked after tokenization.

    A word's token includes the space before it. So the space before a gap belongs to the gap, and the text
    after a gap is tokenized as in the middle of a line.
    """

    tokenizer: Tokenizer

    @cached_property
    def spaced(self) -> bool:
        """True if tokens include the space before a word."""
        pieces = self.tokenizer.tokens(range(len(self.tokenizer)))
        return any(len(piece) > 1 and piece.startswith(" ") for piece in pieces)

    def cut(self, text: str) -> GappedText:
        parts = GAP.split(text)
        bare = [self.bare(part) for part in parts[:-1]] + parts[-1:]
        ids = [self.tokenizer.encode(bare[0]), *(self.tokenizer.encode_inside(part) for part in bare[1:])]
        return GappedText(text, parts, ids)

    def bare(self, part: str) -> str:
        """A part without the space that belongs to the gap after it."""
        return part.removesuffix(" ") if self.spaced else part

    def join(self, text: GappedText, spans: Sequence[GapSpan]) -> str:
        """The text with the gaps filled."""
        filled = ""
        for part, span in zip(text.parts, spans):
            glued, word = self.spelling(span.ids)
            filled += self.bare(part)
            if self.spaced and not glued and filled:
                filled += " "
            elif not self.spaced and glued:
                filled = filled.rstrip(" ")
            filled += word
        return filled + text.parts[-1]

    def spelling(self, ids: Sequence[int]) -> tuple[bool, str]:
        """(True if the tokens join the text before them without a space, their text)."""
        word = self.tokenizer.decode(ids)
        first = self.tokenizer.tokens(ids[:1])
        if self.spaced:
            return not first or not first[0].startswith(" "), word
        glued = word.startswith("##") and len(word) > 2  # WordPiece's mark of a token inside a word
        return glued, word[2:] if glued else word
