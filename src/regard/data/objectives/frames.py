"""Objectives on pictures and sounds: ClassifyFrames, FramesToText.

A prepared corpus holds pixels or samples as unsigned integers. In training they are modified at random and
become frames when a batch is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from regard.config.input import AudioInput, Modifier, VideoInput
from regard.data.dataset import (
    UINT32,
    Encoded,
    Encodings,
    Ids,
    Loss,
    Numbers,
    Rng,
    RowObjective,
    RowPool,
    RowWise,
    TokenIds,
    column,
)
from regard.data.objectives.supervised import UNLIMITED, split_labels
from regard.data.readers import PROMPT_SEPARATOR, RawRow
from regard.data.readers.media import media_content
from regard.errors import RegardError
from regard.inputs.frames import Array, FrameReader
from regard.inputs.modifiers import modify, modify_frames
from regard.inputs.text import Tokenizer
from regard.sample import IGNORED, Example, FrameArray, Sample


def as_ids(raw: Array) -> Ids:
    """Pixels or samples as a row of unsigned integers."""
    ids: Ids = raw.reshape(-1).view(f"u{raw.itemsize}")
    return ids


def from_ids(ids: Ids, reader: FrameReader) -> Array:
    """The inverse of `as_ids`."""
    config = reader.config
    if isinstance(config, AudioInput):
        return ids.astype(np.uint16).view(np.int16)
    times = [config.frames] if isinstance(config, VideoInput) else []
    return ids.astype(np.uint8).reshape(*times, config.height, config.width, config.channels)


@dataclass(frozen=True)
class FrameObjective(RowObjective):
    """What objectives on frames share: files to integers, integers to frames."""

    reader: FrameReader
    modifiers: Sequence[Modifier] = field(default=(), kw_only=True)
    extra = (0, 0)
    rows_at_once = 64  # sounds of half a minute: 60 MB

    @property
    def longest(self) -> int:
        return UNLIMITED

    def read_all(self, rows: Sequence[RawRow]) -> tuple[Encoded, list[int], list[tuple[int, str]]]:
        """The files of rows as integers, the numbers of those that can be read, and why others cannot."""
        arrays, kept, wrong = [], [], []
        for number, (_, place, _) in enumerate(rows):
            try:
                arrays.append(as_ids(self.reader.read(media_content(place))))
                kept.append(number)
            except RegardError as error:
                wrong.append((number, str(error)))
        lengths = np.array([len(each) for each in arrays], dtype=np.int64)
        ids: Ids = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.uint8)
        return (ids, lengths), kept, wrong

    def frames(self, raw: Array, rng: Rng | None = None) -> FrameArray:
        """[S,F]; modified at random in training."""
        if rng is None or not self.modifiers:
            return self.reader.frames(raw)
        frames = self.reader.frames(modify(raw, self.modifiers, rng))
        return modify_frames(frames, self.modifiers, rng, self.reader.grid)

    def read_frames(self, place: str) -> FrameArray:
        return self.frames(self.reader.read(media_content(place)))

    @abstractmethod
    def frames_sample(self, frames: FrameArray, target: TokenIds) -> Sample:
        """The sample of a row whose target column holds `target`."""

    def sample(self, source: TokenIds, target: TokenIds, rng: Rng | None = None) -> Sample:
        return self.frames_sample(self.frames(from_ids(np.asarray(source), self.reader), rng), target)

    def layout(self, pool: RowPool, rng: Rng) -> FrameRows:
        return FrameRows(pool, self)


@dataclass(frozen=True)
class FrameRows(RowWise):
    """Each row of the pool is a row of a batch; its length is the number of its frames."""

    objective: FrameObjective

    @cached_property
    def lengths(self) -> Numbers:
        sizes = self.pool.source.lengths
        positions = self.objective.reader.positions  # of a sound they follow from its length
        counts = {size: positions(np.empty(size, dtype=np.int16)) for size in np.unique(sizes).tolist()}
        frames = np.array([counts[size] for size in sizes.tolist()], dtype=np.int64)
        both: Numbers = np.stack([frames, self.pool.target.lengths], axis=1)
        return both

    def sample(self, number: int, rng: Rng) -> Sample:
        raw = from_ids(self.pool.source[number], self.objective.reader)
        return self.objective.frames_sample(
            self.objective.frames(raw, rng), self.pool.target[number].tolist()
        )


@dataclass(frozen=True)
class ClassifyFrames(FrameObjective):
    """The label of a picture or sound; with `many`, 0 or 1 for each label."""

    labels: Sequence[str]
    many: bool = False

    @property
    def loss(self) -> Loss:
        return "many" if self.many else "words"

    @cached_property
    def number(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        source, kept, wrong = self.read_all(rows)
        names = [split_labels(rows[number][2]) for number in kept]  # those of held-out rows may be unseen
        labels = [[self.number[name] for name in row if name in self.number] for row in names]
        return Encodings(source, column(labels, UINT32), unreadable=wrong)

    def frames_sample(self, frames: FrameArray, target: TokenIds) -> Sample:
        labels = [int(number in target) for number in range(len(self.labels))] if self.many else target
        return Sample(frames, labels=labels)

    def eval_samples(self, examples: Sequence[Example]) -> list[Sample]:
        """Labels that do not occur in the training data are ignored."""
        numbers = [
            [self.number.get(label, IGNORED) for label in split_labels(each.target)] for each in examples
        ]
        return [
            self.frames_sample(self.read_frames(each.source), labels)
            for each, labels in zip(examples, numbers)
        ]


@dataclass(frozen=True)
class FramesToText(FrameObjective):
    """Sound or picture to text. The decoder reads `<s> prompt y_1 .. y_n` and predicts `y_1 .. y_n </s>`.

    A column of the corpus holds the length of the prompt, the prompt, and the text. A prompt is a question
    about a picture.
    """

    target: Tokenizer
    max_length: int = UNLIMITED
    loss: Loss = "words"

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        texts = [self.text_ids(target) for _, _, target in rows]
        long = [
            (number, f"{len(ids) - 1} tokens")
            for number, ids in enumerate(texts)
            if len(ids) > self.max_length
        ]
        left_out = {number for number, _ in long}
        rest = [number for number in range(len(rows)) if number not in left_out]
        source, kept, wrong = self.read_all([rows[number] for number in rest])
        wrong = [(rest[number], reason) for number, reason in wrong]
        return Encodings(source, column([texts[rest[number]] for number in kept], UINT32), long, wrong)

    def text_ids(self, target: str) -> list[int]:
        prompt, separator, text = target.rpartition(PROMPT_SEPARATOR)
        ids = self.target.encode(prompt) if separator else []
        return [len(ids), *ids, *self.target.encode(text)]

    def frames_sample(self, frames: FrameArray, target: TokenIds) -> Sample:
        prompt, ids = target[0], list(target[1:])
        labels = [*[IGNORED] * prompt, *ids[prompt:], self.target.end]
        return Sample(frames, target=[self.target.start, *ids], labels=labels)

    def eval_samples(self, examples: Sequence[Example]) -> list[Sample]:
        return [
            self.frames_sample(self.read_frames(each.source), self.text_ids(each.target)) for each in examples
        ]
