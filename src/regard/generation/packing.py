"""Packed weights: laid out for the processor once, in the precision that was chosen.

int8 needs the range of a product's inputs. `activation_ranges` measures it on texts; where nobody did, each
row is scaled by its own largest number, as exact and a little slower. Both are batch-invariant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Unpadding
from regard.device import bfloat16_hardware
from regard.errors import UsageError
from regard.generation.kernels import (
    POINTWISE,
    Int8Product,
    can_pack,
    can_quantize,
    pack,
    packed_linear,
    packing_works,
)
from regard.mapped import release_pages
from regard.models.attention import BLOCK, Mask, MultiHeadAttention, repeat_kv, round_up, split_heads
from regard.models.layers import (
    ACTIVATIONS,
    GatedFeedForward,
    Tap,
    batch_invariant_linear,
    keep_control_flow,
)
from regard.models.ssru import SSRU
from regard.models.transformer import Stack

Precision = Literal["auto", "float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ActivationRange = tuple[float, float]  # the smallest and the largest number that a product reads
Calibration = Mapping[str, ActivationRange]
# modules by the parameters that they were made of, which other models have, too
Shared = dict[Hashable, nn.Module]
WIDE = 256  # channels from which on less precision is worth it without calibration
LONGEST_HALF = 512  # columns, up to which sums in bfloat16 have equal bits for any padding
WORTH_PACKING = 1 << 17  # numbers in a weight; for smaller ones the call costs more than the product


class Packing:
    """Makes packed linear maps of those of a model."""

    def __init__(
        self,
        model: nn.Module,
        precision: str = "float32",
        calibration: Calibration | None = None,
        shared: Shared | None = None,
    ) -> None:
        # by identity: a module that was packed must not be kept, with its weights, until the last one is
        self.names = {id(module): name for name, module in model.named_modules()}
        self.words = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
        self.precision, self.calibration = precision, calibration or {}
        self.shared: Shared = {} if shared is None else shared

    def __call__(self, *parts: nn.Linear, activation: str = "none", inner: bool = False) -> nn.Module:
        """Several linear maps of the same input as one, and the activation that follows; `inner` results are
        read by products alone."""
        parameters = [each for part in parts for each in (part.weight, part.bias)]
        measured = self.calibration.get(self.names[id(parts[0])])
        key = (*map(id, parameters), activation, inner, self.precision, measured)
        if key not in self.shared:
            self.shared[key] = self.packed(parts, activation, inner)
        return self.shared[key]

    def packed(self, parts: Sequence[nn.Linear], activation: str, inner: bool) -> nn.Module:
        weights = [part.weight.detach() for part in parts]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        biases = [part.bias.detach() for part in parts if part.bias is not None]
        bias = torch.cat(biases) if biases else None
        made = self.made(weight, bias, self.names[id(parts[0])], activation, inner)
        for each in weights:
            release_pages(each, in_use=each.data_ptr() in self.words)  # an embedding still reads them
        return made

    def made(self, weight: Tensor, bias: Tensor | None, name: str, activation: str, inner: bool) -> nn.Module:
        if self.precision == "int8":
            return Int8Linear(weight, bias, self.calibration.get(name), activation == "relu")
        return PackedLinear(weight, bias, getattr(torch, self.precision), activation, inner)

    def halves(self, attention: MultiHeadAttention) -> bool:
        """Whether attention is computed in bfloat16: the projections are, and the processor multiplies it."""
        parts = (attention.query, attention.key, attention.value)
        is_packed = sum(part.weight.numel() for part in parts) >= WORTH_PACKING
        return self.precision == "bfloat16" and is_packed and bfloat16_hardware()

    def includes(self, activation: str) -> bool:
        """Whether a product can end with it. oneDNN's GELU is not torch's to the last bit of float32."""
        return activation == "relu" or (self.precision == "bfloat16" and activation in POINTWISE)


class PackedLinear(nn.Module):
    """y = act(W x + b), with W in the processor's order; float32, or if it is `inner` in W's precision."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        activation: str = "none",
        inner: bool = False,
    ) -> None:
        super().__init__()
        self.activation, (self.function, self.form) = activation, POINTWISE[activation]
        self.packs = weight.numel() >= WORTH_PACKING
        self.dtype = dtype if self.packs else torch.float32
        self.result = self.dtype if inner else torch.float32
        self.width = len(weight)
        self.weight: Tensor
        self.bias: Tensor | None
        # buffers, so that a trace refers to them; the weights of the file are released
        self.register_buffer("weight", pack(weight.to(self.dtype)) if self.packs else weight.clone())
        self.register_buffer("bias", None if bias is None else bias.to(self.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """[...,K] -> [...,N]; what a row gives does not depend on the number of rows."""
        x = x.to(self.dtype)
        if self.packs:
            y = packed_linear(x, self.weight, self.bias, self.width, self.function, self.form)
            return y.to(self.result)
        y = batch_invariant_linear(x, self.weight, self.bias)
        return y if self.activation == "none" else ACTIVATIONS[self.activation](y)


class Int8Linear(Int8Product):
    """y = W x + b in int8, by the measured range of the input or by each row's own."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, measured: ActivationRange | None, relu: bool = False
    ) -> None:
        super().__init__(weight, bias, *(scale_of(measured) if measured else (0.0, 0)), relu)


class PackedSelfAttention(MultiHeadAttention):
    """Self-attention whose three projections are one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing, inner: bool = False) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.channels, self.scale = attention.channels, attention.scale
        self.query_norm, self.key_norm = attention.query_norm, attention.key_norm
        self.query_key_value = packing(attention.query, attention.key, attention.value, inner=inner)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def queries_keys_values(
        self, x: Tensor, layout: Unpadding | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        sizes = [heads * self.channels for heads in (self.heads, self.kv_heads, self.kv_heads)]
        projected: Tensor = self.query_key_value(x)
        padded = projected if layout is None else layout.pad(projected)
        return self.split(torch.split(padded, sizes, dim=-1))


class HalfSelfAttention(PackedSelfAttention):
    """Self-attention of an encoder, in bfloat16 from the projections to the output.

    Every token sees all tokens of its row, so one mask of keys serves all queries. A row that is alone and
    the same row among longer ones have equal bits: sums over up to 512 keys do not depend on hidden keys, and
    in wider batches rows are attended to one by one.
    """

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
        if tap is not None or not isinstance(mask, Tensor):
            return super().forward(q.float(), k.float(), v.float(), mask, tap, bias, layout)
        scale = self.channels**-0.5 if self.scale is None else self.scale
        k, v, seen = repeat_kv(k, q), repeat_kv(v, q), mask[:, 0, :1]  # [B,1,S]
        if layout is None or layout.columns <= LONGEST_HALF:
            z = attend_half(q, k, v, seen, scale)
        else:
            z = torch.zeros_like(q)
            for row, length in enumerate(layout.lengths):
                one, here = slice(row, row + 1), slice(round_up(length, BLOCK))
                parts = [x[one, :, here] for x in (q, k, v)]
                z[one, :, here] = attend_half(parts[0], parts[1], parts[2], seen[one, :, here], scale)
        z = z.transpose(1, 2).flatten(2)  # [B,T,H*C]
        out: Tensor = self.output(z if layout is None else layout.unpad(z))  # [B,T,D]
        return out


@keep_control_flow
def attend_half(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    """softmax(scale QK^T) V over the keys that are seen, bool [B,1,S]; all others in bfloat16: [B,H,T,C].

    Plain steps, while the scores are few: measured (12 heads of 32 channels, 256 tokens, one thread;
    microseconds) 1,200, the fused kernel in float32 1,690 and in bfloat16 1,720.
    """
    rows, heads, tokens, channels = q.shape
    if k.shape[2] > 512:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], scale=scale)
    hidden = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -1e30)
    hidden = hidden.repeat_interleave(heads, dim=0)  # [B*H,1,S]
    products = torch.baddbmm(hidden, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scale)
    z = torch.bmm(products.softmax(dim=-1), v.flatten(0, 1))  # [B*H,T,C]
    return z.view(rows, heads, tokens, channels)


