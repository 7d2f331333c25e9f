"""Question and context in, the part of the context that answers it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.objectives import Answers, Window
from regard.errors import UsageError
from regard.generation.score import AnswerSpan, ranked_answers
from regard.storage import Folder
from regard.tasks.reader import Reader


@dataclass(frozen=True)
class Answer:
    """`text` is characters `start` to `end - 1` of the context; the empty text is "no answer"."""

    text: str
    start: int
    end: int
    score: float  # how much better than no answer; of no answer: how much better the best text would be
    probability: float  # of both ends, in the window of the context that it was found in; 0 of no answer


@dataclass(frozen=True)
class Answered:
    question: str
    answers: tuple[Answer, ...]  # best first, at least one
    windows: int = 1  # more: the context is too long for the model and was read in so many overlapping parts

    @property
    def text(self) -> str:
        return self.answers[0].text


class Answerer(Reader):
    """An opened model that finds answers in texts."""

    head = "span"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.objective = Answers(folder.source, folder.config.max_length, folder.task.stride)

    def answer(self, question: str, context: str, no_answer: float | None = None) -> Answer:
        """The best answer. "No answer" is given where that scores below `no_answer`: 0 unless told, if the
        model was trained with questions that have none, else never.
        """
        return self.answer_pairs([(question, context)], no_answer=no_answer)[0].answers[0]

    def answer_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        count: int = 1,
        no_answer: float | None = None,
        first: int = 1,
    ) -> list[Answered]:
        """For each question and context the `count` best answers, of different characters each.

        `first` is the number of the first question in messages.
        """
        if count < 1:
            raise UsageError(f"count = {count}: at least one answer")
        least = 0.0 if no_answer is None and self.folder.may_refuse else no_answer
        cut = [self.windows(*pair, number) for number, pair in enumerate(pairs, first)]
        logits = iter(self.logits([self.objective.text(window) for own in cut for window in own]))
        longest = self.folder.task.longest_answer
        results = []
        for (question, context), own in zip(pairs, cut):
            found = ranked_answers(context, own, [next(logits) for _ in own], longest, least, count)
            results.append(Answered(question, tuple(as_answer(each) for each in found), len(own)))
        return results

    def windows(self, question: str, context: str, number: int) -> list[Window]:
        for name, text in (("question", question), ("context", context)):
            if not text.strip():
                raise UsageError(f"question {number}: the {name} is empty")
        found = self.objective.windows(question.replace("\n", " "), context)
        if not found:
            size, most = len(self.folder.source.encode(question)), self.objective.max_length
            raise UsageError(
                f"question {number}: its {size} pieces leave no room for a context: the model reads {most}, "
                f"and the parts of a long context share {self.objective.stride} (task.stride); shorten it"
            )
        return found


def as_answer(found: AnswerSpan) -> Answer:
    return Answer(found.text, found.start, found.end, found.score, found.probability)
