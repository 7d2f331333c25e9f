"""From a config to everything a run needs: tokenizers, ids, held-out text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.config import Config
from regard.data import Dataset, Example, read_examples, tokenize
from regard.errors import UsageError
from regard.text import Tokenizer, learn, split_sentences
from regard.train.evaluate import Held, hold

LINES_LOOKED_AT = 2000


@dataclass(frozen=True)
class Materials:
    source: Tokenizer
    target: Tokenizer | None  # None: both languages share the source's
    training: Dataset
    valid: Held | None
    test: Held | None
    fingerprint: str  # of the training ids: a resumed run must see the same
    split_above: int  # pieces of a line from which on it is cut into sentences when the model is used

    @property
    def output(self) -> Tokenizer:
        return self.target or self.source


def prepare(config: Config, folder: Path, say: Callable[[str], None]) -> Materials:
    """Read and tokenise the corpora. Tokenizers that the run already has are used again."""
    examples = read_examples(config.data.train, config.task, "train")
    say(f"read {len(examples):,} training pairs")
    source, target = tokenizers(config, folder, [e.source for e in examples], [e.target for e in examples])
    dataset = tokenize(examples, source, target or source)
    training = dataset.at_most(config.model.max_length - 1)  # one place is for the end
    if not len(training):
        raise UsageError(f"every training pair is longer than model.max_length = {config.model.max_length}")
    if len(training) < len(dataset):
        left_out = len(dataset) - len(training)
        say(f"left out {left_out:,} pairs longer than model.max_length = {config.model.max_length} pieces")
    vocabulary = f"{len(source):,}" if target is None else f"{len(source):,} and {len(target):,}"
    say(f"vocabulary of {vocabulary} pieces; {training.target.lengths.mean():.1f} pieces a target sentence")
    held: list[Held | None] = []
    for corpora, split in ((config.data.valid, "valid"), (config.data.test, "test")):
        found = read_examples(corpora, config.task, split) if corpora is not None else None
        own = hold(found, source, target or source) if found else None
        held.append(readable(own, config, split, say) if own else None)
    longest = split_above(training, examples)
    return Materials(source, target, training, held[0], held[1], fingerprint(training), longest)


def readable(held: Held, config: Config, split: str, say: Callable[[str], None]) -> Held:
    """Without the pairs for whose ends learned positions have no vector; waves reach any length."""
    if config.model.positions != "learned":
        return held
    longest = config.model.max_length
    keep = [n for n, s in enumerate(held.samples) if max(len(s.source), len(s.target)) <= longest]
    if len(keep) < len(held.samples):
        say(f"left out {len(held.samples) - len(keep):,} pairs of data.{split}: longer than {longest} pieces")
    return Held([held.examples[n] for n in keep], [held.samples[n] for n in keep])


def tokenizers(
    config: Config, folder: Path, sources: list[str], targets: list[str]
) -> tuple[Tokenizer, Tokenizer | None]:
    """Learn the vocabularies, or load those that this run learned before it was cut off."""
    one, two = folder / "tokenizer.json", folder / "target_tokenizer.json"
    text = config.text
    if (folder / "config.json").is_file():  # written after the tokenizers: they are complete
        return Tokenizer.load(one), None if text.joint else Tokenizer.load(two)
    if text.joint:
        return learn([*sources, *targets], text.kind, text.vocabulary), None
    return learn(sources, text.kind, text.vocabulary), learn(targets, text.kind, text.vocabulary)


def fingerprint(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for side in (dataset.source, dataset.target):
        digest.update(side.ids.tobytes())
        digest.update(side.offsets.tobytes())
    return digest.hexdigest()[:16]


def split_above(dataset: Dataset, examples: Sequence[Example]) -> int:
    """What the model has not seen is better cut into sentences.

    If training lines are single sentences, that is every line with several (0); else lines with more pieces
    than nearly all training lines.
    """
    looked_at = examples[:: max(1, len(examples) // LINES_LOOKED_AT)]
    several = sum(len(split_sentences(example.source)) > 1 for example in looked_at)
    if several < 0.05 * len(looked_at):
        return 0
    return int(np.quantile(dataset.source.lengths, 0.99)) + 1
