"""Text in, its label out; or its labels, where a text may have any number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from torch import Tensor

from regard.data.objectives import Labels
from regard.errors import UsageError
from regard.generation.score import label_probabilities, predicted_labels
from regard.storage import Folder
from regard.tasks.lines import TooLong
from regard.tasks.reader import Reader


@dataclass(frozen=True)
class Label:
    name: str
    probability: float


@dataclass(frozen=True)
class Classification:
    text: str
    labels: tuple[Label, ...] = ()  # the most probable first; none where of many labels none is probable
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of all labels, in the model's order
    cut: bool = False  # too long for the model, which read only the beginning
    skipped: bool = False  # too long, and not read at all, because the caller wished so

    @property
    def label(self) -> str:
        """The most probable one; empty where there is none."""
        return self.labels[0].name if self.labels else ""


class Classifier(Reader):
    """An opened model that says what a text is."""

    head = "sentence"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.labels = folder.labels
        self.objective = Labels(folder.source, folder.config.max_length, folder.labels, folder.task.many)

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
        """What one text or many are: the label, or all that are probable; with `count` the so many likeliest.

        `too_long` is what to do with a text that the model cannot read as a whole: read its beginning (the
        result says so), skip it, or raise; `first` is the number of the first text in messages.
        """
        texts = [text] if isinstance(text, str) else list(text)
        if count is not None and count < 1:
            raise UsageError(f"count = {count}: at least one label")
        rows = [self.read(each, too_long, number) for number, each in enumerate(texts, first)]
        most = self.objective.longest
        logits = iter(self.logits([self.objective.text(ids[:most]) for ids in rows if ids is not None]))
        results = [
            Classification(each, skipped=True)
            if ids is None
            else self.result(each, next(logits)[0], count, cut=len(ids) > most)
            for each, ids in zip(texts, rows)
        ]
        return results[0] if isinstance(text, str) else results

    def read(self, text: str, too_long: TooLong, number: int) -> list[int] | None:
        """The pieces of a text, None for one that is to be skipped."""
        if not text.strip():
            raise UsageError(f"line {number}: the text is empty, and nothing can be said of it")
        ids, most = self.folder.source.encode(text), self.objective.longest
        if len(ids) > most and too_long == "error":
            raise UsageError(
                f"line {number}: the text has {len(ids)} pieces and the model reads {most}; "
                "shorten it, or take --too-long cut"
            )
        return None if len(ids) > most and too_long == "skip" else ids

    def result(self, text: str, logits: Tensor, count: int | None, cut: bool) -> Classification:
        many = self.objective.many
        found = label_probabilities(logits, many)  # [L]
        own = dict(zip(self.labels, found.tolist()))
        names = self.labels if count is not None else predicted_labels(found, self.labels, many)
        ranked = sorted((Label(name, own[name]) for name in names), key=lambda each: -each.probability)
        return Classification(text, tuple(ranked[:count]), own, cut)
