"""From a config to `TrainingData`: check -> tokenizers -> shards -> validation sets, in this order.

Tokenizers and shards follow from files and config alone: they are computed once, into the user's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import regard.data
import regard.inputs
from regard.config import Config
from regard.config.input import Modifier
from regard.data import Dataset, Objective
from regard.data.cache import cache_folder, find_shards, key_of, prepared
from regard.data.check import (
    Checked,
    CheckedCorpus,
    check,
    make_report,
    portions,
    read_held_out,
    split_above,
    tokenizer_sample,
    word_modifiers,
)
from regard.data.corpora import (
    corpus_files,
    corpus_specs,
    describe,
    epoch_weights,
    language_tokens,
    read_rows,
    short_name,
    short_names,
    stamped_files,
)
from regard.data.files import folder_stamp
from regard.data.readers import PROMPT_SEPARATOR, RawRow
from regard.data.report import DataReport, refuse_findings, summary
from regard.data.shards import MANIFEST, ShardWriter, fingerprint, open_shards, read_manifest, write_manifest
from regard.errors import UsageError, located
from regard.inputs.text import Tokenizer, load_tokenizer, train_tokenizer
from regard.inputs.text.spans import placeholder_tokens
from regard.sample import Example
from regard.storage import Initial, checkpoint_folder, checkpoint_steps, read_json
from regard.storage.folder import for_languages
from regard.storage.huggingface import labels_of, read_config
from regard.storage.inputs import load_inputs
from regard.training.evaluation import Evaluation, drop_left_out, left_out, make_evaluation, make_objective

if TYPE_CHECKING:
    from regard.inputs.frames import FrameReader

FALLBACK_CACHE = ".data"  # in the run's folder, where the user's cache cannot be written
MASK = "<mask>"
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # as many as T5 has

Log = Callable[[str], None]
Tokenizers = Sequence[Tokenizer]  # of the source, if it is text, and of the target if it has its own
TOKENIZER_FILES = ("tokenizer.json", "target_tokenizer.json")


@dataclass(frozen=True)
class TrainingData:
    """What a run trains on and is evaluated with."""

    source: Tokenizer | FrameReader
    target: Tokenizer | None  # None: shared with the source, or there is no target
    labels: Sequence[str]  # of classify and tag
    objective: Objective
    training: Dataset
    valid: Evaluation | None
    test: Evaluation | None
    fingerprint: str  # of the training ids: a resumed run must have the same
    split_above: int  # tokens of a line from which on it is split into sentences at inference
    may_refuse: bool  # some training questions have no answer
    record: Mapping[str, Any]  # corpora and findings: the run's data.json

    @property
    def tokenizers(self) -> list[Tokenizer]:
        return [each for each in (self.source, self.target) if isinstance(each, Tokenizer)]

    @property
    def output(self) -> Tokenizer:
        """The tokenizer of what a generative model writes."""
        return self.tokenizers[-1]


@dataclass
class Preparation:
    """What the preparation of one run reads."""

    config: Config
    folder: Path
    log: Log
    pretrained: Initial | None
    findings: DataReport
    held_out: Mapping[str, Sequence[RawRow]] = field(default_factory=dict)

    @cached_property
    def reader(self) -> FrameReader | None:
        """Of pictures or sounds."""
        if self.config.input is None:
            return None
        from regard.inputs.frames import make_reader

        return make_reader(self.config.input)

    def inputs(self, tokenizers: Tokenizers) -> list[Tokenizer | FrameReader]:
        """Of the source, and of the target if it has its own."""
        return [*([] if self.reader is None else [self.reader]), *tokenizers]

    @property
    def text_modifiers(self) -> Sequence[Modifier]:
        return self.config.data.modifiers if self.reader is None else ()

    @property
    def writes_text(self) -> bool:
        return self.config.task.name in ("translate", "transcribe", "caption")

    @property
    def extra_tokens(self) -> tuple[str, ...]:
        """Mask and sentinels: BERT and T5 always have them, so that they can be used later; placeholders."""
        config, usual = self.config, {"bert": (MASK,), "t5": SENTINELS}.get(self.config.model.family, ())
        return (*usual, *placeholder_tokens(config.text.placeholders), *language_tokens(config))


def prepare_data(
    config: Config, folder: Path, log: Log, strict: bool = False, pretrained: Initial | None = None
) -> TrainingData:
    """Check and tokenize the corpora, or open what an earlier run prepared.

    `strict` refuses data in which the check finds anything.
    """
    job = Preparation(config, folder, log, pretrained, make_report(config.data))
    job.held_out = read_held_out(config.data, config.task, job.findings)
    tokenizers = find_tokenizers(job)
    shards = None
    if tokenizers is not None:
        shards = stored_shards(job) or cached(job, shards_key(job, tokenizers))
    if tokenizers is None or shards is None:
        checked = check(config.data, config.task, job.held_out, job.findings, log)
        if strict:
            refuse_findings(checked.report.to_json())
        tokenizers = train_tokenizers(job, checked) if tokenizers is None else tokenizers
        shards = encode_shards(job, checked, tokenizers)
    manifest = read_manifest(shards)
    if strict:
        refuse_findings(manifest["record"]["findings"])
    weights = epoch_weights(config.data, config.task, manifest["corpora"])
    corpora, record = zip(manifest["corpora"], weights, strict=True), manifest["record"]
    training = Dataset([open_shards(shards, *each) for each in corpora])
    for corpus, weight in zip(record["corpora"], weights):  # those of training come first
        corpus["weight"] = weight
    log(summary(record, config.task))
    if tokenizers:
        sizes = " and ".join(f"{len(each):,}" for each in tokenizers)
        log(f"vocabulary of {sizes} tokens; {manifest['pieces']:.1f} tokens a row")
    objective = objective_of(job, tokenizers, manifest["labels"])
    may_refuse = manifest["unanswered"] > 0
    return TrainingData(
        source=job.reader or tokenizers[0],
        target=tokenizers[-1] if len(tokenizers) > 1 or (tokenizers and job.reader) else None,
        labels=tuple(manifest["labels"]),
        objective=objective,
        training=training,
        valid=validation_set(job, "valid", objective, may_refuse),
        test=validation_set(job, "test", objective, may_refuse),
        fingerprint=fingerprint(manifest["corpora"]),
        split_above=manifest["split_above"],
        may_refuse=may_refuse,
        record=record,
    )


# --- tokenizers


def find_tokenizers(job: Preparation) -> Tokenizers | None:
    """Those of this run, else of the pretrained model, else of the cache."""
    if job.reader is not None and not job.writes_text:
        return []
    if (job.folder / "config.json").is_file():  # written after the tokenizers
        source, target = load_inputs(job.folder, read_config(job.folder / "config.json"))
    elif job.pretrained is not None:
        source, target = job.pretrained.input, job.pretrained.output
    else:
        folder = cached(job, tokenizers_key(job))
        return None if folder is None else read_tokenizers(folder)
    if isinstance(source, Tokenizer) and isinstance(target, Tokenizer):
        with located("task"):
            source, target = for_languages(source, target, job.config.task)
    inputs = [source] if target is None or target is source else [source, target]
    return [each for each in inputs if isinstance(each, Tokenizer)]


def read_tokenizers(folder: Path) -> Tokenizers:
    return [load_tokenizer(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()]


def train_tokenizers(job: Preparation, checked: Checked) -> Tokenizers:
    """One of all text, or with `text.joint = false` one for each language."""
    text, is_translation = job.config.text, job.config.task.name == "translate"
    sample = tokenizer_sample(checked, job.config.task, job.text_modifiers)
    sources, targets = [pair[0] for pair in sample], [pair[1] for pair in sample]
    if job.reader is not None:  # the sources are files; a question is a text of its own
        sources = [text for target in targets for text in target.split(PROMPT_SEPARATOR)]

    def write(folder: Path) -> None:
        lines = [*sources, *targets] if is_translation and text.joint else sources
        names = [folder / name for name in TOKENIZER_FILES]
        train_tokenizer(lines, text.kind, text.vocabulary, job.extra_tokens).save(names[0])
        if is_translation and not text.joint:
            train_tokenizer(targets, text.kind, text.vocabulary, job.extra_tokens).save(names[1])
        write_manifest(folder, {})

    return read_tokenizers(prepared(tokenizers_key(job), write, job.folder / FALLBACK_CACHE))


# --- shards


def encode_shards(job: Preparation, checked: Checked, tokenizers: Tokenizers) -> Path:
    """The second pass: all corpora as token ids on disk, with a manifest."""
    config = job.config
    labels, pretrained = list(checked.labels), pretrained_labels(job)
    if set(labels) <= set(pretrained):
        labels = pretrained  # in the order of its output layer
    objective = objective_of(job, tokenizers, labels)

    def write(folder: Path) -> None:
        corpora, used, unanswered = [], [], 0
        for number, corpus in enumerate(checked.corpora):
            writer = ShardWriter(folder, f"{number:03d}", objective.longest)
            count, refusals = encode_corpus(job, corpus, writer, objective)
            used.append(count)
            unanswered += refusals
            corpora.append(writer.close())
            if not sum(entry["pairs"] for entry in corpora[-1]):
                reason = f"longer than model.max_length = {config.model.max_length} tokens"
                if job.reader is not None:
                    reason = str(job.findings.places["unreadable"][0])
                if len(corpus.dropped):
                    reason = 'it is in data.valid or data.test; to use it set data.leaks = "keep"'
                raise UsageError(
                    f"data.train: every row of {describe(corpus.corpus)} is left out: {reason}",
                    code="E_DATA_EMPTY",
                )
        shards = [shard for entries in corpora for shard in open_shards(folder, entries, 1.0).shards]
        counts = objective.token_counts
        tokens = [counts(each.target if job.writes_text else each.source) for each in shards]
        content = {
            "corpora": corpora,
            "labels": labels,
            "unanswered": unanswered,
            "pieces": sum(int(each.sum()) for each in tokens) / sum(map(len, tokens)),
            "split_above": split_above(checked, config, [counts(each.source) for each in shards]),
            "record": {
                "corpora": corpora_record(job, checked, used, objective),
                "findings": job.findings.to_json(whole_paths=False),
            },
        }
        write_manifest(folder, content)

    return prepared(shards_key(job, tokenizers), write, job.folder / FALLBACK_CACHE)


def objective_of(job: Preparation, tokenizers: Tokenizers, labels: Sequence[str]) -> Objective:
    config, inputs, modifiers = job.config, job.inputs(tokenizers), job.config.data.modifiers
    return make_objective(config.task, config.model, inputs[0], inputs[-1], labels, config.version, modifiers)


def pretrained_labels(job: Preparation) -> list[str]:
    """Labels of the pretrained model, in its order; a resumed run has stored them."""
    config = job.folder / "config.json"
    if job.config.init.model is not None and config.is_file():
        return list(labels_of(read_json(config), job.config.task, str(job.folder)))
    return list(job.pretrained.labels) if job.pretrained is not None else []


def encode_corpus(
    job: Preparation, checked: CheckedCorpus, writer: ShardWriter, objective: Objective
) -> tuple[int, int]:
    """Encode the rows of a corpus that the check did not drop: (rows used, questions without an answer)."""
    name = str(corpus_files(checked.corpus)[0]) if corpus_files(checked.corpus) else describe(checked.corpus)
    start = used = unanswered = 0
    for portion in portions(read_rows(checked.spec, job.config.task, "train", DataReport())):
        first, last = np.searchsorted(checked.dropped, [start, start + len(portion)])
        dropped = set((checked.dropped[first:last] - start).tolist())
        kept = [row for number, row in enumerate(portion) if number not in dropped]
        for begin in range(0, len(kept), objective.rows_at_once):
            rows = kept[begin : begin + objective.rows_at_once]
            columns = objective.encode(rows)
            for number, kind, note in columns.left_out:
                job.findings.add(kind, name, rows[number][0], note=note)
            writer.add(columns.source, columns.target)
            used += len(rows) - len(columns.left_out)
        unanswered += sum(target == "[]" for _, _, target in kept)
        start += len(portion)
    if checked.pairs and start != checked.pairs:
        raise UsageError(
            f"{name} changed while it was read; start again when it is complete", code="E_DATA_CHANGED"
        )
    return used, unanswered


def corpora_record(
    job: Preparation, checked: Checked, used: Sequence[int], objective: Objective
) -> list[dict[str, Any]]:
    """Rows of each corpus, for data.json and the report; held-out rows that are too long become findings."""
    record = [
        {"split": "train", "name": short_name(each.corpus), "pairs": each.pairs or count, "used": count}
        for each, count in zip(checked.corpora, used)
    ]
    for split, rows in job.held_out.items():
        name = short_names(getattr(job.config.data, split), job.config.task)
        dropped = left_out(rows, objective, job.config)
        for number, kind in sorted(dropped.items()):
            job.findings.add(kind, name, rows[number][0], note=f"of data.{split}")
        record.append({"split": split, "name": name, "pairs": len(rows), "used": len(rows) - len(dropped)})
    return record


# --- validation sets


def validation_set(job: Preparation, split: str, objective: Objective, may_refuse: bool) -> Evaluation | None:
    if split not in job.held_out:
        return None
    examples = [Example(text, target) for _, text, target in job.held_out[split]]
    examples = drop_left_out(examples, objective, job.config, split, job.log)
    return make_evaluation(job.config, objective, examples, may_refuse) if examples else None


# --- cache


def cached(job: Preparation, key: str) -> Path | None:
    """The complete entry of a key, in the user's cache or beside the run."""
    entries = (cache_folder() / key, job.folder / FALLBACK_CACHE / key)
    return next((entry for entry in entries if (entry / MANIFEST).is_file()), None)


