"""Weight names as a table, used in both directions: ours to Hugging Face's, theirs to ours.

A row is (our name, their name, the axis that has the model's width). `{}` stands for the layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import UsageError

Row = tuple[str, str, int]
Tensors = dict[str, Tensor]


def _attention(ours: str, theirs: str, norm: str) -> list[Row]:
    rows: list[Row] = []
    for our, their in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        rows.append((f"{ours}.{our}.weight", f"{theirs}.{their}.weight", 1))
        rows.append((f"{ours}.{our}.bias", f"{theirs}.{their}.bias", -1))
    rows.append((f"{ours}.output.weight", f"{theirs}.out_proj.weight", 0))
    rows.append((f"{ours}.output.bias", f"{theirs}.out_proj.bias", 0))
    return rows + [(f"{ours}_residual.norm.{part}", f"{norm}.{part}", 0) for part in ("weight", "bias")]


def _block(ours: str, theirs: str, cross: bool) -> list[Row]:
    rows = _attention(f"{ours}.attention", f"{theirs}.self_attn", f"{theirs}.self_attn_layer_norm")
    if cross:
        rows += _attention(f"{ours}.cross", f"{theirs}.encoder_attn", f"{theirs}.encoder_attn_layer_norm")
    rows += [
        (f"{ours}.feed_forward.widen.weight", f"{theirs}.fc1.weight", 1),
        (f"{ours}.feed_forward.widen.bias", f"{theirs}.fc1.bias", -1),
        (f"{ours}.feed_forward.narrow.weight", f"{theirs}.fc2.weight", 0),
        (f"{ours}.feed_forward.narrow.bias", f"{theirs}.fc2.bias", 0),
        (f"{ours}.feed_forward_residual.norm.weight", f"{theirs}.final_layer_norm.weight", 0),
        (f"{ours}.feed_forward_residual.norm.bias", f"{theirs}.final_layer_norm.bias", 0),
    ]
    return rows


_JOINT: list[Row] = [("source.tokens.weight", "model.shared.weight", 1)]
_SEPARATE: list[Row] = [
    ("source.tokens.weight", "model.encoder.embed_tokens.weight", 1),
    ("target.tokens.weight", "model.decoder.embed_tokens.weight", 1),
]
_BLOCKS = [
    *_block("encoder.blocks.{}", "model.encoder.layers.{}", cross=False),
    *_block("decoder.blocks.{}", "model.decoder.layers.{}", cross=True),
]


def marian(joint: bool) -> list[Row]:
    """The table of MarianMTModel, whose two languages share one embedding or not."""
    return (_JOINT if joint else _SEPARATE) + _BLOCKS


def halves(width: int) -> Tensor:
    """Where each channel of Marian's half-and-half sinusoid stands in the paper's interleaved one.

    The network does not care in which order its channels stand, as long as all weights agree: permuting
    them all is an exact symmetry.
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def to_theirs(tensors: Mapping[str, Tensor], table: list[Row], width: int) -> Tensors:
    return _translate(tensors, {ours: (theirs, axis) for ours, theirs, axis in table}, halves(width))


def to_ours(tensors: Mapping[str, Tensor], table: list[Row], width: int) -> Tensors:
    order = halves(width).argsort()
    return _translate(tensors, {theirs: (ours, axis) for ours, theirs, axis in table}, order)


def _translate(tensors: Mapping[str, Tensor], table: dict[str, tuple[str, int]], order: Tensor) -> Tensors:
    renamed = {}
    for name, tensor in tensors.items():
        number = re.search(r"\.(\d+)\.", name)
        pattern = name.replace(number[0], ".{}.", 1) if number else name
        if pattern not in table:
            raise UsageError(f'the weights hold "{name}", which this kind of model does not have')
        other, axis = table[pattern]
        if axis >= 0 and tensor.shape[axis : axis + 1] != order.shape:
            shapes = f"{list(tensor.shape)}, but the width of the model is {len(order)}"
            raise UsageError(f'the tensor "{name}" has shape {shapes}')
        renamed[other.format(number[1]) if number else other] = (
            tensor if axis < 0 else tensor.index_select(axis, order)
        )
    return renamed
