"""How a report speaks of each task: its title, the words for its texts, its scores, the shape of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regard.config import Task
from regard.training.metrics import LARGEST_EXPONENT
from regard.training.progress import Record

Check = Callable[[object], bool]


@dataclass(frozen=True)
class Measure:
    """A number of a record. `told` is how it stands in a sentence; empty, it stands in tables alone."""

    key: str
    name: str
    digits: int = 2
    share: bool = False  # from 0 to 1, and shown in per cent
    told: str = "{name} {value}"
    value: Callable[[Record], float | None] | None = None  # where it is computed from others

    def of(self, record: Record) -> float | None:
        found = self.value(record) if self.value else record.get(self.key)
        return (100 if self.share else 1) * found if isinstance(found, int | float) else None

    def shown(self, record: Record, digits: int | None = None) -> str:
        """The number as text, with half of its interval where that was measured."""
        found = self.of(record)
        if found is None:
            return "–"
        digits = self.digits if digits is None else digits
        around = record.get(f"{self.key}_interval")
        half = f" ± {(100 if self.share else 1) * around[1]:,.{digits}f}" if around else ""
        return f"{found:,.{digits}f}{half}" + (" %" if self.share else "")


def percent(key: str, name: str, told: str = "{name} {value}", digits: int = 2) -> Measure:
    return Measure(key, name, digits, share=True, told=told)


def exponential(record: Record) -> float | None:
    """perplexity = exp(loss), where the loss is that of a token."""
    loss = record.get("loss")
    return math.exp(min(loss, LARGEST_EXPONENT)) if isinstance(loss, int | float) else None


@dataclass(frozen=True)
class Wording:
    title: Callable[[Task], str]
    texts: str  # what is held out and counted
    read: str  # what corpora hold
    tokens: str  # what is learned from
    scores: Sequence[Measure]  # the columns of the table, main ones first
    main: int  # so many of them stand in the overview
    curves: Sequence[Measure]  # of the validations
    chart: str  # the title of these curves
    shape: Mapping[str, Check]  # the fields of a row of test.jsonl
    validated: str = "at the last validation"
    ending: str = " on {count} {texts}"  # of the sentence that tells the scores


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


def maybe_number(value: object) -> bool:
    return value is None or is_number(value)


def are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def are_links(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)


def are_probabilities(value: object) -> bool:
    return isinstance(value, dict) and all(is_number(each) for each in value.values())


ACCURACY = percent("accuracy", "accuracy")
F1 = percent("f1", "F1")
EXACT = percent("exact", "exact match")
PRECISION, RECALL = percent("precision", "precision"), percent("recall", "recall")
MACRO, MICRO = percent("f1", "macro F1"), percent("micro_f1", "micro F1")
BLEU, CHRF = Measure("bleu", "BLEU"), Measure("chrf", "chrF")
EXACTLY_RIGHT = percent("exact", "exactly right", told="{value} of {count} exact", digits=1)
BITS = Measure("bits_per_byte", "bits per byte", digits=3, told="{value} bits per byte")
LOSS = Measure("loss", "loss", digits=4)
TOKEN_LOSS = Measure("loss", "loss a token", digits=4, told="loss {value}")
PERPLEXITY = Measure("perplexity", "perplexity")
EXPONENTIAL = Measure("perplexity", "perplexity", told="", value=exponential)

TASKS: dict[str, Wording] = {
    "translate": Wording(
        title=lambda task: f"translation from {task.source} to {task.target}",
        texts="sentences",
        read="pairs",
        tokens="target tokens",
        scores=(BLEU, CHRF, EXACTLY_RIGHT, TOKEN_LOSS, EXPONENTIAL),
        main=2,
        curves=(BLEU, CHRF),
        chart="validation, greedy",
        shape={
            "source": is_text,
            "reference": is_text,
            "output": is_text,
            "chrf": is_number,
            "score": is_number,
            "alignment": are_links,
        },
        validated="at the last validation, greedy",
        ending="",
    ),
    "generate": Wording(
        title=lambda task: "language model",
        texts="texts",
        read="texts",
        tokens="tokens",
        scores=(PERPLEXITY, BITS, TOKEN_LOSS),
        main=2,
        curves=(BITS,),
        chart="validation, bits per byte",
        shape={"source": is_text, "output": is_text},
    ),
    "fill": Wording(
        title=lambda task: "filling gaps in texts",
        texts="texts",
        read="texts",
        tokens="tokens",
        scores=(ACCURACY, TOKEN_LOSS, EXPONENTIAL),
        main=1,
        curves=(ACCURACY,),
        chart="validation, accuracy in %",
        shape={
            "source": is_text,
            "reference": are_texts,
            "output": are_texts,
            "log_probability": maybe_number,
        },
    ),
    "classify": Wording(
        title=lambda task: f"classification of texts{', many labels each' if task.multi_label else ''}",
        texts="texts",
        read="texts",
        tokens="tokens",
        scores=(ACCURACY, MACRO, MICRO, LOSS),
        main=3,
        curves=(ACCURACY, MACRO),
        chart="validation, %",
        shape={
            "source": is_text,
            "reference": are_texts,
            "output": are_texts,
            "probabilities": are_probabilities,
        },
    ),
    "tag": Wording(
        title=lambda task: "tagging of entities",
        texts="sentences",
        read="sentences",
        tokens="tokens",
        scores=(F1, PRECISION, RECALL, percent("accuracy", "accuracy of words"), LOSS),
        main=3,
        curves=(F1, percent("accuracy", "accuracy of words")),
        chart="validation, %",
        shape={"source": are_texts, "reference": are_texts, "output": are_texts},
    ),
    "answer": Wording(
        title=lambda task: "question answering",
        texts="questions",
        read="questions",
        tokens="tokens",
        scores=(F1, EXACT, LOSS),
        main=2,
        curves=(F1, EXACT),
        chart="validation, %",
        shape={
            "source": is_text,
            "context": is_text,
            "reference": are_texts,
            "output": is_text,
            "exact": is_number,
            "f1": is_number,
            "score": maybe_number,
        },
    ),
}


def main_scores(task: str) -> Sequence[Measure]:
    """Those that a reader looks for first."""
    return TASKS[task].scores[: TASKS[task].main]


def told(task: str, record: Record) -> str:
    """A final record in one line: "test: accuracy 91.2 %, macro F1 91.1 %, loss 0.2412 on 872 texts"."""
    wording, count = TASKS[task], f"{record.get('sentences', 0)}"
    bare = {key: value for key, value in record.items() if not key.endswith("_interval")}
    parts = [
        measure.told.format(name=measure.name, value=measure.shown(bare, told_digits(measure)), count=count)
        for measure in wording.scores
        if measure.told and measure.of(record) is not None
    ]
    return f"{record['kind']}: {', '.join(parts)}" + wording.ending.format(count=count, texts=wording.texts)


def told_digits(measure: Measure) -> int:
    return min(measure.digits, 1) if measure.share else measure.digits
