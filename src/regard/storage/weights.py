"""The weights of a folder: one safetensors file, or several with an index, under Hugging Face's names.

Beside them `calibration.json` may have the range of the activations that each linear layer reads, for int8
inference. It holds the SHA-256 of the weights on which the ranges were measured, and is ignored with a
warning when the folder has other weights by now.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from regard.checksums import sha256_of
from regard.compat import current_weight_names
from regard.config.input import InputConfig
from regard.config.model import FrameEncoderConfig, LlamaConfig, ModelConfig, RecurrentConfig
from regard.config.reading import LARGE, shown
from regard.errors import UsageError, WeightsError
from regard.mapped import map_file
from regard.storage.checksums import WEIGHTS as WEIGHTS
from regard.storage.checksums import digest
from regard.storage.files import friendly_os_errors, read_json, remove_tree, write_atomically, write_json
from regard.storage.huggingface import to_hf

CALIBRATION = "calibration.json"
INDEX = "model.safetensors.index.json"
CHECKPOINT_PARTS = "model-?????-of-?????.safetensors"  # of a checkpoint that several ranks wrote
ActivationRange = tuple[float, float]  # smallest and largest value
Calibration = dict[str, ActivationRange]  # by the name of the layer
_SHARED = re.compile(rf"\.\./[\w-]{{1,100}}/{re.escape(WEIGHTS)}")
COPYING = 60.0  # seconds that may lie between the times of two files of a copied folder
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
log = logging.getLogger(__name__)


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name; a shared one is listed once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write_weights(
    path: Path, config: ModelConfig, weights: Mapping[str, Tensor], reader: InputConfig | None = None
) -> None:
    """Replace the folder's weights, under Hugging Face's names where one of its classes fits.

    A calibration of the weights before is removed.
    """
    tensors = {name: tensor.contiguous() for name, tensor in to_hf(config, weights, reader).items()}
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
        raise WeightsError(f"{path}: not a readable safetensors file ({shown(str(error))})") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder, by the names in its files."""
    tensors: dict[str, Tensor] = {}
    for part in weight_files(path):
        names = used_names(path, part)
        more = {name: tensor for name, tensor in read_safetensors(part).items() if name in names}
        if twice := sorted(tensors.keys() & more.keys()):
            raise WeightsError(f"{part}: the tensor {shown(twice[0])} is in another part as well")
        tensors |= more
    return tensors


