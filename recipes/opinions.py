"""Sentences labelled by a larger encoder, as training data of the built-in classifier.

REGARD_DATA=folder python recipes/opinions.py --teacher MINILM [--runs runs/box]

The teacher is all-MiniLM-L6-v2 (Apache-2.0) with a logistic regression on its vectors, fitted on the
labelled remarks. It judges the texts of the encoder, whose vectors recipes/english.py has written down; of
each label those of which it is most certain are kept. So a small model meets far more words of praise and
blame than the labelled remarks have.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from regard.data.files import lines
from regard.storage import write_text
from regard.tasks import Embedder

FILE = "opinions.train.tsv"
LABELS = ("negative", "positive")
REMARKS = 6000  # of Pros and Cons, for the regression
WEIGHT = 5  # of a sentence of Sentiment Labelled Sentences beside them
CERTAIN = 0.8  # probability of a label
LENGTHS = range(20, 200)  # characters
AT_ONCE = 2000  # texts; what is lost at most when the teacher is interrupted
SEED = 1

Row = tuple[str, str]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--teacher", default="sentence-transformers/all-MiniLM-L6-v2")
    options.add_argument("--runs", type=Path, default=Path("runs/box"))
    given = options.parse_args()
    make_opinions(given.runs, given.teacher, rows_of(given.runs / "data" / "uci.train.tsv"), FILE)


def make_opinions(runs: Path, teacher: str, known: Sequence[Row], name: str) -> Path:
    """A table of texts and labels; `known` are those of Sentiment Labelled Sentences that may be used."""
    place = runs / "data"
    remarks = random.Random(SEED).sample(rows_of(place / "pros-cons.train.tsv"), REMARKS)
    sentences = [row for split in ("train", "valid", "test") for row in rows_of(place / f"uci.{split}.tsv")]
    places = {text: number for number, (text, _) in enumerate(sentences)}
    vectors = {
        kind: teacher_vectors(place / f"opinions-{kind}.npy", [text for text, _ in rows], teacher)
        for kind, rows in (("remarks", remarks), ("sentences", sentences))
    }
    chosen = vectors["sentences"][[places[text] for text, _ in known]]
    model = LogisticRegression(max_iter=2000).fit(
        np.concatenate([vectors["remarks"], chosen]),
        [label for _, label in (*remarks, *known)],
        [1] * len(remarks) + [WEIGHT] * len(known),
    )
    texts, theirs = unlabelled_texts(runs)
    certainty = model.predict_proba(theirs)  # [texts,2], the labels in the order of the alphabet
    orders = [np.argsort(-column)[: int((column >= CERTAIN).sum())] for column in certainty.T]
    size = min(map(len, orders))
    rows = [f"{texts[number]}\t{label}\n" for order, label in zip(orders, LABELS) for number in order[:size]]
    write_text(place / name, "".join(rows))
    return place / name


def unlabelled_texts(runs: Path) -> tuple[list[str], np.ndarray]:
    """Texts of the encoder and the vectors of its teacher, which has read some of them."""
    texts = (runs / "data" / "texts.train.txt").read_text(encoding="utf-8").splitlines()
    taught = np.load(runs / "english-teacher" / "known.npy") > 0
    chosen = [n for n, text in enumerate(texts) if taught[n] and len(text) in LENGTHS and "\t" not in text]
    vectors = np.load(runs / "english-teacher" / "whole.npy", mmap_mode="r")[chosen].astype(np.float32)
    return [texts[n] for n in chosen], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def teacher_vectors(file: Path, texts: Sequence[str], teacher: str) -> np.ndarray:
    """[texts, width] of length 1, portion by portion; what is there is kept."""
    done = list(np.load(file)) if file.is_file() else []
    model = Embedder.load(teacher) if len(done) < len(texts) else None
    while model is not None and len(done) < len(texts):
        vectors = model.vectors(texts[len(done) : len(done) + AT_ONCE])
        done += list(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        np.save(file, np.array(done, dtype=np.float32))
        print(f"{file.name}: {len(done):,} of {len(texts):,}", flush=True)
    return np.array(done)


def rows_of(file: Path) -> list[Row]:
    return [(text, label) for text, _, label in (line.rpartition("\t") for line in lines(file))]


if __name__ == "__main__":
    main()
