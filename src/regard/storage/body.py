"""The encoder of a BERT folder alone, whatever head stands on it; also where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn

from regard.config import Model
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.models import EncoderOnly, outline
from regard.models.layers import Linear
from regard.storage.builtin import find_model
from regard.storage.files import read_json
from regard.storage.folder import as_read, describe, run_of, weights_of
from regard.storage.huggingface import task_of
from regard.storage.weights import WEIGHTS, load_weights_into


@dataclass(frozen=True)
class Body:
    """An opened encoder, on which nothing stands: what it answers are its states, [B,S,D]."""

    path: Path
    home: Path  # where the files beside the weights are
    config: Model
    tokenizer: Tokenizer
    model: EncoderOnly


def is_body(path: Path) -> bool:
    """Whether a folder has no head, so that `open_folder` would refuse it."""
    folder = find_model(path)
    file = folder / "config.json"
    if run_of(folder) or (folder / "run.toml").is_file() or not file.is_file():
        return False
    return task_of(read_json(file), str(file)) is None


def open_body(path: Path, device: torch.device | None = None) -> Body:
    """Open the encoder of any BERT: a folder of another program, a run of ours, or one of its checkpoints."""
    with as_read(path):
        return _open_body(path, device)


def _open_body(path: Path, device: torch.device | None) -> Body:
    told = describe(path)
    if told.config.family != "bert":
        raise UsageError(
            f"{path}: the vector of a text comes from a model that only reads (bert), "
            f"and this is of the family {told.config.family}"
        )
    weights = weights_of(told, None)
    whole = outline(told.config, len(told.source), told.beside)  # until the weights are seen to fit
    if not isinstance(whole, EncoderOnly):
        raise TypeError("a BERT is an encoder alone")
    model = EncoderOnly(whole.source, whole.encoder, nn.Identity(), cast(Linear, nn.Identity()))
    load_weights_into(model, weights, told.path / WEIGHTS)
    return Body(path, told.home, told.config, told.source, model.to(device or torch.device("cpu")).eval())
