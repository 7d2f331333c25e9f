"""The weights of a folder: one file or several that an index lists, under Hugging Face's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from regard.config import Model
from regard.errors import UsageError
from regard.store.files import read_json, write_atomically
from regard.store.huggingface import theirs

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The learned tensors by name; one that is shared stands there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write_weights(path: Path, config: Model, weights: Mapping[str, Tensor]) -> None:
    """Replace the folder's weights, under Hugging Face's names where one of its classes fits."""
    tensors = {name: tensor.contiguous() for name, tensor in theirs(config, weights).items()}
    write_atomically(path / WEIGHTS, save(tensors, {"format": "pt"}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder, by the names in its files."""
    if (path / WEIGHTS).is_file():
        return _read(path / WEIGHTS)
    if (path / INDEX).is_file():
        return _read_parts(path)
    if held := [name for name in PICKLES if (path / name).is_file()]:
        raise UsageError(
            f"{path} has its weights as {held[0]} alone; save the model as safetensors with the program that "
            "made it, because Regard opens no files that can run code"
        )
    raise UsageError(
        f"{path} has no {WEIGHTS} yet; if its training was cut off, go on with "
        f'"regard train --resume --out {path}"'
    )


def _read_parts(path: Path) -> dict[str, Tensor]:
    places = read_json(path / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UsageError(f"{path / INDEX}: holds no weight_map")
    found: dict[str, Tensor] = {}
    for part in sorted(set(map(str, places.values()))):
        if Path(part).name != part or not (path / part).is_file():
            raise UsageError(f"{path / INDEX}: names {part}, which is not in the folder")
        found |= _read(path / part)
    if lost := sorted(places.keys() - found.keys()):
        raise UsageError(f'{path / INDEX}: the tensor "{lost[0]}" is missing in {places[lost[0]]}')
    return found


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({error})") from None


def load_weights_into(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a model; a missing, unknown or misshapen tensor is an error that names it."""
    own = dict(model.named_parameters())
    if missing := sorted(own.keys() - weights.keys()):
        raise UsageError(f'{path}: the tensor "{missing[0]}" is missing ({len(missing)} in all)')
    if unknown := sorted(weights.keys() - own.keys()):
        raise UsageError(f'{path}: the tensor "{unknown[0]}" is unknown ({len(unknown)} in all)')
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != weights[name].shape:
                shapes = f"{list(weights[name].shape)}, the model needs {list(parameter.shape)}"
                raise UsageError(f'{path}: the tensor "{name}" has shape {shapes}')
            parameter.copy_(weights[name])
