"""Tiny random models of pictures and sounds, as transformers makes them and as Regard does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    GPT2Config,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from hf_models import LABELS, put_tokenizer, shaken
from regard.batch import Batch, collate
from regard.config import parse_model, resolve
from regard.config.input import InputConfig
from regard.inputs.frames import Array, FrameReader, make_reader
from regard.models.families import Model, build
from regard.sample import Sample
from regard.storage.inputs import input_size
from samples import END, START, of_family

WORDS = 320  # tokens of the tokenizer "gpt2"
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "decoder_start_token_id": 0}


# --- of transformers


def vit_shape(size: tuple[int, int], patch: int, channels: int, width: int = 12, **more: Any) -> ViTConfig:
    shape = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    pictures = {"image_size": size, "patch_size": patch, "num_channels": channels}
    return ViTConfig(**{**shape, **pictures, **more})


def pictures(size: tuple[int, int], channels: int) -> ViTImageProcessorPil:
    height, width = size
    mean, deviation = [0.4] * channels, [0.3] * channels
    return ViTImageProcessorPil(size={"height": height, "width": width}, image_mean=mean, image_std=deviation)


def vit(size: tuple[int, int], patch: int, channels: int, **more: Any) -> tuple[torch.nn.Module, object]:
    config = vit_shape(size, patch, channels, id2label=LABELS, **more)
    return ViTForImageClassification(config), pictures(size, channels)


def ast(mels: int, frames: int, patch: int, stride: int, **more: Any) -> tuple[torch.nn.Module, object]:
    shape = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
    cut = {"patch_size": patch, "frequency_stride": stride, "time_stride": stride}
    config = ASTConfig(num_mel_bins=mels, max_length=frames, id2label=LABELS, **{**shape, **cut, **more})
    extractor = ASTFeatureExtractor(num_mel_bins=mels, max_length=frames, mean=-3.0, std=2.5)
    return ASTForAudioClassification(config), extractor


def whisper(mels: int, seconds: int, **more: Any) -> tuple[torch.nn.Module, object]:
    shape = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3}
    shape |= {"decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
    lengths = {"max_source_positions": 50 * seconds, "max_target_positions": 30, "num_mel_bins": mels}
    tokens = {**IDS, "suppress_tokens": [7, 9], "begin_suppress_tokens": [0, 5]}
    config = WhisperConfig(vocab_size=WORDS, **{**shape, **lengths, **more}, **tokens)
    return WhisperForConditionalGeneration(config), WhisperFeatureExtractor(mels, chunk_length=seconds)


def vit_gpt(size: tuple[int, int], patch: int, channels: int, **more: Any) -> tuple[torch.nn.Module, object]:
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    decoder = {"n_embd": 12, "n_layer": 3, "n_head": 3, "n_inner": 20, "n_positions": 30, **ids, **more}
    gpt = GPT2Config(vocab_size=WORDS, add_cross_attention=True, is_decoder=True, **decoder)
    vit = vit_shape(size, patch, channels)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(vit, gpt)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 0, 0
    model = VisionEncoderDecoderModel(config)
    model.generation_config.update(**IDS)
    return model, pictures(size, channels)


FRAME_MODELS = {
    "vit grey": lambda: vit((8, 12), 4, 1),
    "vit colours": lambda: vit((10, 5), 5, 3, hidden_act="gelu_new", layer_norm_eps=1e-3),
    "vit one patch": lambda: vit((6, 6), 6, 3, num_hidden_layers=1, num_attention_heads=1),
    "ast": lambda: ast(16, 30, 4, 3),
    "ast wide": lambda: ast(24, 40, 16, 10, num_attention_heads=4, hidden_act="relu"),
    "whisper": lambda: whisper(8, 1),
    "whisper deep": lambda: whisper(10, 2, decoder_layers=4, activation_function="relu"),
    "vit_gpt grey": lambda: vit_gpt((8, 12), 4, 1),
    "vit_gpt untied": lambda: vit_gpt((9, 6), 3, 3, tie_word_embeddings=False, n_layer=1),
}


def save_frame_model(
    path: Path, name: str, pipeline: tokenizers.Tokenizer, times: int = 1
) -> torch.nn.Module:
    """A random model of transformers, saved by it with its processor, and a tokenizer if it writes text.

    Shaken several times, what it writes depends on what it reads.
    """
    torch.manual_seed(1)
    model, processor = FRAME_MODELS[name]()
    for _ in range(times):
        shaken(model)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    if name.startswith(("whisper", "vit_gpt")):
        put_tokenizer(path, "gpt2", pipeline)
    return model


# --- of Regard

PICTURES = {"kind": "image", "height": 8, "width": 12, "patch": 4, "channels": 1}
SOUNDS = {"kind": "audio", "seconds": 1.0, "mels": 8}
SPECTRA = {"kind": "audio", "seconds": 0.3, "mels": 16, "scale": "kaldi", "patch": 4, "stride": 3}
TASKS = {"vit": "classify", "ast": "classify", "whisper": "transcribe", "vit_gpt": "caption"}
SHAPE = {"width": 12, "layers": 2, "heads": 3, "feed_forward": 20, "dropout": 0.0, "max_length": 30}


def frame_config(family: str, reads: dict[str, Any], **model: Any) -> Any:
    fields = of_family({"family": family, **SHAPE, **model})
    tree = {"task": {"name": TASKS[family]}, "data": {"train": "x.tsv"}, "input": reads, "model": fields}
    return resolve(tree)


def small_frame_model(family: str, reads: InputConfig, outputs: int, **model: Any) -> Model:
    """A random model, sharp enough that its choices are not near ties."""
    torch.manual_seed(4)
    config = parse_model(of_family({"family": family, **SHAPE, **model}))
    return shaken(build(config, input_size(make_reader(reads)), outputs))


# --- inputs


def random_raw(reader: FrameReader, seed: int, share: float = 1.0) -> Array:
    """Pixels, or the samples of a sound that lasts this share of the longest one."""
    rng = np.random.default_rng(seed)
    config = reader.config
    if config.kind == "audio":
        length = max(config.hop, round(config.samples * share))
        waves = np.sin(np.arange(length) * rng.uniform(0.02, 0.5)) * rng.uniform(3000, 12000)
        return (waves + rng.normal(0, 500, length)).astype(np.int16)
    shape = config.height, config.width, config.channels
    times = [config.frames] if config.kind == "video" else []
    return rng.integers(0, 256, (*times, *shape), dtype=np.uint8)


def random_frames(
    reader: FrameReader, count: int, seed: int, longest: int = 6, vocabulary: int = 23
) -> list[Sample]:
    """Samples with random targets; sounds are of different lengths where the reader pads none."""
    rng = np.random.default_rng(seed)
    samples = []
    for number in range(count):
        raw = random_raw(reader, seed + number, rng.uniform(0.05, 1.0))
        target = rng.integers(4, vocabulary, rng.integers(1, longest + 1)).tolist()
        samples.append(Sample(reader.frames(raw), [START, *target], [*target, END]))
    return samples


def their_input(reader: FrameReader, raw: Array) -> torch.Tensor:
    """What transformers' model reads: pixels [C,H,W], a spectrogram [T,M] (AST) or [M,T] (Whisper)."""
    config = reader.config
    if config.kind == "image":
        frames = reader.frames(raw)
        rows, columns = reader.grid
        parts = frames.reshape(rows, columns, config.channels, config.patch, config.patch)
        return torch.from_numpy(parts.transpose(2, 0, 3, 1, 4).reshape(config.channels, config.height, -1))
    spectrum = torch.from_numpy(reader.spectrogram(raw))
    return spectrum if config.patch else spectrum.mT


def frames_batch(reader: FrameReader, raws: list[Array], targets: list[list[int]] | None = None) -> Batch:
    rows = targets or [[] for _ in raws]
    return collate([Sample(reader.frames(raw), target) for raw, target in zip(raws, rows)])
