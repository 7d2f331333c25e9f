"""What a run starts from: its stored config, or the shape and the weights of a pretrained model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.config import differing_field
from regard.config.model import ModelConfig
from regard.config.schema import Config, Init
from regard.errors import UsageError

# What may differ when a run is resumed: where it ends and what it keeps. (With other `steps` a schedule that
# falls to the end falls to another one.)
LIMITS = (
    *("train.steps", "train.epochs", "train.minutes", "train.patience", "train.keep", "train.log_every"),
    "train.gradient_checkpointing",
    *("train.bad_steps_in_a_row", "train.on_bad", "train.parallel", "train.timeout", "train.track"),
    *("recipe.expected", "recipe.time"),
)
MAX_NAMES = 6  # of tensors in a message


def resumed_config(config: Config, stored: Config, folder: Path) -> Config:
    """A given config for a stored run; only limits may differ."""
    train = config.train.model_copy(update=kept_fields(config, stored))
    config = config.model_copy(update={"train": train})
    if same_model(config.init.model, stored.init.model):
        init = config.init.model_copy(update={"model": stored.init.model})
        config = with_shape(config.model_copy(update={"init": init}), stored.model)
    config = config.model_copy(update={"version": stored.version})  # a run keeps the version that began it
    field = differing_field(config, stored, ignore=LIMITS)
    if config.init.model != stored.init.model:
        field = "init.from"  # its shape differs too
    if field is not None:
        raise UsageError(
            f"{field} is not what {folder} began with; only limits ({', '.join(LIMITS)}) may change "
            "when resuming",
            code="E_RUN_CHANGED",
        )
    return config


def same_model(given: str | None, stored: str | None) -> bool:
    """Whether `init.from` names the stored folder. A relative path stays relative once the folder is gone."""
    if given is None or stored is None:
        return False
    names = Path(given).parts
    return given == stored or (not Path(stored).exists() and Path(stored).parts[-len(names) :] == names)


def kept_fields(config: Config, stored: Config) -> dict[str, object]:
    """What followed from the machine, and from the first limit of steps, stays as it was."""
    kept: dict[str, object] = {}
    for name, automatic in (("device", "auto"), ("precision", "auto"), ("threads", 0)):
        if getattr(config.train, name) == automatic:
            kept[name] = getattr(stored.train, name)
    if config.train.device == "cuda" and stored.train.device.startswith("cuda:"):  # one of several processes
        kept["device"] = stored.train.device
    if config.train.steps != stored.train.steps:
        kept["warmup"] = stored.train.warmup
    return kept


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
