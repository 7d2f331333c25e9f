"""Every line of a corpus looked at before anything is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from regard.config import Corpus, Data, Task
from regard.data.corpora import UNITS, Listed, describe, files, is_phrasebook, listed, read_rows
from regard.data.duplicates import duplicates, pair_hashes
from regard.data.findings import Findings
from regard.data.leaks import HeldOut
from regard.data.rows import BETWEEN_LABELS, Row
from regard.errors import UsageError

PORTION = 50_000  # rows looked at together
CHARACTERS = 1 << 25  # of them at most, but for one row
TOLD_EVERY = 20 * PORTION
SAMPLE = 500_000  # rows at most from which a vocabulary is learned
SAMPLE_CHARACTERS = 1 << 27
LONGEST_NEAR = 4000  # characters: what is longer is no line, and one word of it changed says nothing
LABELS_NAMED = 3  # of a row that has several which nobody knows
LEAKS = frozenset({"leak-exact", "leak-normalised", "leak-near"})

Held = Mapping[str, Sequence[Row]]  # the held-out rows of each split


@dataclass
class Thinned:
    """Evenly spread rows of a sequence whose length is not known: every k-th, with k doubled when full."""

    limit: int
    characters: int = SAMPLE_CHARACTERS
    rows: list[tuple[str, str]] = field(default_factory=list)
    every: int = 1
    seen: int = 0
    size: int = 0

    def add(self, source: str, target: str) -> None:
        if self.seen % self.every == 0:
            self.rows.append((source, target))
            self.size += len(source) + len(target)
            while len(self.rows) > 1 and (len(self.rows) > self.limit or self.size > self.characters):
                self.rows, self.every = self.rows[::2], 2 * self.every
                self.size = sum(len(source) + len(target) for source, target in self.rows)
        self.seen += 1


def portions(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in order, as many together as memory should hold at once."""
    portion: list[Row] = []
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
    listed: Listed
    pairs: int  # rows that can be learned from, before leaks and duplicates are left out
    dropped: npt.NDArray[np.int64]  # numbers among these, ascending

    @property
    def corpus(self) -> Corpus:
        return self.listed.corpus


@dataclass(frozen=True)
class Checked:
    corpora: Sequence[CheckedCorpus]
    findings: Findings
    sample: Sequence[tuple[str, str]]
    labels: tuple[str, ...] = ()  # classify, tag: those of the training rows, sorted


def held_out(data: Data, task: Task, findings: Findings) -> dict[str, list[Row]]:
    """The rows of valid and test that can be used."""
    found: dict[str, list[Row]] = {}
    for split, corpora in (("valid", data.valid), ("test", data.test)):
        if corpora is not None:
            found[split] = [
                row
                for each in listed(corpora, task, data.documents)
                for row in read_rows(each, task, split, findings)
            ]
            if not found[split]:
                raise UsageError(f"data.{split}: no {UNITS[task.name]} in it")
    return found


def make_findings(data: Data) -> Findings:
    """Findings that know what this run leaves out."""
    return Findings(
        kept=LEAKS if data.leaks == "keep" else frozenset(),
        dropped=frozenset({"duplicate"}) if data.duplicates == "drop" else frozenset(),
    )


def check(
    data: Data, task: Task, held: Held, findings: Findings, say: Callable[[str], None] = lambda text: None
) -> Checked:
    """One pass over the training corpora: what is wrong, what is left out, and a sample of what is good."""
    both = task.name == "translate"
    index = HeldOut.of({split: compared(rows, both) for split, rows in held.items()})
    corpora = listed(data.train, task, data.documents)
    checks = [Check(each, task, findings, index, held, len(corpora)) for each in corpora]
    for each in checks:
        each.run(say)
    if len(checks) > 1 or not is_phrasebook(checks[0].corpus):
        find_duplicates(checks, findings)
    labels = set[str]().union(*(each.labels for each in checks))
    if task.name == "classify" and not labels and any(len(each.dropped) < each.count for each in checks):
        raise UsageError("data.train: no row has a label, so that there is none to learn")
    if labels:
        find_unseen_labels(data, task, held, labels, findings)
    return Checked(
        [each.result() for each in checks],
        findings,
        [row for each in checks for row in each.sample.rows],
        tuple(sorted(labels)),
    )


def compared(rows: Sequence[Row], both: bool) -> list[tuple[str, str]]:
    """What is searched for leaks: both sides of pairs, of anything else the text alone."""
    return [(source, target if both else "") for _, source, target in rows]


def labels_of(target: str, task: Task) -> list[str]:
    """The labels or tags of a row; none where the task has no such thing."""
    if task.name not in ("classify", "tag") or not target:
        return []
    return target.split(BETWEEN_LABELS if task.name == "classify" else " ")


