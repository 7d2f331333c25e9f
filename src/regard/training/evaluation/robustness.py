"""Scores on modified texts beside those on clean ones: for report, card and `regard evaluate --modify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from regard.config import Config
from regard.config.input import Modifier
from regard.config.schema import TaskName
from regard.data import Objective
from regard.data.objectives.augmentation import example_generator, modify_examples
from regard.inputs.text.modifiers import item_of
from regard.models.families import Model
from regard.sample import Example
from regard.training.evaluation import Evaluation, left_out, make_evaluation
from regard.training.progress import Record

MAX_TEXTS = 500  # of a run's held-out texts that are scored with each modifier,
MAX_CHARACTERS = 100_000  # fewer if they are long
CLEAN = "clean"
# The scores of each task that the tables show; the last is compared with that of the clean texts.
SCORES = {
    "translate": ("bleu", "chrf"),
    "classify": ("f1", "accuracy"),
    "tag": ("f1",),
    "fill": ("accuracy",),
    "generate": ("bits_per_byte",),
}
# Examples to their scores and, of translations, the outputs.
Score = Callable[[Sequence[Example]], tuple[Mapping[str, Any], Sequence[str]]]


def robustness(config: Config, evaluation: Evaluation, model: Model) -> Record:
    """The first texts of a split, clean and with each modifier of the run, decoded greedily."""
    examples = first_texts(evaluation.examples)

    def score(texts: Sequence[Example]) -> tuple[Record, list[str]]:
        part = make_evaluation(config, evaluation.objective, texts)
        return part.validate(model, MAX_TEXTS, 0), []

    clean, _ = score(examples)
    is_long = partial(long_texts, evaluation.objective, config)
    table = modified_scores(config.task.name, examples, config.data.modifiers, clean, score, is_long)
    return {"sentences": len(examples), "modified": table}


def first_texts(examples: Sequence[Example]) -> list[Example]:
    chosen: list[Example] = []
    room = MAX_CHARACTERS
    for example in examples[:MAX_TEXTS]:
        room -= len(example.source)
        if room < 0 and chosen:
            break
        chosen.append(example)
    return chosen


def long_texts(objective: Objective, config: Config, examples: Sequence[Example]) -> set[int]:
    """Numbers of the examples that the model cannot read as a whole."""
    rows = [(number, each.source, each.target) for number, each in enumerate(examples)]
    return set(left_out(rows, objective, config))


def modified_scores(
    task: TaskName,
    examples: Sequence[Example],
    modifiers: Sequence[Modifier],
    clean: Mapping[str, Any],
    score: Score,
    is_long: Callable[[Sequence[Example]], set[int]] = lambda texts: set(),
) -> dict[str, Record]:
    """The scores of the clean examples and with each modifier, by its label.

    `ratio` is the score relative to that of the clean texts, `changed` the number of texts that the modifier
    changes, `kept` the share of translations that contain the item of their source. A text that the modifier
    makes too long stays as it is.
    """
    names = SCORES[task]
    table: dict[str, Record] = {CLEAN: {name: clean[name] for name in names}}
    for modifier in modifiers:
        texts = modify_examples(examples, task, modifier)
        long = is_long(texts)
        texts = [examples[number] if number in long else text for number, text in enumerate(texts)]
        scores, outputs = score(texts)
        record: Record = {name: scores[name] for name in names}
        base = table[CLEAN][names[-1]]
        record["ratio"] = record[names[-1]] / base if base else None
        record["changed"] = sum(one != two for one, two in zip(examples, texts))
        if outputs and (kept := kept_items(modifier, outputs)) is not None:
            record["kept"] = kept
        table[modifier.label] = record
    return table


def kept_items(modifier: Modifier, outputs: Sequence[str]) -> float | None:
    """The share of outputs that contain the item of their source; None if the modifier has none."""
    items = [item_of(modifier, example_generator(number)) for number in range(len(outputs))]
    if None in items:
        return None
    return sum(item is not None and item in text for item, text in zip(items, outputs)) / len(outputs)
