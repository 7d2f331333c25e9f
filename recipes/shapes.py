"""Made pictures: two shapes with a caption and questions, and short clips of a shape that moves.

python recipes/shapes.py [--place runs/shapes]

scenes-{train,valid,test}.tar and .tsv (file, text, question): "a red circle above a blue square", and
questions about the same picture; boxes.json says where the shapes are.
clips-{train,valid,test}.tar and .tsv (file, label): which way did it move?
No picture of one split is in another.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

PLACE = Path(__file__).parent.parent / "runs" / "shapes"
COLOURS = {
    "red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220),
    "yellow": (230, 210, 50), "purple": (150, 60, 190), "white": (240, 240, 240),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "cross")
RELATIONS = {"above": (0, -1), "left of": (-1, 0)}  # columns, rows; "below" would be a second right caption
INVERSES = {"above": "below", "left of": "right of"}
DIRECTIONS = {
    "up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0),
    "up-left": (-1, -1), "up-right": (1, -1), "down-left": (-1, 1), "down-right": (1, 1),
}  # fmt: skip
SIDE, CLIP_SIDE = 32, 24  # pixels
CLIP_FRAMES = 8
SCENES = {"train": 6000, "valid": 300, "test": 600}
CLIPS = {"train": 3000, "valid": 200, "test": 400}
SEED = 1

Box = tuple[int, int, int, int]  # left, top, right, bottom; the last two are outside


class Thing(NamedTuple):
    colour: str
    shape: str
    box: Box

    def __str__(self) -> str:
        return f"{self.colour} {self.shape}"


class Scene(NamedTuple):
    first: Thing
    second: Thing
    relation: str

    @property
    def caption(self) -> str:
        return f"a {self.first} {self.relation} a {self.second}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--place", type=Path, default=PLACE)
    place = options.parse_args().place
    place.mkdir(parents=True, exist_ok=True)
    dice, seen = random.Random(SEED), set[Scene]()
    boxes: dict[str, list[Box]] = {}
    for split, count in SCENES.items():
        scenes = []
        while len(scenes) < count:
            if (scene := draw_scene(dice)) not in seen:
                seen.add(scene)
                scenes.append(scene)
        names = [f"{split}-{number:05}.png" for number in range(count)]
        pictures = ((name, png(picture_of(scene))) for name, scene in zip(names, scenes))
        write_tar(place / f"scenes-{split}.tar", pictures)
        rows = [(name, *row) for name, scene in zip(names, scenes) for row in rows_of(scene, dice)]
        write_table(place / f"scenes-{split}.tsv", ("file", "text", "question"), rows)
        boxes |= {name: [each.first.box, each.second.box] for name, each in zip(names, scenes)}
    (place / "boxes.json").write_text(json.dumps(boxes), encoding="utf-8")
    write_clips(place, dice)


def draw_scene(dice: random.Random) -> Scene:
    """Two shapes that differ in colour and in shape, the first in the relation to the second."""
    relation = dice.choice(list(RELATIONS))
    across, down = RELATIONS[relation]
    colours, shapes = dice.sample(list(COLOURS), 2), dice.sample(SHAPES, 2)
    sides = [dice.randint(9, 13) for _ in range(2)]
    half = SIDE // 2
    things = []
    for sign, colour, shape, side in zip((1, -1), colours, shapes, sides):
        left, top = (axis_place(dice, sign * way, side, half) for way in (across, down))
        things.append(Thing(colour, shape, (left, top, left + side, top + side)))
    return Scene(*things, relation)


def axis_place(dice: random.Random, way: int, side: int, half: int) -> int:
    """In the first or second half where the relation says so, else about the middle."""
    if way:
        return dice.randint(0, half - side) + (half if way > 0 else 0)
    return half - side // 2 + dice.randint(-4, 4)


def rows_of(scene: Scene, dice: random.Random) -> list[tuple[str, str]]:
    """The caption (without a question), and the answers to three questions."""
    first, second, relation = scene
    thing = dice.choice([first, second])
    other = dice.choice([first, second])
    answer, place = dice.choice(
        [(first, f"{relation} the {second}"), (second, f"{INVERSES[relation]} the {first}")]
    )
    return [
        (scene.caption, ""),
        (thing.colour, f"what colour is the {thing.shape}?"),
        (other.shape, f"what shape is {other.colour}?"),
        (str(answer), f"what is {place}?"),
    ]


def picture_of(scene: Scene) -> Image.Image:
    image = Image.new("RGB", (SIDE, SIDE), (20, 20, 20))
    for thing in (scene.first, scene.second):
        draw_shape(image, thing)
    return image


def draw_shape(image: Image.Image, thing: Thing) -> None:
    left, top, right, bottom = thing.box
    draw, colour, box = ImageDraw.Draw(image), COLOURS[thing.colour], (left, top, right - 1, bottom - 1)
    if thing.shape == "circle":
        draw.ellipse(box, fill=colour)
    elif thing.shape == "square":
        draw.rectangle(box, fill=colour)
    elif thing.shape == "triangle":
        draw.polygon(
            [((left + right - 1) / 2, top), (left, bottom - 1), (right - 1, bottom - 1)], fill=colour
        )
    else:
        third = (right - left) // 3
        draw.rectangle((left + third, top, right - 1 - third, bottom - 1), fill=colour)
        draw.rectangle((left, top + third, right - 1, bottom - 1 - third), fill=colour)


def write_clips(place: Path, dice: random.Random) -> None:
    for split, count in CLIPS.items():
        names = [f"{split}-{number:05}.gif" for number in range(count)]
        labels = [dice.choice(list(DIRECTIONS)) for _ in names]
        clips = ((name, clip(label, dice)) for name, label in zip(names, labels))
        write_tar(place / f"clips-{split}.tar", clips)
        write_table(place / f"clips-{split}.tsv", ("file", "label"), zip(names, labels))


def clip(direction: str, dice: random.Random) -> bytes:
    """A shape that moves from anywhere, so that no single frame tells the direction."""
    across, down = DIRECTIONS[direction]
    side, speed = dice.randint(6, 9), dice.uniform(1.0, 1.8)
    path = math.ceil(speed * (CLIP_FRAMES - 1))
    colour, shape = dice.choice(list(COLOURS)), dice.choice(SHAPES)
    begins = []
    for way in (across, down):
        room = CLIP_SIDE - side - path * abs(way)
        begins.append(dice.randint(0, room) + (path if way < 0 else 0))
    frames = []
    for time in range(CLIP_FRAMES):
        left, top = (begin + round(way * speed * time) for begin, way in zip(begins, (across, down)))
        image = Image.new("RGB", (CLIP_SIDE, CLIP_SIDE), (20, 20, 20))
        draw_shape(image, Thing(colour, shape, (left, top, left + side, top + side)))
        frames.append(image)
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=100, loop=0)
    return file.getvalue()


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def write_table(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in (columns, *rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
