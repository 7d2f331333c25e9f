"""Embeddings and positions. Without positions attention and feed-forward layers ignore the order of tokens.

Added to the embeddings (`Sinusoidal`, `Learned`), or applied inside every attention: a rotation of queries
and keys (`Rotary`) or a bias on the scores (`RelativeBias`, `Alibi`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Frames, Tokens
from regard.errors import UsageError
from regard.models.layers import Dropout, Tap, tapped, to_float64

if TYPE_CHECKING:
    from regard.config.model import RopeScaling

FIRST_POSITIONS = 128  # computed in advance: a table for the longest text takes longer than a translation


def sinusoid(
    positions: Tensor,
    width: int,
    dtype: torch.dtype = torch.float32,
    halves: bool = False,
    denominator: int | None = None,
) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))  (paper, 3.5).

    Interleaved as in the formula; or in halves, sines before cosines. tensor2tensor, Marian, fairseq and
    Whisper divide 2i by D - 2 instead of D (`denominator`), which transformers does not do for Marian.
    Computed in float64: large positions need the precision.
    """
    place = to_float64(positions)
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=place.device)  # 2i
    angle = place[..., None] / 10000.0 ** (pair / (denominator or width))  # [..., D/2]
    both = torch.stack([angle.sin(), angle.cos()], dim=-2 if halves else -1)
    return both.flatten(-2).to(dtype).to(positions.device)  # [..., D]


def may_exceed(module: nn.Module, positions: Tensor, length: int) -> bool:
    """Whether any position is `length` or more. In training, positions are below T: no check on a GPU, which
    would synchronise in every forward."""
    if module.training and positions.device.type != "cpu" and positions.shape[-1] <= length:
        return False
    return bool(positions.numel()) and int(positions.max()) >= length


class Sinusoidal(nn.Module):
    """The sinusoids of the paper: not learned, no maximum position."""

    limit: int | None = None

    def __init__(
        self,
        width: int,
        length: int,
        first: int = 0,
        halves: bool = False,
        denominator: int | None = None,
    ) -> None:
        super().__init__()
        self.width, self.halves, self.denominator = width, halves, denominator
        self.first = first  # what the first token has instead of 0: M2M100
        self.table: Tensor
        rows = torch.arange(min(length, FIRST_POSITIONS), device="cpu")  # extended on demand
        self.register_buffer("table", self.waves(rows), persistent=False)

    def waves(self, positions: Tensor) -> Tensor:
        """[...] -> [...,D], computed."""
        places = positions + self.first
        return sinusoid(places, self.width, halves=self.halves, denominator=self.denominator)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; the vectors at padding (-1) are masked later."""
        table = self.table  # another thread may replace it
        if may_exceed(self, positions, len(table)):
            longer = torch.arange(2 * (int(positions.max()) + 1), device="cpu")
            # on the CPU, and in the type of the first table: extending must not change existing rows
            self.table = table = self.waves(longer).to(table.device, table.dtype)
        return table[positions.clamp(min=0)]


class Learned(nn.Module):
    """One learned vector for each position (paper, Table 3 row E), up to `length`.

    RoBERTa and BART have rows that no token uses before the one of the first position, `first`.
    """

    def __init__(self, width: int, length: int, first: int = 0) -> None:
        super().__init__()
        self.limit: int | None = length
        self.first = first
        self.table = nn.Parameter(torch.empty(first + length, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; a sequence that is too long is an error."""
        length = len(self.table) - self.first
        if may_exceed(self, positions, length):
            raise UsageError(
                f"a sequence of {int(positions.max()) + 1} tokens is too long for this model: "
                f"it has learned {length} positions",
                code="E_TOO_LONG",
            )
        return self.table[positions.clamp(min=0) + self.first]


