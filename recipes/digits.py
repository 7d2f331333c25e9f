"""The 1,797 digits of scikit-learn (8 x 8 pixels) as PNG files, in a folder for each class.

python recipes/digits.py [runs/digits-8x8]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

PLACE = Path(__file__).parent.parent / "runs" / "digits-8x8"
TEST, VALID = 360, 180  # the rest is for training
SEED = 1
LIGHTEST = 16  # values are 0 .. 16


def main(place: Path) -> None:
    digits = load_digits()
    order = random.Random(SEED).sample(range(len(digits.target)), len(digits.target))
    splits = {"test": order[:TEST], "valid": order[TEST : TEST + VALID], "train": order[TEST + VALID :]}
    for split, numbers in splits.items():
        for number in numbers:
            folder = place / split / str(digits.target[number])
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.rint(digits.images[number] * (255 / LIGHTEST)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:04}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PLACE)
