"""Llama: rotary positions, keys and values shared by groups of heads, gated feed-forward, no biases."""

from __future__ import annotations

from typing import Any

from regard.config.model import LlamaConfig
from regard.storage.files import Json
from regard.storage.huggingface.architecture import Architecture, Fields, Row, Shape, Table, same, unsupported

FIELDS: Fields = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "hidden_act": ("activation", "silu"),
    "max_position_embeddings": "max_length",
    "rms_norm_eps": ("epsilon", 1e-6),
    "tie_word_embeddings": ("tie_embeddings", False),
}
FIXED = {"attention_bias": False, "mlp_bias": False}


def write_more(model: LlamaConfig) -> Json:
    return {
        "num_key_value_heads": model.kv_heads or model.heads,
        "head_dim": model.channels,
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
    }


def read_more(config: Json) -> Json:
    heads = config["num_attention_heads"]
    return {
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or config["hidden_size"] // heads,
        "rope_theta": _theta(config),
        "dropout": 0.0,
    }


def _theta(config: Json) -> Any:
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


def table(model: LlamaConfig, shape: Shape) -> Table:
    words = "model.embed_tokens.weight"
    rows = [Row(words, ("target.tokens.weight",)), *same("decoder.final_norm", "model.norm", ("weight",))]
    for layer in range(model.layers):
        ours, theirs = f"decoder.blocks.{layer}", f"model.layers.{layer}"
        for our, their in (
            ("attention_residual.norm", "input_layernorm"),
            ("feed_forward_residual.norm", "post_attention_layernorm"),
            ("attention.query", "self_attn.q_proj"),
            ("attention.key", "self_attn.k_proj"),
            ("attention.value", "self_attn.v_proj"),
            ("attention.output", "self_attn.o_proj"),
            ("feed_forward.gate", "mlp.gate_proj"),
            ("feed_forward.up", "mlp.up_proj"),
            ("feed_forward.down", "mlp.down_proj"),
        ):
            rows += same(f"{ours}.{our}", f"{theirs}.{their}", ("weight",))
    tied = {"lm_head.weight": words} if model.tie_embeddings else {}
    if not model.tie_embeddings:
        rows.append(Row("lm_head.weight", ("output.weight",)))
    return Table(rows, "model.", tied, unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",))


LLAMA = Architecture(
    "llama",
    "llama",
    {"LlamaForCausalLM": "generate"},
    FIELDS,
    table,
    constants={"attention_dropout": 0.0, **FIXED},
    supported=FIXED,
    write_more=write_more,
    read_more=read_more,
)
