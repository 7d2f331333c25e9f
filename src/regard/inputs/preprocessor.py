"""preprocessor_config.json: transformers' form of the settings of a reader, both ways.

Beside transformers' fields there is one key "regard" with the whole section, so that nothing is lost. What no
class of transformers can express gets a type of Regard's, which transformers refuses by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.config.input import AudioInput, ImageInput, InputConfig, parse_input
from regard.config.reading import read_json_text, shown
from regard.errors import UsageError

Json = dict[str, Any]
FILE = "preprocessor_config.json"
SECTION = "regard"
RESAMPLE = {
    "nearest": 0,
    "lanczos": 1,
    "bilinear": 2,
    "bicubic": 3,
}  # pillow's numbers, as transformers writes
AST_WINDOW, AST_HOP = 400, 160  # fixed in transformers' class
AST_PATCH, AST_STRIDE = 16, 10
WHISPER_RATE = 16000  # transformers' filters end at 8 kHz


def to_hf(config: InputConfig) -> Json:
    """The content of preprocessor_config.json."""
    if isinstance(config, ImageInput):
        fields = _image_to_hf(config)
    elif isinstance(config, AudioInput):
        fields = _audio_to_hf(config)
    else:
        fields = {"image_processor_type": "RegardVideoProcessor"}
    return {**fields, SECTION: config.model_dump(mode="json")}


def _image_to_hf(config: ImageInput) -> Json:
    size = {"height": config.height, "width": config.width}
    fields: Json = {
        "do_convert_rgb": config.channels == 3 or None,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(config.mean),
        "image_processor_type": "ViTImageProcessor",
        "image_std": list(config.deviation),
        "resample": RESAMPLE[config.resample],
        "rescale_factor": 1 / 255,
        "size": size,
    }
    if config.fit == "crop" and config.height == config.width:
        fields |= {"size": {"shortest_edge": config.height}, "do_center_crop": True, "crop_size": size}
    elif config.fit != "squeeze":
        fields["image_processor_type"] = "RegardImageProcessor"
    return fields


def _audio_to_hf(config: AudioInput) -> Json:
    fields: Json = {
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
        "sampling_rate": config.sample_rate,
    }
    plain = config.mean == 0.0 and config.deviation == 1.0
    if config.scale == "kaldi" and config.pad and (config.window, config.hop) == (AST_WINDOW, AST_HOP):
        kind = "ASTFeatureExtractor"
        fields |= {"feature_size": 1, "num_mel_bins": config.mels, "max_length": config.spectrum_frames}
        fields |= {"do_normalize": not plain, "mean": config.mean, "std": config.deviation / 2}
    elif (
        config.scale == "whisper" and config.pad and config.patch is None and plain
        and config.seconds.is_integer() and config.sample_rate >= WHISPER_RATE
    ):  # fmt: skip
        kind = "WhisperFeatureExtractor"
        fields |= {"feature_size": config.mels, "hop_length": config.hop, "n_fft": config.window}
        fields |= {"chunk_length": int(config.seconds), "n_samples": config.samples, "dither": 0.0}
        fields["nb_max_frames"] = config.spectrum_frames
    else:
        kind = "RegardFeatureExtractor"
    return {"feature_extractor_type": kind, **fields}


def from_folder(folder: Path) -> InputConfig:
    """The settings in preprocessor_config.json; patches of models of transformers are in config.json."""
    path = folder / FILE
    fields = _read(path)
    try:
        if SECTION in fields:
            return parse_input(fields[SECTION])
        kind = fields.get("image_processor_type") or fields.get("feature_extractor_type")
        if not isinstance(kind, str) or kind not in READERS:
            raise UsageError(
                f"{path}: the processor {shown(kind)} is not supported; supported are {', '.join(READERS)}",
                code="E_INPUT_PROCESSOR",
            )
        model = _read(folder / "config.json") if (folder / "config.json").is_file() else {}
        encoder = model.get("encoder")
        return READERS[kind](fields, encoder if isinstance(encoder, dict) else model)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, [SECTION, *first["loc"]]))
        raise UsageError(f"{path}: {place}: {first['msg']}", code="E_INPUT_SETTINGS") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{path}: a field is missing or has another form than expected ({error!r})"
        raise UsageError(message, code="E_INPUT_SETTINGS") from None


def _read(path: Path) -> Json:
    try:
        return read_json_text(path)[1]
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror})"
        raise UsageError(message, code="E_INPUT_MISSING") from None
    except ValueError as error:
        raise UsageError(f"{path}: damaged ({error})", code="E_INPUT_SETTINGS") from None


def _image_from_hf(fields: Mapping[str, Any], model: Mapping[str, Any]) -> InputConfig:
    factor = fields.get("rescale_factor", 1 / 255)
    if not fields.get("do_rescale", True) or abs(factor * 255 - 1) > 1e-6:
        raise ValueError("values must be rescaled to 0..1: do_rescale, rescale_factor = 1/255")
    size, fit = fields.get("size", 224), "squeeze"
    if fields.get("do_center_crop"):
        crop = fields["crop_size"]
        high, wide = (crop["height"], crop["width"]) if isinstance(crop, dict) else (crop, crop)
        if not isinstance(size, dict) or size.get("shortest_edge") != high or high != wide:
            raise ValueError("do_center_crop is supported for a crop_size equal to size.shortest_edge")
        fit = "crop"
    else:
        high, wide = (size["height"], size["width"]) if isinstance(size, dict) else (size, size)
    channels = model.get("num_channels", 3)
    normal = fields.get("do_normalize", True)
    names = {number: name for name, number in RESAMPLE.items()}
    return ImageInput(
        height=high,
        width=wide,
        channels=channels,
        patch=model.get("patch_size", 16),
        fit=fit,  # type: ignore[arg-type]
        resample=names[fields.get("resample", 2)],  # type: ignore[arg-type]
        mean=tuple(fields.get("image_mean") or [0.5]) if normal else (0.0,),
        deviation=tuple(fields.get("image_std") or [0.5]) if normal else (1.0,),
    )


def _ast_from_hf(fields: Mapping[str, Any], model: Mapping[str, Any]) -> InputConfig:
    strides = {model.get(f"{axis}_stride", AST_STRIDE) for axis in ("frequency", "time")}
    if len(strides) > 1:
        raise ValueError("frequency_stride and time_stride differ, which is not supported")
    rate = fields.get("sampling_rate", 16000)
    normal = fields.get("do_normalize", True)
    return AudioInput(
        sample_rate=rate,
        seconds=fields.get("max_length", 1024) * AST_HOP / rate,
        mels=fields.get("num_mel_bins", 128),
        window=AST_WINDOW,
        hop=AST_HOP,
        scale="kaldi",
        patch=model.get("patch_size", AST_PATCH),
        stride=strides.pop(),
        mean=fields.get("mean", -4.2677393) if normal else 0.0,
        deviation=2 * fields.get("std", 4.5689974) if normal else 1.0,
    )


def _whisper_from_hf(fields: Mapping[str, Any], model: Mapping[str, Any]) -> InputConfig:
    rate = fields.get("sampling_rate", WHISPER_RATE)
    if rate < WHISPER_RATE:
        raise ValueError(f"sampling_rate = {rate}: transformers' filters reach beyond half of it")
    return AudioInput(
        sample_rate=rate,
        seconds=float(fields.get("chunk_length", 30)),
        mels=fields.get("feature_size", 80),
        window=fields.get("n_fft", 400),
        hop=fields.get("hop_length", 160),
    )


READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], InputConfig]] = {
    "ViTImageProcessor": _image_from_hf,
    "ViTImageProcessorFast": _image_from_hf,
    "ViTImageProcessorPil": _image_from_hf,
    "ViTFeatureExtractor": _image_from_hf,
    "ASTFeatureExtractor": _ast_from_hf,
    "WhisperFeatureExtractor": _whisper_from_hf,
}
