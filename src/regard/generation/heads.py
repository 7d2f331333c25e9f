"""Predictions from the logits of an encoder's head: labels of a text, answers in a context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from regard.data.objectives import ContextWindow
from regard.generation.score import ranked_ends

LABEL_THRESHOLD = 0.5  # of several labels, those with p >= 0.5


def label_probabilities(logits: Tensor, multi_label: bool) -> Tensor:
    """[...,L]: a sigmoid per label where a text may have any number of them, else a softmax."""
    return logits.sigmoid() if multi_label else logits.softmax(dim=-1)


def predicted_labels(probabilities: Tensor, labels: Sequence[str], multi_label: bool) -> list[str]:
    """The labels of a text [L]: the most probable one, or all above the threshold."""
    if not multi_label:
        return [labels[int(probabilities.argmax())]]
    return [label for label, p in zip(labels, probabilities.tolist()) if p >= LABEL_THRESHOLD]


def predicted_tags(logits: Tensor, first: Sequence[int | None], labels: Sequence[str]) -> list[str]:
    """The tag of each word by its first token: logits [S,L] with the start token; "O" without a token."""
    best = logits.argmax(dim=1).tolist()
    return ["O" if token is None else labels[best[token + 1]] for token in first]


@dataclass(frozen=True)
class AnswerSpan:
    """Characters `start` to `end - 1` of a context; the empty text is "no answer"."""

    text: str
    start: int
    score: float  # logit margin over "no answer"; for "no answer": the margin of the best text
    probability: float = 0.0  # of both ends, in the window that holds the span

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def ranked_answers(
    context: str,
    windows: Sequence[ContextWindow],
    logits: Sequence[Tensor],
    longest: int,
    threshold: float | None,
    count: int = 1,
) -> list[AnswerSpan]:
    """The best answers of all windows, each over other characters; at least one.

    "No answer" comes first where the best span scores below `threshold`.
    """
    best: dict[tuple[int, int], AnswerSpan] = {}
    for window, window_logits in zip(windows, logits):
        for span in islice(distinct_answers(context, window, window_logits, longest), count):
            place = (span.start, span.end)
            if place not in best or best[place].score < span.score:
                best[place] = span
    ranked = sorted(best.values(), key=lambda span: -span.score)
    highest = ranked[0].score if ranked else float("-inf")
    if not ranked or (threshold is not None and highest < threshold):
        ranked.insert(0, AnswerSpan("", 0, highest))
    return ranked[:count]


def distinct_answers(
    context: str, window: ContextWindow, logits: Tensor, longest: int
) -> Iterator[AnswerSpan]:
    """The answers of one window, best first; tokens may be bytes of the same character, or spaces."""
    p = logits.softmax(dim=0)  # [S,2]
    seen: set[tuple[int, int]] = set()
    for first, last, score in ranked_ends(logits, window.begins, longest):
        around = context[window.spans[first - window.begins][0] : window.spans[last - window.begins][1]]
        text = around.strip()  # a token may be a space alone
        start = window.spans[first - window.begins][0] + len(around) - len(around.lstrip())
        if text and (start, start + len(text)) not in seen:
            seen.add((start, start + len(text)))
            yield AnswerSpan(text, start, score, float(p[first, 0] * p[last, 1]))
