"""Parts of a lesson: steps with a question, its answer, figures, and the functions behind the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.interpret import Trace

TextPart = str | dict[str, str]  # text of the lesson, or {"token": a word of the user's text}
Text = str | list[TextPart]
Figure = dict[str, Any]
Result = TypeVar("Result")

MOST_CHARACTERS = 400  # of the learner's text
MOST_PIECES = 64
EXAMPLE = "The old man has a small dog."
CONTEXT = "The cat sleeps in the small house."
EXAMPLES = {"fill": "The <mask> is old.", "answer": "Where does the cat sleep?", "generate": "The old man"}


class LessonUnavailable(Exception):
    """The model or text does not fit the lesson; the message says why."""


class Ledger:
    """Calls functions and records their names, so that a step lists what computed its numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, function: Callable[..., Result], *given: Any, **named: Any) -> Result:
        self.note(function)
        return function(*given, **named)

    def note(self, function: Callable[..., Any]) -> None:
        name = name_of(function)
        if name not in self.names:
            self.names.append(name)


def name_of(function: Callable[..., Any]) -> str:
    """The qualified name of a function, a method or the `forward` of a module."""
    if isinstance(function, nn.Module):
        return f"{type(function).__module__}.{type(function).__qualname__}.forward"
    return f"{function.__module__}.{function.__qualname__}"


def token(text: str) -> dict[str, str]:
    """A word of a text, which the page highlights."""
    return {"token": text}


@dataclass(frozen=True)
class ChoiceQuestion:
    text: Text
    options: Sequence[str]
    answer: int  # index of the correct option

    def as_json(self) -> dict[str, Any]:
        return {"kind": "choice", "text": self.text, "options": list(self.options), "answer": self.answer}


@dataclass(frozen=True)
class NumberQuestion:
    text: Text
    answer: float
    tolerance: float  # an answer within this distance is correct
    digits: int = 2
    unit: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"kind": "number", **asdict(self)}


@dataclass(frozen=True)
class LessonStep:
    """A few sentences, a question, and what is shown after the answer."""

    title: str
    text: Sequence[Text]
    ask: ChoiceQuestion | NumberQuestion
    why: Text
    functions: Sequence[str]
    before: Sequence[Figure] = ()
    after: Sequence[Figure] = ()
    then: Sequence[Text] = ()
    claim: str = ""  # a common claim that the step tests

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "text": list(self.text),
            "question": self.ask.as_json(),
            "why": self.why,
            "functions": list(self.functions),
            "before": list(self.before),
            "after": list(self.after),
            "then": list(self.then),
            "claim": self.claim,
        }


@dataclass(frozen=True)
class Given:
    """The input of a lesson: model, text and sizes."""

    models: Mapping[str, Any]
    name: str
    text: str = ""
    words: int = 50  # n
    width: int = 512  # d
    kept: dict[str, Trace] = field(default_factory=dict)

    @property
    def task(self) -> Any:
        return self.models[self.name]

    @property
    def sentence(self) -> str:
        if self.text.strip():
            return self.text
        return EXAMPLES.get(self.task.folder.task.name, EXAMPLE)

    def check(self, text: str) -> None:
        """Limit the text: a lesson draws every token."""
        if len(text) > MOST_CHARACTERS:
            raise UsageError(f"text: a lesson reads at most {MOST_CHARACTERS} characters")
        pieces = len(self.task.folder.source.encode(text))
        if pieces > MOST_PIECES:
            raise UsageError(f"text: a lesson reads at most {MOST_PIECES} tokens, this text has {pieces}")

    def trace(self, ledger: Ledger, text: str | None = None, **changes: Any) -> Trace:
        """Trace the model on `text`; unchanged runs are cached for the next steps."""
        if text is None:
            text = self.sentence
            self.check(text)
        kind = self.task.folder.task.name
        if kind == "answer":
            changes["context"] = CONTEXT
        if kind == "generate" and "target" not in changes:
            changes["decode"] = {"sample": False, "beam": 1, "max_length": 24}
        if changes.keys() - {"context", "decode"}:
            changed: Trace = ledger(self.task.trace, text, **changes)
            return changed
        if text not in self.kept:
            self.kept[text] = self.task.trace(text, **changes)
        ledger.note(self.task.trace)
        return self.kept[text]


@dataclass(frozen=True)
class Lesson:
    name: str
    title: str
    about: str
    make: Callable[[Given], list[LessonStep]]
    uses: Sequence[str] = ()  # of "text", "model", "sizes"


# Figures as plain values


def plain(values: Any) -> Any:
    """A tensor as nested lists."""
    return values.tolist() if isinstance(values, Tensor) else values


def matrix(
    caption: str,
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    signed: bool = False,
    mask: Any = None,
) -> Figure:
    """A heat map of values in [0, 1], or signed; `mask` is false where a cell is hidden."""
    return {
        "kind": "matrix",
        "caption": caption,
        "values": plain(values),
        "rows": list(rows),
        "columns": list(columns),
        "signed": signed,
        "mask": plain(mask),
    }


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 3) -> Figure:
    return {
        "kind": "table",
        "caption": caption,
        "columns": list(columns),
        "rows": [[plain(cell) for cell in row] for row in rows],
        "digits": digits,
    }


def bars(
    caption: str, names: Sequence[str], values: Sequence[float], digits: int = 2, unit: str = ""
) -> Figure:
    return {
        "kind": "bars",
        "caption": caption,
        "names": list(names),
        "values": [float(value) for value in values],
        "digits": digits,
        "unit": unit,
    }


def lines(
    caption: str,
    across: str,
    places: Sequence[float | str],
    series: Mapping[str, Sequence[float | None]],
    even: bool = False,
    log: bool = False,
    digits: int = 3,
) -> Figure:
    """Curves over `places`; `even`: equal distances on the x axis, `log`: logarithmic y axis."""
    return {
        "kind": "lines",
        "caption": caption,
        "across": across,
        "places": list(places),
        "series": [{"name": name, "values": list(values)} for name, values in series.items()],
        "even": even,
        "log": log,
        "digits": digits,
    }


def formula(text: str) -> Figure:
    return {"kind": "formula", "text": text}


def distinct(words: Sequence[str]) -> list[str]:
    """Options to choose from; repeated words are numbered."""
    twice = {word for word in words if list(words).count(word) > 1}
    return [f"{word} (word {place + 1})" if word in twice else word for place, word in enumerate(words)]


def fmt(value: float, digits: int = 2) -> str:
    """A number for a sentence: with a minus sign, and in scientific notation if it is too small."""
    if value == 0:
        return "0"
    small = abs(value) < 0.5 * 10.0**-digits
    return (f"{value:.0e}" if small else f"{value:.{digits}f}").replace("-", "−")


# Measuring


@torch.no_grad()
def race(
    runners: Mapping[str, Callable[[], object]], seconds: float = 0.3, rounds: int = 40
) -> dict[str, float]:
    """The shortest time of each in seconds; runs are interleaved, so that noise affects all alike."""
    best = dict.fromkeys(runners, float("inf"))
    began = time.perf_counter()
    for _ in range(rounds):
        for name, run in runners.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
        if time.perf_counter() - began > seconds:
            break
    return best


NEAR = 0.2  # times that differ by less than a fifth count as equal (noise)


def compare_times(first: float, second: float) -> int:
    """0: the first is clearly faster; 1: about the same; 2: clearly slower."""
    ratio = first / second
    return 0 if ratio < 1 - NEAR else 2 if ratio > 1 + NEAR else 1


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_visible(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool)
