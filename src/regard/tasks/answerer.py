"""Answer questions with a part of a context (extractive question answering)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.objectives import ContextWindow, ExtractiveQA
from regard.errors import UsageError
from regard.generation.heads import AnswerSpan, ranked_answers
from regard.storage import Folder
from regard.tasks.classifier import EncoderTask


@dataclass(frozen=True)
class Answer:
    """`text` is characters `start` to `end - 1` of the context; the empty text is "no answer"."""

    text: str
    start: int
    end: int
    score: float  # logit margin over "no answer"; for "no answer": the margin of the best text
    probability: float  # of both ends, in the window of the context that holds it; 0 for "no answer"


@dataclass(frozen=True)
class Answered:
    question: str
    answers: tuple[Answer, ...]  # best first, at least one
    windows: int = 1  # above 1: the context was split into so many overlapping parts

    @property
    def text(self) -> str:
        return self.answers[0].text


class Answerer(EncoderTask):
    """A model that answers questions about a context."""

    head = "span"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.objective = ExtractiveQA(folder.source, folder.config.max_length, folder.task.stride)

    def answer(self, question: str, context: str, no_answer: float | None = None) -> Answer:
        """The best answer, or "no answer" (the empty text) if its score is below `no_answer`.

        Default: 0 if the model was trained with unanswerable questions, else every question gets an answer.
        """
        return self.answer_pairs([(question, context)], no_answer=no_answer)[0].answers[0]

    def answer_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        count: int = 1,
        no_answer: float | None = None,
        first: int = 1,
    ) -> list[Answered]:
        """The `count` best answers to each (question, context), each over other characters.

        `first` is the number of the first question in messages.
        """
        if count < 1:
            raise UsageError(f"count = {count}: at least one answer")
        threshold = 0.0 if no_answer is None and self.folder.may_refuse else no_answer
        split = [self.windows(*pair, number) for number, pair in enumerate(pairs, first)]
        logits = iter(self.logits([self.objective.text(window) for windows in split for window in windows]))
        longest = self.folder.task.longest_answer
        results = []
        for (question, context), windows in zip(pairs, split):
            each = [next(logits) for _ in windows]
            spans = ranked_answers(context, windows, each, longest, threshold, count)
            results.append(Answered(question, tuple(map(to_answer, spans)), len(windows)))
        return results

    def windows(self, question: str, context: str, number: int) -> list[ContextWindow]:
        for name, text in (("question", question), ("context", context)):
            if not text.strip():
                raise UsageError(f"question {number}: the {name} is empty")
        windows = self.objective.windows(question.replace("\n", " "), context)
        if not windows:
            size, limit = len(self.folder.source.encode(question)), self.objective.max_length
            raise UsageError(
                f"question {number}: its {size} tokens leave no room for a context: the model reads {limit}, "
                f"and the parts of a long context share {self.objective.stride} (task.stride); shorten it"
            )
        return windows


def to_answer(span: AnswerSpan) -> Answer:
    return Answer(span.text, span.start, span.end, span.score, span.probability)