class PackedSSRU(SSRU):
    """A recurrence whose two projections are one product."""

    def __init__(self, layer: SSRU, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.channels = layer.channels
        # one product has a bias for all outputs
        layer.input.bias = nn.Parameter(torch.zeros_like(layer.forget.bias))
        self.input_forget = packing(layer.input, layer.forget)

    def projections(self, x: Tensor) -> tuple[Tensor, Tensor]:
        candidate, gate = self.input_forget(x).chunk(2, dim=-1)
        return candidate, gate


class PackedCrossAttention(MultiHeadAttention):
    """Cross-attention: queries of the target, and keys and values of the source as one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.channels, self.scale = attention.channels, attention.scale
        self.query = packing(attention.query)  # type: ignore[assignment]
        self.key_value = packing(attention.key, attention.value)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (split_heads(part, self.kv_heads) for part in self.key_value(x).chunk(2, dim=-1))
        return k, v


class PackedGatedFeedForward(GatedFeedForward):
    """FFN(x) = (act(x W_g) * x W_1) W_2, with W_g and W_1 in one product."""

    def __init__(self, layer: GatedFeedForward, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.gate_up = packing(layer.gate, layer.up)
        self.down = packing(layer.down)  # type: ignore[assignment]
        self.activation = layer.activation

    def hidden(self, x: Tensor) -> Tensor:
        both: Tensor = self.gate_up(x)
        gate, up = both.chunk(2, dim=-1)
        return self.activation(gate) * up


def pack_blocks(model: nn.Module, packing: Packing) -> bool:
    """Pack the weights of a Transformer in place; False if the model is none. It can be used from now on, not
    trained or saved."""
    stacks = {name: module for name, module in model.named_children() if isinstance(module, Stack)}
    for name, stack in stacks.items():
        for block in stack:
            if isinstance(block.attention, PackedSelfAttention | PackedSSRU):
                continue  # another task uses this model, too
            if isinstance(block.attention, SSRU):
                block.attention = PackedSSRU(block.attention, packing)
            else:
                is_plain = name == "encoder" and stack.positions is None and stack.window is None
                is_half = is_plain and packing.halves(block.attention)
                kind = HalfSelfAttention if is_half else PackedSelfAttention
                block.attention = kind(block.attention, packing, inner=is_half)
            if block.cross is not None:
                block.cross = PackedCrossAttention(block.cross, packing)
            layer = block.feed_forward
            if isinstance(layer, GatedFeedForward):
                block.feed_forward = PackedGatedFeedForward(layer, packing)
                continue
            activation = next((name for name in ACTIVATIONS if ACTIVATIONS[name] is layer.activation), "")
            if packing.includes(activation):
                layer.up = packing(layer.up, activation=activation, inner=True)  # type: ignore[assignment]
                layer.activation = identity
            else:
                layer.up = packing(layer.up)  # type: ignore[assignment]
            layer.down = packing(layer.down)  # type: ignore[assignment]
    if stacks:
        pack_linears(model, packing, WORTH_PACKING)  # heads and output layers; small ones stay as they are
    return bool(stacks)


def is_packed(model: nn.Module) -> bool:
    """Whether weights are in the processor's order, or in bytes: then there are no gradients."""
    return any(isinstance(each, Int8Linear) or getattr(each, "packs", False) for each in model.modules())


def identity(x: Tensor) -> Tensor:
    return x


def scale_of(reach: ActivationRange) -> tuple[float, int]:
    """256 steps from the smallest to the largest number; zero is one of them, as masks and ReLU make many."""
    low, high = min(reach[0], 0.0), max(reach[1], 0.0)
    scale = max(high - low, 1e-6) / 255
    return scale, round(-low / scale)


def choose_precision(requested: str, model: nn.Module, calibration: Calibration | None) -> str:
    """`auto` is the fastest precision that keeps a model's results: see `fastest`."""
    if requested not in PRECISIONS:
        raise UsageError(
            f'precision "{requested}" is unknown; use {", ".join(PRECISIONS)}', code="E_PRECISION"
        )
    device = next(model.parameters()).device
    bytes_here = device.type == "cpu" and can_quantize()
    if requested == "auto":
        return fastest(model, calibration) if device.type == "cpu" else "float32"
    if requested == "int8" and not bytes_here:
        raise UsageError(
            "precision int8 needs a CPU for which torch has FBGEMM; use float32", code="E_PRECISION"
        )
    if requested == "bfloat16" and not can_pack(torch.empty(0, dtype=torch.bfloat16, device=device)):
        raise UsageError(
            "precision bfloat16 needs a CPU for which torch has oneDNN; use float32", code="E_PRECISION"
        )
    return requested


def fastest(model: nn.Module, calibration: Calibration | None) -> str:
    """The precision of `auto` on a CPU.

    Decoders: int8, if the folder is calibrated or the model is wide; a narrow one gains little, loses more.
    Encoders: bfloat16 where the processor multiplies it. Their vectors are compared, and int8 activations
    change them too much (MiniLM, 512 texts: cosine to float32 0.987 at least; bfloat16 0.99996, as fast).
    """
    stacks = {name: module for name, module in model.named_children() if isinstance(module, Stack)}
    attentions = [block.attention for stack in stacks.values() for block in stack]
    is_wide = bool(attentions) and all(each.heads * each.channels >= WIDE for each in attentions)
    if can_quantize() and (calibration or (is_wide and "decoder" in stacks)):
        return "int8"
    has_bfloat16 = bfloat16_hardware() and packing_works(torch.bfloat16)
    return "bfloat16" if is_wide and "decoder" not in stacks and has_bfloat16 else "float32"


def pack_linears(model: nn.Module, packing: Packing, least: int = 0) -> None:
    """Pack every linear map of at least so many weights by itself, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child.weight.numel() >= least:
                setattr(module, name, packing(child))


@torch.no_grad()
def activation_ranges(model: nn.Module, batches: Iterable[Batch]) -> dict[str, ActivationRange]:
    """How far the numbers reach that each linear map of a model reads on these texts."""
    ranges: dict[str, ActivationRange] = {}

    def look(name: str, x: Tensor) -> None:
        low, high = (float(each) for each in x.aminmax())
        before = ranges.get(name, (low, high))
        ranges[name] = (min(before[0], low), max(before[1], high))

    hooks = [
        module.register_forward_pre_hook(lambda _, args, name=name: look(name, args[0]))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return ranges


@torch.no_grad()
def share_equal(model: nn.Module, other: nn.Module) -> None:
    """Let a model use the parameters of another one where they are equal: they are in memory once."""
    theirs = dict(other.named_parameters())
    for path, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            same = theirs.get(f"{path}.{name}" if path else name)
            if same is not None and same.shape == parameter.shape and torch.equal(same, parameter):
                setattr(module, name, same)
