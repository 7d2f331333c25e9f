"""Attention, from its parameter-free form to many heads.

Shapes, here and in the whole project:
B rows, T queries, S keys, D width, H heads, C channels per head, F feed-forward, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Frames, Tokens, Unpadding
from regard.models.layers import Linear, Tap, is_plain, keep_control_flow
from regard.models.positions import NO_TERMS, PositionTerms, apply_rotary

if TYPE_CHECKING:
    from regard.models.cache import LayerCache

FEW_QUERIES = 8
LONG_ROW = 128  # columns; up to so many, the fused kernel gives a row equal bits for any padding
# Sums over keys have equal bits for any padding if the keys come in blocks of 16 columns, and if a matmul of
# the attention is not so small that another kernel is used (measured as for `Linear`).
BLOCK = 16
SMALLEST_PRODUCT = 512  # columns times channels of a head


class Causal:
    """A query sees the keys up to its own position. Not a tensor: the fused kernel can be flash attention."""


CAUSAL = Causal()
Mask = Tensor | Causal | None  # None: every key is visible


def round_up(length: int, block: int) -> int:
    return -(-length // block) * block


def kv_block(channels: int) -> int:
    """The block size of the KV cache for heads of `channels`: 16, more for narrow heads."""
    return round_up(max(BLOCK, -(-SMALLEST_PRODUCT // channels)), BLOCK)


def self_attention_rows(x: Tensor) -> Tensor:
    """Without parameters, tokens in rows: e_ij = x_i . x_j; a_ij = softmax_j(e_ij); z_i = sum_j a_ij x_j."""
    return (x @ x.transpose(-1, -2)).softmax(dim=-1) @ x  # [..., T, D]


def self_attention_columns(x: Tensor) -> Tensor:
    """The same with tokens in columns: A = softmax(X^T X), each column sums to 1; H = X A."""
    return x @ (x.transpose(-1, -2) @ x).softmax(dim=-2)  # [..., D, T]


def attention_columns(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled dot-product attention in columns: A = softmax(K^T Q / sqrt(d)); H = V A."""
    scale: float = key.shape[-2] ** -0.5
    return value @ (key.transpose(-1, -2) @ query * scale).softmax(dim=-2)


def visible(
    query_pos: Tensor,
    key_pos: Tensor,
    causal: bool,
    window: int | None = None,
    query_doc: Tensor | None = None,
    key_doc: Tensor | None = None,
) -> Tensor:
    """Which key each query may see, from positions: [B,T], [B,S] -> bool [B,1,T,S].

    Position -1 is padding: never a query, never a key. The mask depends on positions only, not on indices, so
    full, stepwise, chunked, left-padded and windowed runs agree by construction.
    """
    query, key = query_pos[:, None, :, None], key_pos[:, None, None, :]
    mask = (key >= 0) & (query >= 0)  # [B,1,T,S]
    if causal:
        mask = mask & (key <= query)
    if window is not None:
        mask = mask & ((query - key).abs() < window)
    if query_doc is not None and key_doc is not None:
        mask = mask & (query_doc[:, None, :, None] == key_doc[:, None, None, :])
    return mask


def self_mask(tokens: Tokens | Frames, causal: bool, dense: bool, window: int | None = None) -> Mask:
    """The mask of self-attention; a tensor if one is needed (`dense`, window, documents, padded keys).

    Right-padding needs none under a causal mask: no token sees it, and what it computes itself is not used.
    """
    positions, documents = tokens.positions, tokens.documents
    dense = dense or window is not None
    if not dense and documents is None and tokens.padding == "none":
        return CAUSAL if causal else None
    if not dense and documents is None and tokens.padding == "right" and causal:
        return CAUSAL
    return visible(positions, positions, causal, window, documents, documents)


def cross_mask(target: Tokens, source: Tokens | Frames, dense: bool) -> Mask:
    """Every target token sees the source: [B,1,T,S], or None if nothing is padded."""
    if not dense and source.padding == "none":
        return None
    return visible(target.positions, source.positions, causal=False)


def can_unpad(tokens: Tokens | Frames, tap: Tap | None) -> bool:
    """Whether padding need not be computed: at inference on a CPU, if nobody looks at it. Long rows are laid
    out without padding in any case, since they are attended to one by one."""
    has_padding = tokens.padding != "none" or tokens.positions.shape[1] > LONG_ROW
    return has_padding and is_invariant(tokens.positions.device, tap)


def is_invariant(device: torch.device, tap: Tap | None) -> bool:
    """Whether a row gets equal bits in any batch: at inference on a CPU."""
    return tap is None and not torch.is_grad_enabled() and device.type == "cpu"


def needs_dense_mask(device: torch.device, tap: Tap | None, positions: nn.Module | None) -> bool:
    """A trace shows the mask, a position bias is added to it; on a CPU the kernel without a mask is no faster
    and rounds differently."""
    return device.type == "cpu" or tap is not None or positions is not None


