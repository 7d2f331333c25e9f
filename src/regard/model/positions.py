"""How order enters: without positions, attention and the dense layers are blind to it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError


def sinusoid(positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))  (paper, 3.5).

    Interleaved as the formula is written. Computed in float64: far positions need the digits.
    """
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)  # 2i
    angle = positions.double()[..., None] / 10000.0 ** (pair / width)  # [..., D/2]
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(dtype)  # [..., D]


class Sinusoidal(nn.Module):
    """The paper's fixed waves. Nothing is learned and no position is too far."""

    limit: int | None = None

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", sinusoid(torch.arange(length), width), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; what padding (-1) gets is never seen."""
        farthest = int(positions.max()) + 1 if positions.numel() else 0
        if farthest > len(self.table):
            longer = torch.arange(2 * farthest, device=self.table.device)
            self.table = sinusoid(longer, self.table.shape[1], self.table.dtype)
        return self.table[positions.clamp(min=0)]


class Learned(nn.Module):
    """One learned vector a position (paper, Table 3 row E); there are only so many."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.limit: int | None = length
        self.table = nn.Parameter(torch.randn(length, width) * width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """[B,T] -> [B,T,D]; a sequence that is too long is an error: there is no vector for its end."""
        if positions.numel() and int(positions.max()) >= len(self.table):
            raise UsageError(
                f"a sequence of {int(positions.max()) + 1} pieces is too long for this model: "
                f"it has learned {len(self.table)} positions"
            )
        return self.table[positions.clamp(min=0)]
