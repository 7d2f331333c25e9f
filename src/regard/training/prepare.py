"""From a config to everything a run needs: tokenizers, ids on disk, held-out text.

What follows from the files and the config alone is made once and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import regard.data
import regard.inputs.text
from regard.config import Config, Corpora, Task
from regard.data import Dataset, Objective
from regard.data.cache import key_of, prepared
from regard.data.check import Checked, CheckedCorpus, check, make_report, portions, read_held_out
from regard.data.corpora import (
    CorpusSpec,
    corpus_files,
    corpus_specs,
    describe,
    parts,
    read_rows,
    report_name,
)
from regard.data.files import stamp
from regard.data.readers import RawRow
from regard.data.report import DataReport
from regard.data.shards import ShardWriter, fingerprint, open_shards, read_manifest, write_manifest
from regard.errors import RegardError, UsageError
from regard.inputs.text import Tokenizer, load_tokenizer, split_sentences, train_tokenizer
from regard.sample import Example
from regard.storage import Initial, read_json
from regard.storage.folder import load_tokenizers
from regard.storage.huggingface import labels_of
from regard.training.evaluation.base import Evaluation
from regard.training.evaluation.choose import make_evaluation, make_objective

LINES_LOOKED_AT = 2000
NAMED = 5  # texts that a message names
BESIDE = ".data"  # in the run's folder, where the user's cache cannot be written; a run may still begin there
MASK = "<mask>"
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # as many as T5 has
UNITS = {"translate": "pairs", "answer": "questions", "tag": "sentences"}  # else texts

Say = Callable[[str], None]


@dataclass(frozen=True)
class Materials:
    source: Tokenizer
    target: Tokenizer | None  # None: both languages share the source's, or there is one
    labels: Sequence[str]  # what texts or words can be called; () where nothing is called
    objective: Objective
    training: Dataset
    valid: Evaluation | None
    test: Evaluation | None
    fingerprint: str  # of the training ids: a resumed run must see the same
    split_above: int  # pieces of a line from which on it is cut into sentences when the model is used
    may_refuse: bool  # some training questions have no answer
    record: Mapping[str, Any]  # what was read and found: the run's data.json

    @property
    def output(self) -> Tokenizer:
        return self.target or self.source


def prepare(
    config: Config, folder: Path, say: Say, strict: bool = False, initial: Initial | None = None
) -> Materials:
    """Check and tokenise the corpora, or open what was prepared before."""
    work = Preparation(config, folder, say, strict, initial)
    source, target = tokenizers = work.tokenizers
    entry = prepared(work.key("shards", *work.prints(tokenizers)), work.write, folder / BESIDE)
    manifest = read_manifest(entry)
    if strict:
        refuse(manifest["record"]["findings"])
    weights = [weight for _, weight in parts(config.data.train, config.task)]
    training = Dataset([open_shards(entry, *each) for each in zip(manifest["corpora"], weights, strict=True)])
    say(summary(manifest["record"], config.task))
    vocabulary = f"{len(source):,}" if target is None else f"{len(source):,} and {len(target):,}"
    say(f"vocabulary of {vocabulary} pieces; {manifest['pieces']:.1f} pieces a row")
    objective = work.objective(manifest["labels"])
    held = [work.hold(split, objective, manifest["unanswered"]) for split in ("valid", "test")]
    return Materials(
        source=source,
        target=target,
        labels=tuple(manifest["labels"]),
        objective=objective,
        training=training,
        valid=held[0],
        test=held[1],
        fingerprint=fingerprint(manifest["corpora"]),
        split_above=manifest["split_above"],
        may_refuse=manifest["unanswered"] > 0,
        record=with_weights(manifest["record"], weights),
    )


class Preparation:
    """The work that a cache saves: each step is done when something asks for it, and once."""

    def __init__(
        self, config: Config, folder: Path, say: Say, strict: bool, initial: Initial | None = None
    ) -> None:
        self.config, self.folder, self.say, self.strict, self.initial = config, folder, say, strict, initial
        self.findings = make_report(config.data)
        self.held = read_held_out(config.data, config.task, self.findings)
        self.unanswered = 0  # training questions without an answer

    @cached_property
    def checked(self) -> Checked:
        found = check(self.config.data, self.config.task, self.held, self.findings, self.say)
        if self.strict:
            refuse(found.report.to_json())
        return found

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer | None]:
        """Those that this run began with; else those of the model it begins from; else learned, once."""
        if (self.folder / "config.json").is_file():  # written after the tokenizers
            source, target = load_tokenizers(self.folder, read_json(self.folder / "config.json"))
            return source, None if target is source else target
        if self.initial is not None:
            source, target = self.initial.source, self.initial.target
            return source, None if target is source else target
        place = prepared(self.key("text"), self.learn, self.folder / BESIDE)
        separate = place / "target_tokenizer.json"
        return load_tokenizer(place / "tokenizer.json"), load_tokenizer(
            separate
        ) if separate.is_file() else None

    def learn(self, place: Path) -> None:
        text, sample = self.config.text, self.checked.sample
        sources, targets = [pair[0] for pair in sample], [pair[1] for pair in sample]
        pairs = self.config.task.name == "translate"
        both = [*sources, *targets] if pairs and text.joint else sources
        train_tokenizer(both, text.kind, text.vocabulary, self.extra).save(place / "tokenizer.json")
        if pairs and not text.joint:
            train_tokenizer(targets, text.kind, text.vocabulary).save(place / "target_tokenizer.json")
        write_manifest(place, {})

    @property
    def extra(self) -> tuple[str, ...]:
        """Signs for what is hidden. BERT and T5 have them from the start, to be asked later."""
        return {"bert": (MASK,), "t5": SENTINELS}.get(self.config.model.family, ())

    def objective(self, labels: Sequence[str]) -> Objective:
        source, target = self.tokenizers
        return make_objective(self.config.task, self.config.model, source, target or source, labels)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """In the order of the model that the run begins from, if that knows them all."""
        own = tuple(self.checked.labels)
        before = tuple(self.known)
        return before if set(own) <= set(before) else own

    def write(self, place: Path) -> None:
        """All corpora as shards, and the manifest."""
        objective = self.objective(self.labels)
        corpora, used = [], []
        for number, checked in enumerate(self.checked.corpora):
            writer = ShardWriter(place, f"{number:03d}", objective.longest)
            used.append(self.encode(checked, writer, objective))
            corpora.append(writer.close())
            if not sum(entry["pairs"] for entry in corpora[-1]):
                raise UsageError(
                    f"data.train: every row of {describe(checked.corpus)} is left out: {self.why(checked)}"
                )
        mapped = [open_shards(place, entries, 1.0) for entries in corpora]
        columns = [shard.target if self.pairs else shard.source for part in mapped for shard in part.shards]
        lengths = [shard.source.lengths for part in mapped for shard in part.shards]
        content = {
            "corpora": corpora,
            "labels": list(self.labels),
            "unanswered": self.unanswered,
            "pieces": sum(len(column.ids) for column in columns) / sum(len(c.lengths) for c in columns),
            "split_above": self.split_above(lengths),
            "record": {
                "corpora": self.record(used, objective),
                "findings": self.findings.to_json(whole_paths=False),
            },
        }
        write_manifest(place, content)

    def split_above(self, lengths: Sequence[Any]) -> int:
        if any(each.spec.is_multitask for each in self.checked.corpora):
            return self.config.model.max_length  # behind a cut nothing would say which task it is
        return split_above(self.checked.sample, lengths) if self.pairs else 0

    @property
    def pairs(self) -> bool:
        return self.config.task.name == "translate"

    def why(self, checked: CheckedCorpus) -> str:
        """For a corpus of which nothing is left."""
        if len(checked.dropped):
            return 'it is in data.valid or data.test; if that is meant, set data.leaks = "keep"'
        return f"longer than model.max_length = {self.config.model.max_length} pieces"

    def encode(self, checked: CheckedCorpus, writer: ShardWriter, objective: Objective) -> int:
        """The second reading of a corpus: its rows without those that the first one dropped, as ids.

        How many rows were used.
        """
        name = report_name(checked.corpus)
        start = used = 0
        for portion in portions(read_rows(checked.spec, self.config.task, "train", DataReport())):
            first, last = np.searchsorted(checked.dropped, [start, start + len(portion)])
            dropped = set((checked.dropped[first:last] - start).tolist())
            kept = [row for number, row in enumerate(portion) if number not in dropped]
            columns = objective.encode(kept)
            for number, note in columns.left_out:
                self.findings.add("too-long", name, kept[number][0], note=note)
            writer.add(columns.source, columns.target)
            self.unanswered += sum(target == "[]" for _, _, target in kept)
            used += len(kept) - len(columns.left_out)
            start += len(portion)
        if checked.pairs and start != checked.pairs:
            raise UsageError(f"{name} changed while it was read; start again when it is complete")
        return used

    def record(self, used: Sequence[int], objective: Objective) -> list[dict[str, Any]]:
        """What was read, as data.json and the report tell it; held-out rows that are too long are found."""
        asked = {split: len(rows) for split, rows in self.held.items()}
        for split, rows in self.held.items():
            name = names(getattr(self.config.data, split), self.config.task)
            for number in sorted(unreadable(rows, objective, self.config)):
                self.findings.add("too-long", name, rows[number][0], note=f"of data.{split}")
                asked[split] -= 1
        train = [
            {"split": "train", "name": short_name(each.corpus), "pairs": each.pairs or count, "used": count}
            for each, count in zip(self.checked.corpora, used)
        ]
        held = [
            {
                "split": split,
                "name": names(getattr(self.config.data, split), self.config.task),
                "pairs": len(rows),
                "used": asked[split],
            }
            for split, rows in self.held.items()
        ]
        return train + held

    def hold(self, split: str, objective: Objective, unanswered: int) -> Evaluation | None:
        if split not in self.held:
            return None
        examples = [Example(one, two) for _, one, two in self.held[split]]
        examples = readable(examples, objective, self.config, split, self.say)
        return make_evaluation(self.config, objective, examples, unanswered > 0) if examples else None

    def key(self, kind: str, *more: str) -> str:
        """Of everything that the result follows from: files, settings, our own code."""
        data, task = self.config.data, self.config.task
        corpora = [
            [told(each), [[str(path.resolve()), *stamp(path)] for path in corpus_files(each.corpus)]]
            for setting in (data.train, data.valid, data.test)
            if setting is not None
            for each in corpus_specs(setting, task, data.documents)
        ]
        settings = [data.leaks, data.duplicates, task.model_dump(), self.extra]
        own = self.config.text.model_dump() if kind == "text" else [self.config.model.max_length, self.known]
        return key_of([kind, code_version(), corpora, settings, own, *more])

    @property
    def known(self) -> list[str]:
        """Labels of the model that the run begins from, in its order; a run that goes on has them by now."""
        if self.config.init.model is not None and (self.folder / "config.json").is_file():
            config = read_json(self.folder / "config.json")
            return list(labels_of(config, self.config.task, str(self.folder)))
        return list(self.initial.labels) if self.initial is not None else []

    @staticmethod
    def prints(tokenizers: tuple[Tokenizer, Tokenizer | None]) -> list[str]:
        return [tokenizer.fingerprint for tokenizer in tokenizers if tokenizer is not None]


def told(corpus: CorpusSpec) -> list[Any]:
    """All that a config says of a corpus."""
    return [
        describe(corpus.corpus),
        corpus.prefix,
        dict(corpus.label_words),
        corpus.documents,
        corpus.format,
    ]


def code_version() -> str:
    """Of the rooms that read and cut text: what an older version of them prepared is not used."""
    digest = hashlib.sha256()
    for package in (regard.data, regard.inputs.text):
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


def summary(record: Mapping[str, Any], task: Task) -> str:
    """One line about the check; the rest stands in data.json."""
    findings = record["findings"]
    used = sum(each["used"] for each in record["corpora"] if each["split"] == "train")
    left_out = sum(each["count"] for each in findings if each["left_out"])
    other = [f"{each['count']:,} {each['kind']}" for each in findings]
    found = f" (found: {', '.join(other)}; see data.json)" if other else ""
    return f"{used:,} training {UNITS.get(task.name, 'texts')}, {left_out:,} left out{found}"


def with_weights(record: Mapping[str, Any], weights: Sequence[float]) -> dict[str, Any]:
    train = [{**each, "weight": weight} for each, weight in zip(record["corpora"], weights)]
    return {**record, "corpora": train + record["corpora"][len(weights) :]}


def names(corpora: Corpora, task: Task) -> str:
    return ", ".join(short_name(corpus) for corpus, _ in parts(corpora, task))


def short_name(corpus: str | tuple[str, str]) -> str:
    """By file name: a card goes out into the world, the folders of this machine do not."""
    return " and ".join(Path(name).name for name in ([corpus] if isinstance(corpus, str) else corpus))


def readable(
    examples: list[Example], objective: Objective, config: Config, split: str, say: Say
) -> list[Example]:
    """Without the held-out texts that the model cannot read as a whole."""
    rows = [(number, example.source, example.target) for number, example in enumerate(examples)]
    long = unreadable(rows, objective, config)
    if long:
        places = ", ".join(str(number + 1) for number in sorted(long)[:NAMED])
        more = ", ..." if len(long) > NAMED else ""
        say(
            f"left out {len(long):,} of data.{split}: longer than {config.model.max_length} pieces "
            f"(of its texts number {places}{more})"
        )
    return [example for number, example in enumerate(examples) if number not in long]


def unreadable(rows: Sequence[RawRow], objective: Objective, config: Config) -> set[int]:
    """The texts for whose ends learned positions have no vector; waves reach any length."""
    if config.model.positions != "learned" or config.task.name in ("generate", "fill"):
        return set()
    return set(objective.too_long(rows))


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
