"""Check every row of the corpora before training: issues, leaks, duplicates, labels, a sample of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from regard.config import Config, Corpus, Data, Task
from regard.config.input import Modifier
from regard.data.corpora import (
    ROW_NAMES,
    CorpusSpec,
    corpus_specs,
    describe,
    is_phrasebook,
    no_rows,
    read_rows,
    report_name,
)
from regard.data.dataset import Lengths
from regard.data.overlaps import Hashes, HeldOutIndex, repeated, row_hashes
from regard.data.readers import LABEL_SEPARATOR, RawRow
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.text import split_sentences

PORTION = 50_000  # rows in memory at once,
CHARACTERS = 1 << 25  # with at most this many characters, except for a single row
LOG_EVERY = 20 * PORTION
SAMPLE = 500_000  # rows at most from which a vocabulary is learned
SAMPLE_CHARACTERS = 1 << 27
SENTENCES_SAMPLED = 2000  # lines in which sentences are counted
MAX_LABELS = 3  # unseen labels that the report names for one row
LEAKS = frozenset({"leak-exact", "leak-normalised"})

HeldOut = Mapping[str, Sequence[RawRow]]  # the rows of "valid" and "test"


@dataclass
class ThinnedSample:
    """Evenly spaced rows of a sequence of unknown length: every k-th row; k doubles when it is full."""

    limit: int
    characters: int = SAMPLE_CHARACTERS
    rows: list[tuple[str, str]] = field(default_factory=list)
    every: int = 1
    count: int = 0
    size: int = 0

    def add(self, source: str, target: str) -> None:
        if self.count % self.every == 0:
            self.rows.append((source, target))
            self.size += len(source) + len(target)
            while len(self.rows) > 1 and (len(self.rows) > self.limit or self.size > self.characters):
                self.rows, self.every = self.rows[::2], 2 * self.every
                self.size = sum(len(source) + len(target) for source, target in self.rows)
        self.count += 1


def portions(rows: Iterable[RawRow]) -> Iterator[list[RawRow]]:
    """Rows in order, in lists that fit in memory."""
    portion: list[RawRow] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += len(row[1]) + len(row[2])
        if len(portion) == PORTION or size >= CHARACTERS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


@dataclass(frozen=True)
class CheckedCorpus:
    spec: CorpusSpec
    pairs: int  # usable rows, including those to drop
    dropped: npt.NDArray[np.int64]  # their numbers among the usable rows, ascending

    @property
    def corpus(self) -> Corpus:
        return self.spec.corpus


@dataclass(frozen=True)
class Checked:
    corpora: Sequence[CheckedCorpus]
    report: DataReport
    sample: Sequence[tuple[str, str]]
    labels: tuple[str, ...] = ()  # classify, tag: the labels of the training rows, sorted


def read_held_out(data: Data, task: Task, report: DataReport) -> dict[str, list[RawRow]]:
    """The usable rows of valid and test."""
    held_out: dict[str, list[RawRow]] = {}
    for split, corpora in (("valid", data.valid), ("test", data.test)):
        if corpora is not None:
            held_out[split] = [
                row
                for spec in corpus_specs(corpora, task, data)
                for row in read_rows(spec, task, split, report)
            ]
            if not held_out[split]:
                raise UsageError(f"data.{split} has no {ROW_NAMES[task.name]}", code="E_DATA_EMPTY")
    return held_out


def make_report(data: Data) -> DataReport:
    """An empty report with this run's rules for leaks and duplicates."""
    return DataReport(
        kept=LEAKS if data.leaks == "keep" else frozenset(),
        dropped=frozenset({"duplicate"}) if data.duplicates == "drop" else frozenset(),
    )


def check(
    data: Data,
    task: Task,
    held_out: HeldOut,
    report: DataReport,
    log: Callable[[str], None] = lambda text: None,
) -> Checked:
    """One pass over the training corpora: issues, rows to drop, and a sample of the rest."""
    both = task.name == "translate"  # compare both sides; of other tasks the text without its annotation
    indexes = {
        split: HeldOutIndex((identity(source, task), target if both else "") for _, source, target in rows)
        for split, rows in held_out.items()
    }
    specs = corpus_specs(data.train, task, data)
    share = SAMPLE // len(specs), SAMPLE_CHARACTERS // len(specs)
    checks = [CorpusCheck(spec, task, report, indexes, held_out, ThinnedSample(*share)) for spec in specs]
    for each in checks:
        each.run(log)
    if len(checks) > 1 or not is_phrasebook(checks[0].spec.corpus):
        find_duplicates(checks, report)
    labels = set[str]().union(*(each.labels for each in checks))
    if task.name == "classify" and not labels and any(len(each.dropped) < each.count for each in checks):
        message = "data.train: no row has a label, so there is nothing to learn"
        raise UsageError(message, code="E_DATA_LABELS")
    if labels:
        find_unseen_labels(data, task, held_out, labels, report)
    return Checked(
        [each.result() for each in checks],
        report,
        [row for each in checks for row in each.sample.rows],
        tuple(sorted(labels)),
    )


def identity(source: str, task: Task) -> str:
    """What makes two rows equal: their text, or the content of their files."""
    if task.input == "text":
        return source
    from regard.data.readers.media import media_digest

    return media_digest(source)


def labels_of(target: str, task: Task) -> list[str]:
    """The labels or tags of a row; [] for tasks without labels."""
    if task.name not in ("classify", "tag") or not target:
        return []
    return target.split(LABEL_SEPARATOR if task.name == "classify" else " ")


