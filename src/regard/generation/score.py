"""log p of given targets, and logits of given sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.generation.generate import batches_by_length
from regard.models.state import BLOCK
from regard.sample import IGNORED, Sample


@torch.no_grad()
def score(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[list[float]]:
    """log p of each label of each sample, in order; independent of the batch."""
    scores: list[list[float]] = [[] for _ in samples]
    lengths = [max(len(sample.source), len(sample.target)) for sample in samples]
    for numbers in batches_by_length(lengths, tokens_per_batch):
        batch = collate([samples[number] for number in numbers], BLOCK).to(device)
        if batch.labels is None:
            raise ValueError("scoring needs labels")
        log_p = model(batch).float().log_softmax(dim=-1)  # [B,T,V]
        labels = batch.labels
        log_p = log_p[:, : labels.shape[1]]  # without padding behind all labels
        chosen = log_p.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)  # [B,T]
        for row, number in enumerate(numbers):
            scores[number] = chosen[row][labels[row] != IGNORED].tolist()
    return scores


@torch.no_grad()
def answers(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[Tensor]:
    """The logits of each sample's source, in order and without padding.

    [S,V], [S,labels], [1,labels] or [S,2].
    """
    found: list[Tensor] = [torch.empty(0)] * len(samples)
    for numbers in batches_by_length([len(sample.source) for sample in samples], tokens_per_batch):
        bare = [replace(samples[number], labels=()) for number in numbers]
        logits = model(collate(bare, BLOCK).to(device)).float().cpu()
        for row, number in enumerate(numbers):
            found[number] = logits[row, : len(samples[number].source)].clone()
    return found


def ranked_ends(logits: Tensor, begins: int, longest: int) -> Iterator[tuple[int, int, float]]:
    """Answers by the sum of their two ends, the highest first, as (first piece, last piece, sum).

    logits [S,2] of one window; an answer stands from piece `begins` on and has at most `longest` pieces; the
    end of the text is none. The sum is told relative to that of "no answer", which is the start's place.
    """
    first, last = logits[begins:-1].unbind(dim=1)  # [C] each
    sums = first[:, None] + last[None, :] - logits[0].sum()  # [C,C]
    allowed = torch.ones_like(sums, dtype=torch.bool).triu().tril(longest - 1)
    places = allowed.nonzero()  # [A,2]
    scores, order = sums[allowed].sort(descending=True, stable=True)
    for score, number in zip(scores, order):
        start, end = places[number].tolist()
        yield begins + start, begins + end, float(score)
