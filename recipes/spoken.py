"""Data for recipes/fsdd.toml and recipes/digits-in-a-row.toml, from the Free Spoken Digit Dataset.

REGARD_DATA=folder python recipes/spoken.py [--place runs/spoken]

fsdd.{train,valid,test}.tsv: recordings 5 and 6 of each speaker and digit for validation, the official test,
and the rest; fsdd.SPEAKER.{train,valid,test}.tsv: all recordings of one speaker are the test. Their sounds
are in fsdd.tar.

row-{train,valid,test}.tar and .tsv: two to six digits of one speaker, one after another, with their words, as
REGARD_DATA/audio/digits-in-a-row says. Data: CC BY-SA 4.0, Jakobovski and contributors.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

PLACE = Path(__file__).parent.parent / "runs" / "spoken"
RATE = 8000
HELD_OUT = ("5", "6")  # numbers of the recordings for validation
SUMS = {  # SHA-256 of all samples, int16 in little-endian order
    "train": "3feb790feed422ad33b04e0c597c082f7a2b4b0e157b4a7bdd5e8d5fb43976b2",
    "valid": "21e89338fdb3c7a954e84a5400067beaab958cb1eb5935c7ada8c92a9bca9156",
    "test": "315bc3f533eb74c1342aa18e59cc08a2d6b5346b17ae558c6e5711e10a4277fb",
}

Row = dict[str, str]
Sounds = dict[str, npt.NDArray[np.int16]]


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
    held = [row for row in parts["train"] if row["file"].split(".")[0].split("_")[2] in HELD_OUT]
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

    def joined() -> Iterator[tuple[str, npt.NDArray[np.int16]]]:
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


def write_tar(path: Path, sounds: Iterable[tuple[str, npt.NDArray[np.int16]]]) -> None:
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
