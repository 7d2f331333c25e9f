"""Answers to questions: exact match and F1 as SQuAD counts them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.objectives import ContextWindow, ExtractiveQA
from regard.generation import answers, ranked_ends
from regard.models import Model
from regard.sample import Example
from regard.training.evaluation.base import shown, write_rows
from regard.training.metrics import answering
from regard.training.progress import Record

TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class Found:
    """What stands in a context as the answer to a question; the empty text is no answer."""

    text: str
    start: int  # its first character in the context
    score: float  # how much better than no answer; of no answer: how much better the best text would be
    probability: float = 0.0  # of both ends, in the window that it was found in

    @property
    def end(self) -> int:
        return self.start + len(self.text)


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
        scores, _ = answering(self.references, [each.text for each in found])
        number = pick % len(self.examples)
        one = shown(parted(self.examples[number])[0], "; ".join(self.references[number]), found[number].text)
        return {"loss": loss, **scores} | one

    def answer(self, model: Model, device: torch.device) -> tuple[float, list[Found]]:
        """The loss over all windows, and the best answer to each question."""
        samples = [self.objective.text(window) for own in self.windows for window in own]
        logits = iter(answers(model, samples, TOKENS_PER_BATCH, device))
        losses: list[float] = []
        found = []
        for example, windows in zip(self.examples, self.windows):
            own = [next(logits) for _ in windows]
            for window, each in zip(windows, own):
                places = self.objective.first_answer(window, example.target)
                log_p = each.log_softmax(dim=0)
                losses += [-float(log_p[place, side]) for side, place in enumerate(places)]
            found.append(best_answer(parted(example)[1], windows, own, self.longest, self.may_refuse))
        return sum(losses) / max(1, len(losses)), found

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, found = self.answer(model, device)
        scores, each = answering(self.references, [own.text for own in found])
        rows = []
        for example, reference, own, (exact, f1) in zip(self.examples, self.references, found, each):
            question, context = parted(example)
            row: dict[str, Any] = {"source": question, "context": context, "reference": reference}
            rows.append({**row, "output": own.text, "exact": exact, "f1": f1, "score": own.score})
        write_rows(path, rows)
        return {"loss": loss, **scores}


def best_answer(
    context: str, windows: Sequence[ContextWindow], logits: Sequence[Tensor], longest: int, may_refuse: bool
) -> Found:
    """The best of all windows; no answer where all of them find that likelier, if that may be."""
    return ranked_answers(context, windows, logits, longest, 0.0 if may_refuse else None)[0]


def ranked_answers(
    context: str,
    windows: Sequence[ContextWindow],
    logits: Sequence[Tensor],
    longest: int,
    least: float | None,
    count: int = 1,
) -> list[Found]:
    """The best answers of all windows, of different characters each; never none.

    No answer comes first where the best one scores below `least`.
    """
    best: dict[tuple[int, int], Found] = {}
    for window, own in zip(windows, logits):
        for place, found in islice(distinct(context, window, own, longest), count):
            if place not in best or best[place].score < found.score:
                best[place] = found
    ranked = sorted(best.values(), key=lambda found: -found.score)
    highest = ranked[0].score if ranked else float("-inf")
    if not ranked or (least is not None and highest < least):
        ranked.insert(0, Found("", 0, highest))
    return ranked[:count]


def distinct(
    context: str, window: ContextWindow, logits: Tensor, longest: int
) -> Iterator[tuple[tuple[int, int], Found]]:
    """The answers of one window, the best first; pieces may be bytes of the same character, or spaces."""
    p = logits.softmax(dim=0)  # [S,2]
    seen: set[tuple[int, int]] = set()
    for first, last, score in ranked_ends(logits, window.begins, longest):
        around = context[window.spans[first - window.begins][0] : window.spans[last - window.begins][1]]
        text = around.strip()  # a piece may be a space alone
        start = window.spans[first - window.begins][0] + len(around) - len(around.lstrip())
        place = (start, start + len(text))
        if text and place not in seen:
            seen.add(place)
            yield place, Found(text, start, score, float(p[first, 0] * p[last, 1]))


def parted(example: Example) -> tuple[str, str]:
    question, _, context = example.source.partition("\n")
    return question, context
