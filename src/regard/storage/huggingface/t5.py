"""T5: version 1 with tied embeddings; version 1.1 (and Flan) gated, with an untied output layer."""

from __future__ import annotations

from regard.config.model import T5Config
from regard.errors import UsageError
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    ACTIVATIONS,
    Architecture,
    Fields,
    Row,
    Shape,
    Table,
    activation,
    same,
)

_GATED = "gated-"


FIELDS: Fields = {
    "d_model": "width",
    "d_ff": "feed_forward",
    "num_heads": "heads",
    "relative_attention_num_buckets": ("relative_buckets", 32),
    "relative_attention_max_distance": ("relative_max_distance", 128),
    "n_positions": ("max_length", 512),
    "dropout_rate": ("dropout", 0.1),
    "layer_norm_epsilon": ("epsilon", 1e-6),
}


def write_more(model: T5Config) -> Json:
    # "gated-gelu" means the tanh form, so that a gate with the exact GELU has no name
    acts = "gelu" if model.gated and model.activation == "gelu_tanh" else ACTIVATIONS[model.activation][0]
    return {
        "d_kv": model.channels,
        "num_layers": model.depth[0],
        "num_decoder_layers": model.depth[1],
        "feed_forward_proj": f"{_GATED if model.gated else ''}{acts}",
        "tie_word_embeddings": model.tie_embeddings,
        "scale_decoder_outputs": model.tie_embeddings,
    }


def read_more(config: Json) -> Json:
    forward = str(config.get("feed_forward_proj", "relu"))
    name = "gelu_new" if forward == "gated-gelu" else forward.removeprefix(_GATED)
    layers = config["num_layers"]
    return {
        "head_width": config["d_kv"],
        "layers": layers,
        "encoder_layers": layers,
        "decoder_layers": config.get("num_decoder_layers") or layers,
        "gated": forward.startswith(_GATED),
        "activation": activation(name, "feed_forward_proj"),
        "tie_embeddings": _tied(config),
    }


def _tied(config: Json) -> bool:
    """Outputs of a tied matrix are scaled; newer files have a field for it, older ones whether it is tied."""
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    if not isinstance(scaled, bool):
        raise UsageError(
            f"scale_decoder_outputs = {scaled!r} is neither true nor false", code="E_MODEL_CONFIG"
        )
    return scaled


def table(model: T5Config, shape: Shape) -> Table:
    shared = "shared.weight"
    rows = [Row(shared, ("source.tokens.weight",), fallback="encoder.embed_tokens.weight")]
    tied = {f"{side}.embed_tokens.weight": shared for side in ("encoder", "decoder")}
    if model.tie_embeddings:
        tied["lm_head.weight"] = shared
    else:
        rows.append(Row("lm_head.weight", ("output.weight",), fallback=shared))
    scaled = ".0" if model.tie_embeddings else ""  # the norm is followed by a factor there
    rows += same("encoder.final_norm", "encoder.final_layer_norm", ("weight",))
    rows += same(f"decoder.final_norm{scaled}", "decoder.final_layer_norm", ("weight",))
    for side, layers in zip(("encoder", "decoder"), model.depth, strict=True):
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        rows += same(f"{side}.positions.table", first, ("weight",))
        for layer in range(layers):
            rows += _block(f"{side}.blocks.{layer}", f"{side}.block.{layer}", model.gated, side == "decoder")
    cross = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    return Table(rows, tied=tied, unused=(cross,))


def _block(ours: str, theirs: str, gated: bool, cross: bool) -> list[Row]:
    parts = [("attention", "SelfAttention")] + ([("cross", "EncDecAttention")] if cross else [])
    rows = []
    for place, (our, their) in enumerate(parts):
        layer = f"{theirs}.layer.{place}"
        for name in ("query", "key", "value", "output"):
            rows += same(f"{ours}.{our}.{name}", f"{layer}.{their}.{name[0]}", ("weight",))
        rows += same(f"{ours}.{our}_residual.norm", f"{layer}.layer_norm", ("weight",))
    layer = f"{theirs}.layer.{len(parts)}"
    maps = {"up": "wi_1", "gate": "wi_0"} if gated else {"up": "wi"}
    for our, their in {**maps, "down": "wo"}.items():
        rows += same(f"{ours}.feed_forward.{our}", f"{layer}.DenseReluDense.{their}", ("weight",))
    rows += same(f"{ours}.feed_forward_residual.norm", f"{layer}.layer_norm", ("weight",))
    return rows


T5 = Architecture(
    "t5",
    "t5",
    {"T5ForConditionalGeneration": "translate"},
    FIELDS,
    table,
    write_more=write_more,
    read_more=read_more,
)
