"""Sentences whose names a larger encoder tagged, as training data of the built-in tagger.

The teacher is all-MiniLM-L6-v2 (Apache-2.0), fine-tuned on the same posts and articles as the tagger. It
reads sentences of WikiText-2, of the articles of SQuAD on which the package is trained, of books and of
Tatoeba; those with names, of whose tags it is certain, are kept.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from english_texts import articles, one_line

from regard.config import load_config
from regard.data.files import find, lines, read_bytes
from regard.data.objectives import Tag
from regard.inputs.text.sentences import split_sentences
from regard.storage import write_text
from regard.tasks import Tagger
from regard.training import train

FILE = "silver.train.conll"
TEXTS = {"wikitext": 12_000, "squad": 4000, "books": 4000, "tatoeba": 4000}  # sentences that it reads
CERTAIN = 0.7  # probability of each tag of a sentence
LENGTHS = range(30, 250)  # characters
WORD = re.compile(r"\w+(?:[-.]\w+)*|'\w+|[^\w\s]")
# how the teacher is trained
TEACHER = ["init.freeze=0", "train.lr=2e-4", "train.steps=500"]
AT_ONCE = 1000
SEED = 1


def make_silver(runs: Path, teacher: str) -> None:
    """The teacher is trained first, beside the tagger; a file that is there is kept."""
    place, file = runs / "english-names-teacher", runs / "data" / FILE
    if file.is_file():
        return
    if not (place / "model.safetensors").is_file():
        recipe = load_config(
            Path(__file__).with_name("english-names.toml"), [f"init.from={teacher}", *TEACHER]
        )
        files = {split: str(runs / "data" / f"names.{split}.conll") for split in ("train", "valid")}
        data = recipe.data.model_copy(update={**files, "test": None})
        train(recipe.model_copy(update={"data": data}), place, resume=(place / "run.toml").is_file())
    model = Tagger.load(place)
    texts = sentences()
    rows: list[str] = []
    for start in range(0, len(texts), AT_ONCE):
        rows += tagged(model, [WORD.findall(text) for text in texts[start : start + AT_ONCE]])
        print(f"{FILE}: {len(rows):,} of {min(start + AT_ONCE, len(texts)):,} sentences", flush=True)
    write_text(file, "".join(rows))


def sentences() -> list[str]:
    dice = random.Random(SEED)
    squad = json.loads(read_bytes(find("data:squad/train.json.gz")))["data"]
    kinds = {
        "wikitext": articles(find("data:text/wikitext-2.train.raw.gz")),
        "squad": (one_line(each["context"]) for article in squad for each in article["paragraphs"]),
        "books": (line for line in lines(find("data:text/stories.txt.gz")) if line and line[0] != "#"),
        "tatoeba": (line.split("\t")[0] for line in lines(find("data:tatoeba/train.en-de.tsv.gz"))),
    }
    chosen = []
    for kind, paragraphs in kinds.items():
        distinct = list(dict.fromkeys(has_name(paragraphs)))
        chosen += dice.sample(distinct, min(TEXTS[kind], len(distinct)))
    return chosen


def has_name(paragraphs: Iterator[str]) -> Iterator[str]:
    """Sentences with a capital behind a word in lower case."""
    for paragraph in paragraphs:
        for sentence, _ in split_sentences(paragraph):
            if len(sentence) in LENGTHS and re.search(r"[a-z] [A-Z]\w", sentence):
                yield sentence


def tagged(model: Tagger, rows: Sequence[list[str]]) -> Iterator[str]:
    """In columns: a word and its tag a line, an empty line behind a sentence."""
    objective: Tag = model.objective
    encoded = [objective.encode_words(words) for words in rows]
    keep = [
        n for n, (ids, first) in enumerate(encoded) if len(ids) <= objective.longest and None not in first
    ]
    logits = model.logits([objective.text(encoded[n][0]) for n in keep])
    for n, each in zip(keep, logits):
        places = [1 + place for place in encoded[n][1] if place is not None]  # behind <s>
        p, best = each[places].float().softmax(dim=1).max(dim=1)
        tags = [objective.labels[number] for number in best.tolist()]
        if p.min() >= CERTAIN and set(tags) != {"O"}:
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(rows[n], tags)) + "\n"
