"""Classify texts: one label, or several where the model was trained with any number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from torch import Tensor

from regard.data.objectives import Classify
from regard.errors import UsageError
from regard.generation.heads import label_probabilities, predicted_labels
from regard.storage import Folder
from regard.tasks.lines import TooLong
from regard.tasks.reader import EncoderTask, within_limit


@dataclass(frozen=True)
class Label:
    name: str
    probability: float


@dataclass(frozen=True)
class Classification:
    text: str
    labels: tuple[Label, ...] = ()  # most probable first; with several labels those with p >= 0.5
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of all labels, in the model's order
    cut: bool = False  # the text was too long and was truncated
    skipped: bool = False  # the text was too long, and `too_long="skip"`

    @property
    def label(self) -> str:
        """The most probable label; empty if there is none."""
        return self.labels[0].name if self.labels else ""


class Classifier(EncoderTask):
    """A model that classifies texts."""

    head = "sentence"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.labels = folder.labels
        self.objective = Classify(
            folder.source, folder.config.max_length, folder.labels, folder.task.multi_label
        )

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, text: str, count: int | None = None, *, too_long: TooLong = "cut", first: int = 1
    ) -> Classification: ...
    @overload
    def classify(
        self, text: Sequence[str], count: int | None = None, *, too_long: TooLong = "cut", first: int = 1
    ) -> list[Classification]: ...
    def classify(
        self,
        text: str | Sequence[str],
        count: int | None = None,
        *,
        too_long: TooLong = "cut",
        first: int = 1,
    ) -> Classification | list[Classification]:
        """Classify one text or many: the predicted labels, or with `count` the so many most probable ones.

        `too_long` says what happens to a text that is longer than the model's input: truncate it ("cut"; the
        result says so), skip it, or raise an error. `first` is the number of the first text in messages.
        """
        texts = [text] if isinstance(text, str) else list(text)
        if count is not None and count < 1:
            raise UsageError(f"count = {count}: at least one label")
        rows = [self.encode(each, too_long, number) for number, each in enumerate(texts, first)]
        limit = self.objective.longest
        logits = iter(self.logits([self.objective.text(ids[:limit]) for ids in rows if ids is not None]))
        results = [
            Classification(each, skipped=True)
            if ids is None
            else self.result(each, next(logits)[0], count, cut=len(ids) > limit)
            for each, ids in zip(texts, rows)
        ]
        return results[0] if isinstance(text, str) else results

    def encode(self, text: str, too_long: TooLong, number: int) -> list[int] | None:
        """The token ids of a text, None for one to skip."""
        if not text.strip():
            raise UsageError(f"line {number}: the text is empty")
        return within_limit(self.folder.source.encode(text), self.objective.longest, too_long, number)

    def result(self, text: str, logits: Tensor, count: int | None, cut: bool) -> Classification:
        probabilities = label_probabilities(logits, self.folder.task.multi_label)  # [L]
        by_label = dict(zip(self.labels, probabilities.tolist()))
        predicted = predicted_labels(probabilities, self.labels, self.folder.task.multi_label)
        names = predicted if count is None else self.labels
        ranked = sorted((Label(name, by_label[name]) for name in names), key=lambda label: -label.probability)
        return Classification(text, tuple(ranked[:count]), by_label, cut)
