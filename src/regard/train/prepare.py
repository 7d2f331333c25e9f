"""From a config to everything a run needs: tokenizers, ids on disk, held-out text.

What follows from the files and the config alone is made once and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import regard.data
import regard.text
from regard.config import Config, Corpora
from regard.data import Dataset, Example
from regard.data.cache import key_of, prepared
from regard.data.check import PORTION, Checked, CheckedCorpus, check, held_out, make_findings
from regard.data.corpora import describe, files, parts, read_rows
from regard.data.dataset import encode
from regard.data.files import stamp
from regard.data.findings import Findings
from regard.data.shards import Writer, fingerprint, open_shards, read_manifest, select, write_manifest
from regard.errors import RegardError, UsageError
from regard.text import Tokenizer, learn, split_sentences
from regard.train.evaluate import Held, hold

LINES_LOOKED_AT = 2000
BESIDE = ".data"  # in the run's folder, where the user's cache cannot be written; a run may still begin there

Say = Callable[[str], None]


@dataclass(frozen=True)
class Materials:
    source: Tokenizer
    target: Tokenizer | None  # None: both languages share the source's
    training: Dataset
    valid: Held | None
    test: Held | None
    fingerprint: str  # of the training ids: a resumed run must see the same
    split_above: int  # pieces of a line from which on it is cut into sentences when the model is used
    record: Mapping[str, Any]  # what was read and found: the run's data.json

    @property
    def output(self) -> Tokenizer:
        return self.target or self.source


def prepare(config: Config, folder: Path, say: Say, strict: bool = False) -> Materials:
    """Check and tokenise the corpora, or open what was prepared before."""
    work = Preparation(config, folder, say, strict)
    source, target = tokenizers = work.tokenizers
    entry = prepared(work.key("shards", *work.prints(tokenizers)), work.write, folder / BESIDE)
    manifest = read_manifest(entry)
    if strict:
        refuse(manifest["record"]["findings"])
    weights = [weight for _, weight in parts(config.data.train)]
    training = Dataset([open_shards(entry, *each) for each in zip(manifest["corpora"], weights, strict=True)])
    say(summary(manifest["record"]["findings"], len(training)))
    vocabulary = f"{len(source):,}" if target is None else f"{len(source):,} and {len(target):,}"
    say(f"vocabulary of {vocabulary} pieces; {manifest['pieces']:.1f} pieces a target sentence")
    held = [work.hold(split, source, target or source) for split in ("valid", "test")]
    return Materials(
        source,
        target,
        training,
        held[0],
        held[1],
        fingerprint(manifest["corpora"]),
        manifest["split_above"],
        with_weights(manifest["record"], weights),
    )


class Preparation:
    """The work that a cache saves: each step is done when something asks for it, and once."""

    def __init__(self, config: Config, folder: Path, say: Say, strict: bool) -> None:
        self.config, self.folder, self.say, self.strict = config, folder, say, strict
        self.findings = make_findings(config.data)
        self.held = held_out(config.data, config.task, self.findings)

    @cached_property
    def checked(self) -> Checked:
        found = check(self.config.data, self.config.task, self.held, self.findings, self.say)
        if self.strict:
            refuse(found.findings.to_json())
        return found

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer | None]:
        """Those that this run learned before it was cut off; else from the cache; else learned."""
        complete = (self.folder / "config.json").is_file()  # written after the tokenizers
        place = self.folder if complete else prepared(self.key("text"), self.learn, self.folder / BESIDE)
        joint = self.config.text.joint
        target = None if joint else Tokenizer.load(place / "target_tokenizer.json")
        return Tokenizer.load(place / "tokenizer.json"), target

    def learn(self, place: Path) -> None:
        text, sample = self.config.text, self.checked.sample
        sources, targets = [pair[0] for pair in sample], [pair[1] for pair in sample]
        if text.joint:
            learn([*sources, *targets], text.kind, text.vocabulary).save(place / "tokenizer.json")
        else:
            learn(sources, text.kind, text.vocabulary).save(place / "tokenizer.json")
            learn(targets, text.kind, text.vocabulary).save(place / "target_tokenizer.json")
        write_manifest(place, {})

    def write(self, place: Path) -> None:
        """All corpora as shards, and the manifest."""
        source, target = self.tokenizers
        corpora, used = [], []
        for number, checked in enumerate(self.checked.corpora):
            writer = Writer(place, f"{number:03d}", self.config.model.max_length)
            self.encode(checked, writer, source, target or source)
            corpora.append(writer.close())
            used.append(sum(entry["pairs"] for entry in corpora[-1]))
            if not used[-1]:
                raise UsageError(
                    f"data.train: every pair of {describe(checked.corpus)} is left out: {self.why(checked)}"
                )
        mapped = [open_shards(place, entries, 1.0) for entries in corpora]
        lengths = [shard.source.lengths for part in mapped for shard in part.shards]
        pieces = sum(len(shard.target.ids) for part in mapped for shard in part.shards) / sum(used)
        content = {
            "corpora": corpora,
            "pieces": pieces,
            "split_above": split_above(self.checked.sample, lengths),
            "record": {"corpora": self.record(used), "findings": self.findings.to_json(whole_paths=False)},
        }
        write_manifest(place, content)

    def why(self, checked: CheckedCorpus) -> str:
        """For a corpus of which nothing is left."""
        if len(checked.dropped):
            return 'it is in data.valid or data.test; if that is meant, set data.leaks = "keep"'
        return f"longer than model.max_length = {self.config.model.max_length} pieces"

    def encode(self, checked: CheckedCorpus, writer: Writer, source: Tokenizer, target: Tokenizer) -> None:
        """The second reading of a corpus: its pairs without those that the first one dropped, as ids."""
        longest = self.config.model.max_length - 1  # one place is for the end
        name = str(files(checked.corpus)[0]) if files(checked.corpus) else describe(checked.corpus)
        start = 0
        rows = read_rows(checked.corpus, self.config.task, "train", Findings())
        while portion := list(islice(rows, PORTION)):
            left = encode([text for _, text, _ in portion], source)
            right = encode([text for _, _, text in portion], target)
            keep = (left[1] <= longest) & (right[1] <= longest)
            for number in np.flatnonzero(~keep).tolist():
                pieces = f"{left[1][number]} and {right[1][number]} pieces"
                self.findings.add("too-long", name, portion[number][0], note=pieces)
            first, last = np.searchsorted(checked.dropped, [start, start + len(portion)])
            keep[checked.dropped[first:last] - start] = False
            writer.add(select(left, keep), select(right, keep))
            start += len(portion)
        if checked.pairs and start != checked.pairs:
            raise UsageError(f"{name} changed while it was read; start again when it is complete")

    def record(self, used: Sequence[int]) -> list[dict[str, Any]]:
        """What was read, as data.json and the report tell it."""
        train = [
            {"split": "train", "name": short_name(each.corpus), "pairs": each.pairs or count, "used": count}
            for each, count in zip(self.checked.corpora, used)
        ]
        held = [
            {
                "split": split,
                "name": names(getattr(self.config.data, split)),
                "pairs": len(rows),
                "used": len(rows),
            }
            for split, rows in self.held.items()
        ]
        return train + held

    def hold(self, split: str, source: Tokenizer, target: Tokenizer) -> Held | None:
        if split not in self.held:
            return None
        found = hold([Example(one, two) for _, one, two in self.held[split]], source, target)
        return readable(found, self.config, split, self.say)

    def key(self, kind: str, *more: str) -> str:
        """Of everything that the result follows from: files, settings, our own code."""
        data, task = self.config.data, self.config.task
        corpora = [
            [describe(corpus), [[str(path.resolve()), *stamp(path)] for path in files(corpus)]]
            for setting in (data.train, data.valid, data.test)
            if setting is not None
            for corpus, _ in parts(setting)
        ]
        settings = [data.leaks, data.duplicates, task.source, task.target]
        own = self.config.text.model_dump() if kind == "text" else self.config.model.max_length
        return key_of([kind, code_version(), corpora, settings, own, *more])

    @staticmethod
    def prints(tokenizers: tuple[Tokenizer, Tokenizer | None]) -> list[str]:
        return [tokenizer.fingerprint for tokenizer in tokenizers if tokenizer is not None]


def code_version() -> str:
    """Of the rooms that read and cut text: what an older version of them prepared is not used."""
    digest = hashlib.sha256()
    for package in (regard.data, regard.text):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def refuse(findings: Sequence[Mapping[str, Any]]) -> None:
    """`--strict`: nothing may be found."""
    if findings:
        first = findings[0]["places"][0]
        counts = ", ".join(f"{each['count']:,} x {each['kind']}" for each in findings)
        raise RegardError(
            f"--strict: {counts}; the first in {first['file']}, line {first['line']}; "
            '"regard data check" lists them'
        )


def summary(findings: Sequence[Mapping[str, Any]], used: int) -> str:
    """One line about the check; the rest stands in data.json."""
    left_out = sum(each["count"] for each in findings if each["left_out"])
    other = [f"{each['count']:,} {each['kind']}" for each in findings]
    told = f" (found: {', '.join(other)}; see data.json)" if other else ""
    return f"{used:,} training pairs, {left_out:,} left out{told}"


def with_weights(record: Mapping[str, Any], weights: Sequence[float]) -> dict[str, Any]:
    train = [{**each, "weight": weight} for each, weight in zip(record["corpora"], weights)]
    return {**record, "corpora": train + record["corpora"][len(weights) :]}


def names(corpora: Corpora) -> str:
    return ", ".join(short_name(corpus) for corpus, _ in parts(corpora))


def short_name(corpus: str | tuple[str, str]) -> str:
    """By file name: a card goes out into the world, the folders of this machine do not."""
    return " and ".join(Path(name).name for name in ([corpus] if isinstance(corpus, str) else corpus))


def readable(held: Held, config: Config, split: str, say: Say) -> Held:
    """Without the pairs for whose ends learned positions have no vector; waves reach any length."""
    if config.model.positions != "learned":
        return held
    longest = config.model.max_length
    keep = [n for n, s in enumerate(held.samples) if max(len(s.source), len(s.target)) <= longest]
    if len(keep) < len(held.samples):
        say(f"left out {len(held.samples) - len(keep):,} pairs of data.{split}: longer than {longest} pieces")
    return Held([held.examples[n] for n in keep], [held.samples[n] for n in keep])


def split_above(sample: Sequence[tuple[str, str]], lengths: Sequence[Any]) -> int:
    """What the model has not seen is better cut into sentences.

    If training lines are single sentences, that is every line with several (0); else lines with more pieces
    than nearly all training lines.
    """
    looked_at = sample[:: max(1, len(sample) // LINES_LOOKED_AT)]
    several = sum(len(split_sentences(source)) > 1 for source, _ in looked_at)
    if several < 0.05 * len(looked_at):
        return 0
    return int(np.quantile(np.concatenate(lengths), 0.99)) + 1
