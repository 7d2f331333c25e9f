"""What a run begins with instead of drawn weights, and which of its layers learn how fast (ULMFiT's idea)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config import Config, Init
from regard.config import Model as ModelConfig
from regard.config.presets import FAMILY_DEFAULTS
from regard.config.schema import POSITIONS
from regard.errors import UsageError

HEAD = ("head.", "output.", "writer.readout.", "writer.score.", "bridge.")
_BLOCK = re.compile(r"^(?:encoder|decoder)\.blocks\.(\d+)\.|^(?:reader|writer)\.layers\.(\d+)\.")
TOLD = 6  # names of tensors in a message


def with_shape(config: Config, shape: ModelConfig) -> Config:
    """The config with the model of a folder. Of the run's own `[model]` dropout, head and pool are kept, and
    a smaller `max_length`; the rest is the folder's, and who asks for something else is told."""
    free = {"dropout", "head", "pool"}  # no weight depends on them, or only the head's
    own = {name: getattr(config.model, name) for name in config.model.model_fields_set}
    if own.get("family", shape.family) != shape.family:
        raise UsageError(f'init.from: the folder holds a "{shape.family}" model, not "{own["family"]}"')
    if config.model.max_length < shape.max_length and "max_length" in own:
        free.add("max_length")  # read less than the model could
    usual = dict(FAMILY_DEFAULTS.get(shape.family, {}))  # what nobody wrote
    if shape.family in POSITIONS:
        usual["positions"] = POSITIONS[shape.family][0]
    for name, value in own.items():
        has = getattr(shape, name)
        if name not in {"preset", *free} and value not in (has, usual.get(name, has)):
            raise UsageError(
                f"model.{name} = {json.dumps(value)}: the folder of init.from has {json.dumps(has)}, and its "
                "weights fit nothing else; leave it out"
            )
    kept = {name: value for name, value in own.items() if name in free}
    return config.model_copy(update={"model": shape.model_copy(update=kept)})


def load_initial(model: nn.Module, weights: Mapping[str, Tensor], init: Init) -> str:
    """Copy what has a place in the model; what was loaded, what is new and what was left over, in words."""
    own = dict(model.named_parameters())
    fits = {
        name
        for name, tensor in weights.items()
        if name in own and fitting(name, own[name], tensor) is not None
    }
    new, unused = [n for n in own if n not in fits], [n for n in weights if n not in fits]
    if init.keep == "all" and (new or unused):
        wrong = f"no weights for {listed(new)}" if new else f"no place for {listed(unused)}"
        raise UsageError(f'init.from = "{init.model}": {wrong}; init.keep = "fitting" takes what fits')
    if not fits:
        raise UsageError(f'init.from = "{init.model}": none of its weights fits this model')
    with torch.no_grad():
        for name in fits:
            own[name].copy_(fitting(name, own[name], weights[name]))  # type: ignore[arg-type]
    told = f"{len(fits)} tensors loaded from {init.model}"
    told += f"; new: {listed(new)}" if new else ""
    return told + (f"; not used: {listed(unused)}" if unused else "")


def fitting(name: str, place: Tensor, tensor: Tensor) -> Tensor | None:
    """The tensor for a place; of a table of positions the first, where the run reads shorter texts."""
    if place.shape == tensor.shape:
        return tensor
    is_table = name.endswith("positions.table") and place.shape[1:] == tensor.shape[1:]
    return tensor[: len(place)] if is_table and len(place) < len(tensor) else None


def listed(names: list[str]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more


def freeze(model: nn.Module, init: Init) -> dict[str, float]:
    """Switch off what does not learn; the share of the learning rate of everything else.

    Layers are counted from the embeddings (0) through the blocks (1 .. N) to the head (N + 1); with
    `layer_decay` d a layer that stands k below the head learns at d^k.
    """
    levels = {name: level(name) for name, _ in model.named_parameters()}
    top = max((each for each in levels.values() if each is not None), default=0) + 1
    rates = {}
    for name, parameter in model.named_parameters():
        own = levels[name]
        height = top if own is None else own
        frozen = own is not None if init.freeze == "body" else height < top and height < first_free(init)
        parameter.requires_grad_(not frozen)
        rates[name] = init.layer_decay ** (top - height)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            f"init.freeze = {json.dumps(init.freeze)}: nothing is left to learn; freeze fewer layers"
        )
    return rates


def first_free(init: Init) -> int:
    """The lowest layer that learns."""
    return int(init.freeze) + 1 if init.freeze else 0


def level(name: str) -> int | None:
    """0 for embeddings, i + 1 for block i, None for what belongs to the head or the end of a stack."""
    if found := _BLOCK.match(name):
        return int(found[1] or found[2] or 0) + 1
    if name.startswith(HEAD) or ".last." in name:
        return None
    return 0