class SinusoidalGrid(nn.Module):
    """Sinusoids of the rows in one half of the channels, of the columns in the other; 0 for class tokens."""

    def __init__(self, width: int, grid: tuple[int, ...], class_tokens: int) -> None:
        super().__init__()
        parts = len(grid)
        shares = [width // parts // 2 * 2] * (parts - 1)
        shares.append(width - sum(shares))
        axes = torch.meshgrid(*(torch.arange(each, device="cpu") for each in grid), indexing="ij")
        waves = [sinusoid(axis.flatten(), share) for axis, share in zip(axes, shares)]
        table = torch.cat([torch.zeros(class_tokens, width, device="cpu"), torch.cat(waves, dim=1)])
        self.limit: int | None = len(table)
        self.table: Tensor
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,S] -> [B,S,D]."""
        return self.table[positions.clamp(min=0)]


class TokenEmbedding(nn.Module):
    """embedding(token) * sqrt(D) + position  (paper, 3.4 and 3.5), then dropout (5.4).

    Other families omit the factor (GPT, BERT, T5), use positions inside attention (`positions` None: T5,
    Llama), add segment embeddings (`segments`: BERT) or normalise the sum (BERT).
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: Sinusoidal | Learned | None,
        dropout: float,
        factor: float = 1.0,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.factor = factor
        self.segments = segments
        self.norm = norm
        self.dropout = Dropout(dropout)

    @property
    def limit(self) -> int | None:
        """Maximum number of positions; None if unlimited."""
        return None if self.positions is None else self.positions.limit

    def front(self, source: Tokens | Frames) -> Tokens | Frames:
        """What the encoder sees of its input: token ids as they are; a `FrameEmbedding` has a front end."""
        return source

    def forward(
        self, ids: Tensor, positions: Tensor, tap: Tap | None = None, segments: Tensor | None = None
    ) -> Tensor:
        x = tapped(tap, "tokens", self.tokens(ids) * self.factor)  # [B,T,D]
        if self.positions is not None:
            x = x + tapped(tap, "positions", self.positions(positions))
        if self.segments is not None:
            last = self.segments.num_embeddings - 1  # one for both texts: RoBERTa
            which = torch.zeros_like(ids) if segments is None else segments.clamp(max=last)
            x = x + tapped(tap, "segments", self.segments(which))
        x = tapped(tap, "sum", x)
        if self.norm is not None:
            x = self.norm(x)
        return tapped(tap, "out", self.dropout(x))


