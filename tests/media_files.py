"""Small pictures and sounds as files, and runs on them."""

from __future__ import annotations

import io
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.config import Config, resolve

CLASSES = ("dark", "light")
SMALL = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "dropout": 0.1}
TINY = {"kind": "image", "height": 6, "width": 8, "patch": 2, "channels": 1}


def png(seed: int, light: bool = False) -> bytes:
    """A picture of noise, dark or light."""
    noise = np.random.default_rng(seed).integers(0, 100, (7, 9)) + 140 * light
    file = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(file, "png")
    return file.getvalue()


def wav(seed: int, pitch: float = 0.1, samples: int = 2000) -> bytes:
    rng = np.random.default_rng(seed)
    tone = 8000 * np.sin(pitch * np.arange(samples)) + rng.normal(0, 300, samples)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(tone.astype("<i2").tobytes())
    return file.getvalue()


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def by_class(count: int, seed: int = 0) -> dict[str, bytes]:
    """`dark/0.png`, `light/1.png` ..."""
    return {f"{CLASSES[n % 2]}/{n}.png": png(seed + n, n % 2 == 1) for n in range(count)}


def picture_run(folder: Path, steps: int = 6, data: dict[str, Any] | None = None, **more: Any) -> Config:
    """A classifier of dark and light pictures; train and valid are folders by class."""
    for split, count, seed in (("train", 24, 0), ("valid", 6, 100)):
        for name, content in by_class(count, seed).items():
            put(folder / split / name, content)
    corpora = {split: str(folder / split) for split in ("train", "valid")}
    settings = {"steps": steps, "tokens_per_batch": 100, "checkpoint_every": 2, "lr": 1e-2, "warmup": 1}
    tree = {
        "task": {"name": "classify"},
        "data": {**corpora, **(data or {})},
        "input": TINY,
        "model": {"family": "vit", **SMALL},
        "train": {**settings, "log_every": 1, "threads": 1, "precision": "float32", "device": "cpu"},
    }
    return resolve({**tree, **more})
