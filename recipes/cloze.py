"""Questions made of sentences, to practise finding answers before the few real questions (Lewis et al. 2019).

REGARD_DATA=folder python recipes/cloze.py [-o runs/box/data]

A name, a number, a date or a short phrase of a paragraph is the answer. The clause around it is the question:
the answer becomes a question word, some of the other words are left out, and sometimes two change places.
The paragraphs are of WikiText-2 and of the articles of SQuAD on which the model is trained.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from english_texts import articles, one_line

from regard.data.files import find, read_bytes
from regard.inputs.text.sentences import split_sentences
from regard.storage import write_json

FILE = "cloze.train.json"
QUESTIONS = 40_000
SHORTEST = 250  # characters of a paragraph
LONGEST, MOST = 450, 800  # characters that are read: of several sentences, of one
MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
# what an answer looks like, question words for it, and how often that kind is chosen
KINDS = (
    (
        rf"{MONTH} \d{{1,2}}(?:, \d{{4}})?|\d{{1,2}} {MONTH}(?: \d{{4}})?|{MONTH} \d{{4}}",
        ["When", "On what date"],
        2,
    ),
    (r"\b1[0-9]{3}s?\b|\b20[0-2]\ds?\b", ["When", "In what year", "What year"], 2),
    (
        r"(?<![\w,.])[£$€]?\d[\d,.]*\d?(?: (?:million|billion|percent|miles?|km|feet|years|people|%))?(?!\w)",
        ["How many", "How much", "What number of"],
        2,
    ),
    (
        r"(?:(?<=\bin )|(?<=\bat ))[A-Z][\w'-]+(?:,? [A-Z][\w'-]+)*",
        ["Where", "What place", "In what city"],
        2,
    ),
    (r"(?<=\bby )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*", ["Who", "By whom", "Which person"], 2),
    (
        r"(?<=\w )[A-Z][\w'-]+(?: (?:of |de |von )?[A-Z][\w'-]+)*",
        ["Who", "What", "Which", "Whose", "What is the name of"],
        4,
    ),
    (
        r"\b(?:the|a|an) [a-z-]+(?: [a-z-]+){0,3}(?=[,.;]| (?:of|in|for|to|and|that|by|with|is|was|are)\b)",
        ["What", "What kind of", "What type of"],
        3,
    ),
    (
        r"(?:(?<= of )|(?<= to )|(?<=with ))[a-z-]+(?: [a-z-]+){0,3}(?=[,.;]| and )",
        ["What", "Of what", "How"],
        2,
    ),
)
CLAUSE = re.compile(r"[,;:()] ?| (?:and|but|which|who|while|because|when) ")
SHORTEST_CLAUSE, LONGEST_CLAUSE = 5, 16  # words of a question
LEFT_OUT, SWAPPED = 0.25, 0.15  # shares of the words and of the questions
SEED = 1


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("-o", dest="out", type=Path, default=Path("runs/box/data"))
    make_cloze(options.parse_args().out)


def make_cloze(place: Path) -> None:
    """Written as SQuAD is; a file that is there is kept."""
    if (place / FILE).is_file():
        return
    dice = random.Random(SEED)
    texts = [text for text in paragraphs() if len(text) >= SHORTEST]
    dice.shuffle(texts)
    parts: list[dict[str, Any]] = []
    count = 0
    while count < QUESTIONS:
        text = part_of(texts[len(parts) % len(texts)], dice)
        found = question(text, dice)
        parts.append({"context": text, "qas": [found] if found else []})
        count += bool(found)
    write_json(place / FILE, {"data": [{"title": "", "paragraphs": [part for part in parts if part["qas"]]}]})


def paragraphs() -> Iterator[str]:
    yield from articles(find("data:text/wikitext-2.train.raw.gz"))
    for article in json.loads(read_bytes(find("data:squad/train.json.gz")))["data"][:-2]:
        yield from (one_line(paragraph["context"]) for paragraph in article["paragraphs"])


def part_of(text: str, dice: random.Random) -> str:
    """Some sentences in a row: the question is answered by one of them, and reading all would take longer."""
    sentences = [sentence for sentence, _ in split_sentences(text)]
    first = dice.randrange(len(sentences))
    part = sentences[first]
    while first + 1 < len(sentences) and len(part) + len(sentences[first + 1]) < LONGEST:
        first += 1
        part = f"{part} {sentences[first]}"
    return part[:MOST]


def question(text: str, dice: random.Random) -> dict[str, Any] | None:
    """A question with its answer, or None if the sentence that was drawn has no answer."""
    sentences = [sentence for sentence, _ in split_sentences(text)]
    sentence = dice.choice(sentences)
    start = text.find(sentence)
    pattern, openings, _ = dice.choices(KINDS, [weight for _, _, weight in KINDS])[0]
    answers = list(re.finditer(pattern, sentence))
    if start < 0 or not answers:
        return None
    answer = dice.choice(answers)
    before = CLAUSE.split(sentence[: answer.start()])[-1].split()
    after = CLAUSE.split(sentence[answer.end() :])[0].rstrip(".").split()
    if len(before) + len(after) < SHORTEST_CLAUSE:  # the whole sentence instead
        before, after = sentence[: answer.start()].split(), sentence[answer.end() :].rstrip(".").split()
    words = [*before[-LONGEST_CLAUSE // 2 :], *after[: LONGEST_CLAUSE // 2]]
    words = [word.strip("\"'()") for word in words if dice.random() >= LEFT_OUT]
    if len(words) < SHORTEST_CLAUSE - 2:
        return None
    if dice.random() < SWAPPED:
        words = [*words[len(words) // 2 :], *words[: len(words) // 2]]
    question = " ".join([dice.choice(openings), *words]) + "?"
    place = {"text": answer[0], "answer_start": start + answer.start()}
    return {
        "id": f"cloze-{start}-{answer.start()}-{dice.getrandbits(32)}",
        "question": question,
        "answers": [place],
    }


if __name__ == "__main__":
    main()
