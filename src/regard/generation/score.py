"""Log-probabilities of given targets, and the logits of encoder models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.generation.generate import batches_by_length, one_core, worker_count, worker_threads
from regard.models.attention import BLOCK
from regard.sample import IGNORED, Sample

# Tokens for which a second core saves less than its threads wait for each other, above all on a busy machine.
# Measured (MiniLM, 7 tokens, two cores that other programs use, too; least and median of a text's
# milliseconds): one core 4.0, 8.6; two 12.2, 59.5.
FEW_TOKENS = 32
Result = TypeVar("Result")
TOKENS_PER_BATCH = 1024  # default: logits of so many tokens over the whole vocabulary are in memory at once


@torch.no_grad()
def score(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[list[float]]:
    """log p of each label of each sample, in order; they do not depend on the rest of the batch."""
    scores: list[list[float]] = [[] for _ in samples]
    lengths = [max(len(sample.source), len(sample.target)) for sample in samples]
    for numbers in batches_by_length(lengths, tokens_per_batch):
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


def map_logits(
    model: Callable[[Batch], Tensor],
    samples: Sequence[Sample],
    work: Callable[[int, Tensor], Result],
    tokens_per_batch: int,
    device: torch.device,
    workers: int = 1,
) -> list[Result]:
    """`work(number, logits)` of each sample, in order; no more logits than those of a batch are in memory.

    The logits are those of the sample's source without padding: [S,V], [S,labels], [1,labels] or [S,2].
    `workers` threads take batches, each on its share of the cores.
    """
    results: dict[int, Result] = {}

    @torch.no_grad()
    def run(numbers: Sequence[int]) -> None:
        sources = [replace(samples[number], labels=()) for number in numbers]
        logits = model(collate(sources, BLOCK).to(device)).float().cpu()
        for row, number in enumerate(numbers):
            results[number] = work(number, logits[row, : len(samples[number].source)])

    batches = batches_by_length([len(sample.source) for sample in samples], tokens_per_batch)
    map_in_threads(run, batches, workers)
    return [results[number] for number in range(len(samples))]


def map_in_threads(run: Callable[[Sequence[int]], None], batches: Sequence[list[int]], workers: int) -> None:
    """Run every batch; an error in one ends the work after the batches that are running."""
    if min(workers, len(batches)) <= 1:
        for batch in batches:
            run(batch)
        return
    threads = worker_threads(min(workers, len(batches)))
    try:
        list(threads.map(run, batches))
    finally:
        threads.shutdown(cancel_futures=True)


def answers(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[Tensor]:
    """The logits of each sample, all in memory: for a few texts. See `map_logits` for the shapes."""
    total = sum(len(sample.source) for sample in samples)
    with one_core() if total <= FEW_TOKENS else nullcontext():
        workers = worker_count(device, total)
        return map_logits(
            model, samples, lambda number, logits: logits.clone(), tokens_per_batch, device, workers
        )


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
