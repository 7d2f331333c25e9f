"""GPT-2, which stores linear weights as [in, out], and query, key and value as one tensor."""

from __future__ import annotations

from regard.config.model import GPTConfig
from regard.storage.files import Json
from regard.storage.huggingface.architecture import ACTIVATIONS, Architecture, Shape, activation, refuse
from regard.storage.huggingface.table import FUSED, FUSED_TRANSPOSED, TRANSPOSED, Row, Table, same


def write(model: GPTConfig) -> Json:
    return {
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.feed_forward,
        "n_positions": model.max_length,
        "activation_function": ACTIVATIONS[model.activation][0],
        "layer_norm_epsilon": model.epsilon,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": model.tie_embeddings,
    }


def read(config: Json) -> Json:
    refuse(
        config,
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
    )
    return {
        "family": "gpt",
        "width": config["n_embd"],
        "layers": config["n_layer"],
        "heads": config["n_head"],
        "feed_forward": config.get("n_inner") or 4 * config["n_embd"],
        "max_length": config["n_positions"],
        "activation": activation(config.get("activation_function", "gelu_new"), "activation_function"),
        "epsilon": config.get("layer_norm_epsilon", 1e-5),
        "dropout": config.get("resid_pdrop", 0.1),
        "tie_embeddings": config.get("tie_word_embeddings", True),
    }


def table(model: GPTConfig, shape: Shape) -> Table:
    words = "transformer.wte.weight"
    rows = [
        Row(words, ("target.tokens.weight",)),
        Row("transformer.wpe.weight", ("target.positions.table",)),
        *same("decoder.final_norm", "transformer.ln_f"),
    ]
    for layer in range(model.layers):
        ours, theirs = f"decoder.blocks.{layer}", f"transformer.h.{layer}"
        rows += same(f"{ours}.attention_residual.norm", f"{theirs}.ln_1")
        rows += same(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2")
        for part, layout in (("weight", FUSED_TRANSPOSED), ("bias", FUSED)):
            three = tuple(f"{ours}.attention.{name}.{part}" for name in ("query", "key", "value"))
            rows.append(Row(f"{theirs}.attn.c_attn.{part}", three, layout))
        for our, their in (
            ("attention.output", "attn.c_proj"),
            ("feed_forward.up", "mlp.c_fc"),
            ("feed_forward.down", "mlp.c_proj"),
        ):
            rows += same(f"{ours}.{our}", f"{theirs}.{their}", ("weight",), TRANSPOSED)
            rows += same(f"{ours}.{our}", f"{theirs}.{their}", ("bias",))
    tied = {"lm_head.weight": words} if model.tie_embeddings else {}
    if not model.tie_embeddings:
        rows.append(Row("lm_head.weight", ("output.weight",)))
    return Table(rows, "transformer.", tied, unused=(r"h\.\d+\.attn\.(masked_)?bias",))


GPT2 = Architecture("gpt2", "gpt", {"GPT2LMHeadModel": "generate"}, write, read, table)
