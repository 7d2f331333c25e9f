"""Pictures of digits that a language model wrote: are they recognised, and are they new?

python recipes/digits_pixels.py MODEL CLASSIFIER [--place runs/digits-8x8] [--count 50] [--sheet digits.png]

MODEL is trained by recipes/digits-pixels.toml, CLASSIFIER by recipes/digits.toml. For each digit `count`
pictures are written. Printed are the share that the classifier takes for the digit, the digits that the
model writes when it chooses itself, and the distance (root mean square of grey values, 0 to 255) to the
nearest picture of the training set, beside that of real pictures of the test set.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from digits import PLACE
from PIL import Image

import regard
from regard.tasks.results import Generation

LEVELS = 16  # as in digits-pixels.toml
DIGITS = "0123456789"
Pictures = npt.NDArray[np.uint8]  # [N,8,8]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("classifier", type=Path)
    options.add_argument("--place", type=Path, default=PLACE)
    options.add_argument("--count", type=int, default=50)
    options.add_argument("--sheet", type=Path, help="a picture of the first ten of each digit")
    given = options.parse_args()
    generator, classifier = regard.load(given.model), regard.load(given.classifier)
    prompts = [f"{digit}\n" for digit in DIGITS]
    written = [
        pictures_of(each) for each in generator.generate_texts(prompts, num_results=given.count, seed=1)
    ]
    pictures = {digit: [each for each in row if each is not None] for digit, row in zip(DIGITS, written)}
    total = right = 0
    for digit, row in pictures.items():
        labels = [each.label for each in classifier.classify([each[:, :, None] for each in row])]
        total, right = total + given.count, right + labels.count(digit)
        wrong = Counter(label for label in labels if label != digit).most_common(2)
        print(f"{digit}: {labels.count(digit)} of {given.count} recognised; others: {wrong}")
    print(
        f"recognised: {right / total:.1%} of {total}; no picture: {total - sum(map(len, pictures.values()))}"
    )
    free = generator.generate_texts([""], num_results=10 * given.count, seed=2)
    counts = Counter(each.text.strip()[:1] for each in free[0].candidates)
    print("without a prompt:", ", ".join(f"{digit} {counts[digit]}" for digit in DIGITS))
    train, test = read(given.place / "train"), read(given.place / "test")
    distances = {
        "written": nearest(np.stack([each for row in pictures.values() for each in row]), train),
        "real (test)": nearest(test, train),
    }
    for name, each in distances.items():
        print(f"nearest training picture of {name}: median {np.median(each):.1f}, least {each.min():.1f}")
    if given.sheet:
        rows = [np.concatenate(row[:10], axis=1) for row in pictures.values() if len(row) >= 10]
        sheet = Image.fromarray(np.concatenate(rows))
        sheet.resize((sheet.width * 4, sheet.height * 4), Image.Resampling.NEAREST).save(given.sheet)


def pictures_of(generation: Generation) -> list[Pictures | None]:
    found = [each.picture for each in generation.candidates]
    return [each if each is not None and each.shape == (8, 8) else None for each in found]


def read(folder: Path) -> Pictures:
    """With as many grey values as the model has."""
    files = [np.asarray(Image.open(file)) for file in sorted(folder.rglob("*.png"))]
    steps = np.rint(np.stack(files) * ((LEVELS - 1) / 255))
    return np.rint(steps * (255 / (LEVELS - 1))).astype(np.uint8)


def nearest(pictures: Pictures, known: Pictures) -> npt.NDArray[np.float64]:
    """[N,8,8], [M,8,8] -> [N]."""
    apart = pictures[:, None].astype(float) - known[None]  # [N,M,8,8]
    found: npt.NDArray[np.float64] = np.sqrt((apart**2).mean(axis=(2, 3))).min(axis=1)
    return found


if __name__ == "__main__":
    main()
