"""Encoder tasks: labels of texts and words, answers to questions (SQuAD's scores)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.objectives import Classify, ContextWindow, ExtractiveQA, Tag, split_labels
from regard.generation.heads import (
    AnswerSpan,
    label_probabilities,
    predicted_labels,
    predicted_tags,
    ranked_answers,
)
from regard.generation.score import TOKENS_PER_BATCH, map_logits
from regard.metrics.answers import squad_scores
from regard.metrics.labels import classification_scores, tagging_scores
from regard.models.families import Model
from regard.sample import Example, Sample
from regard.training.distributed import SingleProcess
from regard.training.evaluation import SINGLE_PROCESS, Evaluation, Scored, device_of
from regard.training.progress import Record

if TYPE_CHECKING:
    from regard.data.objectives.frames import ClassifyFrames

WINDOW_TOKENS_PER_BATCH = 4096  # logits of windows are small: two a token


class LabelEvaluation(Evaluation):
    objective: Classify | ClassifyFrames
    validated = ("loss", "accuracy", "f1")

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(self.examples)

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        def predict(samples: Sequence[Sample]) -> list[list[float]]:
            first = lambda number, logits: logits[0].tolist()  # noqa: E731 - of the whole text
            return map_logits(model, samples, first, TOKENS_PER_BATCH, device_of(model))

        logits = torch.tensor(dist.map_sharded(self.samples, predict), dtype=torch.float32)  # [texts, labels]
        labels, many = self.objective.labels, self.objective.many
        rows: list[Record] = [
            {
                "source": example.source,
                "reference": split_labels(example.target),
                "output": predicted_labels(row, labels, many),
                "probabilities": dict(zip(labels, row.tolist())),
            }
            for example, row in zip(self.examples, label_probabilities(logits, many))
        ]
        references, outputs = ([row[side] for row in rows] for side in ("reference", "output"))
        scores = classification_scores(references, outputs, labels, many)
        return {"loss": self.loss(logits), **scores}, rows

    def loss(self, logits: Tensor) -> float:
        gold = torch.tensor([sample.labels for sample in self.samples])
        if self.objective.many:
            return float(F.binary_cross_entropy_with_logits(logits, gold.float()))
        seen = gold[:, 0] >= 0  # labels that training never saw have no number
        return float(F.cross_entropy(logits[seen], gold[seen, 0])) if bool(seen.any()) else 0.0


class TagEvaluation(Evaluation):
    objective: Tag
    validated = ("loss", "f1", "accuracy")
    separator = " "

    @cached_property
    def encoded(self) -> list[tuple[list[int], list[int | None]]]:
        """Token ids of each sentence, and the first token of each word (None: the word has none)."""
        return [self.objective.encode_words(example.source.split(" ")) for example in self.examples]

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        """The loss is the mean over words whose tag training has seen."""
        references = [example.target.split(" ") for example in self.examples]

        def predict(numbers: Sequence[int]) -> list[tuple[list[str], list[float]]]:
            samples = [self.objective.text(self.encoded[number][0]) for number in numbers]

            def tags(place: int, logits: Tensor) -> tuple[list[str], list[float]]:
                first = self.encoded[numbers[place]][1]
                log_p, label_ids = logits.log_softmax(dim=-1), self.objective.number
                losses = [
                    -float(log_p[token + 1, label_ids[tag]])
                    for token, tag in zip(first, references[numbers[place]])
                    if token is not None and tag in label_ids
                ]
                return predicted_tags(logits, first, self.objective.labels), losses

            return map_logits(model, samples, tags, TOKENS_PER_BATCH, device_of(model))

        results = dist.map_sharded(range(len(self.examples)), predict)
        losses = [loss for _, each in results for loss in each]
        outputs = [tags for tags, _ in results]
        rows: list[Record] = [
            {"source": example.source.split(" "), "reference": reference, "output": output}
            for example, reference, output in zip(self.examples, references, outputs)
        ]
        return {"loss": sum(losses) / max(1, len(losses)), **tagging_scores(references, outputs)}, rows


@dataclass(frozen=True)
class AnswerEvaluation(Evaluation):
    objective: ExtractiveQA
    max_tokens: int  # of an answer
    may_refuse: bool  # some training questions have no answer
    validated = ("loss", "exact", "f1")
    separator = "; "

    @cached_property
    def windows(self) -> list[list[ContextWindow]]:
        return [self.objective.windows(*question_and_context(example)) for example in self.examples]

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        """The loss is the mean over both ends of the answer in all windows."""

        def answer(numbers: Sequence[int]) -> list[tuple[str, float, list[float]]]:
            samples = [self.objective.text(window) for number in numbers for window in self.windows[number]]
            clone = lambda place, logits: logits.clone()  # noqa: E731 - [S,2], a few bytes
            logits = iter(map_logits(model, samples, clone, WINDOW_TOKENS_PER_BATCH, device_of(model)))
            return [
                self.best_answer(number, [next(logits) for _ in self.windows[number]]) for number in numbers
            ]

        results = dist.map_sharded(range(len(self.examples)), answer)
        losses = [loss for _, _, each in results for loss in each]
        references = [[text for text, _ in json.loads(example.target)] for example in self.examples]
        scores, each = squad_scores(references, [text for text, _, _ in results])
        rows: list[Record] = []
        for example, reference, (text, score, _), (exact, f1) in zip(
            self.examples, references, results, each
        ):
            question, context = question_and_context(example)
            row: Record = {"source": question, "context": context, "reference": reference}
            rows.append({**row, "output": text, "exact": exact, "f1": f1, "score": score})
        return {"loss": sum(losses) / max(1, len(losses)), **scores}, rows

    def best_answer(self, number: int, logits: Sequence[Tensor]) -> tuple[str, float, list[float]]:
        """Text and score of the best answer, and the losses of both ends in each window."""
        example, windows = self.examples[number], self.windows[number]
        losses = []
        for window, each in zip(windows, logits):
            ends = self.objective.first_answer(window, example.target)
            log_p = each.log_softmax(dim=0)  # [S,2]
            losses += [-float(log_p[position, side]) for side, position in enumerate(ends)]
        context, threshold = question_and_context(example)[1], 0.0 if self.may_refuse else None
        best: AnswerSpan = ranked_answers(context, windows, logits, self.max_tokens, threshold)[0]
        return best.text, best.score, losses


def question_and_context(example: Example) -> tuple[str, str]:
    question, _, context = example.source.partition("\n")
    return question, context
