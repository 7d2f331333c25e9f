"""Answers to questions: exact match and F1 as SQuAD counts them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regard.data.objectives import ContextWindow, ExtractiveQA
from regard.generation import answers
from regard.generation.heads import AnswerSpan, ranked_answers
from regard.metrics.answers import squad_scores
from regard.models import Model
from regard.sample import Example
from regard.training.evaluation.base import shown, write_rows
from regard.training.progress import Record

TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class AnswerEvaluation:
    objective: ExtractiveQA
    examples: Sequence[Example]
    longest: int  # pieces of an answer
    may_refuse: bool  # whether training had questions without an answer

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def windows(self) -> list[list[ContextWindow]]:
        return [self.objective.windows(*parted(example)) for example in self.examples]

    @property
    def references(self) -> list[list[str]]:
        return [[text for text, _ in json.loads(example.target)] for example in self.examples]

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        loss, found = self.answer(model, device)
        scores, _ = squad_scores(self.references, [each.text for each in found])
        number = pick % len(self.examples)
        one = shown(parted(self.examples[number])[0], "; ".join(self.references[number]), found[number].text)
        return {"loss": loss, **scores} | one

    def answer(self, model: Model, device: torch.device) -> tuple[float, list[AnswerSpan]]:
        """The loss over all windows, and the best answer to each question."""
        samples = [self.objective.text(window) for own in self.windows for window in own]
        logits = iter(answers(model, samples, TOKENS_PER_BATCH, device))
        losses: list[float] = []
        found: list[AnswerSpan] = []
        threshold = 0.0 if self.may_refuse else None
        for example, windows in zip(self.examples, self.windows):
            own = [next(logits) for _ in windows]
            for window, each in zip(windows, own):
                places = self.objective.first_answer(window, example.target)
                log_p = each.log_softmax(dim=0)
                losses += [-float(log_p[place, side]) for side, place in enumerate(places)]
            found += ranked_answers(parted(example)[1], windows, own, self.longest, threshold)
        return sum(losses) / max(1, len(losses)), found

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, found = self.answer(model, device)
        scores, each = squad_scores(self.references, [own.text for own in found])
        rows = []
        for example, reference, own, (exact, f1) in zip(self.examples, self.references, found, each):
            question, context = parted(example)
            row: dict[str, Any] = {"source": question, "context": context, "reference": reference}
            rows.append({**row, "output": own.text, "exact": exact, "f1": f1, "score": own.score})
        write_rows(path, rows)
        return {"loss": loss, **scores}


def parted(example: Example) -> tuple[str, str]:
    question, _, context = example.source.partition("\n")
    return question, context
