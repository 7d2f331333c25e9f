"""The weights of a folder: one safetensors file, or several with an index, under Hugging Face's names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from regard.config.model import LlamaConfig, ModelConfig, RecurrentConfig
from regard.config.reading import LARGE, shown
from regard.errors import UsageError
from regard.mapped import map_file
from regard.storage.checksums import WEIGHTS as WEIGHTS
from regard.storage.files import friendly_os_errors, read_json, remove_tree, write_atomically
from regard.storage.huggingface import to_hf

CALIBRATION = "calibration.json"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name; a shared one is listed once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write_weights(path: Path, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Replace the folder's weights, under Hugging Face's names where one of its classes fits.

    A calibration of the weights before is removed.
    """
    tensors = {name: tensor.contiguous() for name, tensor in to_hf(config, weights).items()}
    with friendly_os_errors(path):
        remove_tree(path / CALIBRATION)
    write_atomically(path / WEIGHTS, save(tensors, {"format": "pt"}))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped into memory."""
    with open_safetensors(path) as header, path.open("rb") as file:
        content, tensors = map_file(file), {}
        end = 8 + int.from_bytes(content[:8].tolist(), "little")  # of the header, after its length
        for name in header.offset_keys():  # tensors follow one another without gaps: the header was checked
            like = header.get_tensor(name)
            begin, end = end, end + like.nbytes
            data = content[begin:end] if begin % like.itemsize == 0 else content[begin:end].clone()
            tensors[name] = data.view(like.dtype).view(like.shape)
        if end != len(content):
            raise ValueError("the file was replaced while it was read")
        return tensors


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """A safetensors file with a valid header: no tensor overlaps another or ends after the file."""
    try:
        if not path.is_file():
            raise OSError("not an ordinary file")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({shown(str(error))})") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder, by the names in its files."""
    tensors: dict[str, Tensor] = {}
    for part in weight_files(path):
        more = read_safetensors(part)
        if twice := sorted(tensors.keys() & more.keys()):
            raise UsageError(f"{part}: the tensor {shown(twice[0])} is in another part as well")
        tensors |= more
    return tensors


def weight_files(path: Path) -> list[Path]:
    """The files of a folder's weights: one, or those that an index lists."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _parts(path)
    if pickles := [name for name in PICKLES if (path / name).is_file()]:
        advice = f'use "regard import {path} OUT", which reads its tensors and nothing else'
        if not pickles[0].startswith("pytorch_model"):
            advice = "save the model as safetensors with the program that made it"
        raise UsageError(f"{path} has its weights only as {pickles[0]}, a file that can run code; {advice}")
    raise UsageError(
        f"{path} has no {WEIGHTS} yet; if its training was interrupted, continue with "
        f'"regard train --resume -o {path}"'
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
    present = {name for part in parts for name in shapes_in(part)}
    if missing := sorted(places.keys() - present):
        raise UsageError(f"{path / INDEX}: the tensor {shown(missing[0])} is missing in {places[missing[0]]}")
    return parts


def _is_part(path: Path, name: str) -> bool:
    """True for the plain name of a file beside the index."""
    plain = not set(name) & set("/\\:\0") and name.endswith(".safetensors") and len(name) < 256
    return plain and (path / name).is_file()


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a file, from its header; no tensor is read."""
    with open_safetensors(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def check_size(path: Path, config: ModelConfig, vocabulary: int) -> None:
    """Refuse a model that is much larger than the folder's weights, before memory is allocated for it.

    Single missing or misshapen tensors are named later, by `load_weights_into`.
    """
    shapes = [shape for part in weight_files(path) for shape in shapes_in(part).values()]
    present, needed = sum(map(math.prod, shapes)), min_parameters(config, vocabulary)
    layers = sum(config.depth)
    if needed > 2 * present or layers > len(shapes):
        raise UsageError(
            f"{path}: config.json describes a model of {layers} layers and {needed:,} numbers or more, but "
            f"its weights are {len(shapes)} tensors with {present:,} in all; one of the two is wrong"
        )


def min_parameters(config: ModelConfig, vocabulary: int) -> int:
    """A lower bound of the number of weights of a model: its matrices without biases and norms."""
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
    """Load weights into a model; a missing, unknown or misshapen tensor is an error that names it.

    In a model on the device "meta" the tensors themselves become the parameters, and stay mapped if they are.
    Any other model gets copies.
    """
    parameters = dict(model.named_parameters())
    if missing := sorted(parameters.keys() - weights.keys()):
        raise UsageError(f"{path}: the tensor {shown(missing[0])} is missing ({len(missing)} in all)")
    if unknown := sorted(weights.keys() - parameters.keys()):
        raise UsageError(f"{path}: the tensor {shown(unknown[0])} is unknown ({len(unknown)} in all)")
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            shapes = f"{shown(list(weights[name].shape))}, the model needs {list(parameter.shape)}"
            raise UsageError(f'{path}: the tensor "{name}" has shape {shapes}')
        if not weights[name].is_floating_point():
            raise UsageError(f'{path}: the tensor "{name}" holds {weights[name].dtype}, which are no weights')
    if any(parameter.is_meta for parameter in parameters.values()):
        _replace_parameters(model, {parameters[name]: tensor for name, tensor in weights.items()})
        return
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def _replace_parameters(model: nn.Module, weights: Mapping[nn.Parameter, Tensor]) -> None:
    """Put tensors in the place of meta parameters; shared parameters stay shared."""
    real = {
        shape: nn.Parameter(tensor.to(shape.dtype).contiguous(), shape.requires_grad)
        for shape, tensor in weights.items()
    }
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, real[parameter])
