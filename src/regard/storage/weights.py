"""The weights of a folder: one file or several that an index lists, under Hugging Face's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.config.model import LlamaConfig, ModelConfig, RecurrentConfig
from regard.config.reading import LARGE, shown
from regard.errors import UsageError
from regard.storage.files import opened, read_json, read_safetensors, write_atomically
from regard.storage.huggingface import to_hf

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The learned tensors by name; one that is shared stands there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write_weights(path: Path, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Replace the folder's weights, under Hugging Face's names where one of its classes fits."""
    tensors = {name: tensor.contiguous() for name, tensor in to_hf(config, weights).items()}
    write_atomically(path / WEIGHTS, save(tensors, {"format": "pt"}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder, by the names in its files."""
    found: dict[str, Tensor] = {}
    for part in weight_files(path):
        tensors = read_safetensors(part)
        if twice := sorted(found.keys() & tensors.keys()):
            raise UsageError(f"{part}: the tensor {shown(twice[0])} is in another part as well")
        found |= tensors
    return found


def weight_files(path: Path) -> list[Path]:
    """The files of a folder's weights: one, or those that an index lists."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _parts(path)
    if held := [name for name in PICKLES if (path / name).is_file()]:
        way = f'use "regard import {path} OUT", which reads its tensors and nothing else'
        if not held[0].startswith("pytorch_model"):
            way = "save the model as safetensors with the program that made it"
        raise UsageError(f"{path} has its weights as {held[0]} alone, a file that can run code; {way}")
    raise UsageError(
        f"{path} has no {WEIGHTS} yet; if its training was cut off, go on with "
        f'"regard train --resume --out {path}"'
    )


def _parts(path: Path) -> list[Path]:
    places = read_json(path / INDEX, LARGE).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UsageError(f"{path / INDEX}: holds no weight_map")
    wrong = [part for part in places.values() if not isinstance(part, str) or not _is_part(path, part)]
    if wrong:
        name = wrong[0] if isinstance(wrong[0], str) and wrong[0].isprintable() else shown(wrong[0])
        raise UsageError(f"{path / INDEX}: names {name[:80]}, which is not in the folder")
    parts = [path / part for part in sorted(set(places.values()))]
    found = {name for part in parts for name in shapes_in(part)}
    if lost := sorted(places.keys() - found):
        raise UsageError(f"{path / INDEX}: the tensor {shown(lost[0])} is missing in {places[lost[0]]}")
    return parts


def _is_part(path: Path, name: str) -> bool:
    """A plain name beside the index, and no path to somewhere else."""
    plain = not set(name) & set("/\\:\0") and name.endswith(".safetensors") and len(name) < 256
    return plain and (path / name).is_file()


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a file, which its header says; no tensor is read."""
    with opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def check_size(path: Path, config: ModelConfig, vocabulary: int) -> None:
    """Refuse a model that the folder's weights cannot nearly fill, before any memory is taken for it.

    Which tensor is missing or misshapen is said later, where each is looked at.
    """
    shapes = [shape for part in weight_files(path) for shape in shapes_in(part).values()]
    held, needed = sum(map(math.prod, shapes)), least_numbers(config, vocabulary)
    layers = sum(config.depth)
    if needed > 2 * held or layers > len(shapes):
        raise UsageError(
            f"{path}: config.json describes a model of {layers} layers and {needed:,} numbers or more, but "
            f"its weights are {len(shapes)} tensors with {held:,} in all; one of the two is wrong"
        )


def least_numbers(config: ModelConfig, vocabulary: int) -> int:
    """So many numbers, or some more, are the weights of a model: its matrices without biases and norms."""
    width, words = config.width, vocabulary * config.width
    if isinstance(config, RecurrentConfig):
        return words + config.layers * width * width
    encoder, decoder = config.depth
    kv_heads = (config.kv_heads if isinstance(config, LlamaConfig) else None) or config.heads
    both = config.heads + kv_heads  # of queries and outputs, of keys and values
    attention = 2 * width * both * config.channels
    forward = width * config.feed_forward * (3 if config.gated else 2)
    cross = decoder * attention if encoder and decoder else 0
    positions = config.max_length * width if config.positions == "learned" else 0
    return words + positions + (encoder + decoder) * (attention + forward) + cross


def load_weights_into(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Give weights to a model; a missing, unknown or misshapen tensor is an error that names it.

    A model that was built on the device "meta" has shapes alone: the tensors themselves become its
    parameters, and what is mapped from a file stays so. Into the memory of any other they are copied.
    """
    own = dict(model.named_parameters())
    if missing := sorted(own.keys() - weights.keys()):
        raise UsageError(f"{path}: the tensor {shown(missing[0])} is missing ({len(missing)} in all)")
    if unknown := sorted(weights.keys() - own.keys()):
        raise UsageError(f"{path}: the tensor {shown(unknown[0])} is unknown ({len(unknown)} in all)")
    for name, parameter in own.items():
        if parameter.shape != weights[name].shape:
            shapes = f"{shown(list(weights[name].shape))}, the model needs {list(parameter.shape)}"
            raise UsageError(f'{path}: the tensor "{name}" has shape {shapes}')
        if not weights[name].is_floating_point():
            raise UsageError(f'{path}: the tensor "{name}" holds {weights[name].dtype}, which are no weights')
    if any(parameter.is_meta for parameter in own.values()):
        _take_over(model, {own[name]: tensor for name, tensor in weights.items()})
        return
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def _take_over(model: nn.Module, weights: Mapping[nn.Parameter, Tensor]) -> None:
    """Tensors in the place of mere shapes; what is shared stays shared."""
    real = {
        shape: nn.Parameter(tensor.to(shape.dtype).contiguous(), shape.requires_grad)
        for shape, tensor in weights.items()
    }
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, real[parameter])
