"""What a lesson computes with: the model, the text and sizes, and a ledger of the functions it calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.interpret import Trace

Result = TypeVar("Result")

MOST_CHARACTERS = 400  # of the learner's text
MOST_TOKENS = 64
EXAMPLE = "The old man has a small dog."
CONTEXT = "The cat sleeps in the small house."
EXAMPLES = {"fill": "The <mask> is old.", "answer": "Where does the cat sleep?", "generate": "The old man"}
NEAR = 0.2  # times that differ by less than a fifth count as equal (noise)


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
        tokens = len(self.task.folder.source.encode(text))
        if tokens > MOST_TOKENS:
            raise UsageError(f"text: a lesson reads at most {MOST_TOKENS} tokens, this text has {tokens}")

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


def compare_times(first: float, second: float) -> int:
    """0: the first is clearly faster; 1: about the same; 2: clearly slower."""
    ratio = first / second
    return 0 if ratio < 1 - NEAR else 2 if ratio > 1 + NEAR else 1


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_visible(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool)