def stored_shards(job: Preparation) -> Path | None:
    """The shards that a run of version 1 was trained on, by the fingerprint in its newest checkpoint.

    Version 1 also dropped training rows one word apart from held-out rows: it may have other rows.
    """
    if job.config.version > 1 or not (steps := checkpoint_steps(job.folder)):
        return None
    state = read_json(checkpoint_folder(job.folder, steps[-1]) / "state.json", finite=False)
    return find_shards(state.get("data"), job.folder / FALLBACK_CACHE)


def tokenizers_key(job: Preparation) -> str:
    modifiers = [each.model_dump() for each in word_modifiers(job.text_modifiers)]
    return cache_key(job, "text", job.config.text.model_dump(), *modifiers)


def shards_key(job: Preparation, tokenizers: Tokenizers) -> str:
    settings = [job.config.model.max_length, pretrained_labels(job), job.config.version > 2]
    kind = "shards with texts" if job.text_modifiers else "shards"
    return cache_key(job, kind, settings, *(each.fingerprint for each in job.inputs(tokenizers)))


def cache_key(job: Preparation, kind: str, *more: Any) -> str:
    """A hash of everything that the result follows from: files, settings, code."""
    data, task = job.config.data, job.config.task
    corpora = [
        [
            [describe(each.corpus), each.front, dict(each.label_words), each.documents, each.format],
            dict(each.columns),
            each.files,
            each.pixels and each.pixels.model_dump(),
            [[str(path.resolve()), *folder_stamp(path)] for path in stamped_files(each, task)],
        ]
        for setting in (data.train, data.valid, data.test)
        if setting is not None
        for each in corpus_specs(setting, task, data)
    ]
    settings = [data.leaks, data.duplicates, task.model_dump(), job.extra_tokens]
    return key_of([kind, code_version(regard.data, regard.inputs), corpora, settings, *more])


def code_version(*packages: ModuleType) -> str:
    """Of the packages that read and tokenize text: what an older version prepared is not used."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
