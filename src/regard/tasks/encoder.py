"""Encoders with a head: classify texts, pictures and sounds, answer questions about a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.data.objectives import Classify, ContextWindow, ExtractiveQA
from regard.data.objectives.frames import ClassifyFrames
from regard.errors import UsageError
from regard.generation import answers
from regard.generation.heads import label_probabilities, predicted_labels, ranked_answers
from regard.models.encoder import EncoderOnly
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.media import frame_batches
from regard.tasks.methods import AnswerMethods, ClassifyMethods
from regard.tasks.results import Answer, AnswerResult, Classification, Label
from regard.tasks.task_model import TaskModel, TooLong, within_limit

TOKENS_PER_BATCH = 2048  # a batch of more does not stay in the cache of a core


class EncoderTask(TaskModel):
    """An encoder with the head of one task."""

    head: str  # `model.head` of the models that can do the task

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        if not isinstance(folder.model, EncoderOnly) or folder.config.head != self.head:
            actual = folder.config.head or folder.config.family
            raise UsageError(f'{folder.path}: this needs a model with the head "{self.head}", not "{actual}"')
        self.folder = folder
        self.model = folder.model
        self.device = next(folder.model.parameters()).device
        self.use_engines([folder], precision)

    def logits(self, samples: Sequence[Sample]) -> list[Tensor]:
        """The logits of each sample, in order; they do not depend on the batch."""
        return answers(self.model, samples, TOKENS_PER_BATCH, self.device)


class Classifier(EncoderTask, ClassifyMethods):
    """A model that classifies texts, or pictures, videos or sounds."""

    head = "sentence"

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        super().__init__(folder, precision)
        self.labels, many = folder.labels, folder.task.multi_label
        self.reads_files = folder.task.input != "text"
        self.objective: Any = (
            ClassifyFrames(folder.reader, folder.labels, many)
            if self.reads_files
            else Classify(folder.source, folder.config.max_length, folder.labels, many)
        )

    def _classify(
        self, texts: Sequence[str], num_results: int | None, on_too_long: TooLong, first_line: int
    ) -> list[Classification]:
        if num_results is not None and num_results < 1:
            raise UsageError(f"num_results = {num_results}: at least one label", code="E_NUM_RESULTS")
        if self.reads_files:
            return self._classify_files(texts, num_results, on_too_long, first_line)
        limit, encode = self.objective.longest, self.folder.source.encode
        rows = [
            within_limit(encode(text), limit, on_too_long, number) if text.strip() else None
            for number, text in enumerate(texts, first_line)
        ]
        logits = iter(self.logits([self.objective.text(ids[:limit]) for ids in rows if ids is not None]))
        return [
            Classification(text, skipped=bool(text.strip()), precision=self.precision)
            if ids is None
            else self.result(text, next(logits)[0], num_results, len(ids) > limit)
            for text, ids in zip(texts, rows)
        ]

    def _classify_files(
        self, files: Sequence[Any], num_results: int | None, on_too_long: TooLong, first: int
    ) -> list[Classification]:
        results = []
        for batch in frame_batches(self.reader, files, on_too_long, first):
            logits = iter(self.logits([each.sample for each in batch if each.frames is not None]))
            results += [
                Classification(each.name, skipped=True, precision=self.precision)
                if each.frames is None
                else self.result(each.name, next(logits)[0], num_results, each.truncated)
                for each in batch
            ]
        return results

    def result(self, text: str, logits: Tensor, num_results: int | None, truncated: bool) -> Classification:
        probabilities = label_probabilities(logits, self.folder.task.multi_label)  # [L]
        by_label = dict(zip(self.labels, probabilities.tolist()))
        predicted = predicted_labels(probabilities, self.labels, self.folder.task.multi_label)
        names = predicted if num_results is None else self.labels
        ranked = sorted((Label(name, by_label[name]) for name in names), key=lambda label: -label.probability)
        labels = tuple(ranked[:num_results])
        best = labels[0].name if labels else ""
        return Classification(text, best, labels, by_label, truncated, precision=self.precision)


class Answerer(EncoderTask, AnswerMethods):
    """A model that answers questions about a context."""

    head = "span"

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        super().__init__(folder, precision)
        self.objective = ExtractiveQA(folder.source, folder.config.max_length, folder.task.stride)

    def _answer(
        self,
        pairs: Sequence[tuple[str, str]],
        num_results: int,
        min_score: float | None,
        on_too_long: TooLong,
        first_line: int,
    ) -> list[AnswerResult]:
        """The best answers to each (question, context), each over other characters."""
        if num_results < 1:
            raise UsageError(f"num_results = {num_results}: at least one answer", code="E_NUM_RESULTS")
        threshold = 0.0 if min_score is None and self.folder.may_refuse else min_score
        split = [self.read(*pair, on_too_long, number) for number, pair in enumerate(pairs, first_line)]
        logits = iter(
            self.logits([self.objective.text(window) for _, windows in split for window in windows])
        )
        longest = self.folder.task.longest_answer
        results = []
        for (_, context), (empty, windows) in zip(pairs, split):
            each = [next(logits) for _ in windows]
            if not windows:
                results.append(empty)
                continue
            spans = ranked_answers(context, windows, each, longest, threshold, num_results)
            ranked = [Answer(span.text, span.start, span.end, span.score, span.probability) for span in spans]
            results.append(replace(empty, **vars(ranked[0]), answers=tuple(ranked), windows=len(windows)))
        return results

    def read(
        self, question: str, context: str, on_too_long: TooLong, number: int
    ) -> tuple[AnswerResult, list[ContextWindow]]:
        """The result without an answer, and the windows to read; none if the question is blank or skipped."""
        result = AnswerResult(question, precision=self.precision)
        if not question.strip():
            return result, []
        windows, words = self.windows(question, context, number, on_too_long == "error"), question.split()
        if windows or on_too_long == "skip":
            return replace(result, skipped=not windows), windows
        while not windows and len(words) > 1:
            words = words[: len(words) * 3 // 4]
            windows = self.windows(" ".join(words), context, number, strict=False)
        return replace(result, truncated=True), windows or self.windows(question, context, number)

    def windows(self, question: str, context: str, number: int, strict: bool = True) -> list[ContextWindow]:
        """The parts of a context that are read with a question; `strict` refuses one that leaves no room."""
        for name, text in (("question", question), ("context", context)):
            if not text.strip():
                raise UsageError(f"question {number}: the {name} is empty", code="E_ANSWER_EMPTY")
        windows = self.objective.windows(question.replace("\n", " "), context)
        if not windows and strict:
            size, limit = len(self.folder.source.encode(question)), self.objective.max_length
            raise UsageError(
                f"question {number}: its {size} tokens leave no room for a context: the model reads {limit}, "
                f"and the parts of a long context share {self.objective.stride} (task.stride); shorten it",
                code="E_TOO_LONG",
            )
        return windows
