"""How order enters: without positions, attention and the dense layers are blind to it.

It is added to the embeddings (`Sinusoidal`, `Learned`), or it meets queries and keys inside every attention:
as a turn of both (`Rotary`) or as a number added to their scores (`RelativeBias`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.device import to_float64
from regard.errors import UsageError
from regard.models.tap import Tap

_FIRST = 1 << 20  # numbers of the waves that are computed beforehand


def sinusoid(
    positions: Tensor, width: int, dtype: torch.dtype = torch.float32, halves: bool = False
) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))  (paper, 3.5).

    Interleaved as the formula is written; or in halves, sines before cosines, as the paper's own program and
    Marian have them. Computed in float64: far positions need the digits.
    """
    place = to_float64(positions)
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=place.device)  # 2i
    angle = place[..., None] / 10000.0 ** (pair / width)  # [..., D/2]
    both = torch.stack([angle.sin(), angle.cos()], dim=-2 if halves else -1)
    return both.flatten(-2).to(dtype).to(positions.device)  # [..., D]


def may_exceed(module: nn.Module, positions: Tensor, length: int) -> bool:
    """Whether any position is `length` or more. Training batches of T tokens have positions below T, so that
    nothing is read from a GPU, which would wait for it in every forward."""
    if module.training and positions.device.type != "cpu" and positions.shape[-1] <= length:
        return False
    return bool(positions.numel()) and int(positions.max()) >= length


class Sinusoidal(nn.Module):
    """The paper's fixed waves. Nothing is learned and no position is too far."""

    limit: int | None = None

    def __init__(self, width: int, length: int, halves: bool = False) -> None:
        super().__init__()
        self.width, self.halves = width, halves
        self.table: Tensor
        rows = torch.arange(min(length, max(1, _FIRST // width)), device="cpu")  # more when they are needed
        self.register_buffer("table", self.waves(rows), persistent=False)

    def waves(self, positions: Tensor) -> Tensor:
        """[...] -> [...,D], each computed."""
        return sinusoid(positions, self.width, halves=self.halves)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; what padding (-1) gets is never seen."""
        table = self.table  # another thread may put one in its place
        if may_exceed(self, positions, len(table)):
            longer = torch.arange(2 * (int(positions.max()) + 1), device=table.device)
            # by way of the first table's type: a longer one must not change what was there
            self.table = table = self.waves(longer).to(table.dtype)
        return table[positions.clamp(min=0)]


class Learned(nn.Module):
    """One learned vector a position (paper, Table 3 row E); there are only so many."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.limit: int | None = length
        self.table = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; a sequence that is too long is an error: there is no vector for its end."""
        if may_exceed(self, positions, len(self.table)):
            raise UsageError(
                f"a sequence of {int(positions.max()) + 1} pieces is too long for this model: "
                f"it has learned {len(self.table)} positions"
            )
        return self.table[positions.clamp(min=0)]


@dataclass(frozen=True, slots=True)
class PositionTerms:
    """What the positions of one run mean to its attentions."""

    rotation: tuple[Tensor, Tensor] | None = None  # cosine and sine for each word: two of [B,1,T,C/2]
    bias: Tensor | None = None  # [B,H,T,S]

    def with_tap(self, tap: Tap) -> PositionTerms:
        turn = (
            None
            if self.rotation is None
            else (tap("cosine", self.rotation[0]), tap("sine", self.rotation[1]))
        )
        return PositionTerms(turn, None if self.bias is None else tap("bias", self.bias))


class Rotary(nn.Module):
    """Queries and keys turned by an angle that grows with their position (Su et al. 2021, equation 34):

    pair i of a head turns by pos * theta^(-2i/C), so that q . k depends on the distance alone.
    The pairs are (x_i, x_{i + C/2}), halves as in Llama and not neighbours as in the paper; the two differ by
    a permutation of the channels.
    """

    def __init__(self, channels: int, theta: float = 10000.0) -> None:
        super().__init__()
        self.channels, self.theta = channels, theta

    def forward(self, query_pos: Tensor, key_pos: Tensor) -> PositionTerms:
        """[B,T] -> the turn of the words of this run; keys from before were turned when they came."""
        place = to_float64(query_pos)
        pair = torch.arange(0, self.channels, 2, dtype=torch.float64, device=place.device)  # 2i
        angle = place[:, None, :, None] * self.theta ** (-pair / self.channels)  # [B,1,T,C/2]
        cosine, sine = angle.cos(), angle.sin()
        if place.device != query_pos.device:
            cosine, sine = (each.float().to(query_pos.device) for each in (cosine, sine))
        return PositionTerms(rotation=(cosine, sine))


def apply_rotary(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of channels: [B,H,T,C]."""
    cosine, sine = (part.to(x.dtype) for part in turn)
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * cosine - two * sine, two * cosine + one * sine], dim=-1)


class RelativeBias(nn.Module):
    """A learned number for each head and distance, added to the scores (T5; Raffel et al. 2020, 2.1).

    Near distances have a bucket each, far ones share buckets that widen with their logarithm.
    """

    def __init__(self, heads: int, both_ways: bool, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.both_ways, self.buckets, self.farthest = both_ways, buckets, farthest
        self.table = nn.Embedding(buckets, heads)

    def forward(self, query_pos: Tensor, key_pos: Tensor) -> PositionTerms:
        """[B,T], [B,S] -> [B,H,T,S]."""
        distance = key_pos[:, None, :] - query_pos[:, :, None]  # [B,T,S]
        return PositionTerms(bias=self.table(self.bucket(distance)).permute(0, 3, 1, 2))

    def bucket(self, distance: Tensor) -> Tensor:
        """Key position minus query position -> the number of its bucket."""
        buckets, first = self.buckets, torch.zeros_like(distance)
        if self.both_ways:  # half of them for what comes after
            buckets //= 2
            first = (distance > 0) * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = distance.clamp(min=1).float() / exact
        far = exact + (ratio.log() / math.log(self.farthest / exact) * (buckets - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))
