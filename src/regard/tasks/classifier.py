"""Classify texts: one label, or several where the model was trained with any number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from torch import Tensor

from regard.data.objectives import Classify
from regard.errors import UsageError
from regard.generation import answers
from regard.generation.heads import label_probabilities, predicted_labels
from regard.models.encoder import EncoderOnly
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.traceable import Traceable
from regard.tasks.translation import TooLong

TOKENS_PER_BATCH = 4096


class EncoderTask(Traceable):
    """An encoder with the head of one task."""

    head: str  # `model.head` of the models that can do the task

    def __init__(self, folder: Folder) -> None:
        if not isinstance(folder.model, EncoderOnly) or folder.config.head != self.head:
            actual = folder.config.head or folder.config.family
            raise UsageError(f'{folder.path}: this needs a model with the head "{self.head}", not "{actual}"')
        self.folder = folder
        self.model = folder.model
        self.device = next(folder.model.parameters()).device

    def logits(self, samples: Sequence[Sample]) -> list[Tensor]:
        """The logits of each sample, in order; they do not depend on the batch."""
        return answers(self.model, samples, TOKENS_PER_BATCH, self.device)


def within_limit(ids: list[int], limit: int, too_long: TooLong, number: int) -> list[int] | None:
    """The ids as they are, None for a text to skip; with "error" a text above the limit is refused."""
    if len(ids) > limit and too_long == "error":
        raise UsageError(
            f"line {number}: the text has {len(ids)} tokens and the model reads {limit}; shorten it, or "
            "truncate it (too long: cut)"
        )
    return None if len(ids) > limit and too_long == "skip" else ids


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
