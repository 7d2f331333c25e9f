"""Whisper models in CTranslate2's form (as faster-whisper uses them) as folders of transformers.

`model.bin` is a list of variables: name, shape, type, numbers; all integers little-endian. A file may come
from anywhere, so each count is compared with what is left of the file before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard.config.reading import LARGE, read_bytes, shown
from regard.errors import UsageError
from regard.inputs.preprocessor import FILE as PREPROCESSOR
from regard.inputs.text.checks import read_object
from regard.mapped import map_file
from regard.storage.checksums import WEIGHTS
from regard.storage.files import Json, check_inside, read_json, write_atomically, write_json

MODEL, REFUSED = "model.bin", "E_IMPORT"
VERSIONS, SPEC = range(4, 7), "WhisperSpec"  # of the binary format; the kind of model
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
MOST_VARIABLES, MOST_AXES = 100_000, 8
START, END, TIMELESS = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
TASKS = ("transcribe", "translate")
GELU = 3  # a number of CTranslate2's activations
SECONDS, RATE, HOP, WINDOW = 30, 16000, 160, 400  # of every Whisper
ATTENTION = {"self_attention": "self_attn", "attention": "encoder_attn"}
Variables = dict[str, Tensor]


# --- the file ---------------------------------------------------------------------------------------------


@dataclass
class Cursor:
    """A place in the bytes of a file."""

    content: Tensor  # uint8
    path: Path
    place: int = 0

    def take(self, size: int) -> Tensor:
        if size > len(self.content) - self.place:
            raise self.damaged("it ends too early")
        self.place += size
        return self.content[self.place - size : self.place]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", bytes(self.take(struct.calcsize(f"<{form}")).tolist()))

    def name(self) -> str:
        (size,) = self.numbers("H")  # the zero behind the characters included
        try:
            return bytes(self.take(size).tolist()).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise self.damaged("a name is not UTF-8") from None

    def variable(self) -> tuple[str, Tensor]:
        name = self.name()
        (axes,) = self.numbers("B")
        if axes > MOST_AXES:
            raise self.damaged(f"{shown(name)} has {axes} axes")
        shape = self.numbers(f"{axes}I")
        kind, size = self.numbers("BI")
        if kind >= len(TYPES) or size != prod(shape) * TYPES[kind].itemsize:
            raise self.damaged(f"{shown(name)} of shape {list(shape)} and type {kind} has {size} bytes")
        data = self.take(size)
        aligned = data if (self.place - size) % TYPES[kind].itemsize == 0 else data.clone()
        return name, aligned.view(TYPES[kind]).view(shape)

    def damaged(self, reason: str) -> UsageError:
        return UsageError(f"{self.path}: not a model of CTranslate2 ({reason})", code=REFUSED)


def read_variables(path: Path) -> Variables:
    """The variables of a model of kind Whisper, mapped into memory; quantized ones as float32."""
    if not path.stat().st_size:
        raise UsageError(f"{path}: empty", code=REFUSED)
    with path.open("rb") as file:
        cursor = Cursor(map_file(file), path)
    (version,) = cursor.numbers("I")
    if version not in VERSIONS:
        raise cursor.damaged(f"version {version} of the format")
    kind = cursor.name()
    if kind != SPEC:
        raise UsageError(
            f"{path}: a model of kind {shown(kind)}; of CTranslate2's models Whisper is imported",
            code=REFUSED,
        )
    _, count = cursor.numbers("II")
    if count > MOST_VARIABLES:
        raise cursor.damaged(f"{count} variables")
    variables = dict(cursor.variable() for _ in range(count))
    (count,) = cursor.numbers("I")
    for _ in range(min(count, MOST_VARIABLES)):
        alias, name = cursor.name(), cursor.name()
        if name not in variables:
            raise cursor.damaged(f"{shown(alias)} is another name of {shown(name)}, which is missing")
        variables[alias] = variables[name]
    names = [name for name in variables if not name.endswith("_scale")]
    return {name: dequantized(name, variables, cursor) for name in names}


def dequantized(name: str, variables: Variables, cursor: Cursor) -> Tensor:
    """weight = integers / scale, with a scale for each output (int8) or one for all (int16)."""
    tensor, scale = variables[name], variables.get(f"{name}_scale")
    if scale is None:
        return tensor
    if tensor.dim() < 1 or scale.numel() not in (1, len(tensor)):
        raise cursor.damaged(f"{shown(name)} has {scale.numel()} scales")
    return tensor.float() / scale.float().reshape(-1, *[1] * (tensor.dim() - 1))


# --- names ------------------------------------------------------------------------------------------------


def to_transformers(variables: Variables, path: Path) -> Variables:
    """The weights under the names of WhisperForConditionalGeneration."""
    tensors: Variables = {}
    places: set[int] = set()
    for name, tensor in variables.items():
        if tensor.dim() and name not in ("decoder/projection/weight",):  # numbers are settings
            for theirs, part in renamed(name, tensor, path):
                # equal variables are stored once there; files of safetensors hold each
                tensors[theirs] = part.clone() if part.data_ptr() in places else part.contiguous()
                places.add(part.data_ptr())
    return tensors


def renamed(name: str, tensor: Tensor, path: Path) -> Iterator[tuple[str, Tensor]]:
    side, *middle, kind = name.split("/")
    kind = {"gamma": "weight", "beta": "bias", "encodings": "weight"}.get(kind, kind)
    match middle:
        case ["conv1" | "conv2" | "layer_norm" as part]:
            yield f"model.{side}.{part}.{kind}", tensor
        case ["embeddings" | "position_encodings" as part]:
            table = {"embeddings": "embed_tokens", "position_encodings": "embed_positions"}[part]
            yield f"model.{side}.{table}.{kind}", tensor
        case [layer, "ffn", part]:
            names = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}
            if part in names:
                yield f"model.{side}.layers.{layer.removeprefix('layer_')}.{names[part]}.{kind}", tensor
        case [layer, "self_attention" | "attention" as attention, part]:
            block = f"model.{side}.layers.{layer.removeprefix('layer_')}.{ATTENTION[attention]}"
            if part == "layer_norm":
                yield f"{block}_layer_norm.{kind}", tensor
                return
            # several projections of one input are one matrix
            joint = {
                ("self_attention", "linear_0"): ("q_proj", "k_proj", "v_proj"),
                ("self_attention", "linear_1"): ("out_proj",),
                ("attention", "linear_0"): ("q_proj",),
                ("attention", "linear_1"): ("k_proj", "v_proj"),
                ("attention", "linear_2"): ("out_proj",),
            }.get((attention, part))
            if joint is None or len(tensor) % len(joint):
                raise UsageError(f"{path}: {shown(name)} is unknown or does not fit", code=REFUSED)
            for projection, each in zip(joint, tensor.chunk(len(joint))):
                if (projection, kind) != ("k_proj", "bias"):  # softmax ignores it, Whisper has none
                    yield f"{block}.{projection}.{kind}", each
        case _:
            raise UsageError(f"{path}: {shown(name)} is unknown", code=REFUSED)


# --- the files beside the weights ---------------------------------------------------------------------------


def layers_of(tensors: Mapping[str, Tensor], side: str) -> int:
    return len({name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")})


def config_of(variables: Variables, tensors: Variables, ids: Mapping[str, int], path: Path) -> Json:
    """config.json; a tensor that is missing here is named when the folder is opened."""

    def shape(name: str) -> tuple[int, ...]:
        if name not in tensors:
            raise UsageError(f"{path}: the tensor {name} is missing", code=REFUSED)
        return tuple(tensors[name].shape)

    def number(name: str, default: int | None = None) -> int:
        if name not in variables and default is not None:
            return default
        if name not in variables or variables[name].numel() != 1:
            raise UsageError(f"{path}: {name} is missing", code=REFUSED)
        return int(variables[name].flatten()[0])

    if number("decoder/activation", GELU) != GELU:
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


def convert_ctranslate2(source: Path, out: Path) -> None:
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
    check_inside(source / MODEL)
    variables = read_variables(source / MODEL)
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
