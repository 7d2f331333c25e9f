"""Encoder-decoders: Marian, BART, mBART, M2M100 and T5.

Marian is the paper's Transformer, post-norm with tied embeddings. The paper interleaves sine and cosine,
Marian puts all sines before all cosines: another order of channels. Permuting the channels of all weights is
an exact symmetry of the network, so models with interleaved positions are permuted when they are written.
What is read has `positions = "sinusoidal_halves"` instead, and its weights stay as they are in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.config.model import T5Config, TransformerConfig
from regard.errors import UsageError
from regard.models.positions import sinusoid
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    ACTIVATIONS,
    ONE_ROW,
    Architecture,
    Fields,
    Shapes,
    Table,
    activation,
    attention,
    modules,
    read_first_position,
    write_first_position,
)

BIAS = "final_logits_bias"
# our tensors that write into the residual stream, and those that read it: the axis of its channels
CHANNELS = {
    r".*(\.norm|attention\.output|cross\.output|\.down)\.(weight|bias)": 0,
    r".*\.(query|key|value|up|tokens)\.weight|output\.weight": 1,
}
GATED = "gated-"


def in_halves(model: TransformerConfig, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Our weights in the order of Marian's channels, with the bias that all its models have."""
    weights = with_output_bias(model, weights)
    if model.positions == "sinusoidal_halves":
        return weights
    device = weights["source.tokens.weight"].device
    order = torch.arange(model.width, device=device).view(-1, 2).mT.flatten()  # 0, 2, 4 ... 1, 3, 5 ...
    axes = {name: axis for name in weights for each, axis in CHANNELS.items() if re.fullmatch(each, name)}
    return {
        name: tensor.index_select(axes[name], order) if name in axes else tensor
        for name, tensor in weights.items()
    }


