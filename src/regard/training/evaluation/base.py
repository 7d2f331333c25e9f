"""What every evaluation is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from regard.generation import score
from regard.models import Model
from regard.sample import IGNORED, Sample
from regard.storage import write_text
from regard.training.parallel import crew
from regard.training.progress import Record

FILES = {"final-valid": "valid.jsonl", "test": "test.jsonl"}  # of the texts, by the record's kind
TOKENS_PER_BATCH = 1024  # logits of so many tokens over the whole vocabulary are held at once


class Evaluation(Protocol):
    """The held-out texts of one split, and how a model is judged by them."""

    def __len__(self) -> int:
        """Texts, questions or pairs."""
        ...

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        """While training: the loss, the task's scores, and one of the texts (number `pick`) to look at.

        Where answers are written word by word, scores are those of the first `count` texts.
        """
        ...

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        """Of the chosen model, on all texts; writes each with the model's answer to `path`."""
        ...


def log_probabilities(model: Model, samples: Sequence[Sample], device: torch.device) -> list[list[float]]:
    """Of each label; several processes divide the samples among them."""
    return crew().divided(samples, lambda own: score(model, own, TOKENS_PER_BATCH, device))


def mean_loss(log_p: Iterable[Sequence[float]]) -> float:
    """Mean of -log p over all labels, without smoothing; its exponential is the perplexity."""
    total, count = 0.0, 0
    for row in log_p:
        total, count = total - sum(row), count + len(row)
    return total / max(1, count)


def asked(sample: Sample) -> list[int]:
    """The places of a sample at which something is asked."""
    return [place for place, label in enumerate(sample.labels) if label != IGNORED]


def shown(source: str, reference: str, output: str) -> Record:
    """One text as the terminal shows it while training."""
    return {"sample": {"source": source, "reference": reference, "output": output}}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, in the order of the corpus: all that the report shows of single texts."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
