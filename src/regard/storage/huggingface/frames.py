"""Models that read pictures and sounds: ViT, AST, Whisper, VisionEncoderDecoder (ViT and GPT-2)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.config.input import AudioInput, ImageInput, InputConfig
from regard.config.model import ViTGPTConfig, WhisperConfig
from regard.models.positions import sinusoid
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    Architecture,
    Layout,
    Shapes,
    Table,
    attention,
    modules,
    unsupported,
)
from regard.storage.huggingface.decoders import GPT2_BLOCK, GPT2_LAYOUTS

ENCODER_SIZES: dict[str, str | tuple[str, object]] = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.0),
    "layer_norm_eps": ("epsilon", 1e-12),
}
ENCODER_BLOCK = {
    **attention(
        "attention", "attention", "attention.query", "attention.key", "attention.value", "output.dense"
    ),
    "attention_residual.norm": "layernorm_before",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "layernorm_after",
}
BATCHED = Layout(lambda theirs: theirs.flatten(0, 1), lambda ours: ours.unsqueeze(0))  # [1,N,D] there
VECTORS = r".*\.(cls_token|distillation_token|position_embeddings)"
PROJECTION = r".*\.projection\.weight"


def kernel(*shape: int) -> Layout:
    """The kernel of a convolution there, a matrix here: [D,...] <-> [D,F]."""
    return Layout(lambda theirs: theirs.flatten(1), lambda ours: ours.reshape(len(ours), *shape))


def encoder_names(prefix: str) -> dict[str, str]:
    return {
        "source.front.projection": f"{prefix}embeddings.patch_embeddings.projection",
        "source.front.tokens.classes": f"{prefix}embeddings.cls_token",
        "source.front.tokens.distillation": f"{prefix}embeddings.distillation_token",
        "source.positions.table": f"{prefix}embeddings.position_embeddings",
        **modules("encoder.blocks.*", f"{prefix}encoder.layer.*", ENCODER_BLOCK),
        "encoder.final_norm": f"{prefix}layernorm",
    }


def patch_shape(shapes: Shapes, channels: int) -> tuple[int, int, int]:
    side = round((shapes["source.front.projection.weight"][1] // channels) ** 0.5)
    return channels, side, side


def channels_of(shapes: Shapes) -> int:
    """3 unless a patch of 3 channels would not be square: 3 p^2 is never a square."""
    size = shapes["source.front.projection.weight"][1]
    return 1 if round(size**0.5) ** 2 == size else 3


def without_head(head: str | None) -> tuple[str, ...]:
    """For the body alone, the tensors of the classifier are ignored."""
    return () if head else (r"classifier\..*",)


def vit_table(shapes: Shapes, head: str | None) -> Table:
    return Table(
        {
            **encoder_names("vit."),
            "output": "classifier",
        },
        prefix="vit.",
        unused=(r"pooler\.dense\.(weight|bias)", r"embeddings\.mask_token", *without_head(head)),
        layouts={
            VECTORS: BATCHED,
            PROJECTION: kernel(*patch_shape(shapes, channels_of(shapes))),
        },
    )


def write_vit_input(reader: InputConfig) -> Json:
    assert isinstance(reader, ImageInput)
    side = reader.height if reader.height == reader.width else [reader.height, reader.width]
    return {"image_size": side, "patch_size": reader.patch, "num_channels": reader.channels}


def read_vit(config: Json) -> Json:
    return {"pool": "first", "positions": "learned", "front": "patches"}


VIT = Architecture(
    "vit",
    "vit",
    {"ViTForImageClassification": "classify", "ViTModel": None},
    ENCODER_SIZES,
    vit_table,
    constants={"attention_probs_dropout_prob": 0.0},
    supported={"qkv_bias": True},
    read_more=read_vit,
    input="image",
    suits=lambda reader: isinstance(reader, ImageInput),
    write_input=write_vit_input,
)


def ast_table(shapes: Shapes, head: str | None) -> Table:
    prefix = "audio_spectrogram_transformer."
    return Table(
        {**encoder_names(prefix), "head": "classifier.layernorm", "output": "classifier.dense"},
        prefix=prefix,
        unused=without_head(head),
        layouts={VECTORS: BATCHED, PROJECTION: kernel(*patch_shape(shapes, 1))},
    )


def write_ast_input(reader: InputConfig) -> Json:
    assert isinstance(reader, AudioInput)
    stride = reader.stride or reader.patch
    return {
        "num_mel_bins": reader.mels,
        "max_length": reader.spectrum_frames,
        "patch_size": reader.patch,
        "frequency_stride": stride,
        "time_stride": stride,
    }


AST = Architecture(
    "audio-spectrogram-transformer",
    "ast",
    {"ASTForAudioClassification": "classify", "ASTModel": None},
    ENCODER_SIZES,
    ast_table,
    constants={"attention_probs_dropout_prob": 0.0},
    supported={"qkv_bias": True},
    input="audio",
    suits=lambda reader: isinstance(reader, AudioInput) and reader.patch is not None,
    write_input=write_ast_input,
)

WHISPER_BLOCK = {
    **attention("attention", "self_attn", "q_proj", "k_proj", "v_proj", "out_proj"),
    "attention_residual.norm": "self_attn_layer_norm",
    **attention("cross", "encoder_attn", "q_proj", "k_proj", "v_proj", "out_proj"),
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def whisper_table(shapes: Shapes, head: str | None) -> Table:
    width = shapes["target.tokens.weight"][-1]

    def waves(rows: int) -> Tensor:
        return sinusoid(torch.arange(rows), width, halves=True, denominator=width - 2)

    layers = {name.split(".")[2] for name in shapes if ".blocks." in name}
    keys = [f"model.{side}.layers.{n}.{kind}.k_proj.bias" for side in ("encoder", "decoder") for n in layers
            for kind in ("self_attn", "encoder_attn")]  # fmt: skip
    return Table(
        {
            "source.front.first": "model.encoder.conv1",
            "source.front.second": "model.encoder.conv2",
            "target.tokens": "model.decoder.embed_tokens",
            "target.positions.table": "model.decoder.embed_positions.weight",
            **modules("encoder.blocks.*", "model.encoder.layers.*", WHISPER_BLOCK),
            **modules("decoder.blocks.*", "model.decoder.layers.*", WHISPER_BLOCK),
            "encoder.final_norm": "model.encoder.layer_norm",
            "decoder.final_norm": "model.decoder.layer_norm",
            "output.weight": "proj_out.weight",
        },
        prefix="model.",
        tied={"proj_out.weight": "model.decoder.embed_tokens.weight"},
        zero=tuple(keys),
        fixed={"model.encoder.embed_positions.weight": waves},
        layouts={r".*\.conv\d\.weight": kernel(-1, 3)},
    )


def without_key_biases(model: WhisperConfig, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Whisper's keys have no bias: q . b is the same for all keys of a query, and softmax ignores it."""
    return {name: each for name, each in weights.items() if not name.endswith(".key.bias")}


