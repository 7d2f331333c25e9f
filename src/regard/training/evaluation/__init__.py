"""Evaluation on held-out text, one class a task; the trainer calls `validate` and `final`.

Modules are imported for the task at hand only: sacreBLEU is slow to import.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch

from regard.checksums import sha256_of
from regard.compat import VERSION
from regard.config import Config, Decode, Model, Task
from regard.config.input import Modifier
from regard.data import Objective
from regard.data.objectives import (
    CausalLM,
    Classify,
    ExtractiveQA,
    MaskedLM,
    Seq2Seq,
    SpanCorruption,
    Tag,
)
from regard.data.readers import RawRow
from regard.errors import RegardError
from regard.generation import Hypothesis, decode
from regard.generation.score import TOKENS_PER_BATCH, score
from regard.inputs.text import Tokenizer, special_tokens
from regard.sample import IGNORED, Example, Sample, Source
from regard.storage import write_text
from regard.training.distributed import SingleProcess
from regard.training.progress import Record

if TYPE_CHECKING:
    from regard.data.objectives.frames import FramesToText
    from regard.inputs.frames import FrameReader
    from regard.models.families import GenerativeModel
    from regard.models.families import Model as AnyModel

FILES = {"final-valid": "valid.jsonl", "test": "test.jsonl"}  # outputs, by the kind of the record
SINGLE_PROCESS = SingleProcess()
Scored = tuple[Record, list[Record]]  # scores, and each example with the model's output
MAX_LISTED = 5  # texts listed in a message


@dataclass(frozen=True)
class Evaluation(ABC):
    """The held-out examples of one split, and how a model is scored on them."""

    objective: Any  # each class names its own
    examples: Sequence[Example]

    validated: ClassVar[tuple[str, ...]] = ()  # the scores that a validation during training records
    separator: ClassVar[str] = ", "  # between the words or labels of the example that it shows

    def __len__(self) -> int:
        """Texts, questions or pairs."""
        return len(self.examples)

    @property
    def fingerprint(self) -> str:
        """A hash of the examples: all ranks must have the same."""
        return sha256_of(json.dumps([[each.source, each.target] for each in self.examples]).encode())

    @abstractmethod
    def run(self, model: AnyModel, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        """Scores on all examples, and each example with the model's output."""

    def validate(
        self, model: AnyModel, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        """During training: loss and scores, and one example (number `pick`) with the model's output.

        Where outputs are generated, only the first `count` examples are scored. The ranks of `dist` divide
        the examples among them, and all get the same record.
        """
        scores, rows = self.run(model, dist)
        return {name: scores[name] for name in self.validated} | self.example(rows[pick % len(rows)])

    def example(self, row: Record) -> Record:
        """One example as the terminal shows it during training."""
        texts = (row[side] for side in ("source", "reference", "output"))
        shown = [text if isinstance(text, str) else self.separator.join(text) for text in texts]
        return {"sample": dict(zip(("source", "reference", "output"), shown))}

    def final(self, model: AnyModel, path: Path) -> Record:
        """Scores of the final model on all examples; writes each with the model's output to `path`."""
        scores, rows = self.run(model)
        write_rows(path, rows)
        return scores


def make_objective(
    task: Task,
    model: Model,
    source: Tokenizer | FrameReader,
    target: Tokenizer | FrameReader,
    labels: Sequence[str] = (),
    version: int = VERSION,
    modifiers: Sequence[Modifier] = (),
) -> Objective:
    longest = model.max_length
    if not isinstance(source, Tokenizer):
        from regard.data.objectives.frames import ClassifyFrames, FramesToText

        if isinstance(target, Tokenizer):
            return FramesToText(source, target, longest, modifiers=modifiers)
        return ClassifyFrames(source, labels, task.multi_label, modifiers=modifiers)
    if not isinstance(target, Tokenizer):
        raise ValueError("a model that reads text writes text")
    if modifiers:
        from regard.data.objectives.augmentation import Augmentation

        plain = make_objective(task, model, source, target, labels, version)
        return Augmentation(plain, task.name, modifiers)
    match task.name:
        case "translate":
            return Seq2Seq(source, target, longest)
        case "generate":
            return CausalLM(source, longest, across_rows=version > 2)
        case "fill" if model.family == "t5":
            return SpanCorruption(source, longest, task.mask_rate, mean_span=task.mean_span)
        case "fill":
            return MaskedLM(source, longest, task.mask_rate, whole_words=task.whole_words)
        case "classify":
            return Classify(source, longest, labels, task.multi_label)
        case "tag":
            return Tag(source, longest, labels)
        case "answer":
            return ExtractiveQA(source, longest, task.stride)
        case _:
            raise ValueError(f"{task.name} reads no text")


def make_evaluation(
    config: Config, objective: Objective, examples: Sequence[Example], may_refuse: bool = False
) -> Evaluation:
    """`may_refuse`: some training questions have no answer."""
    objective = objective.plain
    if isinstance(objective, Seq2Seq):
        from regard.training.evaluation.translation import TranslationEvaluation

        return TranslationEvaluation(objective, examples, config)
    if config.task.name in ("transcribe", "caption"):
        from regard.training.evaluation.media import FramesToTextEvaluation

        return FramesToTextEvaluation(cast("FramesToText", objective), examples, config)
    from regard.training.evaluation import labels, language

    if config.task.name == "classify":
        return labels.LabelEvaluation(objective, examples)
    if isinstance(objective, ExtractiveQA):
        return labels.AnswerEvaluation(objective, examples, config.task.longest_answer, may_refuse)
    kinds: dict[type[Objective], type[Evaluation]] = {
        Tag: labels.TagEvaluation,
        CausalLM: language.CausalLMEvaluation,
        SpanCorruption: language.SpanCorruptionEvaluation,
        MaskedLM: language.MaskedLMEvaluation,
    }
    return kinds[type(objective)](objective, examples)


# --- what the tasks share


def log_probabilities(
    model: AnyModel, samples: Sequence[Sample], dist: SingleProcess = SINGLE_PROCESS
) -> list[list[float]]:
    """Of each label of each sample."""
    return dist.map_sharded(samples, lambda part: score(model, part, TOKENS_PER_BATCH, device_of(model)))


def mean_loss(log_p: Iterable[Sequence[float]]) -> float:
    """Mean of -log p over all labels, without smoothing; its exponential is the perplexity."""
    total, count = 0.0, 0
    for row in log_p:
        total, count = total - sum(row), count + len(row)
    return total / max(1, count)


def device_of(model: AnyModel) -> torch.device:
    return next(model.parameters()).device


def best_hypotheses(
    model: AnyModel,
    sources: Iterable[Source],
    options: Decode,
    tokenizer: Tokenizer,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each source, without its prefix."""
    samples = [Sample(source=ids) for ids in sources]
    generative = cast("GenerativeModel", model)
    special = special_tokens(tokenizer)
    results = decode(generative, samples, options, special, device_of(model), prefixes)
    if not all(results):  # the probabilities of a diverged model are NaN, and no hypothesis is left
        raise RegardError(
            "the model's probabilities are not finite, so that nothing can be decoded; begin a run "
            "with a lower train.lr or a longer train.warmup",
            code="E_RUN_DIVERGED",
        )
    return [hypotheses[0] for hypotheses in results]


def labelled_positions(sample: Sample) -> list[int]:
    return [position for position, label in enumerate(sample.labels) if label != IGNORED]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, in the order of the corpus: what the report shows of single examples."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def drop_left_out(
    examples: list[Example], objective: Objective, config: Config, split: str, log: Callable[[str], None]
) -> list[Example]:
    """Without the examples that the model cannot read as a whole."""
    rows = [(number, example.source, example.target) for number, example in enumerate(examples)]
    dropped = left_out(rows, objective, config)
    unit = "texts" if config.task.input == "text" else "files"
    reasons = {"too-long": f"longer than {config.model.max_length} tokens", "unreadable": "cannot be read"}
    for kind, reason in reasons.items():
        if lines := sorted(number + 1 for number, each in dropped.items() if each == kind):
            numbers = ", ".join(map(str, lines[:MAX_LISTED])) + (", ..." if len(lines) > MAX_LISTED else "")
            log(f"left out {len(lines):,} of data.{split}: {reason} ({unit} {numbers})")
    return [example for number, example in enumerate(examples) if number not in dropped]


def left_out(rows: Sequence[RawRow], objective: Objective, config: Config) -> dict[int, str]:
    """Rows that cannot be read, or have more tokens than there are learned positions, by number; other
    positions reach any length."""
    is_unlimited = config.model.positions != "learned" and config.task.input == "text"
    if is_unlimited or config.task.name in ("generate", "fill"):
        return {}
    return objective.left_out(rows)
