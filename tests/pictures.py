"""Small models of pictures and sounds, trained for a few steps on files that are made here."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

from regard.config import resolve
from regard.training import train
from small_models import kept_folder

Pixels = NDArray[np.uint8]
SIDE = 8
SHAPES = ("bar", "beam")  # a white column, a white row
MODEL = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 32, "dropout": 0.0}
TRAIN = {"steps": 60, "tokens_per_batch": 512, "lr": 1e-2, "warmup": 6, "threads": 1, "label_smoothing": 0.0}


def picture(shape: str, place: int, noise: int = 0) -> Pixels:
    """[H,W]: a white line on black, in the column or row `place`."""
    dice = np.random.default_rng(place * 100 + noise)
    pixels = dice.integers(0, 40, (SIDE, SIDE)).astype(np.uint8)
    pixels[(slice(None), place) if shape == "bar" else (place, slice(None))] = 255
    return pixels


def png(pixels: Pixels) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def wav(frequency: float, seconds: float = 0.5, rate: int = 8000) -> bytes:
    times = np.arange(round(seconds * rate)) / rate
    content = io.BytesIO()
    soundfile.write(content, 0.5 * np.sin(2 * np.pi * frequency * times), rate, format="WAV")
    return content.getvalue()


def write_pictures(folder: Path, noise: range) -> Path:
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True)
        for place in range(SIDE):
            for number in noise:
                (folder / shape / f"{place}-{number}.png").write_bytes(png(picture(shape, place, number)))
    return folder


def trained(folder: Path, **sections: Any) -> Path:
    """A run with the sections of a config; corpora in `folder`."""
    defaults: dict[str, Any] = {"model": MODEL, "train": TRAIN}
    train(resolve({**defaults, **sections}), folder / "model")
    return folder / "model"


@cache
def classifier() -> Path:
    """Is it a bar or a beam?"""
    folder = kept_folder("regard-pictures-")
    return trained(
        folder,
        task={"name": "classify"},
        data={
            "train": str(write_pictures(folder / "train", range(8))),
            "valid": str(write_pictures(folder / "valid", range(90, 92))),
        },
        input={"kind": "image", "height": SIDE, "width": SIDE, "channels": 1, "patch": 4},
    )


@cache
def sound_classifier() -> Path:
    """Is it low or high?"""
    folder = kept_folder("regard-sounds-")
    for split, shift in (("train", 0), ("valid", 7)):
        for label, base in (("low", 300), ("high", 2500)):
            (folder / split / label).mkdir(parents=True)
            for number in range(16):
                path = folder / split / label / f"{number}.wav"
                path.write_bytes(wav(base + 20 * number + shift))
    return trained(
        folder,
        task={"name": "classify"},
        data={"train": str(folder / "train"), "valid": str(folder / "valid")},
        input={
            "kind": "audio", "sample_rate": 8000, "seconds": 0.5, "mels": 16, "window": 200, "hop": 80,
            "patch": 8,
        },
        model={**MODEL, "family": "ast"},
    )  # fmt: skip


@cache
def captioner() -> Path:
    """A caption names the shape and its side; with a question about the side, the answer is one word."""
    folder = kept_folder("regard-captions-")
    for split, noise in (("train", range(8)), ("valid", range(90, 91))):
        write_pictures(folder / split, noise)
        rows = ["file\ttext\tquestion"]
        for shape in SHAPES:
            for place in range(SIDE):
                for number in noise:
                    file, side = f"{shape}/{place}-{number}.png", side_of(shape, place)
                    rows += [f"{file}\ta {shape} {side}\t", f"{file}\t{side}\twhere ?"]
        (folder / split / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return trained(
        folder,
        task={"name": "caption"},
        data={"train": str(folder / "train" / "rows.tsv"), "valid": str(folder / "valid" / "rows.tsv")},
        input={"kind": "image", "height": SIDE, "width": SIDE, "channels": 1, "patch": 4},
        text={"kind": "word", "vocabulary": 400},
        model={**MODEL, "width": 32, "max_length": 16},
        train={**TRAIN, "steps": 250},
        decode={"beam": 2, "max_length": 8},
    )


def side_of(shape: str, place: int) -> str:
    low, high = ("left", "right") if shape == "bar" else ("top", "bottom")
    return low if place < SIDE // 2 else high


@cache
def painter() -> Path:
    """Writes a bar or a beam."""
    folder = kept_folder("regard-pixels-")
    for shape in SHAPES:
        (folder / "train" / shape).mkdir(parents=True)
        for place in range(4):
            pixels = np.where(picture(shape, place)[:4, :4] > 200, 255, 0).astype(np.uint8)
            (folder / "train" / shape / f"{place}.png").write_bytes(png(pixels))
    return trained(
        folder,
        task={"name": "generate"},
        data={"train": str(folder / "train"), "pixels": {"height": 4, "width": 4, "levels": 2}},
        text={"kind": "character", "vocabulary": 400},
        model={**MODEL, "width": 32, "max_length": 128},
        train={**TRAIN, "steps": 300},
    )
