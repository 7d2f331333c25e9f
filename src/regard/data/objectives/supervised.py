"""Objectives on annotated text: Seq2Seq, Classify, Tag, ExtractiveQA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.data.dataset import (
    UINT32,
    Encodings,
    Loss,
    Rng,
    RowObjective,
    TokenIds,
    column,
    encode,
    narrowest,
    select,
)
from regard.data.readers import LABEL_SEPARATOR, RawRow
from regard.inputs.text import Tokenizer
from regard.inputs.text.spans import mask, mask_pair, unmask
from regard.sample import IGNORED, Example, Sample

UNLIMITED = 1 << 30
LEAST_CONTEXT = 8  # tokens of a context beside a question
NO_ANSWER = (0, 0)  # the position of <s>


@dataclass(frozen=True)
class Seq2Seq(RowObjective):
    """Text to text: translation, and every task that T5 reads with a prefix.

    The encoder reads `x_1 .. x_m </s>`, the decoder reads `<s> y_1 .. y_n` and predicts `y_1 .. y_n </s>`.
    Some tokenizers put more around a source, and the target's language before a target.
    """

    source: Tokenizer
    target: Tokenizer
    max_length: int = UNLIMITED
    loss: Loss = "words"

    @property
    def extra(self) -> tuple[int, int]:
        return len(self.source.framed([])), 1 + len(self.first)

    @property
    def first(self) -> tuple[int, ...]:
        """The language that a target begins with."""
        return () if self.target.first is None else (self.target.first,)

    @property
    def longest(self) -> int:
        return self.max_length - max(self.extra)  # without <s> or </s>

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        pairs = [self.masked(source, target) for _, source, target in rows]
        left = encode([source for source, _ in pairs], self.source)
        right = encode([target for _, target in pairs], self.target)
        keep = (left[1] <= self.longest) & (right[1] <= self.longest)
        long = [
            (number, f"{left[1][number]} and {right[1][number]} tokens")
            for number in np.flatnonzero(~keep).tolist()
        ]
        return Encodings(select(left, keep), select(right, keep), long)

    def eval_samples(self, examples: Sequence[Example]) -> list[Sample]:
        pairs = [self.masked(example.source, example.target, every=True) for example in examples]
        sources = self.source.encode_batch([source for source, _ in pairs])
        targets = self.target.encode_batch([target for _, target in pairs])
        return [self.sample(left, right) for left, right in zip(sources, targets)]

    @property
    def placeholders(self) -> int:
        return min(len(self.source.placeholders), len(self.target.placeholders))

    def masked(self, source: str, target: str, every: bool = False) -> tuple[str, str]:
        """A pair as the model reads it: with placeholder tokens, if it has them."""
        return mask_pair(source, target, self.placeholders, every) if self.placeholders else (source, target)

    def unmasked(self, text: str, source: str) -> str:
        """A decoded text with the parts of its source that the placeholder tokens stand for."""
        return unmask(text, mask(source, self.placeholders).items) if self.placeholders else text

    def source_sample(self, ids: TokenIds) -> Sample:
        """A source without a target, for generation."""
        return Sample(source=self.source.framed(ids))

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng | None = None) -> Sample:
        return Sample(
            source=self.source.framed(source),
            target=[self.target.start, *self.first, *target],
            labels=[*self.first, *target, self.target.end],
        )


@dataclass(frozen=True)
class LabelObjective(RowObjective):
    """An encoder reads `<s> x_1 .. x_n </s>` and predicts `labels`."""

    tokenizer: Tokenizer
    max_length: int
    labels: Sequence[str]

    @property
    def longest(self) -> int:
        return self.max_length - 2  # without <s> and </s>

    @cached_property
    def number(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def text(self, ids: TokenIds) -> Sample:
        """A text without labels."""
        return Sample(source=[self.tokenizer.start, *ids, self.tokenizer.end])


@dataclass(frozen=True)
class Classify(LabelObjective):
    """One label of a text; with `many`, 0 or 1 for each label."""

    many: bool = False
    extra = (2, 0)

    @property
    def loss(self) -> Loss:
        return "many" if self.many else "words"

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        texts = encode([text for _, text, _ in rows], self.tokenizer)
        names = [split_labels(target) for _, _, target in rows]  # those of held-out rows may be unseen
        labels = [[self.number[name] for name in row if name in self.number] for row in names]
        keep = texts[1] <= self.longest
        long = [(number, f"{texts[1][number]} tokens") for number in np.flatnonzero(~keep).tolist()]
        return Encodings(select(texts, keep), select(column(labels, UINT32), keep), long)

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng | None = None) -> Sample:
        labels = [int(number in target) for number in range(len(self.labels))] if self.many else target
        return Sample(self.text(source).source, labels=labels)

    def eval_samples(self, examples: Sequence[Example]) -> list[Sample]:
        """Labels that do not occur in the training data are ignored."""
        texts = self.tokenizer.encode_batch([example.source for example in examples])
        labels = [split_labels(example.target) for example in examples]
        numbers = [[self.number.get(label, IGNORED) for label in row] for row in labels]
        return [self.sample(ids, row) for ids, row in zip(texts, numbers)]


def split_labels(joined: str) -> list[str]:
    return joined.split(LABEL_SEPARATOR) if joined else []


@dataclass(frozen=True)
class Tag(LabelObjective):
    """A tag of each word, predicted at its first token."""

    loss: Loss = "words"
    extra = (2, 2)

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        tokens, tags, long = [], [], []
        for number, (_, text, target) in enumerate(rows):
            ids, first = self.encode_words(text.split(" "))
            if len(ids) > self.longest:
                long.append((number, f"{len(ids)} tokens"))
                continue
            row = [0] * len(ids)  # 0: no tag here
            for place, tag in zip(first, target.split(" ")):
                if place is not None:
                    row[place] = self.number.get(tag, -1) + 1  # a tag of held-out rows may be unseen
            tokens.append(ids)
            tags.append(row)
        return Encodings(column(tokens, narrowest(len(self.tokenizer))), column(tags, UINT32), long)

    def encode_words(self, words: Sequence[str]) -> tuple[list[int], list[int | None]]:
        """The tokens of a sentence, and the first token of each word (None for a word without tokens)."""
        ids, spans = self.tokenizer.spans(" ".join(words))
        first: list[int | None] = []
        begin = place = 0
        for word in words:
            while place < len(spans) and spans[place][1] <= begin:
                place += 1  # tokens that end before the word
            end = begin + len(word)
            first.append(place if place < len(spans) and spans[place][0] < end else None)
            begin = end + 1
        return list(ids), first

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng | None = None) -> Sample:
        labels = [IGNORED, *(tag - 1 if tag else IGNORED for tag in target), IGNORED]
        return Sample(self.text(source).source, labels=labels)


@dataclass(frozen=True)
class ContextWindow:
    """A question with a part of its context: `<s> question </s> context </s>`."""

    ids: Sequence[int]
    begins: int  # the position of the first token of the context
    spans: Sequence[tuple[int, int]]  # characters of each context token, in the whole context

    def places(self, start: int, end: int) -> tuple[int, int]:
        """First and last position of characters start .. end-1; `NO_ANSWER` unless all are in this window."""
        inside = [number for number, span in enumerate(self.spans) if span[1] > start and span[0] < end]
        whole = inside and self.spans[0][0] <= start and self.spans[-1][1] >= end
        return (self.begins + inside[0], self.begins + inside[-1]) if whole else NO_ANSWER


@dataclass(frozen=True)
class ExtractiveQA(RowObjective):
    """The first and the last token of an answer in a context (Devlin et al. 2019, 4.2).

    A long context is read in overlapping windows, most of which do not contain the answer.
    """

    tokenizer: Tokenizer
    max_length: int
    stride: int  # tokens that two windows share, at most half a window
    loss: Loss = "ends"
    extra = (0, 0)

    @property
    def longest(self) -> int:
        return self.max_length

    def windows(self, question: str, context: str) -> list[ContextWindow]:
        """[] for a question that leaves no room for a context."""
        end = self.tokenizer.end
        before = [self.tokenizer.start, *self.tokenizer.encode(question), *[end] * self.tokenizer.separators]
        ids, spans = self.tokenizer.spans(context)
        room = self.max_length - len(before) - 1
        if room < min(len(ids), LEAST_CONTEXT):
            return []
        stride = min(self.stride, room // 2)
        firsts = range(0, len(ids) - stride, room - stride) if room < len(ids) else [0]
        parts = [slice(first, first + room) for first in firsts]
        return [ContextWindow([*before, *ids[part], end], len(before), spans[part]) for part in parts]

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        windows, places, long = [], [], []
        for number, (_, text, answers) in enumerate(rows):
            question, _, context = text.partition("\n")
            row_windows = self.windows(question, context)
            if not row_windows:
                long.append((number, "its question leaves no room for a context"))
            row_places = [self.first_answer(window, answers) for window in row_windows]
            if row_windows and answers != "[]" and all(each == NO_ANSWER for each in row_places):
                # training on it would teach that there is no answer
                long.append((number, "no window holds its whole answer; raise task.stride or max_length"))
                continue
            windows += [window.ids for window in row_windows]
            places += [[window.begins, *each] for window, each in zip(row_windows, row_places)]
        return Encodings(column(windows, narrowest(len(self.tokenizer))), column(places, UINT32), long)

    def left_out(self, rows: Sequence[RawRow]) -> dict[int, str]:
        parts = [text.partition("\n") for _, text, _ in rows]
        long = (number for number, (q, _, context) in enumerate(parts) if not self.windows(q, context))
        return dict.fromkeys(long, "too-long")

    @staticmethod
    def first_answer(window: ContextWindow, answers: str) -> tuple[int, int]:
        """Of several answers, which are the same in the opinion of several people, the first is learned."""
        options = json.loads(answers)
        if not options:
            return NO_ANSWER
        text, start = options[0]
        begin = start + len(text) - len(text.lstrip())
        return window.places(begin, start + len(text.rstrip()))

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng | None = None) -> Sample:
        begins, *places = target
        return Sample(source, labels=places, segments=segments(len(source), begins))

    def text(self, window: ContextWindow) -> Sample:
        """A window without labels."""
        return Sample(window.ids, segments=segments(len(window.ids), window.begins))


def segments(length: int, begins: int) -> list[int]:
    return [0] * begins + [1] * (length - begins)
