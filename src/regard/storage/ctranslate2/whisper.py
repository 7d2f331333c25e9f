"""Whisper models of CTranslate2 (as faster-whisper uses them) as folders of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from regard.config.reading import LARGE, read_bytes, shown
from regard.errors import UsageError
from regard.inputs.preprocessor import FILE as PREPROCESSOR
from regard.inputs.text.checks import read_object
from regard.storage.checksums import WEIGHTS
from regard.storage.ctranslate2.file import MODEL, REFUSED, Variables, parts_of, scalar
from regard.storage.files import Json, check_inside, read_json, write_atomically, write_json

START, END, TIMELESS = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
TASKS = ("transcribe", "translate")
GELU = 3  # a number of CTranslate2's activations
SECONDS, RATE, HOP, WINDOW = 30, 16000, 160, 400  # of every Whisper
# CTranslate2's modules -> those of WhisperForConditionalGeneration
SIDE = {
    **{name: name for name in ("conv1", "conv2", "layer_norm")},
    "embeddings": "embed_tokens",
    "position_encodings": "embed_positions",
}
ATTENTION = {"self_attention": "self_attn", "attention": "encoder_attn"}
LAYER = {
    **{f"{theirs}.layer_norm": f"{name}_layer_norm" for theirs, name in ATTENTION.items()},
    **{f"{theirs}.output": f"{name}.out_proj" for theirs, name in ATTENTION.items()},
    **{
        f"{theirs}.{each}": f"{name}.{each[0]}_proj"
        for theirs, name in ATTENTION.items()
        for each in ("query", "key", "value")
    },
    "ffn.layer_norm": "final_layer_norm",
    "ffn.linear_0": "fc1",
    "ffn.linear_1": "fc2",
}

# --- names ------------------------------------------------------------------------------------------------


def to_transformers(variables: Variables, path: Path) -> Variables:
    """The weights under the names of WhisperForConditionalGeneration."""
    tensors: Variables = {}
    places: set[int] = set()
    for side, layer, module, kind, tensor in parts_of(variables, path):
        if module == "projection" or (module.endswith(".key") and kind == "bias"):
            continue  # tied; softmax ignores it, and Whisper has none
        theirs = (LAYER if layer else SIDE).get(module)
        if theirs is None:
            raise UsageError(f"{path}: {shown(f'{side}/{module}/{kind}')} is unknown", code=REFUSED)
        place = f"layers.{layer}." if layer else ""
        # equal variables are stored once there; files of safetensors hold each
        tensors[f"model.{side}.{place}{theirs}.{kind}"] = (
            tensor.clone() if tensor.data_ptr() in places else tensor.contiguous()
        )
        places.add(tensor.data_ptr())
    return tensors


# --- the files beside the weights ---------------------------------------------------------------------------


def layers_of(tensors: Mapping[str, Tensor], side: str) -> int:
    return len({name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")})


def config_of(variables: Variables, tensors: Variables, ids: Mapping[str, int], path: Path) -> Json:
    """config.json; a tensor that is missing here is named when the folder is opened."""

    def shape(name: str) -> tuple[int, ...]:
        if name not in tensors:
            raise UsageError(f"{path}: the tensor {name} is missing", code=REFUSED)
        return tuple(tensors[name].shape)

    def number(name: str) -> int:
        value = scalar(variables, name)
        if value is None:
            raise UsageError(f"{path}: {name} is missing", code=REFUSED)
        return int(value)

    if scalar(variables, "decoder/activation") not in (GELU, None):
        raise UsageError(f"{path}: an activation other than GELU", code=REFUSED)
    vocabulary, width = shape("model.decoder.embed_tokens.weight")
    conv = shape("model.encoder.conv1.weight")
    config: Json = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": vocabulary,
        "d_model": width,
        "num_mel_bins": conv[1],
        "max_source_positions": shape("model.encoder.embed_positions.weight")[0],
        "max_target_positions": shape("model.decoder.embed_positions.weight")[0],
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "torch_dtype": str(tensors["model.decoder.embed_tokens.weight"].dtype).removeprefix("torch."),
        "decoder_start_token_id": ids[START],
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), ids[END]),
    }
    for side in ("encoder", "decoder"):
        config |= {
            f"{side}_layers": layers_of(tensors, side),
            f"{side}_attention_heads": number(f"{side}/num_heads"),
            f"{side}_ffn_dim": shape(f"model.{side}.layers.0.fc1.weight")[0],
        }
    config["num_hidden_layers"] = config["encoder_layers"]
    return config


def generation_of(settings: Json, ids: Mapping[str, int], longest: int) -> Json:
    """generation_config.json from CTranslate2's config.json."""
    names = {number: name for name, number in ids.items()}
    languages = [number for number in settings.get("lang_ids") or [] if number in names]
    generation: Json = {
        "decoder_start_token_id": ids[START],
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), ids[END]),
        "max_length": longest,
        "suppress_tokens": settings.get("suppress_ids", []),
        "begin_suppress_tokens": settings.get("suppress_ids_begin", []),
        "no_timestamps_token_id": ids[TIMELESS],
        "return_timestamps": False,
        "is_multilingual": bool(languages),
        "alignment_heads": settings.get("alignment_heads"),
    }
    if languages:
        generation["lang_to_id"] = {names[number]: number for number in languages}
        generation["task_to_id"] = {name: ids[f"<|{name}|>"] for name in TASKS if f"<|{name}|>" in ids}
    return {name: value for name, value in generation.items() if value is not None}


