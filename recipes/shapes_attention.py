"""Is what a model says of the pictures of recipes/shapes.py right, and does a colour word look at its shape?

python recipes/shapes_attention.py MODEL [--place runs/shapes]

While the model writes "red", the patch with the largest weight of cross-attention should show something red.
The head that does so most often is chosen on the validation pictures; its share on the test pictures is told
beside chance, the mean share of patches that show the colour. Right are captions and answers of the run's
test that are equal to those of the recipe.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from shapes import COLOURS, PLACE
from torch import Tensor

from regard.batch import Batch, frames, tokens
from regard.storage import Folder, open_folder

BATCH = 100
Answers = dict[str, npt.NDArray[np.bool_]]  # by head: whether each word looks at its shape; by kind of text


@dataclass
class CrossWeights:
    """A tap that keeps the weights of cross-attention."""

    kept: dict[str, Tensor] = field(default_factory=dict)
    path: str = ""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        if f"{self.path}{name}".endswith("cross.weights"):
            self.kept[f"{self.path}{name}"] = tensor
        return tensor

    def within(self, name: str) -> CrossWeights:
        return CrossWeights(self.kept, f"{self.path}{name}.")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("--place", type=Path, default=PLACE)
    given = options.parse_args()
    folder = open_folder(given.model)
    right = right_texts(given.model / "test.jsonl")
    print("; ".join(f"{name}: {each.mean():.1%} of {len(each)} right" for name, each in right.items()))
    valid, _ = looks(folder, given.place, "valid")
    best = max(valid, key=lambda head: valid[head].mean())
    test, chance = looks(folder, given.place, "test")
    print(f"{best}: {test[best].mean():.1%} of {len(test[best])} colour words look at their shape; ", end="")
    print(f"chance {chance:.1%}; mean of all heads {np.mean([each.mean() for each in test.values()]):.1%}")


def right_texts(path: Path) -> Answers:
    """Of captions, which begin with an article, and of answers."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    parts = {
        "captions": [row for row in rows if row["reference"].startswith("a ")],
        "answers": [row for row in rows if not row["reference"].startswith("a ")],
    }
    return {
        name: np.array([row["output"] == row["reference"] for row in part]) for name, part in parts.items()
    }


def looks(folder: Folder, place: Path, split: str) -> tuple[Answers, float]:
    with (place / f"scenes-{split}.tsv").open(encoding="utf-8", newline="") as file:
        captions = [row for row in csv.DictReader(file, delimiter="\t") if not row["question"]]
    parts: list[Answers] = []
    shares: list[float] = []
    for start in range(0, len(captions), BATCH):
        rows = captions[start : start + BATCH]
        raws = [folder.reader.read(f"{place / f'scenes-{split}.tar'}:{row['file']}") for row in rows]
        words = [row["text"].split() for row in rows]
        weights = cross_weights(folder, raws, [row["text"] for row in rows])
        parts.append(judge(folder, raws, words, weights, shares))
    return {head: np.concatenate([part[head] for part in parts]) for head in parts[0]}, float(np.mean(shares))


@torch.inference_mode()
def cross_weights(
    folder: Folder, raws: Sequence[npt.NDArray[np.uint8]], texts: Sequence[str]
) -> dict[str, Tensor]:
    """[B,H,T,S] for each layer of the decoder, while it writes the texts."""
    target, tap = folder.target, CrossWeights()
    ids = [[target.start, *target.encode(text)] for text in texts]
    batch = Batch(source=frames([folder.reader.frames(raw) for raw in raws]), target=tokens(ids))
    folder.model.eval()(batch, tap)
    return tap.kept


def judge(
    folder: Folder,
    raws: Sequence[npt.NDArray[np.uint8]],
    words: Sequence[Sequence[str]],
    weights: dict[str, Tensor],
    shares: list[float],
) -> Answers:
    """Words are tokens, so that word i is written by query i; class tokens are not looked at."""
    grid = folder.reader.grid
    assert grid is not None
    answers: dict[str, list[bool]] = {}
    for row, raw in enumerate(raws):
        for number, word in enumerate(words[row]):
            if word not in COLOURS:
                continue
            same = (raw == np.array(COLOURS[word], np.uint8)).all(axis=2)  # [H,W]
            patch = len(raw) // grid[0]
            shown = same.reshape(grid[0], patch, grid[1], patch).any(axis=(1, 3)).flatten()
            shares.append(float(shown.mean()))
            for name, each in weights.items():
                over_patches = each[row, :, number, -len(shown) :]  # [H,S]
                for head, at in enumerate(over_patches.argmax(dim=1).tolist()):
                    answers.setdefault(f"{name}, head {head + 1}", []).append(bool(shown[at]))
    return {head: np.array(values) for head, values in answers.items()}


if __name__ == "__main__":
    main()
