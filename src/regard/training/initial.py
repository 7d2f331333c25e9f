"""Start from a pretrained model: its shape and its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config.model import ModelConfig
from regard.config.schema import Config, Init
from regard.errors import UsageError

MAX_NAMES = 6  # of tensors in a message


def with_shape(config: Config, shape: ModelConfig) -> Config:
    """The config with the model of a folder.

    Of the run's `[model]` dropout, head and pool are kept, and a smaller `max_length`; other fields must be
    those of the folder.
    """
    free = {"dropout", "head", "pool"}  # no weight depends on them, or only the head's
    given = {name: getattr(config.model, name) for name in config.model.model_fields_set}
    if config.model.family != shape.family:
        raise UsageError(
            f'init.from: the folder holds a "{shape.family}" model, not "{config.model.family}"',
            code="E_INIT_SHAPE",
        )
    if config.model.max_length < shape.max_length and "max_length" in given:
        free.add("max_length")
    for name, value in given.items():
        if name not in {"preset", *free} and value != (expected := getattr(shape, name)):
            raise UsageError(
                f"model.{name} = {json.dumps(value)}: the folder of init.from has {json.dumps(expected)}; "
                "its weights fit nothing else; leave it out",
                code="E_INIT_SHAPE",
            )
    kept = {name: value for name, value in given.items() if name in free}
    return config.model_copy(update={"model": shape.model_copy(update=kept)})


def load_initial(model: nn.Module, weights: Mapping[str, Tensor], init: Init) -> str:
    """Load the weights that fit into the model; returns a summary of loaded, new and unused tensors."""
    parameters = dict(model.named_parameters())
    fits = {
        name: part
        for name, tensor in weights.items()
        if name in parameters and (part := fitting(name, parameters[name], tensor)) is not None
    }
    new, unused = [n for n in parameters if n not in fits], [n for n in weights if n not in fits]
    if init.keep == "all" and (new or unused):
        wrong = f"no weights for {listed(new)}" if new else f"no place for {listed(unused)}"
        raise UsageError(
            f'init.from = "{init.model}": {wrong}; init.keep = "fitting" loads what fits',
            code="E_INIT_WEIGHTS",
        )
    if not fits:
        raise UsageError(
            f'init.from = "{init.model}": none of its weights fits this model', code="E_INIT_WEIGHTS"
        )
    with torch.no_grad():
        for name, tensor in fits.items():
            parameters[name].copy_(tensor)
    summary = f"{len(fits)} tensors loaded from {init.model}"
    summary += f"; new: {listed(new)}" if new else ""
    return summary + (f"; not used: {listed(unused)}" if unused else "")


def fitting(name: str, parameter: Tensor, tensor: Tensor) -> Tensor | None:
    """The tensor for a parameter, or None; a shorter table of positions gets the first rows."""
    if parameter.shape == tensor.shape:
        return tensor
    is_table = name.endswith("positions.table") and parameter.shape[1:] == tensor.shape[1:]
    return tensor[: len(parameter)] if is_table and len(parameter) < len(tensor) else None


def listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
