"""Decoders: GPT-2, GPT-NeoX, and Llama with its relatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regard.config.model import GPTConfig, LlamaConfig
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    SIZES,
    TRANSPOSED,
    Architecture,
    Layout,
    Table,
    attention,
    modules,
    unsupported,
)

GPT2_BLOCK = {
    "attention_residual.norm": "ln_1",
    **attention("attention", "attn", "c_attn", "c_attn", "c_attn", "c_proj"),
    "feed_forward_residual.norm": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}
GPT2_LAYOUTS = {r".*\.(c|q)_(attn|proj|fc)\.weight": TRANSPOSED}  # linear weights are [in, out]

GPT2 = Architecture(
    "gpt2",
    "gpt",
    {"GPT2LMHeadModel": "generate"},
    {
        "n_embd": "width",
        "n_layer": "layers",
        "n_head": "heads",
        "n_inner": ("feed_forward", None),
        "n_positions": "max_length",
        "activation_function": ("activation", "gelu_new"),
        "layer_norm_epsilon": ("epsilon", 1e-5),
        "resid_pdrop": ("dropout", 0.1),
        "tie_word_embeddings": ("tie_embeddings", True),
    },
    Table(
        {
            "target.tokens": "transformer.wte",
            "target.positions.table": "transformer.wpe.weight",
            **modules("decoder.blocks.*", "transformer.h.*", GPT2_BLOCK),
            "decoder.final_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        prefix="transformer.",
        tied={"lm_head.weight": "transformer.wte.weight"},
        unused=(r"h\.\d+\.attn\.(masked_)?bias",),
        layouts=GPT2_LAYOUTS,
    ),
    constants={"attn_pdrop": 0.0},
    supported={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    write_more=lambda model: {"embd_pdrop": model.dropout},
    read_more=lambda config: {"feed_forward": config.get("n_inner") or 4 * config["n_embd"]},
)


QKV = "query_key_value"  # one matrix
NEOX_BLOCK = {
    "attention_residual.norm": "input_layernorm",
    **attention("attention", "attention", QKV, QKV, QKV, "dense"),
    "feed_forward_residual.norm": "post_attention_layernorm",
    "feed_forward.up": "mlp.dense_h_to_4h",
    "feed_forward.down": "mlp.dense_4h_to_h",
}


def neox_rope(config: Json) -> tuple[float, int]:
    """The base of the angles, and how many channels of a head rotate."""
    rope = {"rope_type": "default", **(config.get("rope_scaling") or config.get("rope_parameters") or {})}
    if rope["rope_type"] != "default":
        raise unsupported("rope_parameters", rope)
    share = rope.get("partial_rotary_factor", config.get("rotary_pct", 0.25))
    theta: Any = rope.get("rope_theta", config.get("rotary_emb_base", 10000.0))
    return float(theta), int(config["hidden_size"] // config["num_attention_heads"] * share)


def write_neox(model: GPTConfig) -> Json:
    share = (model.rotary_channels or model.channels) / model.channels
    rope = {"rope_type": "default", "rope_theta": model.rope_theta, "partial_rotary_factor": share}
    return {"rope_parameters": rope, "rotary_pct": share, "rotary_emb_base": model.rope_theta}


def read_neox(config: Json) -> Json:
    theta, rotated = neox_rope(config)
    channels = config["hidden_size"] // config["num_attention_heads"]
    some = rotated if rotated < channels else None
    return {"positions": "rotary", "rope_theta": theta, "rotary_channels": some}


def neox_layouts(config: Json) -> Mapping[str, Layout]:
    """Theirs has the rows [H,3,C], ours [3,H,C]. Theirs rotates channels i and i + R/2 of the first R, ours
    i and i + C/2: so channels of queries and keys change places, which changes no product of the two."""
    heads, (_, rotated) = config["num_attention_heads"], neox_rope(config)
    channels = config["hidden_size"] // heads
    half, rest = rotated // 2, (channels - rotated) // 2
    parts = torch.split(torch.arange(channels), [half, half, rest, rest])
    order = torch.cat([parts[0], parts[2], parts[1], parts[3]])
    orders = torch.stack([order, order, torch.arange(channels)])  # of queries, keys, values: [3,C]

    place = torch.arange(heads)[None, :, None] * 3 + torch.arange(3)[:, None, None]  # [3,H,1]
    index = (place * channels + orders[:, None, :]).flatten()  # where each of our rows is in theirs
    layout = Layout(lambda theirs: theirs[index], lambda ours: ours[index.argsort()])
    return {rf".*{QKV}\..*": layout}


GPT_NEOX = Architecture(
    "gpt_neox",
    "gpt",
    {"GPTNeoXForCausalLM": "generate"},
    {
        **SIZES,
        "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("epsilon", 1e-5),
        "tie_word_embeddings": ("tie_embeddings", False),
        "use_parallel_residual": ("parallel", True),
        "hidden_dropout": ("dropout", 0.0),
    },
    Table(
        {
            "target.tokens": "gpt_neox.embed_in",
            **modules("decoder.blocks.*", "gpt_neox.layers.*", NEOX_BLOCK),
            "decoder.final_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
        },
        prefix="gpt_neox.",
        # newer versions of transformers call the output layer lm_head
        tied={"embed_out.weight": "gpt_neox.embed_in.weight", "lm_head.weight": "embed_out.weight"},
        fallback={"embed_out.weight": "lm_head.weight"},
        unused=(r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",),
    ),
    constants={"attention_dropout": 0.0},
    fixed={"attention_bias": True},
    write_more=write_neox,
    read_more=read_neox,
    layouts_of=neox_layouts,
)


# `rope_type` -> its numbers in `rope_parameters`: theirs -> ours
SCALINGS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_factor",
        "high_freq_factor": "high_factor",
        "original_max_position_embeddings": "original_length",
    },
}


def write_llama(model: LlamaConfig) -> Json:
    scaling = model.rope_scaling
    kind = "default" if scaling is None else scaling.kind
    rope: Json = {"rope_type": kind, "rope_theta": model.rope_theta}
    rope |= {theirs: getattr(scaling, ours) for theirs, ours in SCALINGS[kind].items()}
    return {
        "num_key_value_heads": model.kv_heads or model.heads,
        "head_dim": model.channels,
        "rope_theta": model.rope_theta,
        "rope_parameters": rope,
    }


def read_llama(config: Json) -> Json:
    heads = config["num_attention_heads"]
    return {
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or config["hidden_size"] // heads,
        **read_rope(config),
        "dropout": 0.0,
    }


def read_rope(config: Json) -> Json:
    """Rotary angles: in `rope_parameters`, or in older files `rope_theta` beside `rope_scaling`."""
    field = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.get(field) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in SCALINGS or (kind == "default" and "factor" in rope):
        raise unsupported(field, rope)
    if (factor := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise unsupported("partial_rotary_factor", factor)
    theta = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    scaling = {ours: rope[theirs] for theirs, ours in SCALINGS[kind].items()}
    return {
        "rope_theta": float(theta) if type(theta) is int else theta,
        "rope_scaling": {"kind": kind, **scaling} if scaling else None,
    }


LLAMA_BLOCK = {
    "attention_residual.norm": "input_layernorm",
    **attention("attention", "self_attn", "q_proj", "k_proj", "v_proj", "o_proj"),
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_residual.norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
ONE_LESS = Layout(lambda theirs: theirs + 1, lambda ours: ours - 1)  # Gemma: weights of norms minus one


def like_llama(
    name: str,
    task_class: str,
    reads: Json,  # our fields that this type implies
    window: str = "",  # its field for the window
    layouts: Mapping[str, Layout] | None = None,
    **more: Any,
) -> Architecture:
    """A type whose blocks are Llama's, but for a few parts."""
    return Architecture(
        name,
        "llama",
        {task_class: "generate"},
        {
            **SIZES,
            "hidden_act": ("activation", "silu"),
            "rms_norm_eps": ("epsilon", 1e-6),
            "tie_word_embeddings": ("tie_embeddings", False),
            **({window: ("window", None)} if window else {}),
        },
        Table(
            {
                "target.tokens": "model.embed_tokens",
                **modules("decoder.blocks.*", "model.layers.*", LLAMA_BLOCK),
                "decoder.final_norm": "model.norm",
                "output": "lm_head",
            },
            prefix="model.",
            tied={"lm_head.weight": "model.embed_tokens.weight"},
            unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
            layouts=layouts or {},
        ),
        constants={"attention_dropout": 0.0},
        write_more=write_llama,
        read_more=lambda config: read_llama(config) | reads,
        **more,
    )


LLAMA = like_llama("llama", "LlamaForCausalLM", {}, fixed={"attention_bias": False, "mlp_bias": False})
MISTRAL = like_llama("mistral", "MistralForCausalLM", {}, window="sliding_window")
QWEN2 = like_llama("qwen2", "Qwen2ForCausalLM", {"qkv_bias": True}, fixed={"use_sliding_window": False})
QWEN3 = like_llama(
    "qwen3",
    "Qwen3ForCausalLM",
    {"qk_norm": True},
    fixed={"use_sliding_window": False, "attention_bias": False},
)
GEMMA = like_llama(
    "gemma",
    "GemmaForCausalLM",
    {"embedding_scale": True},
    layouts={r".*norm\.weight": ONE_LESS},
    fixed={"attention_bias": False},
    supported={"use_bidirectional_attention": False},
)
