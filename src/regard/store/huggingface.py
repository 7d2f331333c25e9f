"""Our model config as Hugging Face's `config.json` and back.

What MarianMTModel can express is written as such, so that `transformers` opens it. Other shapes (pre-norm,
learned positions, free head widths, untied embeddings) use the same files with `model_type: "regard"`.
"""

from __future__ import annotations

from pydantic import ValidationError

from regard.config import Model
from regard.errors import UsageError
from regard.store.files import Json
from regard.text import Tokenizer


def is_marian(model: Model) -> bool:
    return (
        model.family == "transformer"
        and model.norm == "post"
        and model.positions == "sinusoidal"
        and model.tie_embeddings
        and model.channels * model.heads == model.width
    )


def config_json(model: Model, source: Tokenizer, target: Tokenizer | None) -> Json:
    output = target or source
    common: Json = {
        "is_encoder_decoder": True,
        "vocab_size": len(source),
        "pad_token_id": output.pad,
        "bos_token_id": output.start,
        "eos_token_id": output.end,
        "decoder_start_token_id": output.start,
    }
    if target is not None:
        common |= {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    if not is_marian(model):
        fields = model.model_dump(mode="json", exclude={"preset"})
        return {"model_type": "regard", "architectures": [model.family], **common, "model": fields}
    return {"model_type": "marian", "architectures": ["MarianMTModel"], **common, **_marian(model)}


def _marian(model: Model) -> Json:
    encoder_layers, decoder_layers = model.depth
    return {
        "d_model": model.width,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.feed_forward,
        "decoder_ffn_dim": model.feed_forward,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": model.max_length,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def model_config(config: Json, path: str) -> Model:
    """The model that a `config.json` describes; an impossible one is an error that names the file."""
    kind = config.get("model_type")
    if kind not in ("marian", "regard"):
        raise UsageError(f"{path}: model_type {kind!r} is not one that Regard opens (marian, regard)")
    try:
        return Model.model_validate(config.get("model", {}) if kind == "regard" else _from_marian(config))
    except (ValidationError, KeyError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else f"missing {error}"
        raise UsageError(f"{path}: not a config that Regard can use ({reason})") from None


def _from_marian(config: Json) -> Json:
    for theirs in ("encoder_attention_heads", "encoder_ffn_dim"):
        if config[theirs] != config[theirs.replace("encoder", "decoder")]:
            raise KeyError(f"equal {theirs} and {theirs.replace('encoder', 'decoder')}")
    return {
        "width": config["d_model"],
        "layers": max(config["encoder_layers"], config["decoder_layers"]),
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "heads": config["encoder_attention_heads"],
        "feed_forward": config["encoder_ffn_dim"],
        "activation": config["activation_function"],
        "dropout": config["dropout"],
        "max_length": config["max_position_embeddings"],
    }
