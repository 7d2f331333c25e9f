"""What was hidden: masked words (BERT) and masked spans (T5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.data.batches import generator
from regard.data.dataset import Numbers, Pool, column, narrowest
from regard.data.objectives.base import WIDE, Arranged, AsTheyStand, Columns, Dice, Ids, Loss
from regard.data.rows import Row
from regard.inputs.text import Tokenizer
from regard.sample import IGNORED, Sample

AS_MASK, AS_ANOTHER = 0.8, 0.1  # the rest is read as it is


@dataclass(frozen=True)
class Hidden:
    """Rows of text cut to what the model reads; the second column tells the word of each piece."""

    tokenizer: Tokenizer
    max_length: int
    share: float
    loss: Loss = "words"

    @property
    def longest(self) -> int:
        return self.max_length - 2  # a start and an end

    def encode(self, rows: Sequence[Row]) -> Columns:
        ids = [part for _, text, _ in rows for part in self.parts(text)]
        words = [[word + 1 for word in self.tokenizer.words(part)] for part in ids]
        return Columns(column(ids, narrowest(len(self.tokenizer))), column(words, WIDE))

    def parts(self, text: str) -> Iterator[list[int]]:
        ids = self.tokenizer.encode(text)
        for start in range(0, len(ids), self.longest):
            yield ids[start : start + self.longest]

    def too_long(self, rows: Sequence[Row]) -> list[int]:
        return []  # they are cut

    def arrange(self, pool: Pool, dice: Dice) -> Arranged:
        return AsTheyStand(pool, self, (2, 0))

    def held(self, rows: Sequence[Row]) -> list[Sample]:
        """The same pieces are hidden at every validation."""
        columns = self.encode(rows)
        ends = [np.cumsum(lengths)[:-1] for _, lengths in (columns.source, columns.target)]
        both = zip(np.split(columns.source[0], ends[0]), np.split(columns.target[0], ends[1]))
        return [
            self.sample(ids.tolist(), words.tolist(), generator(0, 0, number))
            for number, (ids, words) in enumerate(both)
            if len(ids)
        ]

    def sample(self, source: Ids, target: Ids, dice: Dice) -> Sample:
        raise NotImplementedError


@dataclass(frozen=True)
class HiddenWords(Hidden):
    """Some pieces are hidden and to be guessed (Devlin et al. 2019, 3.1).

    Of those that are asked for, 80 % read as the mask, 10 % as another piece, 10 % as themselves: the model
    cannot know which of the words before it are true.
    """

    whole_words: bool = False

    def sample(self, source: Ids, target: Ids, dice: Dice) -> Sample:
        ids = np.array(source, dtype=np.int64)
        words = np.array(target, dtype=np.int64) if self.whole_words else np.arange(len(ids))
        chosen = self.choose(words, dice)  # [T] bool
        fate = dice.random(len(ids))
        read = np.where(chosen & (fate < AS_MASK), mask_of(self.tokenizer), ids)
        others = dice.integers(0, len(self.tokenizer), len(ids))
        read = np.where(chosen & (fate >= 1 - AS_ANOTHER), others, read)
        return Sample(
            source=[self.tokenizer.start, *read.tolist(), self.tokenizer.end],
            labels=[IGNORED, *np.where(chosen, ids, IGNORED).tolist(), IGNORED],
        )

    def choose(self, words: Numbers, dice: Dice) -> npt.NDArray[np.bool_]:
        """At least one word of a text; all pieces of it."""
        distinct = np.unique(words)
        count = max(1, round(self.share * len(distinct)))
        return np.isin(words, dice.choice(distinct, count, replace=False))


@dataclass(frozen=True)
class HiddenSpans(Hidden):
    """Spans are cut out; a sign stands in the place of each and before each answer (Raffel et al. 2020, 3.1).

    Thank you <X> me to your party <Y> .   ->   <X> for inviting <Y> last week <Z>
    """

    mean_span: float = 3.0

    def sample(self, source: Ids, target: Ids, dice: Dice) -> Sample:
        signs = self.tokenizer.sentinels
        if not signs:
            raise ValueError("this tokenizer has no signs for spans")
        read: list[int] = []
        said: list[int] = []
        place = 0
        kept, hidden = self.lengths(len(source), len(signs) - 1, dice)
        for number, (before, gone) in enumerate(zip(kept, hidden)):
            read += [*source[place : place + before], signs[number]]
            place += before
            said += [signs[number], *source[place : place + gone]]
            place += gone
        end = self.tokenizer.end
        said = [*said, signs[len(hidden)], end]
        return Sample([*read, *source[place:], end], [self.tokenizer.start, *said[:-1]], said)

    def lengths(self, total: int, most: int, dice: Dice) -> tuple[list[int], list[int]]:
        """Pieces kept before each span, and pieces of each span.

        Spans may stand at the beginning and at the end, but never side by side: T5 itself always hides the
        end, which of short texts would teach little else.
        """
        hidden = min(max(1, round(self.share * total)), max(1, total - 1))
        spans = min(max(1, round(hidden / self.mean_span)), hidden, total - hidden + 1, most)
        kept = drawn_parts(total - hidden + 2, spans + 1, dice)  # one too many at each end
        return [kept[0] - 1, *kept[1:-1]], drawn_parts(hidden, spans, dice)


def drawn_parts(total: int, count: int, dice: Dice) -> list[int]:
    """A number as the sum of `count` others, none of them 0; all sums are alike likely."""
    cuts = np.sort(dice.choice(total - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, int)
    return [int(part) for part in np.diff([0, *cuts.tolist(), total])]


def mask_of(tokenizer: Tokenizer) -> int:
    if tokenizer.mask is None:
        raise ValueError("this tokenizer has no mask")
    return tokenizer.mask
