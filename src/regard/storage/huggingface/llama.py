"""Llama: rotary positions, keys and values shared by groups of heads, gated feed-forward, no biases."""

from __future__ import annotations

from typing import Any

from regard.config.model import LlamaConfig
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    ACTIVATIONS,
    Architecture,
    Shape,
    activation,
    refuse,
    unsupported,
)
from regard.storage.huggingface.table import Row, Table, same


def write(model: LlamaConfig) -> Json:
    return {
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads or model.heads,
        "head_dim": model.channels,
        "intermediate_size": model.feed_forward,
        "hidden_act": ACTIVATIONS[model.activation][0],
        "max_position_embeddings": model.max_length,
        "rms_norm_eps": model.epsilon,
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": model.tie_embeddings,
    }


def read(config: Json) -> Json:
    refuse(config, attention_bias=False, mlp_bias=False)
    heads = config["num_attention_heads"]
    return {
        "family": "llama",
        "width": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or config["hidden_size"] // heads,
        "feed_forward": config["intermediate_size"],
        "activation": activation(config.get("hidden_act", "silu"), "hidden_act"),
        "max_length": config["max_position_embeddings"],
        "epsilon": config.get("rms_norm_eps", 1e-6),
        "rope_theta": _theta(config),
        "dropout": 0.0,
        "tie_embeddings": config.get("tie_word_embeddings", False),
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


LLAMA = Architecture("llama", "llama", {"LlamaForCausalLM": "generate"}, write, read, table)
