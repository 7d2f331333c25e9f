"""Train the models of the package that write, fill, embed, classify, tag and answer, and put them into it.

REGARD_DATA=folder python recipes/box_text.py [--runs runs/box] [--only NAME] [--teacher MINILM] [--no-put]
    [--wordnet DICT] [--lexicon FILE]     of english-sentiment

Each has a recipe, NAME.toml; this makes its data first. The models english-* begin with the encoder
`english`, which has to be in the package, and share its lower layers: only what differs is stored a second
time. All are in half precision. It can be stopped at any time: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import box
import english
import english_answers
import english_sentiment
import opinions
import torch
from cloze import make_cloze
from english_texts import make_texts
from lessons import PACKAGE, put
from safetensors.torch import load_file, save_file

from regard.config import Config, load_config
from regard.config.schema import Weighted
from regard.data.files import find, lines, read_bytes
from regard.storage import read_json, write_json, write_text
from regard.storage.weights import INDEX, WEIGHTS
from regard.training import train

HERE = Path(__file__).parent
CARDS = HERE / "cards"
ENCODER = "english"  # what english-* begin with
OWN = "model-own.safetensors"  # the weights of a model that shares others
WORDS = {"0": "negative", "1": "positive"}
# kinds of names in the corpora -> ours; the rest is no name here
NAMES = {
    "PER": "PER", "person": "PER", "LOC": "LOC", "location": "LOC",
    "ORG": "ORG", "corporation": "ORG", "group": "ORG",
}  # fmt: skip
SENTIMENT = ("pros-cons.train", "uci.train", "uci.valid", "uci.test", "polarity.test")
NAMES_OF = {"train": ("btc.train", "wnut17.train", "wikigold"), "valid": ("btc.dev", "wnut17.dev")}


@dataclass(frozen=True)
class Entry:
    """How a model of the package is made."""

    licence: str
    data: str  # what its card calls the training data
    make_data: Callable[[Path], None] = lambda place: None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "box")
    options.add_argument("--only", choices=list(MODELS), action="append")
    opinions.add_teacher(options)
    options.add_argument("--set", dest="changes", action="append", default=[])
    options.add_argument("--no-put", action="store_true", help="leave the package as it is")
    given = options.parse_args()
    for name in given.only or MODELS:
        folder, place = given.runs / name, given.runs / "data"
        place.mkdir(parents=True, exist_ok=True)
        MODELS[name].make_data(place)
        if name == "english-sentiment" and not (place / opinions.FILE).is_file():
            known = opinions.rows_of(place / "uci.train.tsv")
            opinions.make_opinions(place, opinions.teacher_of(given), known, opinions.FILE)
        config = with_data(load_config(HERE / f"{name}.toml", given.changes), place)
        if name == ENCODER:
            finished = english.pretrain(config, folder, given.teacher)
        elif name == "english-sentiment":
            finished = english_sentiment.train_classifier(config, folder, place / opinions.FILE)
        elif name == "english-answers":
            finished = english_answers.train_answers(config, folder, given.teacher)
        else:
            finished = train(config, folder, resume=(folder / "run.toml").is_file()).finished
        if not finished:
            sys.exit(130)  # interrupted; the same command goes on
        if not given.no_put:
            pack(folder, name)


def with_data(config: Config, place: Path) -> Config:
    """The files of a recipe that this script makes lie in `place`."""

    def located(corpora: object) -> object:
        if isinstance(corpora, list):
            return [located(each) for each in corpora]
        if isinstance(corpora, str):
            made = place / Path(corpora).name
            return str(made.resolve()) if made.is_file() and not corpora.startswith("data:") else corpora
        return corpora.model_copy(update={"corpus": located(corpora.corpus)})  # type: ignore[attr-defined]

    given = {name: value for name in ("train", "valid", "test") if (value := getattr(config.data, name))}
    data = config.data.model_copy(update={name: located(value) for name, value in given.items()})
    return config.model_copy(update={"data": data})


# --- data


def make_stories(place: Path) -> None:
    """Of the two held-out books one chooses the checkpoint, the other tests it."""
    books: dict[str, list[str]] = {}
    for line in lines(find("data:text/stories.valid.txt.gz")):
        if line.startswith("#"):
            title = line
        else:
            books.setdefault(title, []).append(line)
    for split, text in zip(("valid", "test"), books.values(), strict=True):
        write_text(place / f"stories.{split}.txt", "\n".join(text) + "\n")


def make_answers(place: Path) -> None:
    """Two of the articles choose the checkpoint."""
    articles = json.loads(read_bytes(find("data:squad/train.json.gz")))["data"]
    for split, part in (("train", articles[:-2]), ("valid", articles[-2:])):
        write_json(place / f"squad.{split}.json", {"data": part})
    make_cloze(place)


def make_sentiment(place: Path) -> None:
    """Texts with labels in words: what a program prints should say what it means."""
    for name in SENTIMENT:
        corpus, split = name.split(".")
        rows = (line.rsplit("\t", 1) for line in lines(find(f"data:sentiment-{corpus}/{split}.tsv.gz")))
        write_text(place / f"{name}.tsv", "".join(f"{text}\t{WORDS[label]}\n" for text, label in rows))


def make_names(place: Path) -> None:
    """Words with the tags of people, places and organisations, B- at the first word of a name (IOB2)."""
    for split, corpora in NAMES_OF.items():
        words = [line for name in corpora for line in names_in(find(f"data:ner/{name}.conll.gz"))]
        write_text(place / f"names.{split}.conll", "".join(f"{line}\n" for line in words))


def names_in(file: Path) -> Iterator[str]:
    before = "O"
    for line in lines(file):
        if not line.strip():
            yield ""
            before = "O"
            continue
        columns = line.split("\t") if "\t" in line else line.split(" ")
        mark, _, kind = columns[-1].strip().partition("-")
        tag = NAMES.get(kind, "O")
        if tag != "O":
            is_first = mark == "B" or before != kind
            before, tag = kind, f"{'B' if is_first else 'I'}-{tag}"
        else:
            before = "O"
        yield f"{columns[0]}\t{tag}"
    yield ""


def make_two_tasks(place: Path) -> None:
    """The split of the translators, and the remarks."""
    box.directed(load_config(box.RECIPE), "en-de", place)
    make_sentiment(place)


MODELS = {
    "stories": Entry("cc0-1.0", "33 books of Standard Ebooks", make_stories),
    ENCODER: Entry("cc-by-sa-4.0", "texts of english_texts.py", make_texts),
    "english-sentiment": Entry(
        "cc-by-sa-4.0", "Pros and Cons, Sentiment Labelled Sentences; a teacher", make_sentiment
    ),
    "english-names": Entry("cc-by-sa-4.0", "Broad Twitter Corpus, WNUT17, Wikigold", make_names),
    "english-answers": Entry("cc-by-sa-4.0", "SQuAD 1.1, 30 articles; made questions", make_answers),
    "two-tasks": Entry("cc-by-4.0", "Tatoeba; Pros and Cons, Sentiment Labelled Sentences", make_two_tasks),
}


# --- into the package


def pack(run: Path, name: str) -> None:
    """Half precision; what the run was for; licence, data and what was written by hand in the card."""
    known, place = MODELS[name], PACKAGE / name
    put(run, place)
    settings = load_config(run / "run.toml")
    write_text(place / "run.toml", for_use(settings))
    if name == ENCODER:
        english.write_pooling(place, settings.model.width, settings.model.max_length)
    elif name.startswith(f"{ENCODER}-"):
        share_layers(place, ENCODER)
    if prefixes := sorted({each.prefix for each in weighted(settings) if each.prefix}):
        name_prefixes(place, prefixes)
    card = (place / "README.md").read_text(encoding="utf-8")
    card = card.replace("pipeline_tag:", f"license: {known.licence}\npipeline_tag:", 1)
    first, found, rest = card.partition("| training data | ")
    assert found, "the card says what the model was trained on"
    card = first + found + known.data + rest[rest.index(" |\n") :]
    notes = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    write_text(place / "README.md", card.replace("## Use\n", f"{notes}\n## Use\n", 1))


def for_use(settings: Config) -> str:
    """What inference needs of a run.toml: the task and how it decodes."""
    lines = [f"version = {settings.version}"]
    for name, section in (("task", settings.task), ("decode", settings.decode)):
        fields = section.model_dump(exclude_defaults=True)
        lines += ["", f"[{name}]", *(f"{field} = {json.dumps(value)}" for field, value in fields.items())]
    return "\n".join(lines) + "\n"


def weighted(settings: Config) -> list[Weighted]:
    return [each for each in settings.data.train if isinstance(each, Weighted)]


def name_prefixes(place: Path, prefixes: Sequence[str]) -> None:
    """As transformers names the tasks of a T5; a text that begins with one is for this model."""
    tasks = {prefix.strip(": "): {"prefix": prefix} for prefix in prefixes}
    write_json(place / "config.json", read_json(place / "config.json") | {"task_specific_params": tasks})


def share_layers(place: Path, base: str) -> None:
    """Store what differs from another built-in model; an index says in which file each tensor is."""
    whole, known = load_file(place / WEIGHTS), load_file(PACKAGE / base / WEIGHTS)
    own = {name: tensor for name, tensor in whole.items() if not is_same(tensor, known.get(name))}
    save_file(own, place / OWN, {"format": "pt"})
    (place / OWN).chmod(0o644)
    (place / WEIGHTS).unlink()
    places = {name: OWN if name in own else f"../{base}/{WEIGHTS}" for name in whole}
    write_json(place / INDEX, {"metadata": {}, "weight_map": places})


def is_same(tensor: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and tensor.shape == other.shape and torch.equal(tensor, other)


if __name__ == "__main__":
    main()
