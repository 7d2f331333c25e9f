"""Models that read pictures and sounds: ViT, AST, Whisper, VisionEncoderDecoder (a ViT with a GPT-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from regard.config.input import AudioInput, ImageInput
from regard.config.model import GPTConfig, ViTConfig, ViTGPTConfig, WhisperConfig
from regard.models.positions import sinusoid
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    Architecture,
    Fields,
    Layout,
    Shapes,
    Table,
    attention,
    modules,
    unsupported,
)
from regard.storage.huggingface.decoders import GPT2, GPT2_BLOCK, GPT2_LAYOUTS
from regard.storage.huggingface.encoder_decoders import MARIAN_BLOCK

# --- ViT and AST

SIZES: Fields = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.0),
    "layer_norm_eps": ("epsilon", 1e-12),
}
BLOCK = {
    **modules("attention", "attention.attention", {each: each for each in ("query", "key", "value")}),
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "layernorm_before",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "layernorm_after",
}
UNUSED = (r"pooler\.dense\.(weight|bias)", r"embeddings\.mask_token")  # what only other classes use


def encoder_names(prefix: str) -> dict[str, str]:
    return {
        "source.front.projection": f"{prefix}embeddings.patch_embeddings.projection",
        "source.front.tokens.classes": f"{prefix}embeddings.cls_token",
        "source.front.tokens.distillation": f"{prefix}embeddings.distillation_token",
        "source.positions.table": f"{prefix}embeddings.position_embeddings",
        **modules("encoder.blocks.*", f"{prefix}encoder.layer.*", BLOCK),
        "encoder.final_norm": f"{prefix}layernorm",
    }


def kernel(*shape: int) -> Layout:
    """The kernel of a convolution there, a matrix here: [D,...] <-> [D,F]."""
    return Layout(lambda theirs: theirs.flatten(1), lambda ours: ours.reshape(len(ours), *shape))


def encoder_layouts(shapes: Shapes) -> dict[str, Layout]:
    size = shapes["source.front.projection.weight"][1]  # channels * side * side
    channels = 1 if round(size**0.5) ** 2 == size else 3  # 3 side^2 is never a square
    side = round((size // channels) ** 0.5)
    return {
        # [1,N,D] there, [N,D] here
        r".*\.(cls_token|distillation_token|position_embeddings)": Layout(
            lambda theirs: theirs.flatten(0, 1), lambda ours: ours.unsqueeze(0)
        ),
        r".*\.projection\.weight": kernel(channels, side, side),
    }


def vit_table(shapes: Shapes, head: str | None) -> Table:
    """For the body alone (None) the tensors of the head are ignored."""
    return Table(
        {**encoder_names("vit."), "output": "classifier"},
        prefix="vit.",
        unused=UNUSED if head else (*UNUSED, r"classifier\.(weight|bias)"),
        layouts=encoder_layouts(shapes),
    )


def write_image(reader: ImageInput) -> Json:
    side = reader.height if reader.height == reader.width else [reader.height, reader.width]
    return {"image_size": side, "patch_size": reader.patch, "num_channels": reader.channels}


VIT = Architecture(
    "vit",
    "vit",
    {"ViTForImageClassification": "classify", "ViTModel": None},
    SIZES,
    vit_table,
    constants={"attention_probs_dropout_prob": 0.0},
    fixed={"qkv_bias": True},
    read_more=lambda config: {"pool": "first", "positions": "learned", "front": "patches"},
    input="image",
    processor="ViTImageProcessor",
    write_input=write_image,
)


def ast_table(shapes: Shapes, head: str | None) -> Table:
    prefix = "audio_spectrogram_transformer."
    return Table(
        {**encoder_names(prefix), "head": "classifier.layernorm", "output": "classifier.dense"},
        prefix=prefix,
        unused=() if head else (r"classifier\..*",),
        layouts=encoder_layouts(shapes),
    )


def write_spectrum(reader: AudioInput) -> Json:
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
    SIZES,
    ast_table,
    constants={"attention_probs_dropout_prob": 0.0},
    fixed={"qkv_bias": True},
    input="audio",
    processor="ASTFeatureExtractor",
    write_input=write_spectrum,
)

# --- Whisper


WAVES = "model.encoder.embed_positions.weight"


def waves(width: int, rows: int) -> Tensor:
    return sinusoid(torch.arange(rows), width, halves=True, denominator=width - 2)


def whisper_table(shapes: Shapes, head: str | None) -> Table:
    names = {
        "source.front.first": "model.encoder.conv1",
        "source.front.second": "model.encoder.conv2",
        "target.tokens": "model.decoder.embed_tokens",
        "target.positions.table": "model.decoder.embed_positions.weight",
        "output.weight": "proj_out.weight",
    }
    for side in ("encoder", "decoder"):
        names |= modules(f"{side}.blocks.*", f"model.{side}.layers.*", MARIAN_BLOCK)
        names[f"{side}.final_norm"] = f"model.{side}.layer_norm"
    table = Table(
        names,
        prefix="model.",
        tied={"proj_out.weight": "model.decoder.embed_tokens.weight"},
        fixed={WAVES: partial(waves, shapes["target.tokens.weight"][-1])},
        layouts={r".*\.conv\d\.weight": kernel(-1, 3)},
    )
    return replace(table, zero=tuple(name for name in table.rows(shapes) if name.endswith("k_proj.bias")))


def without_key_biases(model: WhisperConfig, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Whisper's keys have no bias: q . b is the same for all keys of a query, and softmax ignores it."""
    return {name: each for name, each in weights.items() if not name.endswith(".key.bias")}


