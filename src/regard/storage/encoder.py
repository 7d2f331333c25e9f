"""The encoder of a BERT folder, without its head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn

from regard.config.model import ModelConfig
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.models.encoder import EncoderOnly
from regard.models.families import build_meta
from regard.models.layers import Linear
from regard.storage.files import read_json
from regard.storage.folder import describe, run_of, verified_folder, weights_of
from regard.storage.huggingface import task_of
from regard.storage.models import find_model
from regard.storage.weights import WEIGHTS, load_weights_into


@dataclass(frozen=True)
class BareEncoder:
    """An opened encoder without a head: its output is the hidden states, [B,S,D]."""

    path: Path
    home: Path  # folder of the files beside the weights
    config: ModelConfig
    tokenizer: Tokenizer
    model: EncoderOnly


def is_bare_encoder(path: Path) -> bool:
    """Whether a folder has an encoder without a head, which `open_folder` refuses."""
    folder = find_model(path)
    file = folder / "config.json"
    if run_of(folder) or (folder / "run.toml").is_file() or not file.is_file():
        return False
    return task_of(read_json(file), str(file)) is None


def open_encoder(path: Path, device: torch.device | None = None) -> BareEncoder:
    """Open the encoder of a BERT: a folder of another program, a run, or a checkpoint."""
    with verified_folder(path):
        return _open_body(path, device)


def _open_body(path: Path, device: torch.device | None) -> BareEncoder:
    spec = describe(path)
    whole = build_meta(spec.config, len(spec.source), spec.output_size)  # no memory until the weights fit
    if not isinstance(whole, EncoderOnly):
        raise UsageError(
            f"{path}: embeddings of texts need an encoder (bert), and this model is a {spec.config.family}",
            code="E_MODEL_FAMILY",
        )
    weights = weights_of(spec, None)
    model = EncoderOnly(whole.source, whole.encoder, nn.Identity(), cast(Linear, nn.Identity()))
    load_weights_into(model, weights, spec.path / WEIGHTS)
    return BareEncoder(
        path, spec.home, spec.config, spec.source, model.to(device or torch.device("cpu")).eval()
    )
