"""The loss, as a sum and a count: accumulation and several processes divide once."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from regard.data import IGNORED


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Sum over the labels of (1 - eps) * -log p(label) + eps * mean over V of -log p  (paper, 5.4).

    logits [B,T,V], labels [B,T]; divide by `count(labels)` for the loss per token.
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float() if logits.dtype.itemsize < 4 else logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=smoothing,
    )


def count(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())
