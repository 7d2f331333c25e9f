"""Objectives on plain text: CausalLM (GPT), MaskedLM (BERT), SpanCorruption (T5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.data.batches import generator
from regard.data.dataset import (
    UINT32,
    Encodings,
    Loss,
    Numbers,
    Objective,
    Rng,
    RowObjective,
    RowPool,
    TokenIds,
    column,
    narrowest,
    offsets,
)
from regard.data.readers import CONTINUED, MORE, RawRow
from regard.inputs.text import Tokenizer
from regard.sample import IGNORED, Sample

WINDOWS_PER_CHUNK = 16  # a long document is several rows of the column
MASKED, REPLACED = 0.8, 0.1  # shares of the predicted tokens; the rest is unchanged


@dataclass(frozen=True)
class CausalLM(Objective):
    """Predict each token from those before it (Radford et al. 2018). A document is `<s> x_1 .. x_n </s>`.

    A long document is several rows of text; the target of a row tells whether it continues the row before and
    how the next row continues it. Chunks of a document overlap by one token: the last label of one is the
    first input of the next.
    """

    tokenizer: Tokenizer
    window: int  # tokens that the model reads at once
    across_rows: bool = True  # predict the first token of the next row; from version 3 on
    loss: Loss = "words"

    @property
    def longest(self) -> int:
        return WINDOWS_PER_CHUNK * self.window + 1

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        chunks = list(self.chunks(rows))
        ids = column(chunks, narrowest(len(self.tokenizer)))
        return Encodings(ids, column([()] * len(chunks), narrowest(1)))

    def chunks(self, rows: Sequence[RawRow]) -> Iterator[list[int]]:
        for _, text, target in rows:
            ids = self.token_ids(text, target)
            _, more, opening = target.removeprefix(CONTINUED).partition(MORE)
            if more and self.across_rows:
                ids += self.tokenizer.encode_inside(opening)[:1]
            for start in range(0, max(1, len(ids) - 1), self.longest - 1):
                yield ids[start : start + self.longest]

    def token_ids(self, text: str, target: str) -> list[int]:
        """A row of text with `<s>` and `</s>` only where its document begins and ends."""
        tokenizer = self.tokenizer
        if target.startswith(CONTINUED):
            ids = list(tokenizer.encode_inside(text))
        else:
            ids = [tokenizer.start, *tokenizer.encode(text)]
        return ids if target.removeprefix(CONTINUED) else [*ids, tokenizer.end]

    def layout(self, pool: RowPool, rng: Rng) -> PackedWindows:
        """In random order, split at random places, so that every epoch has other windows."""
        order, first = rng.permutation(len(pool)), int(rng.integers(1, self.window + 1))
        chunks = [pool.source[number].astype(np.int64) for number in order]
        return PackedWindows.of(chunks, self.window, first)

    def eval_samples(self, rows: Sequence[RawRow]) -> list[Sample]:
        """Consecutive windows, for the loss of held-out text."""
        packed = PackedWindows.of([np.array(chunk) for chunk in self.chunks(rows)], self.window, self.window)
        return [packed.sample(number) for number in range(len(packed.lengths))]


@dataclass(frozen=True)
class PackedWindows:
    """Chunks one after another, split into windows: no padding, whatever the lengths of the documents.

    A window may contain the end of one chunk and the beginning of another. `documents` separates them, and
    positions start again from 0.
    """

    inputs: Numbers  # [N]
    labels: Numbers  # [N], the next tokens
    chunk: Numbers  # [N], the number of each token's chunk
    starts: Numbers  # where each chunk starts
    bounds: Numbers  # where windows start, and N

    @classmethod
    def of(cls, chunks: Sequence[Numbers], window: int, first: int) -> PackedWindows:
        """`first` is the length of the first window."""
        lengths = np.array([max(0, len(each) - 1) for each in chunks], dtype=np.int64)
        total = int(lengths.sum())
        empty = np.zeros(0, dtype=np.int64)
        return cls(
            inputs=np.concatenate([empty, *(each[:-1] for each in chunks)]),
            labels=np.concatenate([empty, *(each[1:] for each in chunks)]),
            chunk=np.repeat(np.arange(len(chunks)), lengths),
            starts=offsets(lengths),
            bounds=np.array([0, *range(min(first, total), total, window), total], dtype=np.int64),
        )

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.bounds)[:, None]

    def sample(self, number: int, rng: Rng | None = None) -> Sample:
        first, last = int(self.bounds[number]), int(self.bounds[number + 1])
        chunk = self.chunk[first:last]
        starts = np.maximum(self.starts[chunk], first)  # of each token's document in this window
        return Sample(
            target=self.inputs[first:last].tolist(),
            labels=self.labels[first:last].tolist(),
            positions=(np.arange(first, last) - starts).tolist(),
            documents=(chunk - chunk[0]).tolist() if len(chunk) else [],
        )


@dataclass(frozen=True)
class Denoising(RowObjective):
    """Text split to the length of the model; the second column is the number of each token's word, from 1."""

    tokenizer: Tokenizer
    max_length: int
    mask_rate: float
    loss: Loss = "words"
    extra = (2, 0)

    @property
    def longest(self) -> int:
        return self.max_length - 2  # without <s> and </s>

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        ids = [part for _, text, _ in rows for part in self.parts(text)]
        words = column([self.words(part) for part in ids], UINT32)
        return Encodings(column(ids, narrowest(len(self.tokenizer))), words)

    def parts(self, text: str) -> Iterator[list[int]]:
        ids = self.tokenizer.encode(text)
        for start in range(0, len(ids), self.longest):
            yield ids[start : start + self.longest]

    def eval_samples(self, rows: Sequence[RawRow]) -> list[Sample]:
        """Samples with the same masks at every validation."""
        parts = [part for _, text, _ in rows for part in self.parts(text)]
        return [
            self.sample(ids, self.words(ids), generator(0, 0, number)) for number, ids in enumerate(parts)
        ]

    def words(self, ids: TokenIds) -> list[int]:
        return [word + 1 for word in self.tokenizer.words(ids)]


