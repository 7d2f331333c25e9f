"""When each token of a transcription was spoken, read from the cross-attention as Whisper does.

The heads that follow the sound (`alignment_heads`) give weights over time for each token. Dynamic time
warping finds the path through them that only moves forward, with the largest sum.
Shapes: A heads, T decoder tokens, S positions of the encoder, n tokens of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Frames, Tokens, collate, tokens
from regard.models.attention import cross_mask
from regard.models.recorder import Recorder
from regard.sample import FrameArray, Sample

MEDIAN = 7  # positions of the filter that removes single peaks
Heads = Sequence[tuple[int, int]]  # (layer, head)
Matrix = NDArray[np.float64]


@torch.no_grad()
def token_positions(
    model: Any, encoded: FrameArray, prompt: Sequence[int], text: Sequence[int], heads: Heads, length: int
) -> list[int]:
    """For each of the n tokens of the text the position [0, length) where it begins, and where the last ends.

    The decoder reads `prompt` (the start token first) and `text`; `length` positions hold sound.
    """
    device = next(model.parameters()).device
    weights = cross_weights(model, encoded, [*prompt, *text], heads, device)[:, :, :length]  # [A,T,S]
    weights = weights / weights.sum(dim=2, keepdim=True)  # as if there were no other positions
    deviation, mean = torch.std_mean(weights, dim=1, keepdim=True, unbiased=False)  # over tokens
    matrix = median_filter((weights - mean) / deviation.clamp(min=1e-12)).mean(dim=0)  # [T,S]
    rows = matrix[len(prompt) - 1 :]  # the row of a token predicts the next one: [n+1,S]
    return first_columns(-rows.double().cpu().numpy())


def cross_weights(
    model: Any, encoded: FrameArray, ids: Sequence[int], heads: Heads, device: torch.device
) -> Tensor:
    """The weights of these heads of cross-attention: [A,T,S]."""
    source = collate([Sample(encoded)]).to(device).source
    target: Tokens = tokens([ids]).to(device)
    assert isinstance(source, Frames)
    names = {f"decoder.{layer}.cross.weights" for layer, _ in heads}
    recorder = Recorder(wanted=names.__contains__)
    memory = model.cross_keys_values(source.values)
    model.decode(target, memory, cross_mask(target, source, dense=True), recorder)
    recorded = recorder.tensors  # [1,H,T,S] each
    return torch.stack([recorded[f"decoder.{layer}.cross.weights"][0, head] for layer, head in heads]).float()


def usual_heads(layers: int, heads: int) -> list[tuple[int, int]]:
    """Where no file names the heads: all of the last half of the layers."""
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]


def median_filter(x: Tensor, width: int = MEDIAN) -> Tensor:
    """The median of `width` neighbours on the last axis: [A,T,S] -> [A,T,S]."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    padded = torch.nn.functional.pad(x, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).median(dim=-1).values


def first_columns(cost: Matrix) -> list[int]:
    """The first column of each row on the cheapest path from the first cell to the last: [n,m] -> n.

    D[i,j] = cost[i,j] + min(D[i-1,j-1], D[i-1,j], D[i,j-1]), computed by diagonals i + j.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0.0
    moves = np.zeros((rows + 1, columns + 1), dtype=np.int8)
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([total[i, j - 1], total[i - 1, j - 1], total[i - 1, j]])
        move = before.argmin(axis=0)
        moves[i, j] = move
        total[i, j] = cost[i - 1, j - 1] + before[move, np.arange(len(i))]
    firsts = [0] * rows
    i, j = rows, columns
    while i > 0 and j > 0:
        firsts[i - 1] = j - 1
        move = int(moves[i, j])
        i, j = i - (move > 0), j - (move < 2)
    return firsts