def tokenizer_settings(longest: int) -> Json:
    roles = ("bos_token", "eos_token", "pad_token", "unk_token")
    return {"tokenizer_class": "WhisperTokenizer", "model_max_length": longest, **dict.fromkeys(roles, END)}


def feature_settings(mels: int) -> Json:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": mels,
        "sampling_rate": RATE,
        "hop_length": HOP,
        "n_fft": WINDOW,
        "chunk_length": SECONDS,
        "n_samples": SECONDS * RATE,
        "nb_max_frames": SECONDS * RATE // HOP,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def convert_whisper(variables: Variables, source: Path, out: Path) -> None:
    """Write the folder of transformers that has the weights of `source`."""
    file = source / "tokenizer.json"
    if not file.is_file():
        raise UsageError(
            f"{source} has no tokenizer.json; put that of the original model beside {MODEL}", code=REFUSED
        )
    check_inside(file)
    text, tokenizer = read_object(file)
    ids = special_ids(tokenizer)
    if missing := [name for name in (START, END, TIMELESS) if name not in ids]:
        raise UsageError(f"{file}: not a tokenizer of Whisper, {missing[0]} is missing", code=REFUSED)
    tensors = to_transformers(variables, source / MODEL)
    config = config_of(variables, tensors, ids, source / MODEL)
    settings = read_json(source / "config.json") if (source / "config.json").is_file() else {}
    longest = config["max_target_positions"]
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", generation_of(settings, ids, longest))
    write_json(out / "tokenizer_config.json", tokenizer_settings(longest))
    write_atomically(out / "tokenizer.json", text.encode())
    if (source / PREPROCESSOR).is_file():
        check_inside(source / PREPROCESSOR)
        write_atomically(out / PREPROCESSOR, read_bytes(source / PREPROCESSOR, LARGE))
    else:
        write_json(out / PREPROCESSOR, feature_settings(config["num_mel_bins"]))
    write_atomically(out / WEIGHTS, save(tensors, {"format": "pt"}))


def special_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens of a tokenizer.json."""
    added = tokenizer.get("added_tokens")
    rows = added if isinstance(added, list) else []
    return {
        row["content"]: row["id"]
        for row in rows
        if isinstance(row, dict) and type(row.get("id")) is int and isinstance(row.get("content"), str)
    }