def write_layers(model: WhisperConfig) -> Json:
    encoder, decoder = model.depth
    return {"encoder_layers": encoder, "decoder_layers": decoder, "num_hidden_layers": encoder}


def read_whisper(config: Json) -> Json:
    layers = config["encoder_layers"], config["decoder_layers"]
    return {"layers": max(layers), "encoder_layers": layers[0], "decoder_layers": layers[1]}


def write_whisper_input(reader: InputConfig) -> Json:
    assert isinstance(reader, AudioInput)
    return {"num_mel_bins": reader.mels, "max_source_positions": -(-reader.spectrum_frames // 2)}


WHISPER = Architecture(
    "whisper",
    "whisper",
    {"WhisperForConditionalGeneration": "transcribe"},
    {
        "d_model": "width",
        "encoder_attention_heads": "heads",
        "decoder_attention_heads": "heads",
        "encoder_ffn_dim": "feed_forward",
        "decoder_ffn_dim": "feed_forward",
        "activation_function": ("activation", "gelu"),
        "dropout": ("dropout", 0.0),
        "max_target_positions": ("max_length", 448),
        "tie_word_embeddings": ("tie_embeddings", True),
    },
    whisper_table,
    constants={"attention_dropout": 0.0, "activation_dropout": 0.0},
    supported={"scale_embedding": False},
    write_more=write_layers,
    read_more=read_whisper,
    converted=without_key_biases,
    input="audio",
    # theirs reads windows of one length, and masks no padding
    suits=lambda reader: isinstance(reader, AudioInput) and reader.patch is None and reader.pad,
    write_input=write_whisper_input,
)


def vit_gpt_table(shapes: Shapes, head: str | None) -> Table:
    cross = {
        "cross_residual.norm": "ln_cross_attn",
        **attention("cross", "crossattention", "q_attn", "c_attn", "c_attn", "c_proj"),
    }
    words = "decoder.transformer.wte"
    return Table(
        {
            **encoder_names("encoder."),
            "target.tokens": words,
            "target.positions.table": "decoder.transformer.wpe.weight",
            **modules("decoder.blocks.*", "decoder.transformer.h.*", GPT2_BLOCK | cross),
            "decoder.final_norm": "decoder.transformer.ln_f",
            "output": "decoder.lm_head",
        },
        tied={"decoder.lm_head.weight": f"{words}.weight"},
        unused=(
            r"encoder\.pooler\.dense\.(weight|bias)",
            r"decoder\.transformer\.h\.\d+\..*attn.*\.(masked_)?bias",
        ),
        layouts={
            VECTORS: BATCHED,
            PROJECTION: kernel(*patch_shape(shapes, channels_of(shapes))),
            **GPT2_LAYOUTS,
        },
    )


def write_vit_gpt(model: ViTGPTConfig) -> Json:
    encoder, decoder = model.depth
    common = {"hidden_dropout_prob": model.dropout, "attention_probs_dropout_prob": 0.0, "qkv_bias": True}
    return {
        "encoder": {
            "model_type": "vit",
            "hidden_size": model.width,
            "num_hidden_layers": encoder,
            "num_attention_heads": model.heads,
            "intermediate_size": model.feed_forward,
            "hidden_act": model.activation,
            "layer_norm_eps": model.epsilon,
            **common,
        },
        "decoder": {
            "model_type": "gpt2",
            "n_embd": model.width,
            "n_layer": decoder,
            "n_head": model.heads,
            "n_inner": model.feed_forward,
            "n_positions": model.max_length,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": model.epsilon,
            "add_cross_attention": True,
            "is_decoder": True,
            "tie_word_embeddings": model.tie_embeddings,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), model.dropout),
        },
    }


