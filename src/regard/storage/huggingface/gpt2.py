"""GPT-2, which stores linear weights as [in, out], and query, key and value as one tensor."""

from __future__ import annotations

from regard.config.model import GPTConfig
from regard.storage.huggingface.architecture import (
    FUSED,
    FUSED_TRANSPOSED,
    TRANSPOSED,
    Architecture,
    Fields,
    Row,
    Shape,
    Table,
    same,
)

FIELDS: Fields = {
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "n_inner": ("feed_forward", None),
    "n_positions": "max_length",
    "activation_function": ("activation", "gelu_new"),
    "layer_norm_epsilon": ("epsilon", 1e-5),
    "resid_pdrop": ("dropout", 0.1),
    "tie_word_embeddings": ("tie_embeddings", True),
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


GPT2 = Architecture(
    "gpt2",
    "gpt",
    {"GPT2LMHeadModel": "generate"},
    FIELDS,
    table,
    constants={"attn_pdrop": 0.0},
    supported={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    write_more=lambda model: {"embd_pdrop": model.dropout},
    read_more=lambda config: {"feed_forward": config.get("n_inner") or 4 * config["n_embd"]},
)
