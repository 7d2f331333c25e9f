"""Decoders: GPT-2 and Llama."""

from __future__ import annotations

from typing import Any

from regard.config.model import LlamaConfig
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    SIZES,
    TRANSPOSED,
    Architecture,
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


def write_llama(model: LlamaConfig) -> Json:
    return {
        "num_key_value_heads": model.kv_heads or model.heads,
        "head_dim": model.channels,
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
    }


def read_llama(config: Json) -> Json:
    heads = config["num_attention_heads"]
    return {
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or config["hidden_size"] // heads,
        "rope_theta": rope_theta(config),
        "dropout": 0.0,
    }


def rope_theta(config: Json) -> Any:
    """In `rope_parameters`, or in older files beside `rope_scaling`."""
    for field in ("rope_parameters", "rope_scaling"):
        rope = config.get(field) or {}
        if rope.get("rope_type", rope.get("type", "default")) != "default" or "factor" in rope:
            raise unsupported(field, rope)
    rope = config.get("rope_parameters") or {}
    if (factor := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise unsupported("partial_rotary_factor", factor)
    theta = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    return float(theta) if type(theta) is int else theta  # another type is refused with the other fields


LLAMA = Architecture(
    "llama",
    "llama",
    {"LlamaForCausalLM": "generate"},
    {
        **SIZES,
        "hidden_act": ("activation", "silu"),
        "rms_norm_eps": ("epsilon", 1e-6),
        "tie_word_embeddings": ("tie_embeddings", False),
    },
    Table(
        {
            "target.tokens": "model.embed_tokens",
            **modules(
                "decoder.blocks.*",
                "model.layers.*",
                {
                    "attention_residual.norm": "input_layernorm",
                    **attention("attention", "self_attn", "q_proj", "k_proj", "v_proj", "o_proj"),
                    "feed_forward_residual.norm": "post_attention_layernorm",
                    "feed_forward.gate": "mlp.gate_proj",
                    "feed_forward.up": "mlp.up_proj",
                    "feed_forward.down": "mlp.down_proj",
                },
            ),
            "decoder.final_norm": "model.norm",
            "output": "lm_head",
        },
        prefix="model.",
        tied={"lm_head.weight": "model.embed_tokens.weight"},
        unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    ),
    constants={"attention_dropout": 0.0},
    fixed={"attention_bias": False, "mlp_bias": False},
    write_more=write_llama,
    read_more=read_llama,
)
