"""The texts of the English encoder, a text of up to 800 characters a line: for training, validation and test.

REGARD_DATA=folder python recipes/english_texts.py -o runs/box/data

Nothing of a test or validation set is in the training texts, and nothing of the two sets of sentiment on
which the classifier is tested (sentiment-uci in five folds, sentiment-polarity). The folder has a folder
`wordnet` too: the files data.adj, data.adv, data.verb and data.noun of WordNet 3.0 (Debian: wordnet-base).
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.data.files import find, lines, read_bytes
from regard.inputs.text.sentences import split_sentences
from regard.storage import write_text

LONGEST = 800  # characters of a text: some 200 tokens
SINGLE = 0.3  # share of the texts of books and articles that are single sentences, as people embed them
ARTICLES, STORIES = 0.25, 0.1  # shares of the paragraphs of WikiText and of the stories
EVERYDAY = 20_000  # sentences of Tatoeba
ENTRIES = {"adj": 1.0, "adv": 1.0, "verb": 1.0, "noun": 0.1}  # shares of the entries of WordNet
LOWER = 0.1  # share of the training texts that is in lower case, as people type
SEED = 1

# WikiText separates punctuation by spaces
JOIN = [
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" ([.,;:!?%)\]])"), r"\1"),
    (re.compile(r"([(\[$£]) "), r"\1"),
    (re.compile(r" ('s|n't|'re|'ve|'ll|'d|'m)\b"), r"\1"),
    (re.compile(r'" ([^"]*?) "'), r'"\1"'),
]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("-o", dest="out", type=Path, default=Path("runs/box/data"))
    place = options.parse_args().out
    place.mkdir(parents=True, exist_ok=True)
    make_texts(place)


def make_texts(place: Path) -> None:
    """Files that are there are kept."""
    for split in ("train", "valid", "test"):
        file = place / f"texts.{split}.txt"
        if not file.is_file():
            texts = training_texts() if split == "train" else held_out_texts(split)
            distinct = list(dict.fromkeys(text for text in texts if len(text) > 3))
            dice = random.Random(SEED)
            dice.shuffle(distinct)
            if split == "train":
                distinct = [text.lower() if dice.random() < LOWER else text for text in distinct]
            write_text(file, "".join(f"{text}\n" for text in distinct))


def training_texts() -> Iterator[str]:
    dice = random.Random(SEED)
    wiki = articles(find("data:text/wikitext-2.train.raw.gz"))
    yield from pieces((text for text in wiki if dice.random() < ARTICLES), dice)
    books = (line for line in lines(find("data:text/stories.txt.gz")) if line and line[0] != "#")
    yield from pieces((line for line in books if dice.random() < STORIES), dice)
    for article in json.loads(read_bytes(find("data:squad/train.json.gz")))["data"]:
        for paragraph in article["paragraphs"]:
            yield from pieces([paragraph["context"]], dice)
            yield from (one_line(each["question"]) for each in paragraph["qas"])
    yield from (line.split("\t")[0] for line in lines(find("data:sentiment-pros-cons/train.tsv.gz")))
    for name in ("btc.train", "wnut17.train", "wikigold"):
        yield from posts(find(f"data:ner/{name}.conll.gz"))
    everyday = list({line.split("\t")[0]: None for line in lines(find("data:tatoeba/train.en-de.tsv.gz"))})
    yield from dice.sample(everyday, EVERYDAY)
    for part, share in ENTRIES.items():
        entries = dictionary(find(f"data:wordnet/data.{part}"))
        yield from (entry for entry in entries if dice.random() < share)


def dictionary(file: Path) -> Iterator[str]:
    """`fine, all right: being satisfactory; "an all-right movie"`: rare words where their meaning is told."""
    for line in lines(file):
        if not line.startswith("  "):  # the licence
            facts, _, gloss = line.partition(" | ")
            fields = facts.split(" ")
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            names = [word.partition("(")[0].replace("_", " ") for word in words[:4]]
            yield f"{', '.join(names)}: {one_line(gloss)}"[:LONGEST]


def held_out_texts(split: str) -> Iterator[str]:
    """500 texts of each of three kinds; of the two held-out books each split has one."""
    dice = random.Random(SEED)
    books = "\n".join(lines(find("data:text/stories.valid.txt.gz"))).split("\n# ")
    book = books[0 if split == "valid" else 1].split("\n")[1:]
    for texts in (
        pieces(articles(find(f"data:text/wikitext-2.{split}.raw.gz")), dice),
        pieces((line for line in book if line), dice),
        (line.split("\t")[0] for line in lines(find(f"data:sentiment-pros-cons/{split}.tsv.gz"))),
    ):
        yield from dice.sample(list(texts), 500)


def articles(file: Path) -> Iterator[str]:
    """Paragraphs of WikiText as people write them, without headings."""
    for line in lines(file):
        text = line.strip()
        if text and not text.startswith("="):
            for pattern, joined in JOIN:
                text = pattern.sub(joined, text)
            yield text


def posts(file: Path) -> Iterator[str]:
    """Sentences of a file in columns: a word a line, an empty line between sentences."""
    words: list[str] = []
    for line in lines(file):
        if line.strip():
            words.append(line.split()[0])
        elif words:
            yield " ".join(words)
            words = []


def pieces(paragraphs: Iterable[str], dice: random.Random) -> Iterator[str]:
    """Paragraphs cut between sentences, to LONGEST characters or to single sentences."""
    for paragraph in paragraphs:
        longest = 1 if dice.random() < SINGLE else LONGEST
        piece = ""
        for sentence, _ in split_sentences(one_line(paragraph)):
            if piece and len(piece) + len(sentence) >= longest:
                yield piece[:LONGEST]
                piece = ""
            piece = f"{piece} {sentence}".strip()
        yield piece[:LONGEST]


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