class FrameEmbedding(nn.Module):
    """front(frames) + position, then dropout: the counterpart of `TokenEmbedding`."""

    def __init__(
        self, front: nn.Module, positions: Sinusoidal | SinusoidalGrid | Learned, dropout: float
    ) -> None:
        super().__init__()
        self.front = front
        self.positions = positions
        self.dropout = Dropout(dropout)

    @property
    def limit(self) -> int | None:
        return self.positions.limit

    def forward(
        self, values: Tensor, positions: Tensor, tap: Tap | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Frames behind the front end: [B,S,D] -> [B,S,D]."""
        x = tapped(tap, "tokens", values)
        x = tapped(tap, "sum", x + tapped(tap, "positions", self.positions(positions)))
        return tapped(tap, "out", self.dropout(x))


Embedding = TokenEmbedding | FrameEmbedding


@dataclass(frozen=True, slots=True)
class PositionTerms:
    """What positions contribute to every attention of a stack."""

    rotation: tuple[Tensor, Tensor] | None = None  # cosine and sine for each token: two of [B,1,T,C/2]
    bias: Tensor | None = None  # [B,H,T,S]

    def to(self, dtype: torch.dtype) -> PositionTerms:
        """With the rotation in the precision of the hidden states."""
        rotation = None if self.rotation is None else (self.rotation[0].to(dtype), self.rotation[1].to(dtype))
        return PositionTerms(rotation, self.bias)

    def without_bias(self) -> PositionTerms:
        return PositionTerms(self.rotation)

    def with_tap(self, tap: Tap) -> PositionTerms:
        rotation = self.rotation
        if rotation is not None:
            rotation = tap("cosine", rotation[0]), tap("sine", rotation[1])
        return PositionTerms(rotation, None if self.bias is None else tap("bias", self.bias))


NO_TERMS = PositionTerms()  # positions are added to the embeddings, or there are none


class Rotary(nn.Module):
    """Rotary position embedding of queries and keys (Su et al. 2021, equation 34):

    pair i of a head is rotated by pos * theta^(-2i/C), so that q . k depends on the distance only.
    The pairs are (x_i, x_{i + C/2}) as in Llama, not adjacent channels as in the paper; the two differ by a
    permutation of the channels. Of GPT-NeoX only the first pairs rotate (`rotated` channels).
    """

    def __init__(
        self,
        channels: int,
        theta: float = 10000.0,
        scaling: RopeScaling | None = None,
        rotated: int | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.theta, self.scaling = channels, theta, scaling
        self.rotated = rotated or channels

    def forward(self, query_pos: Tensor, key_pos: Tensor) -> PositionTerms:
        """[B,T] -> the rotation of these tokens; cached keys are already rotated."""
        place = to_float64(query_pos)
        angle = place[:, None, :, None] * self.frequencies(place.device)  # [B,1,T,C/2]
        cosine, sine = angle.cos(), angle.sin()
        if place.device != query_pos.device:
            cosine, sine = (each.float().to(query_pos.device) for each in (cosine, sine))
        return PositionTerms(rotation=(cosine, sine))

    def frequencies(self, device: torch.device) -> Tensor:
        """Angle of each pair at position 1: [C/2]; 0 for those that do not rotate."""
        pair = torch.arange(0, self.rotated, 2, dtype=torch.float64, device=device)  # 2i
        frequency = self.theta ** (-pair / self.rotated)
        frequency = F.pad(frequency, [0, (self.channels - self.rotated) // 2])
        return frequency if self.scaling is None else scale_frequencies(frequency, self.scaling)


def scale_frequencies(frequency: Tensor, scaling: RopeScaling) -> Tensor:
    """Frequencies f for texts `factor` times as long: f / factor; or as in Llama 3.1, with r = L f / (2 pi)
    waves in a text of the original length L, f / factor if r < low, f if r > high, linear between them."""
    divided = frequency / scaling.factor
    if scaling.kind == "linear":
        return divided
    waves = scaling.original_length * frequency / (2 * math.pi)
    share = (waves - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
    return torch.lerp(divided, frequency, share.clamp(0.0, 1.0))


def apply_rotary(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of channels: [B,H,T,C]."""
    cosine, sine = (part.to(x.dtype) for part in rotation)
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * cosine - two * sine, two * cosine + one * sine], dim=-1)


class RelativeBias(nn.Module):
    """A learned bias for each head and distance, added to the scores (T5; Raffel et al. 2020, 2.1).

    Small distances have a bucket each; larger ones share buckets of logarithmic size.
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
        """Key position minus query position -> index of the bucket."""
        buckets, first = self.buckets, torch.zeros_like(distance)
        if self.both_ways:  # half of the buckets for keys after the query
            buckets //= 2
            first = (distance > 0) * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = distance.clamp(min=1).float() / exact
        far = exact + (ratio.log() / math.log(self.farthest / exact) * (buckets - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


class Alibi(nn.Module):
    """ALiBi (Press et al. 2022): -m |i - j| is added to the scores, with a slope m for each head.

    Nothing is learned, and texts may be longer than those of the training.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes: Tensor
        slopes = torch.tensor(alibi_slopes(heads), dtype=torch.float32, device="cpu")
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, query_pos: Tensor, key_pos: Tensor) -> PositionTerms:
        """[B,T], [B,S] -> [B,H,T,S]."""
        distance = (key_pos[:, None, None, :] - query_pos[:, None, :, None]).abs()
        return PositionTerms(bias=-self.slopes[:, None, None] * distance)


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8/H), 2^(-16/H) ... 2^-8; where H is no power of two, those of the power below, then every second
    one of the power above."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = (2.0 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2))
    return [*slopes, *between][:heads]


AttentionPositions = Rotary | RelativeBias | Alibi  # what a stack passes to all its attentions
