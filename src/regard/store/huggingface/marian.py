"""Marian: the paper's Transformer, post-norm with tied embeddings.

The paper's sinusoid interleaves sine and cosine, Marian's puts them in halves: the two differ by a
permutation of the model's width. The network does not care in which order its channels stand, as long as all
weights agree: permuting them all is an exact symmetry.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.config import Model
from regard.errors import UsageError
from regard.store.files import Json
from regard.store.huggingface.kind import ACTIVATIONS, Kind, Shape, activation, refuse
from regard.store.huggingface.table import SAME, Form, Row, Table, permuted


def fits(model: Model, joint: bool = True) -> bool:
    return (
        model.family == "transformer"
        and model.norm == "post"
        and model.positions == "sinusoidal"
        and model.tie_embeddings
        and model.channels * model.heads == model.width
        and model.epsilon in (None, 1e-5)
    )


def write(model: Model) -> Json:
    encoder_layers, decoder_layers = model.depth
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
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "tie_word_embeddings": True,
    }


def read(config: Json) -> Json:
    refuse(config, normalize_before=False, normalize_embedding=False, static_position_embeddings=True)
    if not config.get("scale_embedding", False):
        raise UsageError("scale_embedding = false is something that Regard cannot do yet")
    for theirs in ("encoder_attention_heads", "encoder_ffn_dim"):
        if config[theirs] != config[theirs.replace("encoder", "decoder")]:
            raise KeyError(f"equal {theirs} and {theirs.replace('encoder', 'decoder')}")
    return {
        "family": "transformer",
        "width": config["d_model"],
        "layers": max(config["encoder_layers"], config["decoder_layers"]),
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "heads": config["encoder_attention_heads"],
        "feed_forward": config["encoder_ffn_dim"],
        "activation": activation(config["activation_function"], "activation_function"),
        "dropout": config["dropout"],
        "max_length": config["max_position_embeddings"],
    }


def halves(width: int) -> Tensor:
    """Where each channel of Marian's half-and-half sinusoid stands in the paper's interleaved one."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def table(model: Model, shape: Shape) -> Table:
    forms = {axis: permuted(axis, halves(model.width)) for axis in (0, 1)}  # by the axis that has the width
    encoder_layers, decoder_layers = model.depth
    rows = []
    for layer in range(encoder_layers):
        rows += _block(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}", forms, cross=False)
    for layer in range(decoder_layers):
        rows += _block(f"decoder.blocks.{layer}", f"model.decoder.layers.{layer}", forms, cross=True)
    reading, writing = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    if shape.joint:
        shared = "model.shared.weight"
        rows.append(Row(shared, ("source.tokens.weight",), forms[1], instead=reading))
        tied = dict.fromkeys((reading, writing, "lm_head.weight"), shared)
    else:
        rows.append(Row(reading, ("source.tokens.weight",), forms[1]))
        rows.append(Row(writing, ("target.tokens.weight",), forms[1]))
        tied = {"lm_head.weight": writing}
    bias = {"final_logits_bias": torch.zeros(1, shape.vocabulary)}  # Marian has one, the paper has none
    return Table(rows, tied=tied, zero=bias, spare=(r"model\.(en|de)coder\.embed_positions\.weight",))


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
