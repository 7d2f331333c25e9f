"""What cells compute with: the model, the text and sizes, and a list of the functions that were called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.interpret import Trace
from regard.storage import models as builtin
from regard.tasks import load

Result = TypeVar("Result")
Values = dict[str, Any]  # what a cell computes: names for sentences, questions and figures
CellFunction = TypeVar("CellFunction", bound=Callable[..., Values | None])

MOST_CHARACTERS = 400  # of the learner's text
MOST_TOKENS = 64
EXAMPLE = "The old man sees a small dog."
CONTEXT = "The cat sleeps in the small house."
EXAMPLES = {"fill": "The <mask> is old.", "answer": "Where does the cat sleep?", "generate": "The old man"}

CELLS: dict[str, Callable[..., Values | None]] = {}  # "scale.spreads": the function


def cell(function: CellFunction) -> CellFunction:
    """Register a function that documents may name, as MODULE.FUNCTION.

    It takes a `Given` and arguments with defaults, and returns values by name. None leaves the step out.
    """
    CELLS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = function
    return function


class LessonUnavailable(Exception):
    """The model or text does not fit the lesson; the message says why."""


def name_of(function: Callable[..., Any]) -> str:
    """The qualified name of a function, a method or the `forward` of a module."""
    if isinstance(function, nn.Module):
        return f"{type(function).__module__}.{type(function).__qualname__}.forward"
    return f"{function.__module__}.{function.__qualname__}"


@cache
def packaged(name: str) -> Any:
    return load(builtin.find_model(Path(name)), "cpu")


@dataclass(frozen=True)
class Given:
    """The input of a lesson: model, text and sizes. Calling it calls a function and notes its name."""

    models: Mapping[str, Any]
    name: str
    text: str = ""
    words: int = 50  # n
    width: int = 512  # d
    kept: dict[str, Trace] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)  # names of what computed the numbers of a step

    def __call__(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        self.note(function)
        return function(*arguments, **named)

    def note(self, *functions: Callable[..., Any]) -> None:
        for name in map(name_of, functions):
            if name not in self.functions:
                self.functions.append(name)

    def with_model(self, name: str) -> Given:
        """Another model than the one chosen in the page: a loaded one, or one of the package."""
        if not self.has(name):
            raise LessonUnavailable(
                f"This lesson needs the model {name}; start the page with it (regard explore -m {name})."
            )
        task = self.models.get(name) or packaged(name)
        return replace(self, models={**self.models, name: task}, name=name, kept={})

    def has(self, name: str) -> bool:
        return name in self.models or name in builtin.names()

    def with_first(self, names: Sequence[str]) -> Given:
        """With the first of some models that is here; "any" is the one chosen in the page."""
        here = next((name for name in names if name == "any" or self.has(name)), names[0])
        return self if here == "any" else self.with_model(here)

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
        tokens = len(self.task.folder.source.encode(text))
        if tokens > MOST_TOKENS:
            raise UsageError(f"text: a lesson reads at most {MOST_TOKENS} tokens, this text has {tokens}")

    @property
    def settings(self) -> Values:
        """What a run of the model needs beside its text."""
        match self.task.folder.task.name:
            case "answer":
                return {"context": CONTEXT}
            case "generate":
                return {"decode": {"sample": False, "beam": 1, "max_length": 24}}
        return {}

    def trace(self, text: str | None = None, **changes: Any) -> Trace:
        """Trace the model on `text`; unchanged runs are cached for the next steps."""
        if text is None:
            text = self.sentence
            self.check(text)
        changes = {**self.settings, **changes}
        if "target" in changes:
            changes.pop("decode", None)
        if changes.keys() - {"context", "decode"}:
            changed: Trace = self(self.task.trace, text, **changes)
            return changed
        if text not in self.kept:
            self.kept[text] = self.task.trace(text, **changes)
        self.note(self.task.trace)
        return self.kept[text]


# Learning and measuring


def adam(parameters: Sequence[Tensor], lr: float, loss: Callable[[], Tensor], steps: int) -> Iterator[float]:
    """The loss before each of some updates; torch.optim would need seconds for its import alone.

    m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
    p = p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    """
    b1, b2, epsilon = 0.9, 0.999, 1e-8
    m, v = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    for t in range(1, steps + 1):
        value = loss()
        gradients = torch.autograd.grad(value, list(parameters), allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            for i, (parameter, g) in enumerate(zip(parameters, gradients)):
                m[i].mul_(b1).add_(g, alpha=1 - b1)
                v[i].mul_(b2).addcmul_(g, g, value=1 - b2)
                size = (v[i] / (1 - b2**t)).sqrt() + epsilon
                parameter -= lr * (m[i] / (1 - b1**t)) / size
        yield float(value.detach())


@torch.no_grad()
def race(
    runners: Mapping[str, Callable[[], object]], seconds: float = 0.3, rounds: int = 40
) -> dict[str, float]:
    """The shortest time of each in milliseconds; runs are interleaved, so that noise affects all alike."""
    best = dict.fromkeys(runners, float("inf"))
    began = time.perf_counter()
    for _ in range(rounds):
        for name, run in runners.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
        if time.perf_counter() - began > seconds:
            break
    return best


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_visible(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool)


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers at the same place."""
    return float((one - other).abs().max())


def distinct(words: Sequence[str]) -> list[str]:
    """Options to choose from; repeated words are numbered."""
    twice = {word for word in words if list(words).count(word) > 1}
    return [f"{word} (word {place + 1})" if word in twice else word for place, word in enumerate(words)]
