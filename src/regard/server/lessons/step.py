"""A lesson in steps: a few sentences, a question, its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regard.server.lessons.content import Figure, text_json
from regard.server.lessons.given import Given, Ledger


@dataclass(frozen=True)
class ChoiceQuestion:
    text: str
    options: Sequence[str]
    answer: int  # index of the correct option

    def as_json(self) -> dict[str, Any]:
        fields = {"text": text_json(self.text), "options": list(self.options), "answer": self.answer}
        return {"kind": "choice", **fields}


@dataclass(frozen=True)
class NumberQuestion:
    text: str
    answer: float
    tolerance: float  # an answer within this distance is correct
    digits: int = 2
    unit: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"kind": "number", **asdict(self), "text": text_json(self.text)}


def listed(content: Any) -> list[Any]:
    return [content] if isinstance(content, str | dict) else list(content)


@dataclass(frozen=True)
class LessonStep:
    """A few sentences, a question, and what is shown after the answer: one or several of each."""

    title: str
    text: str | Sequence[str]  # paragraphs
    ask: ChoiceQuestion | NumberQuestion
    why: str
    before: Figure | Sequence[Figure] = ()
    after: Figure | Sequence[Figure] = ()
    then: str | Sequence[str] = ()
    claim: str = ""  # a common claim that the step tests
    functions: Sequence[str] = ()  # that computed the numbers

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "text": [text_json(text) for text in listed(self.text)],
            "question": self.ask.as_json(),
            "why": text_json(self.why),
            "functions": list(self.functions),
            "before": listed(self.before),
            "after": listed(self.after),
            "then": [text_json(text) for text in listed(self.then)],
            "claim": self.claim,
        }


@dataclass(frozen=True)
class Lesson:
    name: str
    title: str
    about: str
    steps: Sequence[Callable[[Given, Ledger], LessonStep | None]]  # None: the model has nothing for it
    uses: Sequence[str] = ()  # of "text", "model", "sizes"

    def make(self, given: Given) -> Iterator[LessonStep]:
        for step in self.steps:
            ledger = Ledger()
            if (result := step(given, ledger)) is not None:
                yield replace(result, functions=[*ledger.names, *result.functions])