def with_output_bias(model: TransformerConfig, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """With the bias that all models of Marian, BART and mBART have."""
    words = weights.get("target.tokens.weight", weights["source.tokens.weight"])
    return {"output.bias": words.new_zeros(len(words)), **weights}


def write_layers(model: TransformerConfig) -> Json:
    encoder_layers, decoder_layers = model.depth
    return {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers}


def read_layers(config: Json) -> Json:
    encoder_layers, decoder_layers = config["encoder_layers"], config["decoder_layers"]
    layers = max(encoder_layers, decoder_layers)
    return {"layers": layers, "encoder_layers": encoder_layers, "decoder_layers": decoder_layers}


def write_marian(model: TransformerConfig) -> Json:
    untied = {} if model.tie_embeddings else {"share_encoder_decoder_embeddings": False}
    return {**write_layers(model), "output_bias": model.output_bias, **untied}


def has_output_bias(config: Json) -> bool:
    """Every model of Marian and BART has a bias; ours have a field for it."""
    return bool(config.get("output_bias", "regard" not in config))


def read_marian(config: Json) -> Json:
    shared = config.get("share_encoder_decoder_embeddings") is not False
    size, other = config["vocab_size"], config.get("decoder_vocab_size")
    if shared and other not in (None, size):
        raise UsageError(
            f"decoder_vocab_size = {other} is not vocab_size = {size}, but both sides share one",
            code="E_MODEL_CONFIG",
        )
    return {
        **read_layers(config),
        "positions": "sinusoidal_halves",
        "output_bias": has_output_bias(config),
    }


MARIAN_BLOCK = {
    **attention("attention", "self_attn", "q_proj", "k_proj", "v_proj", "out_proj"),
    "attention_residual.norm": "self_attn_layer_norm",
    **attention("cross", "encoder_attn", "q_proj", "k_proj", "v_proj", "out_proj"),
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def side_names(ours: str, side: str) -> dict[str, str]:
    """Names of everything but the token embeddings of one side."""
    return {
        f"{ours}.positions.table": f"model.{side}.embed_positions.weight",
        f"{ours}.norm": f"model.{side}.layernorm_embedding",
        **modules(f"{side}.blocks.*", f"model.{side}.layers.*", MARIAN_BLOCK),
        f"{side}.final_norm": f"model.{side}.layer_norm",
    }


def marian_table(shapes: Shapes, head: str | None) -> Table:
    """Of Marian, BART, mBART and M2M100."""
    source, target = "model.encoder.embed_tokens", "model.decoder.embed_tokens"
    is_shared, is_tied = "target.tokens.weight" not in shapes, "output.weight" not in shapes
    first = "model.shared" if is_shared else source
    width = shapes["source.tokens.weight"][-1]

    def waves(rows: int) -> Tensor:
        return sinusoid(torch.arange(rows), width, halves=True)

    tied = (source, target, "lm_head") if is_shared else ("lm_head",)
    return Table(
        {
            "source.tokens": first,
            "target.tokens": target,
            **side_names("source", "encoder"),
            **side_names("target", "decoder"),
            "output.weight": "lm_head.weight",
            "output.bias": BIAS,
        },
        prefix="model.",
        tied={f"{each}.weight": f"{first if is_shared else target}.weight" for each in tied},
        fallback={
            "model.shared.weight": f"{source}.weight",
            **{f"{each}.weight": "model.shared.weight" for each in (source, target)},
        },
        zero=(BIAS,),
        fixed={f"model.{side}.embed_positions.weight": waves for side in ("encoder", "decoder")},
        unused=(r"(en|de)coder\.embed_positions\.weights", *(() if is_tied else (r"shared\.weight",))),
        layouts={BIAS: ONE_ROW},
    )


MARIAN_FIELDS: Fields = {
    "d_model": "width",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "feed_forward",
    "decoder_ffn_dim": "feed_forward",
    "activation_function": ("activation", "gelu"),
    "dropout": ("dropout", 0.1),
    "max_position_embeddings": "max_length",
    "scale_embedding": ("scale_embeddings", False),
}
MARIAN = Architecture(
    "marian",
    "transformer",
    {"MarianMTModel": "translate"},
    {**MARIAN_FIELDS, "tie_word_embeddings": ("tie_embeddings", True)},
    marian_table,
    constants={"attention_dropout": 0.0, "activation_dropout": 0.0},
    supported={"normalize_embedding": False, "add_final_layer_norm": False, "is_decoder": False},
    fixed={"static_position_embeddings": True, "normalize_before": False},
    write_more=write_marian,
    read_more=read_marian,
    converted=in_halves,
    two_vocabularies=True,
)


def like_bart(
    name: str,
    kind: str,
    fields: Fields,
    **more: Any,
) -> Architecture:
    """A relative of Marian with other parts around its blocks; one embedding for everything."""
    return Architecture(
        name,
        "transformer",
        {f"{kind}ForConditionalGeneration": "translate"},
        fields,
        marian_table,
        constants={"attention_dropout": 0.0, "activation_dropout": 0.0},
        fixed={"tie_word_embeddings": True},
        **more,
    )


def bart_with(name: str, kind: str, norm: str) -> Architecture:
    is_pre = norm == "pre"
    parts = {"positions": "learned", "first_position": 2, "embedding_norm": True, "norm": norm}
    return like_bart(
        name,
        kind,
        MARIAN_FIELDS,
        supported={  # older files name these parts
            "is_decoder": False,
            "normalize_before": is_pre,
            "normalize_embedding": True,
            "add_final_layer_norm": is_pre,
            "static_position_embeddings": False,
            "extra_pos_embeddings": 2,
        },
        write_more=lambda model: {**write_layers(model), "output_bias": model.output_bias},
        read_more=lambda config: {**read_layers(config), **parts, "output_bias": has_output_bias(config)},
        converted=with_output_bias,
    )


BART = bart_with("bart", "Bart", "post")
MBART = bart_with("mbart", "MBart", "pre")
M2M_100 = like_bart(
    "m2m_100",
    "M2M100",
    {
        **MARIAN_FIELDS,
        "activation_function": ("activation", "relu"),
        "scale_embedding": ("scale_embeddings", True),
    },
    supported={"is_decoder": False},
    write_more=lambda model: {**write_layers(model), **write_first_position(model)},
    read_more=lambda config: {
        **read_layers(config),
        "positions": "sinusoidal_tensor2tensor",
        "first_position": read_first_position(config),
        "norm": "pre",
    },
)


def write_t5(model: T5Config) -> Json:
    # "gated-gelu" means the tanh form, so that a gate with the exact GELU has no name
    acts = "gelu" if model.gated and model.activation == "gelu_tanh" else ACTIVATIONS[model.activation][0]
    return {
        "d_kv": model.channels,
        "num_layers": model.depth[0],
        "num_decoder_layers": model.depth[1],
        "feed_forward_proj": f"{GATED if model.gated else ''}{acts}",
        "tie_word_embeddings": model.tie_embeddings,
        "scale_decoder_outputs": model.tie_embeddings,
    }


def read_t5(config: Json) -> Json:
    forward = str(config.get("feed_forward_proj", "relu"))
    name = "gelu_new" if forward == "gated-gelu" else forward.removeprefix(GATED)
    layers = config["num_layers"]
    # outputs of a tied matrix are scaled; newer files have a field for it, older ones whether it is tied
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    if not isinstance(scaled, bool):
        raise UsageError(
            f"scale_decoder_outputs = {scaled!r} is neither true nor false", code="E_MODEL_CONFIG"
        )
    return {
        "head_width": config["d_kv"],
        "layers": layers,
        "encoder_layers": layers,
        "decoder_layers": config.get("num_decoder_layers") or layers,
        "gated": forward.startswith(GATED),
        "activation": activation(name, "feed_forward_proj"),
        "tie_embeddings": scaled,
    }


T5_LAYERS = {  # the sub-layers of a block
    "attention": {
        **attention("attention", "SelfAttention", "q", "k", "v", "o"),
        "attention_residual.norm": "layer_norm",
    },
    "cross": {
        **attention("cross", "EncDecAttention", "q", "k", "v", "o"),
        "cross_residual.norm": "layer_norm",
    },
    "feed_forward": {
        "feed_forward.gate": "DenseReluDense.wi_0",
        "feed_forward.down": "DenseReluDense.wo",
        "feed_forward_residual.norm": "layer_norm",
    },
}


def t5_table(shapes: Shapes, head: str | None) -> Table:
    is_gated = "encoder.blocks.0.feed_forward.gate.weight" in shapes
    names = {"source.tokens": "shared", "output": "lm_head"}
    for side, kinds in (("encoder", ("attention",)), ("decoder", ("attention", "cross"))):
        names[f"{side}.positions.table"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{side}.final_norm"] = f"{side}.final_layer_norm"
        for number, kind in enumerate((*kinds, "feed_forward")):
            names |= modules(f"{side}.blocks.*", f"{side}.block.*.layer.{number}", T5_LAYERS[kind])
        up = f"{side}.block.*.layer.{len(kinds)}.DenseReluDense.wi"
        names[f"{side}.blocks.*.feed_forward.up"] = f"{up}_1" if is_gated else up
    names["decoder.final_norm.*"] = names["decoder.final_norm"]  # tied: a factor follows it
    tied = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    return Table(
        names,
        tied=dict.fromkeys(tied, "shared.weight"),
        fallback={"shared.weight": tied[0], "lm_head.weight": "shared.weight"},
        unused=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    )


T5 = Architecture(
    "t5",
    "t5",
    {"T5ForConditionalGeneration": "translate"},
    {
        "d_model": "width",
        "d_ff": "feed_forward",
        "num_heads": "heads",
        "relative_attention_num_buckets": ("relative_buckets", 32),
        "relative_attention_max_distance": ("relative_max_distance", 128),
        "n_positions": ("max_length", 512),
        "dropout_rate": ("dropout", 0.1),
        "layer_norm_epsilon": ("epsilon", 1e-6),
    },
    t5_table,
    write_more=write_t5,
    read_more=read_t5,
)
