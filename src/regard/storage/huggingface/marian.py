"""Marian: the paper's Transformer, post-norm with tied embeddings.

The paper's formula interleaves sine and cosine, Marian puts them in halves: the two differ by a permutation
of the model's width. The network does not care in which order its channels stand, as long as all weights
agree: permuting them all is an exact symmetry. Models that learned with the formula are permuted when they
are written. What is read has its positions in halves instead, so that its weights stay as the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from regard.config import Model
from regard.config.reading import shown
from regard.errors import UsageError
from regard.models.positions import sinusoid
from regard.storage.files import Json
from regard.storage.huggingface.kind import ACTIVATIONS, Kind, Shape, activation, refuse
from regard.storage.huggingface.table import SAME, Form, Row, Table, permuted

BIAS = "final_logits_bias"
AS_ROW = Form(lambda theirs: [theirs.flatten()], lambda ours: ours[0][None])  # [1,V] there, [V] here


def fits(model: Model, joint: bool = True) -> bool:
    return (
        model.family == "transformer"
        and model.norm == "post"
        and model.positions in ("sinusoidal", "sinusoidal_halves")
        and model.channels * model.heads == model.width
        and model.epsilon in (None, 1e-5)
    )


def write(model: Model) -> Json:
    encoder_layers, decoder_layers = model.depth
    apart = {} if model.tie_embeddings else {"share_encoder_decoder_embeddings": False}
    return {
        "d_model": model.width,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.feed_forward,
        "decoder_ffn_dim": model.feed_forward,
        "activation_function": ACTIVATIONS[model.activation][0],
        "dropout": model.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": model.max_length,
        "scale_embedding": model.scale_embeddings,
        "static_position_embeddings": True,
        "normalize_before": False,
        "tie_word_embeddings": model.tie_embeddings,
        "output_bias": model.output_bias,
        **apart,
    }


def read(config: Json) -> Json:
    refuse(
        config,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
        is_decoder=False,
    )
    for reading in ("encoder_attention_heads", "encoder_ffn_dim"):
        writing = reading.replace("encoder", "decoder")
        if config[reading] != config[writing]:
            raise UsageError(
                f"{reading} = {shown(config[reading])} and {writing} = {shown(config[writing])} differ, "
                "which is something that Regard cannot do yet"
            )
    shared = config.get("share_encoder_decoder_embeddings") is not False
    size, other = config["vocab_size"], config.get("decoder_vocab_size")
    if shared and other not in (None, size):
        raise UsageError(f"decoder_vocab_size = {other} is not vocab_size = {size}, but both sides share one")
    return {
        "family": "transformer",
        "width": config["d_model"],
        "layers": max(config["encoder_layers"], config["decoder_layers"]),
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "heads": config["encoder_attention_heads"],
        "feed_forward": config["encoder_ffn_dim"],
        "positions": "sinusoidal_halves",
        "activation": activation(config.get("activation_function", "gelu"), "activation_function"),
        "dropout": config.get("dropout", 0.1),
        "scale_embeddings": config.get("scale_embedding", False),
        "tie_embeddings": config.get("tie_word_embeddings", True),
        # every model of Marian has a bias there; ours say whether they do
        "output_bias": config.get("output_bias", "regard" not in config),
        "max_length": config["max_position_embeddings"],
    }


def halves(width: int) -> Tensor:
    """Where each channel of Marian's half-and-half sinusoid stands in the paper's interleaved one."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def table(model: Model, shape: Shape) -> Table:
    forms = dict.fromkeys((0, 1), SAME)  # by the axis that has the width
    if model.positions == "sinusoidal":
        forms = {axis: permuted(axis, halves(model.width)) for axis in (0, 1)}
    encoder_layers, decoder_layers = model.depth
    rows = []
    for layer in range(encoder_layers):
        rows += _block(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}", forms, cross=False)
    for layer in range(decoder_layers):
        rows += _block(f"decoder.blocks.{layer}", f"model.decoder.layers.{layer}", forms, cross=True)
    reading, writing = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    shared, output = "model.shared.weight", "lm_head.weight"
    tied: dict[str, str] = {}
    if shape.joint and model.tie_embeddings:
        rows.append(Row(shared, ("source.tokens.weight",), forms[1], instead=reading))
        tied = dict.fromkeys((reading, writing, output), shared)
    else:
        rows.append(Row(reading, ("source.tokens.weight",), forms[1], instead=shared))
        rows.append(Row(writing, ("target.tokens.weight",), forms[1], instead=shared))
        tied = {output: writing}
    waves = partial(_waves, width=model.width)
    fixed = {f"model.{side}.embed_positions.weight": waves for side in ("encoder", "decoder")}
    spare: tuple[str, ...] = ()
    if not model.tie_embeddings:
        tied = {}
        rows.append(Row(output, ("output.weight",), forms[1]))
        spare = (r"shared\.weight",)  # which is not used, then
    zero: dict[str, Tensor] = {}
    if model.output_bias:
        nothing = partial(_no_bias, words=(shared, writing, reading))
        rows.append(Row(BIAS, ("output.bias",), AS_ROW, absent=nothing))
    else:
        zero = {BIAS: torch.zeros(1, shape.vocabulary)}  # Marian has one, the paper has none
    return Table(rows, "model.", tied, zero, fixed, spare)


def _waves(positions: int, width: int) -> Tensor:
    return sinusoid(torch.arange(positions), width, halves=True)


def _no_bias(theirs: Mapping[str, Tensor], words: Sequence[str]) -> Tensor | None:
    """Files leave out a bias of zeros."""
    table = next((theirs[name] for name in words if name in theirs), None)
    return None if table is None else torch.zeros(1, len(table))


def _block(ours: str, theirs: str, forms: dict[int, Form], cross: bool) -> list[Row]:
    rows = _attention(f"{ours}.attention", f"{theirs}.self_attn", forms)
    if cross:
        rows += _attention(f"{ours}.cross", f"{theirs}.encoder_attn", forms)
    forward, norm = f"{ours}.feed_forward", f"{ours}.feed_forward_residual.norm"
    return [
        *rows,
        Row(f"{theirs}.fc1.weight", (f"{forward}.widen.weight",), forms[1]),
        Row(f"{theirs}.fc1.bias", (f"{forward}.widen.bias",)),
        Row(f"{theirs}.fc2.weight", (f"{forward}.narrow.weight",), forms[0]),
        Row(f"{theirs}.fc2.bias", (f"{forward}.narrow.bias",), forms[0]),
        Row(f"{theirs}.final_layer_norm.weight", (f"{norm}.weight",), forms[0]),
        Row(f"{theirs}.final_layer_norm.bias", (f"{norm}.bias",), forms[0]),
    ]


def _attention(ours: str, theirs: str, forms: dict[int, Form]) -> list[Row]:
    rows = []
    for our, their in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        rows.append(Row(f"{theirs}.{their}.weight", (f"{ours}.{our}.weight",), forms[1]))
        rows.append(Row(f"{theirs}.{their}.bias", (f"{ours}.{our}.bias",), SAME))
    for part in ("weight", "bias"):
        rows.append(Row(f"{theirs}.out_proj.{part}", (f"{ours}.output.{part}",), forms[0]))
        rows.append(Row(f"{theirs}_layer_norm.{part}", (f"{ours}_residual.norm.{part}",), forms[0]))
    return rows


MARIAN = Kind("marian", {"MarianMTModel": "translate"}, fits, write, read, table)
