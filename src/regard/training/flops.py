"""Floating-point operations of a model, counted, and the peak rate of this machine, measured."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from regard.batch import Batch
from regard.device import Machine
from regard.models.families import Model
from regard.models.transformer import Stack
from regard.sample import IGNORED

PEAK_SECONDS = 0.6  # for measuring, at most
PEAK_SIZES = (512, 1024, 2048, 4096, 8192)
PEAK_ROUNDS = 3


def forward_flops(model: Model, rows: int, source: int, target: int, labels: int) -> int:
    """Of one forward pass over B rows of S source and T target tokens, padding included.

    A product of [m,k] and [k,n] costs 2mkn. As is customary, sums, norms, softmax and the embedding lookup
    are not counted. The output layer costs 2 DV for each label.
    """
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    if isinstance(encoder or decoder, Stack):
        row = 0 if encoder is None else stack_flops(encoder, source)
        row += 0 if decoder is None else stack_flops(decoder, target, source)
    else:
        row = recurrent_row(model, source, target)
    return rows * row + 2 * labels * model.output.weight.numel()


def stack_flops(stack: Stack, words: int, source: int = 0) -> int:
    """The blocks of an encoder (T tokens), or of a decoder with cross-attention to S source tokens.

    With width D, I = H * C channels in all heads and feed-forward F (2DF with a gate is 3DF):

        2T (4DI + 2DF)  +  4 T^2 I             self-attention and feed-forward
        2T (2DI)  +  2S (2DI)  +  4TSI         cross-attention: queries and output, keys and values, sums

    where 4 T^2 I is QK^T and the weighted sum of V, computed in full under a causal mask too.
    """
    block = next(iter(stack))
    inner = block.attention.cache_width
    cost = 2 * words * (weights_of(block.attention) + weights_of(block.feed_forward)) + 4 * words**2 * inner
    if block.cross is not None:  # half of its weights for queries and output, half for the source
        cost += (words + source) * weights_of(block.cross) + 4 * words * source * block.cross.cache_width
    return len(stack) * cost


def recurrent_row(model: Any, source: int, target: int) -> int:
    """One row of S source and T target tokens: each cell's weights once a token, the bridge once a layer;

    with attention   2S D^2 keys,  2T D^2 queries (additive),  2TSD scores,  2TSD the weighted sum of values
    """
    reading = 2 * source * weights_of(model.encoder)
    writing = 2 * target * (weights_of(model.decoder.layers) + weights_of(model.decoder.readout))
    bridge = 2 * len(model.decoder.layers) * weights_of(model.bridge)
    score = model.decoder.score
    if score is None:
        return int(reading + writing + bridge)
    keys = source * weights_of(getattr(score, "key", None))
    queries = target * weights_of(getattr(score, "query", None))
    sums = 2 * target * source * model.output.weight.shape[1]
    return int(reading + writing + bridge + 2 * (keys + queries + sums))


def weights_of(module: nn.Module | None) -> int:
    """Elements of the matrices of a module."""
    return sum(p.numel() for p in module.parameters() if p.dim() == 2) if module is not None else 0


def training_flops(model: Model, batch: Batch) -> int:
    """Forward and backward of a batch: 3 times forward, for each product Y = XW has the gradients
    dX = dY W^T and dW = X^T dY, of the same cost. The output layer is computed at labelled positions only."""
    if batch.labels is None:
        raise ValueError("a training batch has labels")
    source, target = (0 if side is None else side.positions.shape[1] for side in (batch.source, batch.target))
    labels = int((batch.labels != IGNORED).sum())
    return 3 * forward_flops(model, len(batch.labels), source, target, labels)


def measured_peak(machine: Machine) -> float:
    """Operations a second of the fastest of some large square matrix products, in the run's precision
    and threads, measured at this moment."""
    dtype = getattr(torch, machine.precision)
    best, began = 0.0, time.perf_counter()
    for size in PEAK_SIZES:
        matrix = torch.ones((size, size), dtype=dtype, device=machine.device)
        taken = min(timed_product(matrix) for _ in range(PEAK_ROUNDS))
        best = max(best, 2 * size**3 / taken)
        next_size = 8 * (PEAK_ROUNDS + 1) * taken  # seconds: twice the size is 8 times the work
        if time.perf_counter() - began + next_size > PEAK_SECONDS:
            break
    return best


def timed_product(matrix: torch.Tensor) -> float:
    began = time.perf_counter()
    product = matrix @ matrix
    product[-1, -1].item()  # waits for an asynchronous device
    return max(1e-9, time.perf_counter() - began)