def weight_files(path: Path) -> list[Path]:
    """The files of a folder's weights: one, or those that an index lists."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        parts, places = index_parts(path / INDEX, ".safetensors")
        present = {name for part in parts for name in shapes_in(part)}
        if missing := sorted(places.keys() - present):
            where = f"the tensor {shown(missing[0])} is missing in {places[missing[0]]}"
            raise WeightsError(f"{path / INDEX}: {where}")
        return parts
    if path.parent.name == "checkpoints" and (parts := sorted(path.glob(CHECKPOINT_PARTS))):
        return parts
    if pickles := [name for name in PICKLES if (path / name).is_file()]:
        advice = f'use "regard import {path} OUT", which reads its tensors and nothing else'
        if not pickles[0].startswith("pytorch_model"):
            advice = "save the model as safetensors with the program that made it"
        raise WeightsError(f"{path} has its weights only as {pickles[0]}, a file that can run code; {advice}")
    raise WeightsError(
        f"{path} has no {WEIGHTS} yet; if its training was interrupted, continue with "
        f'"regard train --resume -o {path}"'
    )


def used_names(path: Path, part: Path) -> Set[str]:
    """The tensors of a file that belong to a folder: all, or of a folder beside it those in the index."""
    if part.parent == path:
        return shapes_in(part).keys()
    places = index_parts(path / INDEX, ".safetensors")[1]
    return {name for name, place in places.items() if place == f"../{part.parent.name}/{part.name}"}


def index_parts(index: Path, suffix: str) -> tuple[list[Path], dict[str, str]]:
    """The files that an index lists, and the file of each tensor.

    They lie beside the index, or as ../NAME/model.safetensors in a folder beside that folder: built-in models
    that were fine-tuned from one encoder store its lower layers once.
    """
    places = read_json(index, LARGE).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise WeightsError(f"{index}: has no weight_map")
    for part in places.values():
        shared = isinstance(part, str) and _SHARED.fullmatch(part)
        is_name = isinstance(part, str) and not set(part) & set("/\\:\0") and len(part) < 256
        if not (is_name or shared) or not part.endswith(suffix) or not (index.parent / part).is_file():
            raise WeightsError(f"{index}: lists {shown(part)}, which is not in the folder")
    return [index.parent / part for part in sorted(set(places.values()))], places


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a file, from its header; no tensor is read."""
    with open_safetensors(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def weight_shapes(path: Path) -> list[tuple[int, ...]]:
    """The shapes of all tensors of a folder."""
    parts = [(shapes_in(part), used_names(path, part)) for part in weight_files(path)]
    return [shape for shapes, names in parts for name, shape in shapes.items() if name in names]


def check_size(path: Path, config: ModelConfig, vocabulary: int) -> None:
    """Refuse a model that is much larger than the folder's weights, before memory is allocated for it.

    Single missing or misshapen tensors are named later, by `load_weights_into`.
    """
    shapes = weight_shapes(path)
    present, needed = sum(map(math.prod, shapes)), min_parameters(config, vocabulary)
    layers = sum(config.depth)
    if needed > 2 * present or layers > len(shapes):
        raise WeightsError(
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
    is_learned = config.positions == "learned" and not isinstance(config, FrameEncoderConfig)
    positions = config.max_length * width if is_learned else 0
    return words + positions + (encoder + decoder) * (attention + forward) + cross


def load_weights_into(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a model; a missing, unknown or misshapen tensor is an error that names it.

    In a model on the device "meta" the tensors themselves become the parameters, and stay mapped if they are.
    Any other model gets copies.
    """
    parameters, weights = dict(model.named_parameters()), dict(weights)  # each tensor is read once
    if missing := sorted(parameters.keys() - weights.keys()):
        raise WeightsError(f"{path}: the tensor {shown(missing[0])} is missing ({len(missing)} in all)")
    if unknown := sorted(weights.keys() - parameters.keys()):
        raise WeightsError(f"{path}: the tensor {shown(unknown[0])} is unknown ({len(unknown)} in all)")
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            shapes = f"{shown(list(weights[name].shape))}, the model needs {list(parameter.shape)}"
            raise WeightsError(f'{path}: the tensor "{name}" has shape {shapes}')
        if not weights[name].is_floating_point():
            raise WeightsError(
                f'{path}: the tensor "{name}" holds {weights[name].dtype}, which are no weights'
            )
    if any(parameter.is_meta for parameter in parameters.values()):
        assign_parameters(model, model, lambda name, meta: weights[name].to(meta.dtype).contiguous())
        return
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def assign_parameters(model: nn.Module, like: nn.Module, value: Callable[[str, Any], Tensor]) -> None:
    """New parameters for a model, computed from those of `like`; shared ones stay shared."""
    old = dict(like.named_parameters())
    new = {id(each): nn.Parameter(value(name, each), each.requires_grad) for name, each in old.items()}
    state = {name: new[id(each)] for name, each in like.named_parameters(remove_duplicate=False)}
    model.load_state_dict(state, strict=False, assign=True)  # not strict: buffers stay


def write_calibration(folder: Path, ranges: Mapping[str, ActivationRange], origin: str) -> None:
    """Write the ranges into a model folder or a checkpoint, with the hash of its weights."""
    with friendly_os_errors(folder, "read"):
        weights = weights_digest(folder)
    write_json(folder / CALIBRATION, {"texts": origin, "weights": weights, "ranges": ranges})


def read_calibration(folder: Path) -> Calibration:
    """The ranges of a folder; {} if it was never calibrated, or has other weights since."""
    path = folder / CALIBRATION
    if not path.is_file():
        return {}
    content = read_json(path)
    ranges = content.get("ranges", content.get("reaches"))  # "reaches": files without a hash
    if not isinstance(ranges, dict) or not all(is_range(each) for each in ranges.values()):
        message = f'{path}: "ranges" must hold [smallest, largest] of each layer; delete the file'
        raise UsageError(message, code="E_MODEL_CALIBRATION")
    with friendly_os_errors(folder, "read"):
        is_current = _is_current(folder, content.get("weights"))
    if not is_current:
        log.warning('%s was measured on other weights and is ignored; run "regard calibrate" again', path)
        return {}
    return current_weight_names({name: (float(low), float(high)) for name, (low, high) in ranges.items()})


def _is_current(folder: Path, expected: object) -> bool:
    """A file of an older version has no hash: there the weights must not be newer than the ranges."""
    if expected is not None:
        return expected == weights_digest(folder)
    written = max(path.stat().st_mtime for path in weight_files(folder))
    return written <= (folder / CALIBRATION).stat().st_mtime + COPYING


def weights_digest(folder: Path) -> str:
    """SHA-256 of the weights file; of several parts, that of the list of their hashes."""
    parts = weight_files(folder)
    if len(parts) == 1:
        return digest(parts[0])
    return sha256_of("".join(f"{digest(path)}  {path.name}\n" for path in parts).encode())


def is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) in (int, float) and math.isfinite(each) for each in value)
        and value[0] <= value[1]
    )
