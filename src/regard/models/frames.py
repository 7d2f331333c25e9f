"""Models of pictures and sounds. Front ends map frames (patches, spectra) to the width of a model.

A front end maps `Frames` of F numbers to `Frames` of D numbers, at the positions that the encoder sees; from
there on all is as with text. Convolutions over time are linear maps of neighbouring frames, so that they are
batch-invariant and can be packed as every other `Linear`.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Frames, FrameSize
from regard.config.model import ASTConfig, FrameModelConfig, ViTConfig, ViTGPTConfig, WhisperConfig
from regard.models.attention import MultiHeadAttention
from regard.models.encoder import POOLS, EncoderOnly
from regard.models.families import Parts, init_glorot
from regard.models.layers import ACTIVATIONS, FeedForward, Linear, PreNorm
from regard.models.positions import FrameEmbedding, Learned, Sinusoidal, SinusoidalGrid, TokenEmbedding
from regard.models.transformer import EncoderDecoder

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
        if torch.is_grad_enabled():  # pooling is then twice as fast
            x = x.contiguous(memory_format=torch.channels_last)
        for convolution in (self.first, self.second):
            # max(relu(x)) = relu(max(x)), on a quarter of the numbers
            x = F.relu(F.max_pool2d(convolved(convolution, x), KERNEL, stride=2, padding=1))
        x = x.flatten(2).mT  # [B,S,D]
        places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        out: Frames = self.tokens(Frames(x, places, "none"))
        return out

    def picture(self, patches: Tensor) -> Tensor:
        """The picture of its patches: [B,S,F] -> [B,channels,H,W]; S may be more, with padding at the end."""
        (rows, columns), channels = self.patches, self.size.channels
        side = round((self.size.width // channels) ** 0.5)
        real = patches[:, : rows * columns]  # a batch may be padded on the right
        split = real.reshape(len(patches), rows, columns, channels, side, side)
        return split.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), channels, rows * side, columns * side)


class SpectrogramConvolution(nn.Module):
    """Two convolutions of 3 x 3 over times and mels, each with ReLU and max pooling by 2, then a linear map
    for each time  (Dong et al. 2018, 3.3)."""

    def __init__(self, size: FrameSize, width: int, class_tokens: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width // 4, KERNEL, padding=1, bias=False)
        self.second = nn.Conv2d(width // 4, width // 2, KERNEL, padding=1, bias=False)
        self.projection = Linear(width // 2 * -(-size.width // 4), width)
        self.tokens = ClassTokens(class_tokens, width)
        for convolution in (self.first, self.second):
            nn.init.kaiming_normal_(convolution.weight)
        self.length = -(-size.length // 4) + class_tokens
        self.grid = (self.length - class_tokens,)

    def forward(self, frames: Frames) -> Frames:
        x, real = frames.values.unsqueeze(1), frames.positions >= 0  # [B,1,T,mels], [B,T]
        for convolution in (self.first, self.second):
            # zeros behind a shorter row, in every layer; none of them is the largest after ReLU
            x = F.relu(convolved(convolution, x, real)).masked_fill(~real[:, None, :, None], 0.0)
            x, real = F.max_pool2d(x, 2, ceil_mode=True), real[:, ::2]
        x = self.projection(x.transpose(1, 2).flatten(2)).masked_fill(~real.unsqueeze(2), 0.0)  # [B,S,D]
        places = torch.arange(x.shape[1], device=x.device).masked_fill(~real, -1)
        out: Frames = self.tokens(Frames(x, places, frames.padding))
        return out


def convolved(convolution: nn.Conv2d, x: Tensor, real: Tensor | None = None) -> Tensor:
    """[B,C,H,W]; at inference on a CPU picture by picture, since kernels for batches round differently.

    `real`: which rows of a picture are no padding, bool [B,H]; they are convolved alone.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        out: Tensor = convolution(x)
        return out
    if real is None:
        return torch.cat([convolution(row) for row in x[:, None]])
    lengths = real.sum(dim=1).tolist()
    rows = [convolution(row[:, :, :length]) for row, length in zip(x[:, None], lengths)]
    return torch.cat([F.pad(row, [0, 0, 0, x.shape[2] - row.shape[2]]) for row in rows])


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


def build_frame_model(
    config: FrameModelConfig, size: FrameSize, outputs: int | None
) -> EncoderOnly | EncoderDecoder:
    """`outputs` is the number of labels, or of tokens."""
    if isinstance(config, ViTConfig | ASTConfig):
        return vit(config, size, outputs or 2)
    if outputs is None:
        raise ValueError("a model that writes text needs a vocabulary")
    return frames_to_text(config, size, outputs)


def frame_parts(config: FrameModelConfig, activation: str, epsilon: float) -> Parts:
    """Pre-norm blocks of encoders of frames, and of the decoders above them."""
    return Parts(
        attention=partial(MultiHeadAttention, config.width, config.heads, config.channels),
        feed_forward=partial(FeedForward, config.width, config.feed_forward, ACTIVATIONS[activation]),
        norm=partial(nn.LayerNorm, config.width, eps=epsilon),
        residual=PreNorm,
        dropout=config.dropout,
    )


def frame_embedding(config: FrameModelConfig, size: FrameSize) -> FrameEmbedding:
    if config.front == "spectrum":
        spectrum = SpectrumConvolution(size, config.width)
        waves = Sinusoidal(config.width, spectrum.length, halves=True, denominator=config.width - 2)
        return FrameEmbedding(spectrum, waves, config.dropout)
    kind: type[Patches | PictureConvolution | SpectrogramConvolution] = Patches
    if config.front == "convolution":
        kind = SpectrogramConvolution if size.grid is None else PictureConvolution
    front = kind(size, config.width, config.class_tokens)
    if config.positions == "sinusoidal":
        places = SinusoidalGrid(config.width, front.grid, config.class_tokens)
        return FrameEmbedding(front, places, config.dropout)
    return FrameEmbedding(front, Learned(config.width, front.length), config.dropout)


def vit(config: ViTConfig | ASTConfig, size: FrameSize, labels: int) -> EncoderOnly:
    """ViT (Dosovitskiy et al. 2021), and AST (Gong et al. 2021), whose head has a norm."""
    stack = frame_parts(config, config.activation, config.epsilon).stack(config.layers)
    head = nn.LayerNorm(config.width, eps=config.epsilon) if config.family == "ast" else nn.Identity()
    output = Linear(config.width, labels)
    model = EncoderOnly(frame_embedding(config, size), stack, head, output, POOLS[config.pool])
    init_glorot(model)
    return model


def frames_to_text(config: WhisperConfig | ViTGPTConfig, size: FrameSize, vocabulary: int) -> EncoderDecoder:
    """Whisper (Radford et al. 2022), or a ViT with a GPT-2: an encoder of frames and a decoder of text."""
    encoder_layers, decoder_layers = config.depth
    encoder = decoder = frame_parts(config, config.activation, config.epsilon)
    if isinstance(config, ViTGPTConfig):
        decoder = frame_parts(config, "gelu_tanh", config.decoder_epsilon)  # GPT-2's
    words = nn.Embedding(vocabulary, config.width)
    model = EncoderDecoder(
        source=frame_embedding(config, size),
        target=TokenEmbedding(words, Learned(config.width, config.max_length), config.dropout),
        encoder=encoder.stack(encoder_layers),
        decoder=decoder.stack(decoder_layers, cross=True),
        output=Linear(config.width, vocabulary, bias=False),
    )
    init_glorot(model)
    if config.tie_embeddings:
        model.output.weight = words.weight
    return model
