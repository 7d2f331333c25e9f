"""Pictures for recipes/fashion-mnist.toml, as IDX files: train-*, valid-*.

REGARD_DATA=folder python recipes/garments.py [runs/garments]

A model of Fashion-MNIST alone is sure of a name for whatever it is given. Beside 55,000 of its pictures for
training and 5,000 for validation there are 10,000 that show no garment, with the label 10: noise,
gradients, lines, shapes, letters, leaves upon leaves (whose edges are distributed as those of photographs:
Lee, Mumford, Huang 2001), parts of two photographs of scikit-learn, garments cut into pieces.
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
from sklearn.datasets import load_sample_images

PLACE = Path(__file__).parent.parent / "runs" / "garments"
SIDE = 28
HELD_OUT = 5000  # for validation
COUNT = 10_000  # without a garment
OTHER = 10  # the label of what is no garment
SEED = 1

Pixels = npt.NDArray[np.uint8]
Rng = np.random.Generator


def main(place: Path) -> None:
    source = Path(os.environ["REGARD_DATA"]) / "image" / "fashion-mnist"
    pictures = read_idx(source / "train-images-idx3-ubyte.gz", 16).reshape(-1, SIDE, SIDE)
    labels = read_idx(source / "train-labels-idx1-ubyte.gz", 8)
    rng = np.random.default_rng(SEED)
    known, held = slice(-HELD_OUT), slice(-HELD_OUT, None)
    others = np.stack([KINDS[number % len(KINDS)](rng, pictures[known]) for number in range(COUNT)])
    place.mkdir(parents=True, exist_ok=True)
    write_idx(place / "train-images-idx3-ubyte.gz", np.concatenate([pictures[known], others]))
    write_idx(place / "train-labels-idx1-ubyte.gz", np.append(labels[known], np.full(COUNT, OTHER, np.uint8)))
    write_idx(place / "valid-images-idx3-ubyte.gz", pictures[held])
    write_idx(place / "valid-labels-idx1-ubyte.gz", labels[held])


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


def leaves(rng: Rng, pictures: Pixels) -> Pixels:
    """Ellipses of all sizes, small ones most often, each over those before; then a little out of focus."""
    side = 2 * SIDE
    image = Image.new("L", (side, side))
    draw = ImageDraw.Draw(image)
    for _ in range(400):
        across, down = 2 / np.sqrt(rng.uniform(0.002, 1, 2))  # p(r) ~ r^-3
        x, y = rng.uniform(0, side, 2)
        draw.ellipse((x - across, y - down, x + across, y + down), fill=int(rng.integers(256)))
    return stretched(np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), float), rng)


def photograph(rng: Rng, pictures: Pixels) -> Pixels:
    """A part of a photograph."""
    photo = PHOTOS[rng.integers(len(PHOTOS))]
    size = int(rng.integers(40, min(photo.size)))
    left, top = (int(rng.integers(0, side - size + 1)) for side in photo.size)
    box = (left, top, left + size, top + size)
    return np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box))


def blank(rng: Rng, pictures: Pixels) -> Pixels:
    return np.full((SIDE, SIDE), rng.integers(256), np.uint8)


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


PHOTOS = [Image.fromarray(each).convert("L") for each in load_sample_images().images]
KINDS: list[Callable[[Rng, Pixels], Pixels]] = [
    noise, blank, clouds, clouds, drawing, drawing, letter, letter, leaves, leaves, photograph, photograph,
    piece, mosaic,
]  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PLACE)
