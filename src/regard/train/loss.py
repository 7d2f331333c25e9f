"""The loss, as a sum and a count: accumulation and several processes divide once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data import IGNORED, Batch
from regard.data.objectives.base import Loss
from regard.machine import Machine
from regard.model import Model

ROWS_AT_ONCE = 256  # logits of so many tokens fit the caches of a CPU; all at once would go through memory


def batch_loss(model: Model, batch: Batch, kind: Loss, smoothing: float, machine: Machine) -> Tensor:
    """The sum over the labels; products in the precision of the machine, sums in float32."""
    if batch.labels is None:
        raise ValueError("a training batch needs labels")
    half, output = machine.precision == "bfloat16", model.output
    with torch.autocast(machine.device.type, torch.bfloat16, enabled=half):
        hidden = model.hidden(batch)
        logits = output(hidden) if kind != "words" else None
    if logits is None:
        dtype = torch.bfloat16 if half else None
        return output_cross_entropy(hidden, output.weight, batch.labels, smoothing, dtype, output.bias)
    if kind == "ends" and batch.source is not None:
        return ends_cross_entropy(logits, batch.labels, batch.source.positions)
    return many_cross_entropy(logits, batch.labels)


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Sum over the labels of (1 - eps) * -log p(label) + eps * mean over V of -log p  (paper, 5.4).

    logits [B,T,V], labels [B,T]; divide by `count(labels)` for the loss per token.
    """
    return F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=smoothing,
    )


def output_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float = 0.0,
    dtype: torch.dtype | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`cross_entropy` of the logits `hidden @ weight^T + bias`, which are never held as a whole.

    hidden [B,T,D], weight [V,D], labels [B,T]. Products are computed in `dtype`, sums in float32 or wider.
    """
    asked = labels.flatten() != IGNORED
    rows, gold = hidden.flatten(0, 1)[asked], labels.flatten()[asked]  # [M,D]: padding costs nothing here
    total: Tensor = _OutputCrossEntropy.apply(rows, weight, bias, gold, smoothing, dtype)  # type: ignore[no-untyped-call]
    return total


def ends_cross_entropy(logits: Tensor, labels: Tensor, positions: Tensor) -> Tensor:
    """Of two softmaxes over the positions of a row, for the first and the last piece of an answer.

    logits [B,S,2], labels [B,2], positions [B,S] of which padding (-1) is no answer.
    """
    seen = logits.float().masked_fill(positions[..., None] < 0, float("-inf")).transpose(1, 2)  # [B,2,S]
    return F.cross_entropy(seen.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def many_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """A yes or no for each label: logits [B,1,L], labels [B,L] of 0 and 1."""
    wide = logits[:, 0].float()
    asked = (labels != IGNORED).to(wide.dtype)
    gold = labels.to(wide.dtype)
    return F.binary_cross_entropy_with_logits(wide, gold, asked, reduction="sum")


class _OutputCrossEntropy(torch.autograd.Function):
    """Computes the gradients beside the loss, portion by portion, while the logits are in the cache.

    With p = softmax(logits) and V words:  d loss / d logits = p - (1 - eps) * onehot(label) - eps / V.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype | None,
    ) -> Tensor:
        h, w = hidden.to(dtype or hidden.dtype), weight.to(dtype or weight.dtype)
        wide = torch.promote_types(h.dtype, torch.float32)
        grad_hidden = torch.empty(hidden.shape, dtype=wide, device=hidden.device)
        grad_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device)
        grad_bias = None if bias is None else torch.zeros(bias.shape, dtype=wide, device=bias.device)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        for start in range(0, len(labels), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            gold = labels[rows].unsqueeze(1)  # [m,1]
            logits = (h[rows] @ w.T).to(wide)  # [m,V]
            if bias is not None:
                logits += bias
            said = (1 - smoothing) * logits.gather(1, gold).sum()
            if smoothing:
                said = said + smoothing * logits.mean(dim=1).sum()
            highest = logits.amax(dim=1, keepdim=True)
            p = logits.sub_(highest).exp_()  # the logits are not needed any more
            sums = p.sum(dim=1, keepdim=True)
            total += (highest + sums.log()).sum() - said
            gradient = p.div_(sums).sub_(smoothing / p.shape[1])
            gradient.scatter_add_(1, gold, torch.full_like(gold, -(1 - smoothing), dtype=wide))
            if grad_bias is not None:
                grad_bias += gradient.sum(dim=0)
            narrow = gradient.to(h.dtype)
            grad_hidden[rows] = (narrow @ w).to(wide)
            grad_weight += narrow.T @ h[rows]
        ctx.save_for_backward(grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype), grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *scale: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        hidden, weight, bias = ctx.saved_tensors
        own = None if bias is None else bias * scale[0]
        return hidden * scale[0], weight * scale[0], own, None, None, None


def count(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())
