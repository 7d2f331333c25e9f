"""Train the translators of the package, English-German and German-English, and put them into it.

REGARD_DATA=folder python recipes/box.py [--runs runs/box] [--only en-de] [--set train.steps=900] [--no-put]

The recipe is recipes/tatoeba.toml; this makes its data. Tatoeba has many translations of one sentence, so
that a test set cut by English sentences alone would know its German ones from training: a training pair goes
when either of its sides, in any spelling, is a side of a held-out pair. And Tatoeba's sentences are six words
long, people's are not: one row in six joins two of them, so that the model has seen long ones.

A second stage (recipes/tatoeba-robust.toml) begins with that model, whose tokenizer gets placeholder tokens,
and adds single words (recipes/lexicon.py) and modifiers.

It can be stopped at any time: the same command goes on. --robust runs the second stage alone, from the
translators that are in the package. Expected: see the recipes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import torch
from lessons import PACKAGE, put
from lexicon import word_pairs
from safetensors.torch import load_file, save_file

from regard.config import Config, load_config
from regard.data import read_examples
from regard.evaluation import evaluate
from regard.evaluation.confidence import fit_confidence
from regard.export import calibrate
from regard.inputs.text import load_tokenizer
from regard.inputs.text.byte_level import finish_pipeline
from regard.inputs.text.spans import PLACEHOLDERS, placeholder_tokens
from regard.storage import read_json, write_json, write_text
from regard.storage.weights import WEIGHTS
from regard.training import train
from regard.training.report.robustness import robustness_table

RECIPE = Path(__file__).with_name("tatoeba.toml")
ROBUST = Path(__file__).with_name("tatoeba-robust.toml")
DIRECTIONS = ("en-de", "de-en")
HELD_OUT = 2000  # English sentences of the test set
JOINED = 5  # one row of two sentences for so many of one
WORDS = 2  # times that each word of the lexicon is a row
SEED = 1
SAMPLE = 200  # texts on which the scales for bytes are measured
CARDS = Path(__file__).with_name("cards")

Pair = tuple[str, str]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=Path("runs/box"))
    options.add_argument("--only", choices=DIRECTIONS, action="append")
    options.add_argument("--set", dest="changes", action="append", default=[])
    options.add_argument("--robust", action="store_true", help="the second stage alone")
    options.add_argument("--no-put", action="store_true", help="leave the package as it is")
    given = options.parse_args()
    directions = given.only or DIRECTIONS
    if not given.no_put:
        [card_of(direction) for direction in directions]  # a missing card is better known before the training
    for direction in directions:
        data, folder = given.runs / "data", given.runs / direction
        first = directed(load_config(RECIPE, given.changes), direction, data)
        if not given.robust:
            run(first, folder, direction)
        base = PACKAGE / f"tatoeba-{direction}" if given.robust else folder
        folder = given.runs / f"{direction}-robust"
        run(second_stage(first, direction, base, data, given.changes), folder, direction)
        if not given.no_put:
            pack(folder, direction, data)


def run(config: Config, folder: Path, direction: str) -> None:
    outcome = train(config, folder, resume=(folder / "run.toml").is_file())
    for record in outcome.records:
        print(direction, record["kind"], f"BLEU {record['bleu']:.2f}", record["bleu_signature"], flush=True)
    if not outcome.finished:
        sys.exit(130)  # interrupted; the same command goes on


def second_stage(first: Config, direction: str, base: Path, data: Path, changes: Sequence[str]) -> Config:
    """The recipe of the second stage on the data of the first one and a lexicon of it."""
    config, words = load_config(ROBUST, changes), data / f"robust.{direction}.tsv"
    start = data / f"start-{direction}"
    if not words.is_file():
        rows = read_rows(Path(str(first.data.train)))
        write_rows(words, rows + word_pairs(rows) * WORDS)
    if not start.is_dir():
        add_placeholders(base, start)
    files = {"train": str(words.resolve()), "valid": first.data.valid, "test": first.data.test}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=files),
            "task": first.task,
            "init": config.init.model_copy(update={"model": str(start.resolve())}),
        }
    )


def add_placeholders(base: Path, place: Path) -> None:
    """A copy of a model whose tokenizer has placeholder tokens; their embeddings are the mean of all."""
    shutil.copytree(base, place, ignore=shutil.ignore_patterns("checkpoints", "SHA256SUMS"))
    pipeline = load_tokenizer(base)._pipeline
    tokenizer = finish_pipeline(pipeline, placeholder_tokens(PLACEHOLDERS))
    write_text(place / "tokenizer.json", tokenizer.to_json())
    weights, generator = load_file(base / WEIGHTS), torch.Generator().manual_seed(SEED)
    content = read_json(base / "config.json")
    size = content["vocab_size"]
    for name, table in weights.items():
        if table.shape[0] == size:  # [vocabulary, width]
            noise = torch.randn((len(tokenizer) - size, table.shape[1]), generator=generator)
            rows = table.float().mean(dim=0) + noise * table.float().std() / 2
            weights[name] = torch.cat([table, rows.to(table.dtype)])
    save_file(weights, place / WEIGHTS, {"format": "pt"})
    prints = {"source": tokenizer.fingerprint, "target": tokenizer.fingerprint}
    sizes = {"vocab_size": len(tokenizer), "regard": content["regard"] | prints}
    write_json(place / "config.json", content | sizes)


def pack(run: Path, direction: str, data: Path) -> None:
    """Into the package: half precision, scales for bytes from training text, and what its card must say."""
    place = PACKAGE / f"tatoeba-{direction}"
    put(run, place)
    sample = data / f"sample.{direction}.txt"
    drawn = random.Random(SEED).sample(read_rows(data / f"train.{direction}.tsv"), SAMPLE)  # of all lengths
    write_text(sample, "".join(f"{source}\n" for source, _ in drawn))
    calibrate(place, sample)
    files = [data / f"{split}.{direction}.tsv" for split in ("valid", "test")]
    fit_confidence(place, [pair for file in files for pair in read_rows(file)], french())
    card = (place / "README.md").read_text(encoding="utf-8")
    card = card.replace("pipeline_tag:", "license: cc-by-2.0\npipeline_tag:", 1)
    card = card.replace(f"| robust.{direction}.tsv |", "| Tatoeba, split and modified by box.py |")
    tested = f"test.{direction}.tsv --tokenize 13a"
    card = card.replace(tested, f"runs/box/data/{tested} --precision float32")  # as the run did
    card = card.replace("## Use\n", f"{card_of(direction)}\n## Use\n", 1)
    write_text(place / "README.md", with_robustness(card, place, data / f"test.{direction}.tsv"))


def with_robustness(card: str, model: Path, test: Path) -> str:
    """The card with the scores of modified sentences as people get them: with the checks of `translate`."""
    table = evaluate(model, test, modify="all", tokenize="13a").modified
    head, rows = robustness_table("translate", table)
    lines = [head, ["---"] * len(head), *rows]
    before, section = card.split("## Robustness\n", 1)
    after = section[section.index("\n## ") :]
    text = f"`regard evaluate -m {model.name} --data {test.name} --tokenize 13a --modify all`, in int8:\n\n"
    text += "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{before}## Robustness\n\n{text}{after}"


def french() -> list[str]:
    """Texts in a language that neither model reads."""
    recipe = load_config(RECIPE, ['data.valid="data:tatoeba/valid.en-fr.tsv.gz"', 'task.target="fr"'])
    assert recipe.data.valid is not None
    return [each.target for each in read_examples(recipe.data.valid, recipe.task, "valid")]


def card_of(direction: str) -> str:
    """What was written by hand: the licence, and what the model gets wrong."""
    return (CARDS / f"tatoeba-{direction}.md").read_text(encoding="utf-8")


def directed(recipe: Config, direction: str, place: Path) -> Config:
    """The recipe in one direction, on the split."""
    source, target = direction.split("-")
    files = {split: place / f"{split}.{direction}.tsv" for split in ("train", "valid", "test")}
    if not all(file.is_file() for file in files.values()):
        for split, pairs in split_up(recipe).items():
            turned = pairs if direction == "en-de" else [(german, english) for english, german in pairs]
            write_rows(files[split], turned if split == "train" else first_of_each(turned))
    data = recipe.data.model_copy(update={split: str(file.resolve()) for split, file in files.items()})
    task = recipe.task.model_copy(update={"source": source, "target": target})
    return recipe.model_copy(update={"data": data, "task": task})


def split_up(recipe: Config) -> dict[str, list[Pair]]:
    """Training, validation and test pairs, English first; no sentence is on both sides of the cut."""
    assert recipe.data.valid is not None
    known = [(each.source, each.target) for each in read_examples(recipe.data.train, recipe.task, "train")]
    valid = [(each.source, each.target) for each in read_examples(recipe.data.valid, recipe.task, "valid")]
    seen = plain_sides(valid)
    fresh = [pair for pair in known if not plain_sides([pair]) & seen]
    chosen = set(sorted({english for english, _ in fresh}, key=fingerprint)[:HELD_OUT])
    test = [pair for pair in fresh if pair[0] in chosen]
    seen = plain_sides(test)
    rest = [pair for pair in fresh if not plain_sides([pair]) & seen]
    return {"train": rest + joined(rest), "valid": valid, "test": test}


def plain(text: str) -> str:
    """Letters and digits alone: how a sentence is spelt does not make it another one."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(sign for sign in folded if sign.isalnum())


def plain_sides(pairs: Iterable[Pair]) -> set[str]:
    return {plain(side) for pair in pairs for side in pair}


def fingerprint(text: str) -> bytes:
    """An order of sentences that depends on nothing but themselves."""
    return blake2b(text.encode(), digest_size=8).digest()


def joined(pairs: Sequence[Pair]) -> list[Pair]:
    """Rows of two sentences drawn with dice."""
    dice = random.Random(SEED)
    drawn = [(dice.choice(pairs), dice.choice(pairs)) for _ in range(len(pairs) // JOINED)]
    return [(f"{one[0]} {two[0]}", f"{one[1]} {two[1]}") for one, two in drawn]


def first_of_each(pairs: Iterable[Pair]) -> list[Pair]:
    """One reference for each source: the first that stands there."""
    return list({source: (source, target) for source, target in reversed(list(pairs))}.values())[::-1]


def read_rows(file: Path) -> list[Pair]:
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return [(source, target) for source, target in rows]


def write_rows(file: Path, pairs: Iterable[Pair]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{source}\t{target}\n" for source, target in pairs))


if __name__ == "__main__":
    main()
