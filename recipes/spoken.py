"""Data for recipes/fsdd.toml and recipes/digits-in-a-row.toml, from the Free Spoken Digit Dataset.

REGARD_DATA=folder python recipes/spoken.py [--place runs/spoken]

fsdd.{train,valid,test}.tsv: recordings 5 and 6 of each speaker and digit for validation, the official test,
and the rest; fsdd.SPEAKER.{train,valid,test}.tsv: all recordings of one speaker are the test. Their sounds
are in fsdd.tar.

row-{train,valid,test}.tar and .tsv: two to six digits of one speaker, one after another, with their words, as
REGARD_DATA/audio/digits-in-a-row says. row-more.tar and .tsv: more such rows of the recordings for training,
of one to six digits, and sounds without digits, whose text is "(no digits)": noise, tones, digits played
backwards, cut to pieces, or all at once. Data: CC BY-SA 4.0, Jakobovski and contributors.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

PLACE = Path(__file__).parent.parent / "runs" / "spoken"
RATE = 8000
MORE, EVERY = 12_000, 8  # more rows for training; each eighth is a sound without digits
COUNTS = (1, 1, 1, 1, 2, 2, 3, 4, 5, 6)  # digits of a row: single ones are learned first
LONGEST = 6 * RATE  # samples of a row
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NO_DIGITS = "(no digits)"
SEED = 1
HELD_OUT = ("5", "6")  # numbers of the recordings for validation
SUMS = {  # SHA-256 of all samples, int16 in little-endian order
    "train": "3feb790feed422ad33b04e0c597c082f7a2b4b0e157b4a7bdd5e8d5fb43976b2",
    "valid": "21e89338fdb3c7a954e84a5400067beaab958cb1eb5935c7ada8c92a9bca9156",
    "test": "315bc3f533eb74c1342aa18e59cc08a2d6b5346b17ae558c6e5711e10a4277fb",
}

Row = dict[str, str]
Sound = npt.NDArray[np.int16]
Sounds = dict[str, Sound]
Rng = np.random.Generator


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--place", type=Path, default=PLACE)
    place = options.parse_args().place
    place.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ["REGARD_DATA"]) / "audio"
    parts = {split: rows_of(data / "fsdd" / f"{split}.tsv") for split in ("train", "test")}
    sounds = {split: read_sounds(data / "fsdd" / f"{split}.tar") for split in parts}
    write_splits(place, parts, sounds)
    for split in SUMS:
        rows = rows_of(data / "digits-in-a-row" / f"{split}.tsv")
        write_rows_of_digits(place, split, rows, sounds["test" if split == "test" else "train"])
    write_more_rows(place, [row for row in parts["train"] if not is_held_out(row)], sounds["train"])


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def read_sounds(path: Path) -> Sounds:
    sounds = {}
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            sounds[member.name], rate = soundfile.read(io.BytesIO(file.read()), dtype="int16")
            assert rate == RATE, f"{member.name}: {rate} Hz"
    return sounds


def write_splits(place: Path, parts: dict[str, list[Row]], sounds: dict[str, Sounds]) -> None:
    """The official split, and one for each speaker; all sounds are in fsdd.tar."""
    write_tar(place / "fsdd.tar", ((name, each) for part in sounds.values() for name, each in part.items()))
    held = [row for row in parts["train"] if is_held_out(row)]
    rest = [row for row in parts["train"] if row not in held]
    splits = {"fsdd": {"train": rest, "valid": held, "test": parts["test"]}}
    for speaker in sorted({row["speaker"] for row in rest}):
        others = {
            "train": [row for row in rest if row["speaker"] != speaker],
            "valid": [row for row in held if row["speaker"] != speaker],
            "test": [row for row in [*rest, *held, *parts["test"]] if row["speaker"] == speaker],
        }
        splits[f"fsdd.{speaker}"] = others
    for name, tables in splits.items():
        for split, rows in tables.items():
            write_table(place / f"{name}.{split}.tsv", ("file", "label"), rows)


def write_rows_of_digits(place: Path, split: str, rows: list[Row], sounds: Sounds) -> None:
    total = hashlib.sha256()

    def joined() -> Iterator[tuple[str, Sound]]:
        for row in rows:
            gaps = [np.zeros(int(gap), np.int16) for gap in row["gaps"].split()]
            digits = [sounds[name] for name in row["files"].split()]
            pieces = [piece for pair in zip(digits, [*gaps, gaps[0][:0]]) for piece in pair]
            sound = np.concatenate(pieces)
            assert len(sound) == int(row["samples"]), row["id"]
            total.update(sound.astype("<i2").tobytes())
            yield f"{row['id']}.flac", sound

    write_tar(place / f"row-{split}.tar", joined())
    assert total.hexdigest() == SUMS[split], f"{split}: other samples than those of the recipe"
    named = [{"file": f"{row['id']}.flac", "text": row["text"]} for row in rows]
    write_table(place / f"row-{split}.tsv", ("file", "text"), named)


def is_held_out(row: Row) -> bool:
    return row["file"].split(".")[0].split("_")[2] in HELD_OUT


def write_more_rows(place: Path, rows: list[Row], sounds: Sounds) -> None:
    """Rows of digits, and sounds without digits made from the same recordings."""
    rng = np.random.default_rng(SEED)
    speakers = sorted({row["speaker"] for row in rows})
    digits = [
        [(sounds[row["file"]], WORDS[int(row["label"])]) for row in rows if row["speaker"] == speaker]
        for speaker in speakers
    ]
    texts: dict[str, str] = {}

    def made() -> Iterator[tuple[str, Sound]]:
        for number in range(MORE):
            spoken = digits[rng.integers(len(digits))]
            several = [spoken[rng.integers(len(spoken))] for _ in range(rng.choice(COUNTS))]
            sound, text = in_a_row(rng, [each for each, _ in several]), " ".join(word for _, word in several)
            if number % EVERY == 0:  # among the others: batches are made of rows that are near each other
                sound, text = OTHER_SOUNDS[number // EVERY % len(OTHER_SOUNDS)](rng, sound), NO_DIGITS
            name = f"more-{number:05}.flac"
            if len(sound) <= LONGEST:
                texts[name] = text
                yield name, sound

    write_tar(place / "row-more.tar", made())
    write_table(place / "row-more.tsv", ("file", "text"), [{"file": n, "text": t} for n, t in texts.items()])


def in_a_row(rng: Rng, digits: list[Sound]) -> Sound:
    """With pauses between them and silence at the ends, up to a quarter of a second each."""
    pauses = [np.zeros(rng.integers(0, RATE // 4), np.int16) for _ in range(len(digits) + 1)]
    return np.concatenate([part for pair in zip(pauses, [*digits, pauses[-1]]) for part in pair])


# Sounds without digits; each gets a row of digits that it may change.


def backwards(rng: Rng, sound: Sound) -> Sound:
    return np.ascontiguousarray(sound[::-1])


def shuffled(rng: Rng, sound: Sound) -> Sound:
    """Pieces of 0.04 to 0.12 seconds in another order."""
    pieces = np.array_split(sound, max(2, len(sound) // int(rng.integers(RATE // 25, RATE // 8))))
    return np.concatenate([pieces[at] for at in rng.permutation(len(pieces))])


def all_at_once(rng: Rng, sound: Sound) -> Sound:
    """Many voices: the row, moved by any time, five times over itself."""
    voices = [np.roll(sound, rng.integers(len(sound))).astype(np.int32) for _ in range(5)]
    return np.clip(np.sum(voices, axis=0), -32768, 32767).astype(np.int16)


def tones(rng: Rng, sound: Sound) -> Sound:
    """Notes one after another, each with overtones, some that slide."""
    parts = []
    for length in rng.integers(RATE // 10, RATE, len(sound) // RATE + 1):
        time = np.arange(length) / RATE
        pitch = rng.uniform(80, 1500) * (1 + rng.choice([0, rng.uniform(-0.5, 0.5)]) * time)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        strengths = rng.uniform(0, 1, rng.integers(1, 6))
        wave = np.sum([power * np.sin((n + 1) * phase) for n, power in enumerate(strengths)], axis=0)
        parts.append(wave * np.exp(-rng.uniform(0, 6) * time))
    return loud(rng, np.concatenate(parts))


def noises(rng: Rng, sound: Sound) -> Sound:
    """White or coloured noise, even or in bursts."""
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    shaped = np.fft.irfft(spectrum / np.arange(1, len(spectrum) + 1) ** rng.uniform(0, 1), len(sound))
    if rng.random() < 0.5:
        shaped *= np.repeat(rng.random(len(sound) // 800 + 1) ** 3, 800)[: len(sound)]
    return loud(rng, shaped)


def loud(rng: Rng, wave: npt.NDArray[np.floating]) -> Sound:
    return (wave / max(float(np.abs(wave).max()), 1e-9) * rng.uniform(500, 30_000)).astype(np.int16)


OTHER_SOUNDS: list[Callable[[Rng, Sound], Sound]] = [
    backwards, backwards, shuffled, all_at_once, tones, noises,
]  # fmt: skip


def write_tar(path: Path, sounds: Iterable[tuple[str, Sound]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, samples in sounds:
            file = io.BytesIO()
            soundfile.write(file, samples, RATE, format="FLAC", subtype="PCM_16")
            entry = tarfile.TarInfo(name)
            entry.size = len(file.getvalue())
            tar.addfile(entry, io.BytesIO(file.getvalue()))


def write_table(path: Path, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
    lines = ["\t".join(columns), *("\t".join(row[name] for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
