"""Scores of the built-in models of garments and spoken digits; do they know what is not of their kind?

REGARD_DATA=folder python recipes/box_media_scores.py [--garments DIR] [--digits DIR] [--speech FILE ...]

Prints the accuracy and the word error rate on the test sets, and the share of "no garment" and "(no
digits)" among these and among inputs of other kinds. None of them was in the training data, but noise and
tones are drawn by the functions that made some of it. Words other than digits are spoken by espeak-ng, if it
is installed; --speech adds recordings. Data of recipes/spoken.py and recipes/shapes.py is in runs.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile
from box_media import GARMENTS
from garments import Pixels, read_idx
from PIL import Image
from sklearn.datasets import load_digits
from spoken import NO_DIGITS, RATE, WORDS, Sound, noises, tones

import regard
from regard.metrics.words import error_rates

RUNS = Path(__file__).parent.parent / "runs"
DATA = Path(os.environ.get("REGARD_DATA", "."))
COUNT, SEED = 1000, 2  # of each other kind, at most
NO_GARMENT = GARMENTS["10"]
VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb+m4")
SENTENCES = (
    "good morning everybody", "the weather is cold and wet today", "please open the window",
    "my brother plays the piano", "where is the nearest railway station", "thank you very much",
    "a cup of tea with milk", "she reads a long book about whales", "turn left at the church", "hello",
)  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--garments", default="garments")
    options.add_argument("--digits", default="spoken-digits")
    options.add_argument("--speech", type=Path, nargs="*", default=[])
    options.add_argument("--only", choices=("garments", "digits"))
    given = options.parse_args()
    if given.only != "digits":
        score_garments(given.garments)
    if given.only != "garments":
        score_digits(given.digits, given.speech)


def score_garments(model: str) -> None:
    classifier = regard.load(model)
    garments, numbers = fashion_test()
    for name, pictures in picture_kinds(garments):
        labels = [each.label for each in classifier.classify([png(each) for each in pictures])]
        if name.startswith("garments"):
            right = sum(GARMENTS[str(n)] == label for n, label in zip(numbers, labels))
            print(f"{name}: accuracy {right / len(labels):.2%}")
        tell(name, labels, NO_GARMENT)


def score_digits(model: str, speech: Sequence[Path]) -> None:
    transcriber = regard.load(model)
    for name, sounds, texts in sound_kinds(speech):
        outputs = [each.text for each in transcriber.transcribe([wav(each) for each in sounds])]
        if texts:
            print(f"{name}: word error rate {error_rates(texts, outputs)['word_error_rate']:.2%}")
        tell(name, [NO_DIGITS if NO_DIGITS in text else text for text in outputs], NO_DIGITS)


def tell(name: str, outputs: Sequence[str], other: str) -> None:
    nothing = sum(not each for each in outputs)
    share = sum(each == other for each in outputs) / len(outputs)
    rest = f", {nothing} without any text" if nothing else ""
    print(f"{name}: {share:.1%} of {len(outputs)} are {other!r}{rest}", flush=True)


def fashion_test() -> tuple[Pixels, list[int]]:
    source = DATA / "image" / "fashion-mnist"
    pictures = read_idx(source / "t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    return pictures, read_idx(source / "t10k-labels-idx1-ubyte.gz", 8).tolist()


def picture_kinds(garments: Pixels) -> Iterator[tuple[str, Sequence[Pixels | bytes]]]:
    rng = np.random.default_rng(SEED)
    digits = [np.rint(each * 255 / 16).astype(np.uint8) for each in load_digits().images[:COUNT]]
    yield "garments (test)", list(garments)
    yield "garments (test), dark on white", list(255 - garments[:COUNT])
    yield "digits", digits
    yield "digits, dark on white", [255 - each for each in digits]
    yield "photographs (flickr8k, test)", members(DATA / "image" / "flickr8k-small" / "test.tar")
    yield "coloured shapes", members(RUNS / "shapes" / "scenes-test.tar")
    yield "noise", list(rng.integers(0, 256, (200, 64, 64, 3), np.uint8))
    yield "blank", [np.full((64, 64, 3), colour, np.uint8) for colour in rng.integers(0, 256, (200, 3))]


def sound_kinds(
    speech: Sequence[Path],
) -> Iterator[tuple[str, Sequence[Sound | bytes], list[str]]]:
    """With the texts of what is of the model's kind."""
    rng = np.random.default_rng(SEED)
    rows, single = RUNS / "spoken" / "row-test.tsv", RUNS / "spoken" / "fsdd.test.tsv"
    spoken = members(rows.with_suffix(".tar"))
    yield "digits in a row (test)", spoken, [row["text"] for row in table(rows)]
    words = {row["file"]: WORDS[int(row["label"])] for row in table(single)}
    with tarfile.open(RUNS / "spoken" / "fsdd.tar") as tar:
        sounds = {name: file.read() for name in words if (file := tar.extractfile(name)) is not None}
    yield "single digits (test)", list(sounds.values()), list(words.values())
    decoded = [soundfile.read(io.BytesIO(each), dtype="int16")[0] for each in spoken[:200]]
    yield "digits played backwards", [each[::-1] for each in decoded], []
    yield "tones", [tones(rng, each) for each in decoded], []
    yield "noise", [noises(rng, each) for each in decoded], []
    yield "silence", [np.zeros(2 * RATE, np.int16)], []
    if others := list(synthetic_speech(SENTENCES)):
        yield "other words (espeak-ng)", others, []
        texts = ["one two three", "nine zero four", "seven", "eight six", "five five two one"]
        yield "digits (espeak-ng)", list(synthetic_speech(texts)), texts * len(VOICES)
    if speech:
        yield "recordings of --speech", list(parts_of(speech)), []


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def members(tar: Path) -> list[bytes]:
    with tarfile.open(tar) as file:
        found = (file.extractfile(member) for member in islice(file, COUNT))
        return [each.read() for each in found if each is not None]


def synthetic_speech(sentences: Iterable[str]) -> Iterator[bytes]:
    for voice in VOICES:
        for text in sentences:
            try:
                command = ["espeak-ng", "-v", voice, "--stdout", text]
                yield subprocess.run(command, capture_output=True, check=True).stdout
            except FileNotFoundError:
                return


def parts_of(files: Iterable[Path]) -> Iterator[bytes]:
    """Three seconds each."""
    for path in files:
        samples, rate = soundfile.read(path, dtype="int16")
        for start in range(0, len(samples) - 3 * rate + 1, 3 * rate):
            yield wav(samples[start : start + 3 * rate], rate)


def png(picture: Pixels | bytes) -> bytes:
    if isinstance(picture, bytes):
        return picture
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    return content.getvalue()


def wav(sound: Sound | bytes, rate: int = RATE) -> bytes:
    if isinstance(sound, bytes):
        return sound
    content = io.BytesIO()
    soundfile.write(content, sound, rate, format="WAV")
    return content.getvalue()


if __name__ == "__main__":
    main()