def scores(q: Tensor, k: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """QK^T / sqrt(d_k): [B,H,T,C], [B,H,S,C] -> [B,H,T,S]."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    products = (q * scale) @ k.transpose(-1, -2)
    return products if bias is None else products + bias


def masked_softmax(products: Tensor, mask: Tensor) -> Tensor:
    """softmax over the visible keys; a query without visible keys gets zeros, not NaN."""
    hidden = ~mask
    lowest = torch.finfo(products.dtype).min
    return products.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def weights(
    q: Tensor, k: Tensor, mask: Tensor, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) over the visible keys, in separate steps: [B,H,T,S]."""
    return masked_softmax(scores(q, k, bias, scale), mask)


@keep_control_flow
def attend_cached(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scale QK^T + mask) V for the few queries of a decoding step: [B,T,C], two of [B,S,C], [B,T,S].

    Every query sees something. Long sums are computed in portions of keys, so that they have the same bits
    whatever hidden keys follow. Measured (128 heads, 4 queries of 64 channels, 144 keys, one thread;
    microseconds, float32 / bfloat16): q k^T 873 / 260, p v 544 / 215.
    """
    if v.dtype != torch.bfloat16:
        p = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale).softmax(dim=-1)
        z = torch.bmm(p[:, :, :128], v[:, :128])
        for start in range(128, v.shape[1], 128):
            z = torch.baddbmm(z, p[:, :, start : start + 128], v[:, start : start + 128])
        return z
    p = torch.add(mask, torch.bmm(q.to(k.dtype), k.transpose(1, 2)), alpha=scale).softmax(dim=-1).to(v.dtype)
    z = torch.bmm(p[:, :, :512], v[:, :512])
    for start in range(512, v.shape[1], 512):
        z = z.float() + torch.bmm(p[:, :, start : start + 512], v[:, start : start + 512])
    return z


def step_mask(
    mask: Tensor, heads: int, kv_heads: int, dtype: torch.dtype, bias: Tensor | None = None
) -> Tensor:
    """The mask of a decoding step as numbers that are added to the scores, ready for `attend_cached`:

    bool [N,1,T,S] -> [N*G,H/G*T,S]. The query heads that share keys are more queries on the same keys.
    """
    if bias is None:
        bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    added = bias.masked_fill(~mask, float("-inf"))  # [N,1,T,S] or [N,H,T,S]
    rows, _, queries, columns = added.shape
    added = added.expand(rows, heads, queries, columns)
    return added.reshape(rows * kv_heads, heads // kv_heads * queries, columns)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Attention(Q,K,V) = softmax(QK^T / sqrt(d_k)) V  (paper, equation 1): -> [B,H,T,C].

    A mask of numbers is that of a decoding step, from `step_mask`. Elsewhere mask and bias are combined here.
    """
    if isinstance(mask, Tensor) and mask.is_floating_point():
        grouped = q.reshape(q.shape[0] * k.shape[1], -1, q.shape[3]).contiguous()  # [N*G,H/G*T,C]
        scale = q.shape[3] ** -0.5 if scale is None else scale
        z = attend_cached(grouped, k.flatten(0, 1), v.flatten(0, 1), mask, scale)
        return z.to(q.dtype).view(q.shape)
    k, v = repeat_kv(k, q).to(q.dtype), repeat_kv(v, q).to(q.dtype)  # a cache may have another type
    if not isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask is CAUSAL, scale=scale)
    if _use_plain(q):
        return weights(q, k, mask, bias, scale) @ v
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    combined = bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=combined, scale=scale)


def attend_by_row(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None, scale: float, lengths: Sequence[int]
) -> Tensor:
    """`attend` for each row with its own columns: long sums have the same bits in every batch, and padding is
    not computed.

    Where later keys are hidden, queries are taken in portions, each with the keys up to its last one: half
    the work, and the same bits for the end of a prompt whose beginning is cached.
    """
    z = torch.zeros_like(q)
    for row, length in enumerate(lengths):
        is_causal = length > 1 and _keys(mask[row, 0, 0]) < _keys(mask[row, 0, length - 1])
        step = LONG_ROW if is_causal else max(1, length)
        for start in range(0, length, step):
            end = min(start + step, length)
            one, here = slice(row, row + 1), slice(start, start + round_up(end - start, BLOCK))
            keys = round_up(_keys(mask[row, 0, end - 1]), kv_block(q.shape[3]))
            z[one, :, here] = attend(
                q[one, :, here],
                k[one, :, :keys],
                v[one, :, :keys],
                mask[one, :, here, :keys],
                None if bias is None else bias[one, :, here, :keys],
                scale,
            )
    return z


def _keys(mask: Tensor) -> int:
    """Columns up to the last key that a query sees: [S]."""
    return int(mask.nonzero()[-1]) + 1


