"""Sources through a packed encoder without their padding: rows that nobody looks at are not computed.

Products and norms see the words alone, one after the other; only attention sees them in their columns. What a
word gives does not depend on how many rows there are, so it is the same as with the padding.
Shapes: N sources, S columns, T words in all of them, H heads, C channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.batch import Tokens
from regard.models.attention import attend, visible
from regard.models.layers import PostNorm, PreNorm
from regard.models.transformer import EncoderDecoder


class Unpad:
    """Where the words of a batch stand among its padding."""

    def __init__(self, positions: Tensor) -> None:
        """[N,S], -1 where there is no word."""
        self.sources, self.columns = positions.shape
        self.of_words = (positions.flatten() >= 0).nonzero()[:, 0]  # [T]

    def words(self, x: Tensor) -> Tensor:
        """[N,S,...] -> [T,...]."""
        return x.flatten(0, 1).index_select(0, self.of_words)

    def spread(self, x: Tensor, heads: int, parts: int) -> Tensor:
        """Several maps of each word, cut into heads, zero where no word stands: [T,P*H*C] -> [P,N,H,S,C]."""
        all_columns = x.new_zeros((self.sources * self.columns, x.shape[1]))
        all_columns.index_copy_(0, self.of_words, x)
        shape = (self.sources, self.columns, parts, heads, x.shape[1] // (parts * heads))
        return all_columns.view(shape).permute(2, 0, 3, 1, 4)


@torch.no_grad()
def encode_packed(model: EncoderDecoder, source: Tokens, places: Unpad) -> Tensor:
    """What the encoder makes of each word of a packed model's sources: [T,D]."""
    ids, positions = (places.words(each)[None] for each in (source.ids, source.positions))
    x: Tensor = model.source(ids, positions)[0]  # [T,D]
    mask = visible(source.positions, source.positions, causal=False)  # [N,1,S,S]
    for block in model.encoder:
        attention: Any = block.attention
        y = before(block.attention_residual, x)
        q, k, v = places.spread(attention.all(y), attention.heads, 3).unbind(0)
        z = attend(q, k, v, mask, scale=attention.scale)  # [N,H,S,C]
        y = attention.output(places.words(z.transpose(1, 2)).flatten(1))
        x = after(block.attention_residual, x, y)
        layer = block.feed_forward
        y = layer.activation(layer.up(before(block.feed_forward_residual, x)))
        y = layer.down(y)
        x = after(block.feed_forward_residual, x, y)
    out: Tensor = model.encoder.final_norm(x)
    return out


def before(residual: PostNorm, x: Tensor) -> Tensor:
    """The input of a sub-layer; without dropout, as in every inference."""
    return residual.norm(x) if isinstance(residual, PreNorm) else x


def after(residual: PostNorm, x: Tensor, y: Tensor) -> Tensor:
    """The residual stream behind a sub-layer that gave y."""
    return x + y if isinstance(residual, PreNorm) else residual.norm(x + y)