def write_whisper(model: WhisperConfig) -> Json:
    encoder, decoder = model.depth
    return {"encoder_layers": encoder, "decoder_layers": decoder, "num_hidden_layers": encoder}


def read_whisper(config: Json) -> Json:
    encoder, decoder = config["encoder_layers"], config["decoder_layers"]
    return {"layers": max(encoder, decoder), "encoder_layers": encoder, "decoder_layers": decoder}


def positions(reader: AudioInput) -> int:
    return -(-reader.spectrum_frames // 2)  # the second convolution halves the frames


def write_sound(reader: AudioInput) -> Json:
    return {"num_mel_bins": reader.mels, "max_source_positions": positions(reader)}


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
    fixed={"scale_embedding": False},
    write_more=write_whisper,
    read_more=read_whisper,
    converted=without_key_biases,
    input="audio",
    processor="WhisperFeatureExtractor",
    write_input=write_sound,
    computed=lambda model, reader: {WAVES: waves(model.width, positions(reader))},
)

# --- a ViT with a GPT-2: an object of the config for each


SHARED = ("width", "heads", "feed_forward")  # of both
CROSS = {
    "cross_residual.norm": "ln_cross_attn",
    **attention("cross", "crossattention", "q_attn", "c_attn", "c_attn", "c_proj"),
}


def vit_gpt_table(shapes: Shapes, head: str | None) -> Table:
    body, words = "decoder.transformer", "decoder.transformer.wte"
    return Table(
        {
            **encoder_names("encoder."),
            "target.tokens": words,
            "target.positions.table": f"{body}.wpe.weight",
            **modules("decoder.blocks.*", f"{body}.h.*", GPT2_BLOCK | CROSS),
            "decoder.final_norm": f"{body}.ln_f",
            "output": "decoder.lm_head",
        },
        tied={"decoder.lm_head.weight": f"{words}.weight"},
        unused=(*(rf"encoder\.{each}" for each in UNUSED), rf"{body}\.h\.\d+\.\w*att\w*\.(masked_)?bias"),
        layouts={**encoder_layouts(shapes), **GPT2_LAYOUTS},
    )


def write_vit_gpt(model: ViTGPTConfig) -> Json:
    encoder_layers, decoder_layers = model.depth
    shared: Json = {name: getattr(model, name) for name in (*SHARED, "dropout")}
    vit = ViTConfig(**shared, layers=encoder_layers, activation=model.activation, epsilon=model.epsilon)
    words: Json = {"max_length": model.max_length, "tie_embeddings": model.tie_embeddings}
    gpt = GPTConfig(**shared, **words, layers=decoder_layers, epsilon=model.decoder_epsilon)
    cross = {"add_cross_attention": True, "is_decoder": True}
    return {
        "encoder": {"model_type": VIT.name, **VIT.write(vit)},
        "decoder": {"model_type": GPT2.name, **GPT2.write(gpt), **cross},
    }


def read_vit_gpt(config: Json) -> Json:
    encoder, decoder = config["encoder"], config["decoder"]
    if (kinds := [encoder["model_type"], decoder["model_type"]]) != [VIT.name, GPT2.name]:
        raise unsupported("encoder.model_type, decoder.model_type", kinds)
    vit, gpt = VIT.read(encoder), GPT2.read({**decoder, "add_cross_attention": False})
    for name in SHARED:
        if vit[name] != gpt[name]:
            raise unsupported(f"an encoder and a decoder of different {name}", [vit[name], gpt[name]])
    if gpt["activation"] != "gelu_tanh":
        raise unsupported("decoder.activation_function", decoder["activation_function"])
    return {
        **{name: vit[name] for name in (*SHARED, "activation", "epsilon", "dropout")},
        **{name: gpt[name] for name in ("max_length", "tie_embeddings")},
        "decoder_epsilon": gpt["epsilon"],
        "layers": max(vit["layers"], gpt["layers"]),
        "encoder_layers": vit["layers"],
        "decoder_layers": gpt["layers"],
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
    processor=VIT.processor,
    write_input=write_image,
    objects={"encoder": ("image_size", "patch_size", "num_channels"), "decoder": ("vocab_size",)},
)
