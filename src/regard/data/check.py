"""Every line of a corpus looked at before anything is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from regard.config import Corpus, Data, Task
from regard.data.corpora import Row, describe, files, is_phrasebook, parts, read_rows
from regard.data.duplicates import duplicates, pair_hashes
from regard.data.findings import Findings
from regard.data.leaks import HeldOut
from regard.errors import UsageError

PORTION = 50_000  # pairs looked at together
TOLD_EVERY = 20 * PORTION
SAMPLE = 500_000  # pairs at most from which a vocabulary is learned
LEAKS = frozenset({"leak-exact", "leak-normalised", "leak-near"})

Held = Mapping[str, Sequence[Row]]  # the held-out rows of each split


@dataclass
class Thinned:
    """Evenly spread rows of a sequence whose length is not known: every k-th, with k doubled when full."""

    limit: int
    rows: list[tuple[str, str]] = field(default_factory=list)
    every: int = 1
    seen: int = 0

    def add(self, source: str, target: str) -> None:
        if self.seen % self.every == 0:
            self.rows.append((source, target))
            if len(self.rows) > self.limit:
                self.rows, self.every = self.rows[::2], 2 * self.every
        self.seen += 1


@dataclass(frozen=True)
class CheckedCorpus:
    corpus: Corpus
    pairs: int  # that can be learned from, before leaks and duplicates are left out
    dropped: npt.NDArray[np.int64]  # numbers among these, ascending


@dataclass(frozen=True)
class Checked:
    corpora: Sequence[CheckedCorpus]
    findings: Findings
    sample: Sequence[tuple[str, str]]


def held_out(data: Data, task: Task, findings: Findings) -> dict[str, list[Row]]:
    """The rows of valid and test that can be used."""
    found: dict[str, list[Row]] = {}
    for split, corpora in (("valid", data.valid), ("test", data.test)):
        if corpora is not None:
            found[split] = [
                row for corpus, _ in parts(corpora) for row in read_rows(corpus, task, split, findings)
            ]
            if not found[split]:
                raise UsageError(f"data.{split}: no pair of sentences in it")
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
    index = HeldOut.of({split: [(source, target) for _, source, target in held[split]] for split in held})
    checks = [
        Check(corpus, task, findings, index, held, SAMPLE // len(parts(data.train)))
        for corpus, _ in parts(data.train)
    ]
    for each in checks:
        each.run(say)
    if len(checks) > 1 or not is_phrasebook(checks[0].corpus):
        find_duplicates(checks, findings)
    return Checked(
        [each.result() for each in checks], findings, [row for each in checks for row in each.sample.rows]
    )


class Check:
    """The pass over one corpus."""

    def __init__(
        self, corpus: Corpus, task: Task, findings: Findings, index: HeldOut, held: Held, sample: int
    ) -> None:
        self.corpus, self.task, self.findings = corpus, task, findings
        self.index, self.held = index, held
        self.sample = Thinned(sample)
        self.name = str(files(corpus)[0]) if files(corpus) else describe(corpus)
        self.count = 0
        self.hashes: list[npt.NDArray[np.uint64]] = []
        self.lines: list[npt.NDArray[np.int64]] = []
        self.dropped: list[int] = []

    def run(self, say: Callable[[str], None]) -> None:
        if is_phrasebook(self.corpus):
            return self.take_sample()
        rows = read_rows(self.corpus, self.task, "train", self.findings)
        while portion := list(islice(rows, PORTION)):
            self.look(portion)
            if self.count % TOLD_EVERY == 0:
                say(f"checked {self.count:,} pairs of {describe(self.corpus)}")
        if not self.count:
            raise UsageError(f"data.train: {describe(self.corpus)} holds no pair to learn from{self.why()}")
        return None

    def take_sample(self) -> None:
        """The grammar gives distinct pairs in a drawn order, none of them held out: a beginning is enough."""
        for _, source, target in read_rows(self.corpus, self.task, "train", self.findings):
            if len(self.sample.rows) == self.sample.limit:
                break
            self.sample.add(source, target)

    def look(self, portion: Sequence[Row]) -> None:
        pairs = [(source, target) for _, source, target in portion]
        for pair in pairs:
            self.sample.add(*pair)
        found = {leak.pair: leak for leak in reversed(self.index.find(pairs))}  # the first of each pair
        for number in sorted(found):
            leak = found[number]
            kind = f"{'leak' if leak.side == 'both' else 'shared'}-{leak.kind}"
            line = self.held[leak.split][leak.line][0]
            self.findings.add(kind, self.name, portion[number][0], note=f"line {line} of data.{leak.split}")
            if self.findings.leaves_out(kind):
                self.dropped.append(self.count + number)
        self.hashes.append(pair_hashes(pairs))
        self.lines.append(np.array([row[0] for row in portion], dtype=np.int64))
        self.count += len(portion)

    def why(self) -> str:
        """The first place where something was wrong, for a corpus of which nothing is left."""
        places = [
            place for kind in self.findings.places.values() for place in kind if place.file == self.name
        ]
        return f" ({min(places, key=lambda place: place.line)})" if places else ""

    def result(self) -> CheckedCorpus:
        dropped = np.unique(np.array(self.dropped, dtype=np.int64))
        return CheckedCorpus(self.corpus, self.count, dropped)


def find_duplicates(checks: Sequence[Check], findings: Findings) -> None:
    """Pairs that came before, in the same corpus or in an earlier one."""
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
