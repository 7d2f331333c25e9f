"""Log-probabilities of given targets, and predictions of encoder models: labels, and answers in a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.data.objectives import Window
from regard.generation.run import by_length
from regard.models.state import BLOCK
from regard.sample import IGNORED, Sample

Result = TypeVar("Result")
TOKENS_PER_BATCH = 1024  # default: logits of so many tokens over the whole vocabulary are in memory at once
THRESHOLD = 0.5  # of several labels, those at least this probable are predicted


@torch.no_grad()
def score(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[list[float]]:
    """log p of each label of each sample, in order; they do not depend on the rest of the batch."""
    scores: list[list[float]] = [[] for _ in samples]
    lengths = [max(len(sample.source), len(sample.target)) for sample in samples]
    for numbers in by_length(lengths, tokens_per_batch):
        batch = collate([samples[number] for number in numbers], BLOCK).to(device)
        if batch.labels is None:
            raise ValueError("scoring needs labels")
        log_p = model(batch).float().log_softmax(dim=-1)  # [B,T,V]
        labels = batch.labels
        log_p = log_p[:, : labels.shape[1]]  # without padding behind all labels
        of_labels = log_p.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)  # [B,T]
        for row, number in enumerate(numbers):
            scores[number] = of_labels[row][labels[row] != IGNORED].tolist()
    return scores


@torch.no_grad()
def map_logits(
    model: Callable[[Batch], Tensor],
    samples: Sequence[Sample],
    work: Callable[[int, Tensor], Result],
    tokens_per_batch: int,
    device: torch.device,
) -> list[Result]:
    """`work(number, logits)` of each sample, in order; no more logits than those of a batch are in memory.

    The logits are those of the sample's source without padding: [S,V], [S,labels], [1,labels] or [S,2].
    """
    results: dict[int, Result] = {}
    for numbers in by_length([len(sample.source) for sample in samples], tokens_per_batch):
        sources = [replace(samples[number], labels=()) for number in numbers]
        logits = model(collate(sources, BLOCK).to(device)).float().cpu()
        for row, number in enumerate(numbers):
            results[number] = work(number, logits[row, : len(samples[number].source)])
    return [results[number] for number in range(len(samples))]


def answers(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[Tensor]:
    """The logits of each sample, all in memory: for a few texts. See `map_logits` for the shapes."""
    return map_logits(model, samples, lambda number, logits: logits.clone(), tokens_per_batch, device)


def label_probabilities(logits: Tensor, multi_label: bool) -> Tensor:
    return logits.sigmoid() if multi_label else logits.softmax(dim=-1)


def predicted_labels(probabilities: Tensor, labels: Sequence[str], multi_label: bool) -> list[str]:
    """The most probable label; with `multi_label` all labels of probability >= 0.5."""
    if not multi_label:
        return [labels[int(probabilities.argmax())]]
    return [label for label, p in zip(labels, probabilities.tolist()) if p >= THRESHOLD]


# --- answers in a context


@dataclass(frozen=True)
class AnswerSpan:
    """A part of a context that answers a question; the empty text is no answer."""

    text: str
    start: int  # its first character in the context
    score: float  # how much better than no answer; of no answer: how much better the best text would be
    probability: float = 0.0  # of both ends, in the window it is from

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def ranked_answers(
    context: str,
    windows: Sequence[Window],
    logits: Sequence[Tensor],
    max_tokens: int,
    threshold: float | None,
    count: int = 1,
) -> list[AnswerSpan]:
    """The best `count` answers of all windows, of different characters each; at least one.

    No answer comes first where the best one scores below `threshold`.
    """
    best: dict[tuple[int, int], AnswerSpan] = {}
    for window, window_logits in zip(windows, logits):
        for span in islice(distinct_spans(context, window, window_logits, max_tokens), count):
            place = (span.start, span.end)
            if place not in best or best[place].score < span.score:
                best[place] = span
    ranked = sorted(best.values(), key=lambda span: -span.score)
    highest = ranked[0].score if ranked else float("-inf")
    if not ranked or (threshold is not None and highest < threshold):
        ranked.insert(0, AnswerSpan("", 0, highest))
    return ranked[:count]


def distinct_spans(context: str, window: Window, logits: Tensor, max_tokens: int) -> Iterator[AnswerSpan]:
    """The answers of one window, the best first. Tokens may be bytes of one character, or spaces."""
    p = logits.softmax(dim=0)  # [S,2]
    seen: set[tuple[int, int]] = set()
    for first, last, score in ranked_ends(logits, window.begins, max_tokens):
        around = context[window.spans[first - window.begins][0] : window.spans[last - window.begins][1]]
        start = window.spans[first - window.begins][0] + len(around) - len(around.lstrip())
        span = AnswerSpan(around.strip(), start, score, float(p[first, 0] * p[last, 1]))
        if span.text and (span.start, span.end) not in seen:
            seen.add((span.start, span.end))
            yield span


def ranked_ends(logits: Tensor, begins: int, longest: int) -> Iterator[tuple[int, int, float]]:
    """Answers by the sum of their two logits, the highest first, as (first token, last token, sum).

    logits [S,2] of one window; an answer begins at token `begins` or later, has at most `longest` tokens and
    does not contain the end token. The sum is relative to that of "no answer", which is the start token.
    """
    first, last = logits[begins:-1].unbind(dim=1)  # [C] each
    sums = first[:, None] + last[None, :] - logits[0].sum()  # [C,C]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(longest - 1)
    places = allowed.nonzero()  # [A,2]
    scores, order = sums[allowed].sort(descending=True, stable=True)
    for score, number in zip(scores, order):
        start, end = places[number].tolist()
        yield begins + start, begins + end, float(score)