@dataclass
class CorpusCheck:
    """The pass over one corpus."""

    spec: CorpusSpec
    task: Task
    report: DataReport
    indexes: Mapping[str, HeldOutIndex]
    held_out: HeldOut
    sample: ThinnedSample
    count: int = 0
    hashes: list[Hashes] = field(default_factory=list)
    lines: list[npt.NDArray[np.int64]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return report_name(self.spec.corpus)

    def run(self, log: Callable[[str], None]) -> None:
        rows = read_rows(self.spec, self.task, "train", self.report)
        if is_phrasebook(self.spec.corpus):  # distinct, in random order, and not in the held-out splits
            for _, source, target in islice(rows, self.sample.limit):
                self.sample.add(source, target)
            return
        for portion in portions(rows):
            portion_identities = [identity(source, self.task) for _, source, _ in portion]
            pairs = [(key, target) for key, (_, _, target) in zip(portion_identities, portion)]
            self.hashes.append(row_hashes(pairs))
            self.lines.append(np.array([line for line, _, _ in portion], dtype=np.int64))
            for key, row in zip(portion_identities, portion):
                self.add(key, *row)
                if self.count % LOG_EVERY == 0:
                    log(f"checked {self.count:,} rows of {describe(self.spec.corpus)}")
        if not self.count:
            places = [place for kind in self.report.places.values() for place in kind]
            places = [place for place in places if place.file == self.name]
            first = f" ({min(places, key=lambda place: place.line)})" if places else ""
            raise no_rows(self.spec, self.task, "train", f" to learn from{first}")

    def add(self, key: str, line: int, source: str, target: str) -> None:
        self.sample.add(source, target)
        if self.is_leak(line, key, target):
            self.dropped.append(self.count)
        else:
            self.labels.update(labels_of(target, self.task))
        self.count += 1

    def is_leak(self, line: int, source: str, target: str) -> bool:
        """True for a row to drop. A pair leaks if both of its sides match, a text if it matches."""
        both = self.task.name == "translate" and not self.spec.is_multitask
        for split, index in self.indexes.items():
            if match := index.find(source, target if both else ""):
                kind = f"{'shared' if both and match.side != 'both' else 'leak'}-{match.kind}"
                other = self.held_out[split][match.number][0]
                self.report.add(kind, self.name, line, note=f"line {other} of data.{split}")
                return self.report.drops(kind)  # one entry for each row
        return False

    def result(self) -> CheckedCorpus:
        dropped = np.unique(np.array(self.dropped, dtype=np.int64))
        return CheckedCorpus(self.spec, self.count, dropped)


def find_duplicates(checks: Sequence[CorpusCheck], report: DataReport) -> None:
    """Rows that repeat an earlier one, of the same corpus or of one before it."""
    hashes = [each for check in checks for each in check.hashes]
    if not hashes:
        return
    is_duplicate = repeated(np.concatenate(hashes))
    start = 0
    for each in checks:
        numbers = np.flatnonzero(is_duplicate[start : start + each.count])
        lines = np.concatenate(each.lines) if each.lines else numbers
        for line in lines[numbers].tolist():
            report.add("duplicate", each.name, line)
        if report.drops("duplicate"):
            each.dropped += numbers.tolist()
        start += each.count
        each.hashes, each.lines = [], []


def find_unseen_labels(
    data: Data, task: Task, held_out: HeldOut, training_labels: AbstractSet[str], report: DataReport
) -> None:
    """Labels of valid and test that no training row has."""
    for split, rows in held_out.items():
        specs = corpus_specs(getattr(data, split), task)
        name = report_name(specs[0].corpus) if len(specs) == 1 else f"data.{split}"
        for number, _, target in rows:
            if unseen := sorted(set(labels_of(target, task)) - training_labels):
                report.add("unseen-label", name, number, note=", ".join(unseen[:MAX_LABELS]))


# --- what follows from the sample


def tokenizer_sample(
    checked: Checked, task: Task, modifiers: Sequence[Modifier]
) -> Sequence[tuple[str, str]]:
    """The texts that a tokenizer is trained on: words in capitals are not to be split into letters."""
    if not (used := word_modifiers(modifiers)):
        return checked.sample
    from regard.data.objectives.augmentation import modify_sample  # here: few runs need it

    return modify_sample(checked.sample, task.name, used)


def word_modifiers(modifiers: Sequence[Modifier]) -> list[Modifier]:
    """Without those of items, which are random: their parts would fill the vocabulary."""
    return [each for each in modifiers if each.name not in Modifier.ITEMS]


def split_above(checked: Checked, config: Config, lengths: Sequence[Lengths]) -> int:
    """Tokens of a line from which on it is split into sentences at inference.

    If training lines are single sentences, every line with several (0); else lines with more tokens than
    nearly all training lines. One task of several is never split: its prefix would be lost.
    """
    if any(corpus.spec.is_multitask for corpus in checked.corpora):
        return config.model.max_length
    if config.task.name != "translate":
        return 0
    sample = checked.sample[:: max(1, len(checked.sample) // SENTENCES_SAMPLED)]
    several = sum(len(split_sentences(text)) > 1 for text, _ in sample)
    if several < 0.05 * len(sample):
        return 0
    return int(np.quantile(np.concatenate(lengths), 0.99)) + 1
