"""How probable a model finds given targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.data import IGNORED, Batch, Sample, collate
from regard.decode.run import by_length
from regard.model.state import BLOCK


@torch.no_grad()
def score(
    model: Callable[[Batch], Tensor], samples: Sequence[Sample], tokens_per_batch: int, device: torch.device
) -> list[list[float]]:
    """log p of each label of each sample, in order; a sample's numbers do not depend on its neighbours."""
    found: list[list[float]] = [[] for _ in samples]
    lengths = [max(len(sample.source), len(sample.target)) for sample in samples]
    for numbers in by_length(lengths, tokens_per_batch):
        batch = collate([samples[number] for number in numbers], BLOCK).to(device)
        if batch.labels is None:
            raise ValueError("scoring needs labels")
        log_p = model(batch).float().log_softmax(dim=-1)  # [B,T,V]
        labels = batch.labels
        own = log_p.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)  # [B,T]
        for row, number in enumerate(numbers):
            found[number] = own[row][labels[row] != IGNORED].tolist()
    return found
