"""A recurrence in the place of a decoder's self-attention, as in Marian's students (Firefox, Bergamot)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Unpadding
from regard.models.layers import Linear, Tap, tapped
from regard.models.positions import NO_TERMS, PositionTerms

if TYPE_CHECKING:
    from regard.models.attention import Mask
    from regard.models.cache import LayerCache

WINDOW = 2  # a token sees itself and the one before it, whose state it continues


class SSRU(nn.Module):
    """Simpler simple recurrent unit (Kim et al. 2019, "From Research to Production and Back"):

    x~_t = W x_t    f_t = sigmoid(W_f x_t + b_f)
    c_t = f_t * c_{t-1} + (1 - f_t) * x~_t    h_t = max(0, c_t)

    The mask says which token is the one before, and the KV cache holds c_t as keys of one head. So packed,
    padded, stepwise and chunked runs and beams need nothing else.
    """

    heads = kv_heads = 1  # for the cache and the mask
    cache_width = 0  # states are sums of many steps: never kept in half precision

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = width
        self.input = Linear(width, width, bias=False)
        self.forget = Linear(width, width)

    def projections(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """W x, and W_f x + b_f."""
        return self.input(x), self.forget(x)

    def mix(
        self,
        x: Tensor,
        mask: Mask,
        past: LayerCache | None = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
        layout: Unpadding | None = None,
    ) -> Tensor:
        """[B,T,D] -> [B,T,D]; in a step the tokens of all beams of a row, [N,K*T,D]."""
        candidate, gate = self.projections(x)
        f = tapped(tap, "forget", gate.sigmoid())
        u = (1 - f) * tapped(tap, "candidate", candidate)
        if layout is not None:
            f, u = layout.pad(f), layout.pad(u)
        seen = self.seen(mask, u)  # [B,T,S]
        # each beam of a step is a sequence; -1, as a recorded step has no sizes
        tokens, whole = u.shape[1] if past is None else past.tokens, u
        count = seen.sum(dim=-1).view(-1, tokens, 1)  # 2, at the beginning of a text 1, at padding 0
        real, linked = count > 0, count > 1
        if past is not None:  # the state before the first of these tokens is in a column
            u = u + f * (seen @ past.write_state(torch.zeros_like(u)))
            linked = linked & (real.cumsum(dim=1) > 1)
        f, u = (each.reshape(-1, tokens, self.channels) for each in (f, u))
        c = scan(torch.where(real, f * linked, 1.0), u * real).view_as(whole)
        if past is not None:
            past.write_state(c)
        h = tapped(tap, "output", tapped(tap, "state", c).relu())
        return h if layout is None else layout.unpad(h)

    def seen(self, mask: Mask, like: Tensor) -> Tensor:
        """Ones for what each token sees, itself included; a step has a mask of numbers to add: [B,T,S]."""
        assert isinstance(mask, Tensor)  # as there is a window
        visible = mask if mask.dtype == torch.bool else mask == 0
        return visible.view(like.shape[0], like.shape[1], -1).to(like.dtype)


def scan(f: Tensor, u: Tensor) -> Tensor:
    """c_t = f_t * c_{t-1} + u_t for all t, in log T steps: two of [B,T,D] -> [B,T,D].

    After each, u_t is the state that the last 2^n tokens make of zero, and f_t what they keep of one before.
    """
    distance = 1
    while distance < u.shape[1]:
        u = u + f * F.pad(u, [0, 0, distance, 0])[:, :-distance]
        f = f * F.pad(f, [0, 0, distance, 0])[:, :-distance]
        distance *= 2
    return u
