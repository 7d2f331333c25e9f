"""What a report shows of each task: title, units, metrics, curves, and the fields of a row of test.jsonl."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regard.config import Task
from regard.training.metrics import LARGEST_EXPONENT
from regard.training.progress import Record


@dataclass(frozen=True)
class Metric:
    """A number of a record. `sentence` is its part of `score_line`; empty: it stands in tables only."""

    key: str
    name: str
    digits: int = 2
    share: bool = False  # a number from 0 to 1, shown in per cent
    sentence: str = "{name} {value}"
    compute: Callable[[Record], float | None] | None = None  # from other fields of the record

    def of(self, record: Record) -> float | None:
        value = self.compute(record) if self.compute else record.get(self.key)
        return (100 if self.share else 1) * value if isinstance(value, int | float) else None

    def shown(self, record: Record, digits: int | None = None) -> str:
        """The number as text, with half of its confidence interval if the record has one."""
        value = self.of(record)
        if value is None:
            return "–"
        digits = self.digits if digits is None else digits
        interval = record.get(f"{self.key}_interval")
        half = f" ± {(100 if self.share else 1) * interval[1]:,.{digits}f}" if interval else ""
        return f"{value:,.{digits}f}{half}" + (" %" if self.share else "")


def percent(key: str, name: str, sentence: str = "{name} {value}") -> Metric:
    return Metric(key, name, share=True, sentence=sentence)


def perplexity(record: Record) -> float | None:
    """exp(loss), where the loss is the mean over tokens."""
    loss = record.get("loss")
    return math.exp(min(loss, LARGEST_EXPONENT)) if isinstance(loss, int | float) else None


@dataclass(frozen=True)
class TaskReport:
    metrics: Sequence[Metric]  # columns of the score table, the most important first
    main: int  # so many of them stand in the overview and on the model card
    curves: Sequence[Metric]  # of the validations
    chart: str  # title of these curves
    fields: Mapping[str, str]  # of a row of test.jsonl, with the name of their check
    title: Callable[[Task], str]
    texts: str = "texts"  # unit of the held-out data
    rows: str = "texts"  # unit of a corpus
    tokens: str = "tokens"  # unit of training
    validation: str = "at the last validation"
    count: str = " on {count} {texts}"  # end of `score_line`


CHECKS: dict[str, Callable[[object], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float),
    "optional number": lambda value: value is None or isinstance(value, int | float),
    "texts": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "links": lambda value: (
        isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)
    ),
    "probabilities": lambda value: (
        isinstance(value, dict) and all(isinstance(each, int | float) for each in value.values())
    ),
}
ACCURACY, WORD_ACCURACY = percent("accuracy", "accuracy"), percent("accuracy", "accuracy of words")
F1, EXACT_MATCH = percent("f1", "F1"), percent("exact", "exact match")
MACRO_F1, MICRO_F1 = percent("f1", "macro F1"), percent("micro_f1", "micro F1")
PRECISION, RECALL = percent("precision", "precision"), percent("recall", "recall")
BLEU, CHRF = Metric("bleu", "BLEU"), Metric("chrf", "chrF")
EXACT = Metric("exact", "exactly right", 1, share=True, sentence="{value} of {count} exact")
BITS_PER_BYTE = Metric("bits_per_byte", "bits per byte", 3, sentence="{value} bits per byte")
LOSS = Metric("loss", "loss", 4)
TOKEN_LOSS = Metric("loss", "loss a token", 4, sentence="loss {value}")
PERPLEXITY = Metric("perplexity", "perplexity")
EXP_LOSS = Metric("perplexity", "perplexity", sentence="", compute=perplexity)
SOURCE_TEXT, LABELS = {"source": "text"}, {"reference": "texts", "output": "texts"}

TASKS: dict[str, TaskReport] = {
    "translate": TaskReport(
        metrics=(BLEU, CHRF, EXACT, TOKEN_LOSS, EXP_LOSS), main=2, curves=(BLEU, CHRF),
        chart="validation, greedy",
        fields={
            **SOURCE_TEXT, "reference": "text", "output": "text", "chrf": "number", "score": "number",
            "alignment": "links",
        },
        title=lambda task: f"translation from {task.source} to {task.target}",
        texts="sentences", rows="pairs", tokens="target tokens",
        validation="at the last validation, greedy", count="",
    ),
    "generate": TaskReport(
        metrics=(PERPLEXITY, BITS_PER_BYTE, TOKEN_LOSS), main=2, curves=(BITS_PER_BYTE,),
        chart="validation, bits per byte", fields={**SOURCE_TEXT, "output": "text"},
        title=lambda task: "language model",
    ),
    "fill": TaskReport(
        metrics=(ACCURACY, TOKEN_LOSS, EXP_LOSS), main=1, curves=(ACCURACY,),
        chart="validation, accuracy in %",
        fields={**SOURCE_TEXT, **LABELS, "log_probability": "optional number"},
        title=lambda task: "masked tokens",
    ),
    "classify": TaskReport(
        metrics=(ACCURACY, MACRO_F1, MICRO_F1, LOSS), main=3, curves=(ACCURACY, MACRO_F1),
        chart="validation, %", fields={**SOURCE_TEXT, **LABELS, "probabilities": "probabilities"},
        title=lambda task: f"text classification{', many labels each' if task.many else ''}",
    ),
    "tag": TaskReport(
        metrics=(F1, PRECISION, RECALL, WORD_ACCURACY, LOSS), main=3, curves=(F1, WORD_ACCURACY),
        chart="validation, %", fields={"source": "texts", **LABELS},
        title=lambda task: "entity tagging", texts="sentences", rows="sentences",
    ),
    "answer": TaskReport(
        metrics=(F1, EXACT_MATCH, LOSS), main=2, curves=(F1, EXACT_MATCH), chart="validation, %",
        fields={
            **SOURCE_TEXT, "context": "text", "reference": "texts", "output": "text", "exact": "number",
            "f1": "number", "score": "optional number",
        },
        title=lambda task: "question answering", texts="questions", rows="questions",
    ),
}  # fmt: skip


def main_scores(task: str) -> Sequence[Metric]:
    """The metrics that a reader looks for first."""
    return TASKS[task].metrics[: TASKS[task].main]


def score_line(task: str, record: Record) -> str:
    """A final record in one line: "test: accuracy 91.2 %, macro F1 91.1 %, loss 0.2412 on 872 texts"."""
    report, count = TASKS[task], f"{record.get('sentences', 0)}"
    bare = {key: value for key, value in record.items() if not key.endswith("_interval")}
    parts = [
        metric.sentence.format(
            name=metric.name,
            value=metric.shown(bare, min(metric.digits, 1) if metric.share else metric.digits),
            count=count,
        )
        for metric in report.metrics
        if metric.sentence and metric.of(record) is not None
    ]
    return f"{record['kind']}: {', '.join(parts)}" + report.count.format(count=count, texts=report.texts)
