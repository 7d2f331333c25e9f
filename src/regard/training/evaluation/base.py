"""What every evaluation has in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from regard.config import Config
from regard.data import Objective
from regard.data.readers import RawRow
from regard.generation.score import TOKENS_PER_BATCH, score
from regard.models.families import Model
from regard.sample import IGNORED, Example, Sample
from regard.storage import write_text
from regard.training.distributed import SingleProcess
from regard.training.progress import Record

FILES = {"final-valid": "valid.jsonl", "test": "test.jsonl"}  # outputs, by the kind of the record
SINGLE_PROCESS = SingleProcess()
MAX_LISTED = 5  # texts listed in a message


class Evaluation(Protocol):
    """The held-out examples of one split, and how a model is scored on them."""

    def __len__(self) -> int:
        """Texts, questions or pairs."""
        ...

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        """During training: loss and scores, and one example (number `pick`) with the model's output.

        Where outputs are generated, only the first `count` examples are scored. The ranks of `dist` divide
        the examples among them, and all get the same record.
        """
        ...

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        """Scores of the final model on all examples; writes each with the model's output to `path`."""
        ...


def log_probabilities(
    model: Model, samples: Sequence[Sample], device: torch.device, dist: SingleProcess = SINGLE_PROCESS
) -> list[list[float]]:
    """Of each label of each sample."""
    return dist.map_sharded(samples, lambda part: score(model, part, TOKENS_PER_BATCH, device))


def mean_loss(log_p: Iterable[Sequence[float]]) -> float:
    """Mean of -log p over all labels, without smoothing; its exponential is the perplexity."""
    total, count = 0.0, 0
    for row in log_p:
        total, count = total - sum(row), count + len(row)
    return total / max(1, count)


def labelled_positions(sample: Sample) -> list[int]:
    return [position for position, label in enumerate(sample.labels) if label != IGNORED]


def example_record(source: str, reference: str, output: str) -> Record:
    """One example as the terminal shows it during training."""
    return {"sample": {"source": source, "reference": reference, "output": output}}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, in the order of the corpus: what the report shows of single examples."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def drop_too_long(
    examples: list[Example], objective: Objective, config: Config, split: str, log: Callable[[str], None]
) -> list[Example]:
    """Without the examples that the model cannot read as a whole."""
    rows = [(number, example.source, example.target) for number, example in enumerate(examples)]
    long = too_long(rows, objective, config)
    if long:
        numbers = ", ".join(str(number + 1) for number in sorted(long)[:MAX_LISTED])
        more = ", ..." if len(long) > MAX_LISTED else ""
        log(
            f"left out {len(long):,} of data.{split}: longer than {config.model.max_length} tokens "
            f"(texts {numbers}{more})"
        )
    return [example for number, example in enumerate(examples) if number not in long]


def too_long(rows: Sequence[RawRow], objective: Objective, config: Config) -> set[int]:
    """Rows with more tokens than there are learned positions; other positions reach any length."""
    if config.model.positions != "learned" or config.task.name in ("generate", "fill"):
        return set()
    return set(objective.too_long(rows))
