"""Gradient checkpointing: fewer tensors are kept, and gradients have the same bits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.batch import Batch, tokens
from regard.config import resolve
from regard.config.model import CLASSES
from regard.errors import UsageError
from regard.models.families import build
from regard.training.checkpointing import checkpoint_blocks
from regard.training.run import train

SHAPE = {"width": 16, "layers": 3, "heads": 2, "feed_forward": 32, "max_length": 40, "dropout": 0.2}
ROWS = tokens([[5, 6, 7, 8, 9, 3], [4, 5, 3]])


def gradients(model: torch.nn.Module, batch: Batch) -> tuple[list[torch.Tensor], int]:
    """Of all parameters, and the numbers that were kept for them."""
    kept = [0]

    def count(x: torch.Tensor) -> torch.Tensor:
        kept[0] += x.numel()
        return x

    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        loss = model(batch).logsumexp(dim=-1).sum()
    loss.backward()
    return [each.grad for each in model.parameters() if each.grad is not None], kept[0]


@pytest.mark.parametrize("family", ["transformer", "t5", "gpt", "llama", "bert"])
def test_gradients_have_the_same_bits(family: str) -> None:
    more = {"head": "words"} if family == "bert" else {}
    model = build(CLASSES[family](family=family, **SHAPE, **more), 30).train()
    other = copy.deepcopy(model)
    checkpoint_blocks(other)
    source = None if family in ("gpt", "llama") else ROWS
    batch = Batch(source=source, target=None if family == "bert" else ROWS)
    (expected, kept), (found, fewer) = gradients(model, batch), gradients(other, batch)
    assert len(expected) == len(found) > 10
    assert all(torch.equal(one, two) for one, two in zip(expected, found))
    assert fewer < kept / 2
    assert list(dict(other.named_parameters())) == list(dict(model.named_parameters()))


def test_a_run_has_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"a b {n}\tb a {n}\n" for n in range(40)))

    def config(steps: int, checkpointing: bool) -> Any:
        return resolve(
            {
                "data": {"train": str(tmp_path / "a.tsv")},
                "text": {"vocabulary": 300},
                "model": SHAPE,
                "train": {
                    "steps": steps,
                    "warmup": 1,
                    "lr": 0.01,
                    "checkpoint_every": 2,
                    "tokens_per_batch": 64,
                    "gradient_checkpointing": checkpointing,
                },
            }
        )

    train(config(4, False), tmp_path / "whole")
    train(config(2, True), tmp_path / "half")
    train(config(4, True), tmp_path / "half", resume=True)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "half"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_recurrent_models_are_refused() -> None:
    model = build(CLASSES["rnn"](family="rnn", width=8, layers=1), 20)
    with pytest.raises(UsageError) as caught:
        checkpoint_blocks(model)
    assert caught.value.code == "E_CHECKPOINTING"