def repeat_kv(x: Tensor, q: Tensor) -> Tensor:
    """Repeat keys or values for each query head (GQA; Ainslie et al. 2023): [B,G,S,C] -> [B,H,S,C]."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def _use_plain(q: Tensor) -> bool:
    """On a CPU the fused kernel is slower for bfloat16 and for few queries; and for one query its results
    depend on the batch size, so outputs would not be batch-invariant."""
    return q.device.type == "cpu" and (q.dtype == torch.bfloat16 or q.shape[-2] <= FEW_QUERIES)


def fused_linear(x: Tensor, *maps: Linear) -> list[Tensor]:
    """Several linear maps of one input. In training, fused into one matmul (faster forward and backward).

    If one is not a plain `Linear` (an adapter, a parametrization, a hook), each forward is called separately.
    """
    if not torch.is_grad_enabled() or not all(is_plain(each) for each in maps):
        return [each(x) for each in maps]
    weight = torch.cat([each.weight for each in maps])
    bias = torch.cat([each.bias for each in maps]) if maps[0].bias is not None else None
    return list(torch.split(F.linear(x, weight, bias), [each.out_features for each in maps], dim=-1))


class MultiHeadAttention(nn.Module):
    """MultiHead(Q,K,V) = Concat(head_1..head_h) W_O; head_i = Attention(Q W_Q_i, K W_K_i, V W_V_i)  (3.2.2).

    The caller passes keys and values: of the tokens so far (self) or of the source (cross). One code path
    serves training, stepwise decoding and cross-attention.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        channels: int,
        kv_heads: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        output_bias: bool | None = None,
        head_norm: Callable[[], nn.Module] | None = None,
    ) -> None:
        """`kv_heads` (default: `heads`) are shared by groups of query heads; `scale` defaults to C^-0.5.

        `output_bias` defaults to `bias`; `head_norm` makes a norm of the channels, for queries and for keys.
        """
        super().__init__()
        self.heads, self.kv_heads, self.channels, self.scale = heads, kv_heads or heads, channels, scale
        self.query = Linear(width, heads * channels, bias)
        self.key = Linear(width, self.kv_heads * channels, bias)
        self.value = Linear(width, self.kv_heads * channels, bias)
        self.output = Linear(heads * channels, width, bias if output_bias is None else output_bias)
        self.query_norm = None if head_norm is None else head_norm()
        self.key_norm = None if head_norm is None else head_norm()

    @property
    def cache_width(self) -> int:
        """The channels of keys that a step reads of each token."""
        return self.heads * self.channels

    def mix(
        self,
        x: Tensor,
        mask: Mask,
        past: LayerCache | None = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
        layout: Unpadding | None = None,
    ) -> Tensor:
        """Self-attention over these tokens and those in the KV cache: [B,T,D] -> [B,T,D]."""
        q, k, v = self.queries_keys_values(x, layout)  # [B,H,T,C], two of [B,G,T,C]
        if order.rotation is not None:
            q, k = apply_rotary(q, order.rotation), apply_rotary(k, order.rotation)
        k, v = (k, v) if past is None else past.append(k, v)  # [B,G,S,C], with those in the KV cache
        out: Tensor = self(q, k, v, mask, tap, order.bias, layout)
        return out

    def queries(self, x: Tensor) -> Tensor:
        """q = W_q x, split into heads: [B,T,D] -> [B,H,T,C]."""
        return split_heads(self.query(x), self.heads)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """k = W_k x, v = W_v x, split into heads: [B,S,D] -> two of [B,G,S,C]."""
        k, v = fused_linear(x, self.key, self.value)
        return split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)

    def queries_keys_values(
        self, x: Tensor, layout: Unpadding | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All three of the same tokens, for self-attention; padded again if the tokens have a `layout`."""
        projected = fused_linear(x, self.query, self.key, self.value)
        return self.split(projected if layout is None else [layout.pad(each) for each in projected])

    def split(self, projected: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[B,T,H*C] and two of [B,T,G*C], split into heads; Qwen3 normalises queries and keys."""
        counts = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (split_heads(each, heads) for each, heads in zip(projected, counts, strict=True))
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        return q, k, v

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        tap: Tap | None = None,
        bias: Tensor | None = None,
        layout: Unpadding | None = None,
    ) -> Tensor:
        """[B,H,T,C] and two of [B,G,S,C] -> [B,T,D]."""
        scale = self.channels**-0.5 if self.scale is None else self.scale
        if layout is not None and isinstance(mask, Tensor) and k.shape[2] > LONG_ROW:
            z = attend_by_row(q, k, v, mask, bias, scale, layout.lengths)
        elif tap is None or not isinstance(mask, Tensor):
            z = attend(q, k, v, mask, bias, scale)
        else:
            z = attend_with_tap(q, k, v, mask, tap, bias, scale)
        z = z.transpose(1, 2).flatten(2)  # [B,T,H*C]
        out: Tensor = self.output(z if layout is None else layout.unpad(z))  # [B,T,D]
        return out if tap is None else tap("output", out)


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)  # [B,T,H*C] -> [B,H,T,C]


def attend_with_tap(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    tap: Tap,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """`attend` in separate steps; each tensor passes through the tap, which may replace it."""
    q, k, v = tap("query", q), tap("key", k), tap("value", v)
    k, v = repeat_kv(k, q), repeat_kv(v, q)
    mask = tap("mask", mask)
    products = tap("scores", scores(q, k, bias, scale))
    attention = tap("weights", masked_softmax(products, mask))
    return tap("mixed", attention @ v)
