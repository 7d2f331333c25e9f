"""Marian: the paper's Transformer, post-norm with tied embeddings.

The paper interleaves sine and cosine, Marian puts all sines before all cosines: another order of channels.
Permuting the channels of all weights is an exact symmetry of the network, so that models with interleaved
positions are permuted when they are written. What is read has `positions = "sinusoidal_halves"` instead, and
its weights stay as they are in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from regard.config.model import TransformerConfig
from regard.config.reading import shown
from regard.errors import UsageError
from regard.models.positions import sinusoid
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    SAME,
    Architecture,
    Fields,
    Layout,
    Row,
    Shape,
    Table,
    permuted,
)

BIAS = "final_logits_bias"
AS_ROW = Layout(lambda theirs: [theirs.flatten()], lambda ours: ours[0][None])  # [1,V] there, [V] here


FIELDS: Fields = {
    "d_model": "width",
    "encoder_attention_heads": "heads",
    "encoder_ffn_dim": "feed_forward",
    "activation_function": ("activation", "gelu"),
    "dropout": ("dropout", 0.1),
    "max_position_embeddings": "max_length",
    "scale_embedding": ("scale_embeddings", False),
    "tie_word_embeddings": ("tie_embeddings", True),
}
FIXED = {"static_position_embeddings": True, "normalize_before": False}


def write_more(model: TransformerConfig) -> Json:
    encoder_layers, decoder_layers = model.depth
    untied = {} if model.tie_embeddings else {"share_encoder_decoder_embeddings": False}
    return {
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "decoder_attention_heads": model.heads,
        "decoder_ffn_dim": model.feed_forward,
        "output_bias": model.output_bias,
        **untied,
    }


def read_more(config: Json) -> Json:
    for encoder in ("encoder_attention_heads", "encoder_ffn_dim"):
        decoder = encoder.replace("encoder", "decoder")
        if config[encoder] != config[decoder]:
            raise UsageError(
                f"{encoder} = {shown(config[encoder])} and {decoder} = {shown(config[decoder])} differ, "
                "which is not supported by Regard",
                code="E_MODEL_UNSUPPORTED",
            )
    shared = config.get("share_encoder_decoder_embeddings") is not False
    size, other = config["vocab_size"], config.get("decoder_vocab_size")
    if shared and other not in (None, size):
        raise UsageError(
            f"decoder_vocab_size = {other} is not vocab_size = {size}, but both sides share one",
            code="E_MODEL_CONFIG",
        )
    return {
        "layers": max(config["encoder_layers"], config["decoder_layers"]),
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "positions": "sinusoidal_halves",
        # every model of Marian has a bias; ours have a field for it
        "output_bias": config.get("output_bias", "regard" not in config),
    }


def halves(width: int) -> Tensor:
    """The channel of the paper's interleaved sinusoid for each channel of Marian's."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def table(model: TransformerConfig, shape: Shape) -> Table:
    layouts = dict.fromkeys((0, 1), SAME)  # by the axis of the channels
    if model.positions == "sinusoidal":
        layouts = {axis: permuted(axis, halves(model.width)) for axis in (0, 1)}
    encoder_layers, decoder_layers = model.depth
    rows = []
    for layer in range(encoder_layers):
        rows += _block(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}", layouts, cross=False)
    for layer in range(decoder_layers):
        rows += _block(f"decoder.blocks.{layer}", f"model.decoder.layers.{layer}", layouts, cross=True)
    source, target = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    shared, output = "model.shared.weight", "lm_head.weight"
    tied: dict[str, str] = {}
    if shape.joint and model.tie_embeddings:
        rows.append(Row(shared, ("source.tokens.weight",), layouts[1], fallback=source))
        tied = dict.fromkeys((source, target, output), shared)
    else:
        rows.append(Row(source, ("source.tokens.weight",), layouts[1], fallback=shared))
        rows.append(Row(target, ("target.tokens.weight",), layouts[1], fallback=shared))
        tied = {output: target}
    sinusoids = partial(_sinusoids, width=model.width)
    fixed = {f"model.{side}.embed_positions.weight": sinusoids for side in ("encoder", "decoder")}
    unused: tuple[str, ...] = ()
    if not model.tie_embeddings:
        tied = {}
        rows.append(Row(output, ("output.weight",), layouts[1]))
        unused = (r"shared\.weight",)
    zero: dict[str, Tensor] = {}
    if model.output_bias:
        zeros = partial(_zero_bias, embeddings=(shared, target, source))
        rows.append(Row(BIAS, ("output.bias",), AS_ROW, absent=zeros))
    else:
        zero = {BIAS: torch.zeros(1, shape.vocabulary)}  # Marian has one, the paper has none
    return Table(rows, "model.", tied, zero, fixed, unused)


def _sinusoids(positions: int, width: int) -> Tensor:
    return sinusoid(torch.arange(positions), width, halves=True)


def _zero_bias(theirs: Mapping[str, Tensor], embeddings: Sequence[str]) -> Tensor | None:
    """For files that omit a bias of zeros."""
    table = next((theirs[name] for name in embeddings if name in theirs), None)
    return None if table is None else torch.zeros(1, len(table))


def _block(ours: str, theirs: str, layouts: dict[int, Layout], cross: bool) -> list[Row]:
    rows = _attention(f"{ours}.attention", f"{theirs}.self_attn", layouts)
    if cross:
        rows += _attention(f"{ours}.cross", f"{theirs}.encoder_attn", layouts)
    forward, norm = f"{ours}.feed_forward", f"{ours}.feed_forward_residual.norm"
    return [
        *rows,
        Row(f"{theirs}.fc1.weight", (f"{forward}.up.weight",), layouts[1]),
        Row(f"{theirs}.fc1.bias", (f"{forward}.up.bias",)),
        Row(f"{theirs}.fc2.weight", (f"{forward}.down.weight",), layouts[0]),
        Row(f"{theirs}.fc2.bias", (f"{forward}.down.bias",), layouts[0]),
        Row(f"{theirs}.final_layer_norm.weight", (f"{norm}.weight",), layouts[0]),
        Row(f"{theirs}.final_layer_norm.bias", (f"{norm}.bias",), layouts[0]),
    ]


def _attention(ours: str, theirs: str, layouts: dict[int, Layout]) -> list[Row]:
    rows = []
    for our, their in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        rows.append(Row(f"{theirs}.{their}.weight", (f"{ours}.{our}.weight",), layouts[1]))
        rows.append(Row(f"{theirs}.{their}.bias", (f"{ours}.{our}.bias",), SAME))
    for part in ("weight", "bias"):
        rows.append(Row(f"{theirs}.out_proj.{part}", (f"{ours}.output.{part}",), layouts[0]))
        rows.append(Row(f"{theirs}_layer_norm.{part}", (f"{ours}_residual.norm.{part}",), layouts[0]))
    return rows


MARIAN = Architecture(
    "marian",
    "transformer",
    {"MarianMTModel": "translate"},
    FIELDS,
    table,
    constants={"attention_dropout": 0.0, "activation_dropout": 0.0, **FIXED},
    supported={
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "is_decoder": False,
        **FIXED,
    },
    write_more=write_more,
    read_more=read_more,
    two_vocabularies=True,
)
