"""Models of the Llama family as a GGUF file for llama.cpp and the programs that use it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from gguf.quants import quantize
from torch import Tensor

from regard.config import LlamaConfig
from regard.errors import RegardError, UsageError
from regard.export.check import DIFFERS, GREEDY, Agreement, Reference, equal_share
from regard.export.sample import EncodedText
from regard.inputs.text.hf import HFTokenizer
from regard.storage import Folder, open_folder, unique_weights
from regard.storage.files import Json
from regard.storage.gguf import convert_gguf
from regard.storage.gguf.names import ROPE, TYPES, layout, metadata_of, name_there, rope_divisors
from regard.storage.gguf.vocabulary import vocabulary_to
from regard.storage.huggingface import architecture_of, config_json, to_hf

FILE = "model.gguf"
PRECISIONS = {
    "float32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "float16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "int8": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
BLOCK = 32  # numbers of a row with one scale in Q8_0


def write(folder: Folder, place: Path, precision: str) -> None:
    """Write model.gguf; matrices in float32, float16 or 8 bits (Q8_0), norms in float32."""
    config, architecture = described(folder)
    kind, file_type = PRECISIONS[precision]
    writer = GGUFWriter(place / FILE, architecture)
    writer.add_name(folder.path.resolve().name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(2)
    for name, value in metadata_of(config, architecture).items():
        add(writer, name, value)
    add_vocabulary(writer, folder, config["vocab_size"])
    for name, tensor in to_hf(folder.config, unique_weights(folder.model)).items():
        there = name_there(name)
        changed = layout(there, config, architecture, back=True)(tensor.float().cpu())
        add_tensor(writer, there, changed, kind)
    llama = folder.config
    assert isinstance(llama, LlamaConfig)  # see `described`
    if llama.rope_scaling is not None and llama.rope_scaling.kind == "llama3":
        divisors = rope_divisors(llama.channels, llama.rope_theta, llama.rope_scaling)
        add_tensor(writer, ROPE, divisors, GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check(place: Path, folder: Folder, texts: Sequence[EncodedText]) -> Agreement:
    """Read the file as any other, and compare texts, their tokens, and log-probabilities."""
    with tempfile.TemporaryDirectory() as name:
        convert_gguf(place / FILE, Path(name))
        again = open_folder(Path(name))
        one, other = Reference(folder, texts), Reference(again, texts)
        strings = one.detokenize(one.prompts)
        if folder.source.encode_batch(strings) != again.source.encode_batch(strings):
            raise RegardError("the export is refused: its vocabulary gives other tokens", code=DIFFERS)
        greedy = one.search(GREEDY)
        equal = {"greedy": equal_share(greedy, other.search(GREEDY))}
        scores = zip(one.log_probabilities(greedy), other.log_probabilities(greedy), strict=True)
        differences = [abs(a - b) for rows in scores for a, b in zip(*rows, strict=True)]
    mean = sum(differences) / max(1, len(differences))
    return Agreement(len(texts), equal, max(differences, default=0.0), mean)


def described(folder: Folder) -> tuple[Json, str]:
    """config.json of transformers, and llama.cpp's name of the architecture."""
    architecture = architecture_of(folder.config, joint=True)
    name = {"mistral": "llama"}.get(architecture.name, architecture.name) if architecture else ""
    if name not in TYPES or not isinstance(folder.source, HFTokenizer):
        raise UsageError(
            f"{folder.path}: GGUF files are written of Llama and its relatives with a tokenizer of another "
            "program; a tokenizer that Regard trained cuts texts in a way that llama.cpp does not have",
            code="E_EXPORT_GGUF",
        )
    return config_json(folder.config, folder.source, None), name


def add_vocabulary(writer: GGUFWriter, folder: Folder, size: int) -> None:
    tokenizer, settings = folder.source, folder.source.settings
    entries = vocabulary_to(json.loads(tokenizer.to_json()), size)
    ids = {"bos": tokenizer.start, "eos": folder.special.end, "padding": tokenizer.pad}
    if tokenizer.unknown is not None:
        ids["unknown"] = tokenizer.unknown
    if settings.get("bos_token") is None:
        del ids["bos"]
    entries |= {f"{name}_token_id": number for name, number in ids.items()}
    entries["add_bos_token"] = tokenizer.adds_start
    if folder.special.ends:
        entries["eot_token_id"] = folder.special.ends[0]
    for name, value in entries.items():
        add(writer, f"tokenizer.ggml.{name}", value)
    if template := settings.get("chat_template"):
        writer.add_chat_template(template)


def add(writer: GGUFWriter, name: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(name, value)
        case int():
            writer.add_uint32(name, value)
        case float():
            writer.add_float32(name, value)
        case str():
            writer.add_string(name, value)
        case _:
            writer.add_array(name, value)


def add_tensor(writer: GGUFWriter, name: str, tensor: Tensor, kind: GGMLQuantizationType) -> None:
    numbers: Any = tensor.to(torch.float32).contiguous().numpy()
    if numbers.ndim < 2 or name == ROPE:
        kind = GGMLQuantizationType.F32
    elif kind == GGMLQuantizationType.Q8_0 and numbers.shape[-1] % BLOCK:
        kind = GGMLQuantizationType.F16
    if kind != GGMLQuantizationType.F32:
        with np.errstate(over="ignore"):
            numbers = quantize(numbers, kind)
    is_raw = kind == GGMLQuantizationType.Q8_0
    writer.add_tensor(name, numbers, raw_dtype=kind if is_raw else None)