@dataclass(frozen=True)
class MaskedLM(Denoising):
    """Predict some of the tokens (Devlin et al. 2019, 3.1).

    80 % of them are read as the mask, 10 % as a random token, 10 % unchanged: the model cannot tell which of
    the tokens it reads are true.
    """

    whole_words: bool = False

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng) -> Sample:
        ids = np.array(source, dtype=np.int64)
        words = np.array(target, dtype=np.int64) if self.whole_words else np.arange(len(ids))
        chosen = self.choose(words, rng)  # [T] bool
        draw = rng.random(len(ids))  # [T] in [0, 1)
        inputs = np.where(chosen & (draw < MASKED), mask_id(self.tokenizer), ids)
        random_ids = rng.integers(0, len(self.tokenizer), len(ids))
        inputs = np.where(chosen & (draw >= 1 - REPLACED), random_ids, inputs)
        return Sample(
            source=[self.tokenizer.start, *inputs.tolist(), self.tokenizer.end],
            labels=[IGNORED, *np.where(chosen, ids, IGNORED).tolist(), IGNORED],
        )

    def choose(self, words: Numbers, rng: Rng) -> npt.NDArray[np.bool_]:
        """All tokens of some words, of at least one."""
        distinct = np.unique(words)
        count = max(1, round(self.mask_rate * len(distinct)))
        return np.isin(words, rng.choice(distinct, count, replace=False))


@dataclass(frozen=True)
class SpanCorruption(Denoising):
    """Predict spans; a sentinel stands for each in the source and precedes it in the target (Raffel et al. 2020, 3.1).

    Thank you <X> me to your party <Y> .   ->   <X> for inviting <Y> last week <Z>
    """  # noqa: E501

    mean_span: float = 3.0

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng) -> Sample:
        sentinels = self.tokenizer.sentinels
        if not sentinels:
            raise ValueError("this tokenizer has no sentinels")
        inputs: list[int] = []
        labels: list[int] = []
        place = 0
        kept, masked = self.span_lengths(len(source), len(sentinels) - 1, rng)
        for number, (before, span) in enumerate(zip(kept, masked)):
            inputs += [*source[place : place + before], sentinels[number]]
            place += before
            labels += [sentinels[number], *source[place : place + span]]
            place += span
        end = self.tokenizer.end
        labels = [*labels, sentinels[len(masked)], end]
        return Sample([*inputs, *source[place:], end], [self.tokenizer.start, *labels[:-1]], labels)

    def span_lengths(self, total: int, most: int, rng: Rng) -> tuple[list[int], list[int]]:
        """Numbers of tokens before each span, and in each span.

        A span may be at the beginning or at the end, but never beside another. T5 itself always masks the
        end, which would teach little else on short texts.
        """
        masked = min(max(1, round(self.mask_rate * total)), max(1, total - 1))
        spans = min(max(1, round(masked / self.mean_span)), masked, total - masked + 1, most)
        kept = random_partition(total - masked + 2, spans + 1, rng)  # one too many at each end
        return [kept[0] - 1, *kept[1:-1]], random_partition(masked, spans, rng)


def random_partition(total: int, count: int, rng: Rng) -> list[int]:
    """A number as a sum of `count` positive integers, uniform over all such sums."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, int)
    return [int(part) for part in np.diff([0, *cuts.tolist(), total])]


def mask_id(tokenizer: Tokenizer) -> int:
    if tokenizer.mask is None:
        raise ValueError("this tokenizer has no mask token")
    return tokenizer.mask