def read_vit_gpt(config: Json) -> Json:
    encoder, decoder = config["encoder"], config["decoder"]
    if (kinds := (encoder["model_type"], decoder["model_type"])) != ("vit", "gpt2"):
        raise unsupported("encoder.model_type, decoder.model_type", list(kinds))
    both = {
        "width": (encoder["hidden_size"], decoder["n_embd"]),
        "heads": (encoder["num_attention_heads"], decoder["n_head"]),
        "feed_forward": (encoder["intermediate_size"], decoder.get("n_inner") or 4 * decoder["n_embd"]),
        "epsilon": (encoder.get("layer_norm_eps", 1e-12), decoder.get("layer_norm_epsilon", 1e-5)),
    }
    for name, (first, second) in both.items():
        if first != second:
            raise unsupported(f"encoder and decoder of different {name}", [first, second])
    layers = encoder["num_hidden_layers"], decoder["n_layer"]
    return {
        **{name: first for name, (first, _) in both.items()},
        "layers": max(layers),
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "activation": encoder.get("hidden_act", "gelu"),
        "max_length": decoder.get("n_positions", 1024),
        "dropout": encoder.get("hidden_dropout_prob", 0.0),
        "tie_embeddings": decoder.get("tie_word_embeddings", True),
    }


VIT_GPT = Architecture(
    "vision-encoder-decoder",
    "vit_gpt",
    {"VisionEncoderDecoderModel": "caption"},
    {},
    vit_gpt_table,
    write_more=write_vit_gpt,
    read_more=read_vit_gpt,
    input="image",
    suits=lambda reader: isinstance(reader, ImageInput),
    write_input=lambda reader: {},
)
