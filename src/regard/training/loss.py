"""The loss as a sum and a count, so that accumulation and several processes divide only once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import Batch
from regard.data.dataset import Loss
from regard.device import Machine
from regard.models.families import Model
from regard.models.layers import is_plain
from regard.sample import IGNORED

# rows of logits computed at once: as many as fit the caches of a CPU; a GPU is faster with larger kernels
ROWS_AT_ONCE = {"cpu": 512}
ROWS_ON_DEVICE = 16_384

SMALLEST_P = 1e-30  # below it log p is computed from the logits


def batch_loss(model: Model, batch: Batch, kind: Loss, smoothing: float, machine: Machine) -> Tensor:
    """Sum over the labels; matrix products in the machine's precision, sums in float32."""
    if batch.labels is None:
        raise ValueError("a training batch needs labels")
    bfloat16, output = machine.precision == "bfloat16", model.output
    with torch.autocast(machine.device.type, torch.bfloat16, enabled=bfloat16):
        hidden = model.hidden(batch)
        in_portions = kind == "words" and is_plain(output)  # else it is an adapter with its own forward
        logits = None if in_portions else output(hidden)
    if logits is None:
        dtype = torch.bfloat16 if bfloat16 else None
        return output_cross_entropy(hidden, output.weight, batch.labels, smoothing, dtype, output.bias)
    if kind == "words":
        return cross_entropy(logits.float(), batch.labels, smoothing)
    if kind == "ends" and batch.source is not None:
        return span_cross_entropy(logits, batch.labels, batch.source.positions)
    return multi_label_cross_entropy(logits, batch.labels)


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
    """`cross_entropy` of the logits `hidden @ weight^T + bias`, which are never all in memory.

    hidden [B,T,D], weight [V,D], labels [B,T]. Products are computed in `dtype`, sums in float32 or wider.
    """
    labelled = labels.flatten() != IGNORED
    rows, gold = hidden.flatten(0, 1)[labelled], labels.flatten()[labelled]  # [M,D]: padding costs nothing
    total: Tensor = _OutputCrossEntropy.apply(rows, weight, bias, gold, smoothing, dtype)  # type: ignore[no-untyped-call]
    return total


def span_cross_entropy(logits: Tensor, labels: Tensor, positions: Tensor) -> Tensor:
    """Of two softmaxes over the positions of a row: the first and the last token of an answer.

    logits [B,S,2], labels [B,2], positions [B,S]; padding (-1) is masked.
    """
    masked = logits.float().masked_fill(positions[..., None] < 0, float("-inf")).transpose(1, 2)  # [B,2,S]
    return F.cross_entropy(masked.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def multi_label_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of each label: logits [B,1,L], labels [B,L] of 0 and 1."""
    wide = logits[:, 0].float()
    weight = (labels != IGNORED).to(wide.dtype)
    return F.binary_cross_entropy_with_logits(wide, labels.to(wide.dtype), weight, reduction="sum")


class _OutputCrossEntropy(torch.autograd.Function):
    """Computes the gradients together with the loss, portion by portion, while the logits are in the cache.

    With p = softmax(z) and V tokens:  d loss / d z = p - (1 - eps) * onehot(label) - eps / V.
    The last term is the same for all logits and needs no pass over them: it is subtracted from the sums.
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
        b = None if bias is None else bias.to(h.dtype)
        wide = torch.promote_types(h.dtype, torch.float32)
        grad_hidden = torch.empty(hidden.shape, dtype=wide, device=hidden.device)
        grad_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device)
        grad_bias = torch.zeros(len(weight), dtype=wide, device=weight.device)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        portion = ROWS_AT_ONCE.get(h.device.type, ROWS_ON_DEVICE)
        buffer = h.new_empty(
            (2, min(portion, len(labels)), len(w))
        )  # new memory each time costs a third more
        for start in range(0, len(labels), portion):
            rows = slice(start, start + portion)
            gold = labels[rows].unsqueeze(1)  # [m,1]
            z = torch.mm(h[rows], w.T, out=buffer[0, : len(gold)])  # [m,V]
            if b is not None:
                z += b
            p = torch.softmax(z, dim=1, out=buffer[1, : len(gold)])
            log_p = log_of_gold(z, p, gold, wide)  # [m,1]
            total += smoothing * z.gather(1, gold).sum(dtype=wide) - log_p.sum()
            set_columns(p, gold, log_p.exp() - (1 - smoothing))
            grad_hidden[rows] = p @ w
            grad_weight += p.T @ h[rows]
            if b is not None:
                grad_bias += p.sum(dim=0, dtype=wide)
        if smoothing:
            even, all_h, all_w = smoothing / len(w), h.sum(0, dtype=wide), w.sum(0, dtype=wide)
            total -= even * (all_h @ all_w)  # eps * mean of z
            grad_hidden -= even * all_w
            grad_weight -= even * all_h
            if b is not None:
                total -= even * len(labels) * b.sum(dtype=wide)
                grad_bias -= even * len(labels)
        ctx.has_bias = b is not None
        ctx.save_for_backward(grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype), grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *scale: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        hidden, weight, bias = ctx.saved_tensors
        grad_bias = bias * scale[0] if ctx.has_bias else None
        return hidden * scale[0], weight * scale[0], grad_bias, None, None, None


def log_of_gold(z: Tensor, p: Tensor, gold: Tensor, wide: torch.dtype) -> Tensor:
    """log p(label), precise where p has few bits: [m,V], its softmax, [m,1] -> [m,1].

    Near 1, where the gradient is the small difference of p and 1, from the sum of the other probabilities;
    near 0, where p may underflow, from the logits.
    """
    p_gold = p.gather(1, gold).to(wide)
    set_columns(p, gold, torch.zeros_like(p_gold))
    others = p.sum(dim=1, keepdim=True).to(wide)
    log_p = torch.where(p_gold < 0.5, p_gold.log(), torch.log1p(-others))
    lost = p_gold[:, 0] < SMALLEST_P
    if z.device.type != "cpu":  # for all rows: to ask whether there are any would wait for the device
        exact = z.gather(1, gold).to(wide) - z.to(wide).logsumexp(dim=1, keepdim=True)
        return torch.where(lost[:, None], exact, log_p)
    if lost.any():
        few = z[lost].to(wide)
        log_p[lost] = few.gather(1, gold[lost]) - few.logsumexp(dim=1, keepdim=True)
    return log_p


def set_columns(p: Tensor, columns: Tensor, values: Tensor) -> None:
    """Set one value in each row; `scatter_` would copy all of them."""
    p[torch.arange(len(p), device=p.device), columns[:, 0]] = values[:, 0].to(p.dtype)


def count(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())
