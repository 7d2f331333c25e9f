"""Front ends: frames (patches of pictures, spectra of sounds) to the width of a model.

A front end maps `Frames` of F numbers to `Frames` of D numbers, at the positions that the encoder sees; from
there on all is as with text. Convolutions over time are linear maps of neighbouring frames, so that they are
batch-invariant and can be packed as every other `Linear`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Frames, FrameSize, Tokens
from regard.models.layers import Dropout, Linear, Tap, tapped
from regard.models.positions import Learned, Sinusoidal, sinusoid

KERNEL = 3  # frames that one step of a convolution reads


class ClassTokens(nn.Module):
    """Learned vectors before the frames: a class token (ViT), and a distillation token (AST)."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        for name in ("classes", "distillation")[:count]:
            self.register_parameter(name, nn.Parameter(torch.zeros(1, width)))

    def forward(self, frames: Frames) -> Frames:
        """[B,S,D] -> [B,N+S,D]; the positions of the frames follow those of the N tokens."""
        tokens = list(self.parameters())
        if not tokens:
            return frames
        x, places = frames.values, frames.positions
        first = torch.arange(len(tokens), device=x.device).expand(len(x), -1)
        rest = torch.where(places < 0, places, places + len(tokens))
        together = torch.cat([*(each.to(x.dtype).expand(len(x), -1, -1) for each in tokens), x], dim=1)
        return Frames(together, torch.cat([first, rest], dim=1), frames.padding)


class Patches(nn.Module):
    """x_i = W patch_i + b, behind learned class tokens  (Dosovitskiy et al. 2021, equation 1)."""

    def __init__(self, size: FrameSize, width: int, class_tokens: int) -> None:
        super().__init__()
        self.projection = Linear(size.width, width)
        self.tokens = ClassTokens(class_tokens, width)
        self.length, self.grid = size.length + class_tokens, size.grid or (size.length,)

    def forward(self, frames: Frames) -> Frames:
        x = self.projection(frames.values)  # [B,S,F] -> [B,S,D]
        out: Frames = self.tokens(Frames(x, frames.positions, frames.padding))
        return out


class PictureConvolution(nn.Module):
    """Two convolutions of 3 x 3, each with ReLU and max pooling by 2  (Hassani et al. 2021, 3.3)."""

    def __init__(self, size: FrameSize, width: int, class_tokens: int) -> None:
        super().__init__()
        if size.grid is None or len(size.grid) != 2:
            raise ValueError("a convolution of pictures needs patches in rows and columns")
        self.size, self.patches = size, size.grid
        self.first = nn.Conv2d(size.channels, width // 2, KERNEL, padding=1, bias=False)
        self.second = nn.Conv2d(width // 2, width, KERNEL, padding=1, bias=False)
        self.tokens = ClassTokens(class_tokens, width)
        for convolution in (self.first, self.second):
            nn.init.kaiming_normal_(convolution.weight)
        side = round((size.width // size.channels) ** 0.5)  # of a patch
        self.grid = tuple(-(-each * side // 4) for each in size.grid)  # both poolings round up
        self.length = self.grid[0] * self.grid[1] + class_tokens

    def forward(self, frames: Frames) -> Frames:
        x = self.picture(frames.values)  # [B,channels,H,W]
        for convolution in (self.first, self.second):
            # max(relu(x)) = relu(max(x)), on a quarter of the numbers
            x = F.relu(F.max_pool2d(convolution(x), KERNEL, stride=2, padding=1))
        x = x.flatten(2).mT  # [B,S,D]
        places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        out: Frames = self.tokens(Frames(x, places, "none"))
        return out

    def picture(self, patches: Tensor) -> Tensor:
        """The picture of its patches: [B,S,F] -> [B,channels,H,W]; S may be more, with padding at the end."""
        (rows, columns), channels = self.patches, self.size.channels
        side = round((self.size.width // channels) ** 0.5)
        patches = patches[:, : rows * columns]
        split = patches.reshape(len(patches), rows, columns, channels, side, side)
        return split.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), channels, rows * side, columns * side)


class SpectrumConvolution(nn.Module):
    """Two convolutions over time with GELU, the second halves the frames  (Radford et al. 2022, 2.2)."""

    def __init__(self, size: FrameSize, width: int) -> None:
        super().__init__()
        self.first = Linear(size.width * KERNEL, width)
        self.second = Linear(width * KERNEL, width)
        self.length = -(-size.length // 2)

    def forward(self, frames: Frames) -> Frames:
        x = F.gelu(self.first(neighbours(frames.values, 1)))  # [B,S,F] -> [B,S,D]
        if frames.padding != "none":  # a shorter row is followed by zeros, in every layer
            x = x.masked_fill((frames.positions < 0).unsqueeze(2), 0.0)
        x = F.gelu(self.second(neighbours(x, 2)))  # [B,ceil(S/2),D]
        places = frames.positions[:, ::2]  # a pair of frames is real if its first one is
        places = torch.where(places < 0, places, places // 2)
        return Frames(x.masked_fill((places < 0).unsqueeze(2), 0.0), places, frames.padding)


def neighbours(x: Tensor, stride: int) -> Tensor:
    """Each `stride`-th frame with the one before and the one after: [B,S,F] -> [B,ceil(S/stride),3F].

    The numbers of a channel stand together, as in the kernel of a convolution.
    """
    padded = F.pad(x, [0, 0, 1, 1])  # zeros before the first and behind the last
    return padded.unfold(1, KERNEL, stride).flatten(2)  # [B,ceil(S/stride),F,3]


FrontEnd = Patches | PictureConvolution | SpectrumConvolution


class FrameEmbedding(nn.Module):
    """front(frames) + position, then dropout: the counterpart of `TokenEmbedding`."""

    def __init__(
        self, front: FrontEnd, positions: Sinusoidal | SinusoidalGrid | Learned, dropout: float
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


def through_front(embedding: nn.Module, source: Tokens | Frames) -> Tokens | Frames:
    """What the encoder sees of its input: token ids as they are, frames behind the front end."""
    if isinstance(source, Frames) and isinstance(embedding, FrameEmbedding):
        out: Frames = embedding.front(source)
        return out
    return source
