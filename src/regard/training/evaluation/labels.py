"""Encoder tasks: labels of texts and words, answers to questions (SQuAD's scores)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.objectives import Classify, ContextWindow, ExtractiveQA, Tag, split_labels
from regard.generation.heads import AnswerSpan, label_probabilities, predicted_labels, ranked_answers
from regard.generation.score import TOKENS_PER_BATCH, map_logits
from regard.metrics.answers import squad_scores
from regard.metrics.labels import classification_scores, tagging_scores
from regard.models.families import Model
from regard.sample import Example, Sample
from regard.training.distributed import SingleProcess
from regard.training.evaluation.base import SINGLE_PROCESS, example_record, write_rows
from regard.training.progress import Record

WINDOW_TOKENS_PER_BATCH = 4096  # logits of windows are small: two a token


@dataclass(frozen=True)
class LabelEvaluation:
    objective: Classify
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        texts = self.objective.tokenizer.encode_batch([example.source for example in self.examples])
        return [self.objective.eval_sample(ids, each.target) for ids, each in zip(texts, self.examples)]

    @property
    def references(self) -> list[list[str]]:
        return [split_labels(example.target) for example in self.examples]

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        logits = self.logits(model, device, dist)
        number = pick % len(self.examples)
        output = self.predicted(label_probabilities(logits[number], self.objective.many))
        scores = self.scores(logits)
        return {name: scores[name] for name in ("loss", "accuracy", "f1")} | example_record(
            self.examples[number].source, ", ".join(self.references[number]), ", ".join(output)
        )

    def logits(self, model: Model, device: torch.device, dist: SingleProcess = SINGLE_PROCESS) -> Tensor:
        """[texts, labels]"""

        def predict(samples: Sequence[Sample]) -> list[list[float]]:
            return map_logits(
                model, samples, lambda number, logits: logits[0].tolist(), TOKENS_PER_BATCH, device
            )

        return torch.tensor(dist.map_sharded(self.samples, predict), dtype=torch.float32)

    def predicted(self, probabilities: Tensor) -> list[str]:
        return predicted_labels(probabilities, self.objective.labels, self.objective.many)

    def scores(self, logits: Tensor) -> Record:
        gold = torch.tensor([sample.labels for sample in self.samples])
        if self.objective.many:
            loss = F.binary_cross_entropy_with_logits(logits, gold.float())
        else:
            seen = gold[:, 0] >= 0  # labels that training never saw have no number
            loss = F.cross_entropy(logits[seen], gold[seen, 0]) if bool(seen.any()) else torch.zeros(())
        probabilities = label_probabilities(logits, self.objective.many)
        outputs = [self.predicted(each) for each in probabilities]
        scores = classification_scores(self.references, outputs, self.objective.labels, self.objective.many)
        return {"loss": float(loss), **scores}

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        logits = self.logits(model, device)
        probabilities = label_probabilities(logits, self.objective.many)
        rows = (
            {
                "source": example.source,
                "reference": reference,
                "output": self.predicted(row),
                "probabilities": dict(zip(self.objective.labels, row.tolist())),
            }
            for example, reference, row in zip(self.examples, self.references, probabilities)
        )
        write_rows(path, rows)
        return self.scores(logits)


@dataclass(frozen=True)
class TagEvaluation:
    objective: Tag
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def encoded(self) -> list[tuple[list[int], list[int | None]]]:
        """Token ids of each sentence, and the first token of each word (None: the word has none)."""
        return [self.objective.encode_words(example.source.split(" ")) for example in self.examples]

    @property
    def references(self) -> list[list[str]]:
        return [example.target.split(" ") for example in self.examples]

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        loss, outputs = self.predict(model, device, dist)
        scores = tagging_scores(self.references, outputs)
        number = pick % len(self.examples)
        example = self.examples[number]
        return {"loss": loss, "f1": scores["f1"], "accuracy": scores["accuracy"]} | example_record(
            example.source, example.target, " ".join(outputs[number])
        )

    def predict(
        self, model: Model, device: torch.device, dist: SingleProcess = SINGLE_PROCESS
    ) -> tuple[float, list[list[str]]]:
        """Mean loss of the words, and the tags of each sentence."""
        references = self.references

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

            return map_logits(model, samples, tags, TOKENS_PER_BATCH, device)

        results = dist.map_sharded(range(len(self.examples)), predict)
        losses = [loss for _, each in results for loss in each]
        return sum(losses) / max(1, len(losses)), [outputs for outputs, _ in results]

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, outputs = self.predict(model, device)
        rows = (
            {"source": example.source.split(" "), "reference": reference, "output": output}
            for example, reference, output in zip(self.examples, self.references, outputs)
        )
        write_rows(path, rows)
        return {"loss": loss, **tagging_scores(self.references, outputs)}


def predicted_tags(logits: Tensor, first: Sequence[int | None], labels: Sequence[str]) -> list[str]:
    """The tag of each word by its first token ("O" without one): logits [S,L], the start token first."""
    best = logits.argmax(dim=1).tolist()
    return ["O" if token is None else labels[best[token + 1]] for token in first]


@dataclass(frozen=True)
class AnswerEvaluation:
    objective: ExtractiveQA
    examples: Sequence[Example]
    max_tokens: int  # of an answer
    may_refuse: bool  # some training questions have no answer

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def windows(self) -> list[list[ContextWindow]]:
        return [self.objective.windows(*question_and_context(example)) for example in self.examples]

    @property
    def references(self) -> list[list[str]]:
        return [[text for text, _ in json.loads(example.target)] for example in self.examples]

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        loss, outputs = self.answer(model, device, dist)
        scores, _ = squad_scores(self.references, [text for text, _ in outputs])
        number = pick % len(self.examples)
        question = question_and_context(self.examples[number])[0]
        return {"loss": loss, **scores} | example_record(
            question, "; ".join(self.references[number]), outputs[number][0]
        )

    def answer(
        self, model: Model, device: torch.device, dist: SingleProcess = SINGLE_PROCESS
    ) -> tuple[float, list[tuple[str, float]]]:
        """Mean loss of the ends in all windows, and the best answer to each question with its score."""

        def answer(numbers: Sequence[int]) -> list[tuple[str, float, list[float]]]:
            samples = [self.objective.text(window) for number in numbers for window in self.windows[number]]
            clone = lambda place, logits: logits.clone()  # noqa: E731 - [S,2], a few bytes
            logits = iter(map_logits(model, samples, clone, WINDOW_TOKENS_PER_BATCH, device))
            return [
                self.best_answer(number, [next(logits) for _ in self.windows[number]]) for number in numbers
            ]

        results = dist.map_sharded(range(len(self.examples)), answer)
        losses = [loss for _, _, each in results for loss in each]
        return sum(losses) / max(1, len(losses)), [(text, score) for text, score, _ in results]

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

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, outputs = self.answer(model, device)
        scores, each = squad_scores(self.references, [text for text, _ in outputs])
        rows = []
        for example, reference, (text, score), (exact, f1) in zip(
            self.examples, self.references, outputs, each
        ):
            question, context = question_and_context(example)
            row: dict[str, Any] = {"source": question, "context": context, "reference": reference}
            rows.append({**row, "output": text, "exact": exact, "f1": f1, "score": score})
        write_rows(path, rows)
        return {"loss": loss, **scores}


def question_and_context(example: Example) -> tuple[str, str]:
    question, _, context = example.source.partition("\n")
    return question, context
