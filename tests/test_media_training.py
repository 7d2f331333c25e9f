"""Frames in training: padding behind a picture, masks of spectrograms that are cut into patches, paths."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import pictures
from conftest import Command
from regard.batch import Batch, FrameSize, frames
from regard.cli.train import unit_of
from regard.config import load_config, resolve, to_toml
from regard.config.input import AudioInput, Modifier
from regard.config.model import ViTConfig
from regard.data.objectives.frames import ClassifyFrames
from regard.inputs.frames import AudioReader
from regard.models.frames import vit


def test_padding_behind_a_picture_changes_nothing() -> None:
    """Decoding pads rows to a multiple of 16; the convolutions once refused the 64 patches of 49."""
    config = ViTConfig(width=16, heads=2, layers=1, feed_forward=32, front="convolution", pool="mean")
    torch.manual_seed(1)
    model = vit(config, FrameSize(49, 16, (7, 7)), 3).eval()
    rows = list(np.random.default_rng(1).standard_normal((2, 49, 16)).astype(np.float32))
    plain, padded = (model(Batch(source=frames(rows, multiple))) for multiple in (1, 16))
    assert torch.equal(plain, padded)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_convolutions_of_a_spectrogram_ignore_what_stands_behind_it(
    positions: Literal["learned", "sinusoidal"],
) -> None:
    config = ViTConfig(width=16, heads=2, layers=1, feed_forward=32, front="convolution", positions=positions)
    torch.manual_seed(1)
    model = vit(config, FrameSize(41, 10), 3).eval()
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal((length, 10)).astype(np.float32) for length in (41, 18, 17, 1)]
    batch = Batch(source=frames(rows, 16))
    with torch.inference_mode():
        together = model(batch)
        assert torch.equal(together, torch.cat([model(Batch(source=frames([row]))) for row in rows]))
    torch.testing.assert_close(model(batch), together, atol=1e-5, rtol=1e-5)  # in training: all rows at once


def test_masks_cover_times_and_mels_of_patches() -> None:
    """Patches are ordered by mel, then by time: a mask of times is a span of columns of their grid."""
    reader = AudioReader(AudioInput(sample_rate=8000, seconds=0.96, mels=32, window=256, hop=120, patch=4))
    assert reader.grid == (8, 16)
    raw = np.random.default_rng(1).integers(-3000, 3000, 7680).astype(np.int16)
    before = reader.frames(raw)
    for name, axis in (("time_mask", 1), ("mel_mask", 0)):
        objective = ClassifyFrames(reader, ["a"], modifiers=[Modifier(name=name, strength=0.5)])
        for seed in range(5):
            after = objective.frames(raw, np.random.default_rng(seed))
            changed = (after != before).any(axis=1).reshape(reader.grid)
            lines = changed.any(axis=1 - axis)
            assert (changed == (lines[:, None] if axis == 0 else lines[None])).all(), "whole lines"
            if lines.any():
                first, last = np.flatnonzero(lines)[[0, -1]]
                assert lines[first : last + 1].all() and lines.sum() <= len(lines) / 2, "one span"
        assert changed.any()


def test_progress_counts_files_and_tokens(regard: Command, tmp_path: Path) -> None:
    """A label for each picture once was "tokens/s", and the pictures "texts"."""
    corpus = pictures.write_pictures(tmp_path / "train", range(2))
    sections = {
        "task": {"name": "classify"},
        "data": {"train": str(corpus), "valid": str(corpus), "leaks": "keep"},
    }
    fields = {**sections, "input": {"kind": "image", "height": 8, "width": 8, "channels": 1, "patch": 4}}
    config = resolve({**fields, "model": pictures.MODEL, "train": {**pictures.TRAIN, "steps": 10}})
    (tmp_path / "run.toml").write_text(to_toml(config), encoding="utf-8")
    said = regard("train", tmp_path / "run.toml", "-o", tmp_path / "run").err
    assert "files/s" in said and "tokens/s" not in said
    assert "on 32 pictures" in said
    assert unit_of(None, tmp_path / "run") == "files" and unit_of(None, tmp_path) == "files"
    assert unit_of(resolve({"data": {"train": "phrasebook"}}), tmp_path) == "tokens"


def test_the_files_of_a_corpus_are_relative_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        '[task]\nname = "classify"\n[input]\nkind = "image"\nheight = 8\nwidth = 8\npatch = 4\n'
        '[data]\ntrain = [{corpus = "train.tsv", files = "pictures.tar"}]\n',
        encoding="utf-8",
    )
    train = load_config(tmp_path / "run.toml").data.train
    assert isinstance(train, list) and not isinstance(train[0], str | list)
    assert (train[0].corpus, train[0].files) == tuple(
        str(tmp_path / n) for n in ("train.tsv", "pictures.tar")
    )