class Check:
    """The pass over one corpus."""

    def __init__(
        self, listed: Listed, task: Task, findings: Findings, index: HeldOut, held: Held, corpora: int
    ) -> None:
        """`corpora`: how many share the sample."""
        self.listed, self.corpus, self.task, self.findings = listed, listed.corpus, task, findings
        self.index, self.held = index, held
        self.sample = Thinned(SAMPLE // corpora, SAMPLE_CHARACTERS // corpora)
        self.name = str(files(self.corpus)[0]) if files(self.corpus) else describe(self.corpus)
        self.count = 0
        self.hashes: list[npt.NDArray[np.uint64]] = []
        self.lines: list[npt.NDArray[np.int64]] = []
        self.dropped: list[int] = []
        self.labels: set[str] = set()

    def run(self, say: Callable[[str], None]) -> None:
        if is_phrasebook(self.corpus):
            return self.take_sample()
        for portion in portions(read_rows(self.listed, self.task, "train", self.findings)):
            before = self.count
            self.look(portion)
            if self.count // TOLD_EVERY > before // TOLD_EVERY:
                say(f"checked {self.count:,} rows of {describe(self.corpus)}")
        if not self.count:
            unit = "pair" if self.task.name == "translate" else UNITS[self.task.name]
            raise UsageError(f"data.train: {describe(self.corpus)} holds no {unit} to learn from{self.why()}")
        return None

    def take_sample(self) -> None:
        """The grammar gives distinct pairs in a drawn order, none of them held out: a beginning is enough."""
        for _, source, target in read_rows(self.listed, self.task, "train", self.findings):
            if len(self.sample.rows) == self.sample.limit:
                break
            self.sample.add(source, target)

    def look(self, portion: Sequence[Row]) -> None:
        for _, source, target in portion:
            self.sample.add(source, target)
        known = len(self.dropped)
        self.find_leaks(portion)
        dropped = {number - self.count for number in self.dropped[known:]}
        for number, (_, _, target) in enumerate(portion):
            if number not in dropped:
                self.labels.update(labels_of(target, self.task))
        self.hashes.append(pair_hashes([(source, target) for _, source, target in portion]))
        self.lines.append(np.array([row[0] for row in portion], dtype=np.int64))
        self.count += len(portion)

    def find_leaks(self, portion: Sequence[Row]) -> None:
        """Of a pair both sides must be known; a text that is asked about is all that there is."""
        both = self.task.name == "translate" and not self.listed.told
        leaks = self.index.find(compared(portion, both))
        found = {leak.pair: leak for leak in reversed(leaks)}  # the first of each row
        for number in sorted(found):
            leak = found[number]
            # words that all rows begin with are shared by chance
            if leak.kind == "near" and (self.listed.told or len(portion[number][1]) > LONGEST_NEAR):
                continue
            kind = f"{'shared' if both and leak.side != 'both' else 'leak'}-{leak.kind}"
            line = self.held[leak.split][leak.line][0]
            self.findings.add(kind, self.name, portion[number][0], note=f"line {line} of data.{leak.split}")
            if self.findings.leaves_out(kind):
                self.dropped.append(self.count + number)

    def why(self) -> str:
        """The first place where something was wrong, for a corpus of which nothing is left."""
        places = [
            place for kind in self.findings.places.values() for place in kind if place.file == self.name
        ]
        return f" ({min(places, key=lambda place: place.line)})" if places else ""

    def result(self) -> CheckedCorpus:
        dropped = np.unique(np.array(self.dropped, dtype=np.int64))
        return CheckedCorpus(self.listed, self.count, dropped)


def find_duplicates(checks: Sequence[Check], findings: Findings) -> None:
    """Rows that came before, in the same corpus or in an earlier one."""
    hashes = [each for check in checks for each in check.hashes]
    if not hashes:
        return
    again = duplicates(np.concatenate(hashes))
    start = 0
    for each in checks:
        numbers = np.flatnonzero(again[start : start + each.count])
        lines = np.concatenate(each.lines) if each.lines else numbers
        for line in lines[numbers].tolist():
            findings.add("duplicate", each.name, line)
        if findings.leaves_out("duplicate"):
            each.dropped += numbers.tolist()
        start += each.count
        each.hashes, each.lines = [], []


def find_unseen_labels(
    data: Data, task: Task, held: Held, known: AbstractSet[str], findings: Findings
) -> None:
    """Labels of valid and test that nothing was learned about."""
    for split, rows in held.items():
        corpora = listed(getattr(data, split), task)
        name = str(files(corpora[0].corpus)[0]) if len(corpora) == 1 else f"data.{split}"
        for number, _, target in rows:
            if unseen := sorted(set(labels_of(target, task)) - known):
                findings.add("unseen-label", name, number, note=", ".join(unseen[:LABELS_NAMED]))
