"""More pictures for recipes/fashion-mnist.toml, as a pair of IDX files.

REGARD_DATA=folder python recipes/garments.py [runs/garments]

Fashion-MNIST shows garments that are light on black, and a model trained on it alone is sure of a name for
whatever it is given. These are 8,000 pictures of the training set with light and dark exchanged, and 8,000
that show no garment, with the label 10: noise, gradients, lines, shapes, letters, garments cut into pieces.
"""

from __future__ import annotations

import gzip
import os
import string
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

PLACE = Path(__file__).parent.parent / "runs" / "garments"
SIDE = 28
COUNT = 8000  # of each of the two kinds
OTHER = 10  # the label of what is no garment
SEED = 1

Pixels = npt.NDArray[np.uint8]
Rng = np.random.Generator


def main(place: Path) -> None:
    source = Path(os.environ["REGARD_DATA"]) / "image" / "fashion-mnist"
    pictures = read_idx(source / "train-images-idx3-ubyte.gz", 16).reshape(-1, SIDE, SIDE)
    labels = read_idx(source / "train-labels-idx1-ubyte.gz", 8)
    rng = np.random.default_rng(SEED)
    chosen = rng.choice(len(pictures), COUNT, replace=False)
    others = [KINDS[number % len(KINDS)](rng, pictures) for number in range(COUNT)]
    place.mkdir(parents=True, exist_ok=True)
    write_idx(place / "images-idx3-ubyte.gz", np.concatenate([255 - pictures[chosen], np.stack(others)]))
    write_idx(place / "labels-idx1-ubyte.gz", np.append(labels[chosen], np.full(COUNT, OTHER, np.uint8)))


def read_idx(path: Path, head: int) -> Pixels:
    return np.frombuffer(gzip.decompress(path.read_bytes())[head:], np.uint8)


def write_idx(path: Path, array: Pixels) -> None:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes(), mtime=0))


def stretched(values: npt.NDArray[np.floating], rng: Rng) -> Pixels:
    """Between two random grey levels."""
    low, high = np.sort(rng.uniform(0, 255, 2))
    spread = (values - values.min()) / max(float(np.ptp(values)), 1e-6)
    return (low + spread * (high - low)).astype(np.uint8)


def noise(rng: Rng, pictures: Pixels) -> Pixels:
    return stretched(rng.random((SIDE, SIDE)) ** rng.uniform(0.3, 3), rng)


def clouds(rng: Rng, pictures: Pixels) -> Pixels:
    """Noise of few pixels, enlarged; of two by two, a gradient."""
    small = Image.fromarray(
        rng.integers(0, 256, (int(rng.integers(1, 15)), int(rng.integers(2, 15))), np.uint8)
    )
    return stretched(np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), float), rng)


def drawing(rng: Rng, pictures: Pixels) -> Pixels:
    """Lines, ellipses, rectangles and polygons."""
    back, front = (int(each) for each in rng.integers(0, 256, 2))
    image = Image.new("L", (SIDE, SIDE), back)
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(1, 5))):
        points = [tuple(point) for point in rng.integers(0, SIDE, (int(rng.integers(2, 6)), 2)).tolist()]
        (left, top), (right, bottom) = points[:2]
        box = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        match rng.integers(4):
            case 0:
                draw.line(points, fill=front, width=int(rng.integers(1, 5)))
            case 1:
                draw.ellipse(box, fill=front, outline=front)
            case 2:
                draw.rectangle(box, fill=front)
            case _:
                draw.polygon(points, fill=front)
    return np.asarray(image)


def letter(rng: Rng, pictures: Pixels) -> Pixels:
    back, front = (int(each) for each in rng.integers(0, 256, 2))
    small = Image.new("L", (12, 12), back)
    ImageDraw.Draw(small).text(
        (3, 0), str(rng.choice(list(string.ascii_letters + string.digits))), fill=front
    )
    side = int(rng.integers(20, 40))
    large = small.resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(large.resize((SIDE, SIDE), box=(0, 0, min(side, SIDE), min(side, SIDE))))


def piece(rng: Rng, pictures: Pixels) -> Pixels:
    """A small part of a garment, enlarged."""
    size = int(rng.integers(5, 12))
    left, top = rng.integers(4, SIDE - 4 - size, 2).tolist()
    picture = Image.fromarray(pictures[rng.integers(len(pictures))])
    return np.asarray(
        picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + size, top + size))
    )


def mosaic(rng: Rng, pictures: Pixels) -> Pixels:
    """Quarters, or smaller parts, of garments in another order."""
    cut = int(rng.choice([2, 4, 7]))
    side = SIDE // cut
    parts = (
        pictures[rng.integers(len(pictures))]
        .reshape(cut, side, cut, side)
        .swapaxes(1, 2)
        .reshape(-1, side, side)
    )
    mixed = rng.permutation(parts).reshape(cut, cut, side, side).swapaxes(1, 2)
    return np.ascontiguousarray(mixed.reshape(SIDE, SIDE))


KINDS: list[Callable[[Rng, Pixels], Pixels]] = [
    noise,
    clouds,
    drawing,
    letter,
    piece,
    mosaic,
    clouds,
    drawing,
]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PLACE)
