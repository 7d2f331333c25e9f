"""The corpora of a setting such as `data.train`, and their rows for the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regard.config import Corpora, Corpus, Data, Task, Weighted
from regard.data.files import find, format_suffix, stamp
from regard.data.readers import RawRow
from regard.data.readers.annotated import read_labels, read_questions, read_tags
from regard.data.readers.text import (
    ONE_FILE,
    Documents,
    read_aligned,
    read_documents,
    read_pair_file,
    read_phrasebook,
    training_pairs,
)
from regard.data.report import DataReport, StrictReport
from regard.errors import UsageError
from regard.sample import Example

# A row of each task, in messages.
ROW_NAMES = {
    "translate": "pair of sentences",
    "generate": "text",
    "fill": "text",
    "classify": "text with a label",
    "tag": "sentence with tags",
    "answer": "question",
}
FORMAT_NAMES = ("txt", "tsv", "jsonl", "json", "parquet", "conll", "po", "tmx", "xliff")


@dataclass(frozen=True)
class CorpusSpec:
    """An entry of `data.train`: a corpus, how often it occurs in an epoch, and how it is read."""

    corpus: Corpus
    weight: float = 1.0
    prefix: str = ""
    label_words: Mapping[str, str] = field(default_factory=dict)  # targets to replace by words
    documents: Documents = "file"
    format: str | None = None  # None: by the suffix of the file

    @property
    def is_multitask(self) -> bool:
        """True for one task of a text-to-text mix (it has a prefix or label words)."""
        return bool(self.prefix or self.label_words)

    def suffix(self, path: Path) -> str:
        return f".{self.format}" if self.format else format_suffix(path)


def corpus_specs(corpora: Corpora, task: Task, documents: Documents = "file") -> list[CorpusSpec]:
    """The corpora in order. For translation, two paths that are not tables are a [source, target] pair."""
    if isinstance(corpora, str):
        return [CorpusSpec(corpora, documents=documents)]
    sides = [part for part in corpora if isinstance(part, str) and not has_both_sides(part)]
    if task.name == "translate" and len(corpora) == len(sides) == 2:
        return [CorpusSpec((sides[0], sides[1]), documents=documents)]
    specs = []
    for part in corpora:
        entry = part if isinstance(part, Weighted) else Weighted(corpus=part)
        corpus: Corpus = entry.corpus if isinstance(entry.corpus, str) else _pair(entry.corpus, task)
        if entry.format and not isinstance(corpus, str):
            raise UsageError(f"{describe(corpus)}: format is for a single file, not for a pair")
        if entry.format and entry.format not in FORMAT_NAMES:
            raise UsageError(f'format = "{entry.format}" is not one of {", ".join(FORMAT_NAMES)}')
        specs.append(CorpusSpec(corpus, entry.weight, entry.prefix, entry.say, documents, entry.format))
    if not specs:
        raise UsageError("the list of corpora is empty")
    return specs


def _pair(names: list[str], task: Task) -> tuple[str, str]:
    if task.name != "translate":
        raise UsageError(f'task.name = "{task.name}" reads single files, not the pair {names}')
    if len(names) != 2:
        raise UsageError(f"a corpus of two files is a [source, target] pair, not {names}")
    return names[0], names[1]


def parts(corpora: Corpora, task: Task | None = None) -> list[tuple[Corpus, float]]:
    """Corpora and their weights."""
    return [(spec.corpus, spec.weight) for spec in corpus_specs(corpora, task or Task())]


def read_examples(
    corpora: Corpora,
    task: Task,
    split: str,
    report: DataReport | None = None,
    documents: Documents = "file",
) -> list[Example]:
    """All rows of a setting such as `data.test`, in order.

    Without a `report`, a line that cannot be used is an error; with one, it is dropped and reported.
    """
    examples: list[Example] = []
    for spec in corpus_specs(corpora, task, documents):
        before = len(examples)
        examples += [Example(source, target) for _, source, target in read_rows(spec, task, split, report)]
        if len(examples) == before:
            raise no_rows(spec, task, split)
    return examples


def check_data(data: Data, task: Task) -> None:
    """Check that the corpora of a run exist and that the first row of each can be read."""
    for split in ("train", "valid", "test"):
        if getattr(data, split) is not None:
            for spec in corpus_specs(getattr(data, split), task, data.documents):
                for path in corpus_files(spec.corpus):
                    stamp(path)
                if next(read_rows(spec, task, split, DataReport()), None) is None:
                    raise no_rows(spec, task, split)


def no_rows(spec: CorpusSpec, task: Task, split: str, reason: str = "") -> UsageError:
    return UsageError(f"data.{split}: {describe(spec.corpus)} has no {ROW_NAMES[task.name]}{reason}")


def has_both_sides(name: str) -> bool:
    """True for a name that holds both sides of its pairs."""
    return name.lower().endswith(ONE_FILE) or is_phrasebook(name)


def is_phrasebook(corpus: Corpus) -> bool:
    return isinstance(corpus, str) and corpus.split(":")[0] == "phrasebook"


def corpus_files(corpus: Corpus) -> list[Path]:
    names = [corpus] if isinstance(corpus, str) else corpus
    return [find(name) for name in names if not is_phrasebook(name)]


def describe(corpus: Corpus) -> str:
    return corpus if isinstance(corpus, str) else " and ".join(corpus)


def report_name(corpus: Corpus) -> str:
    """The name of a corpus in a `DataReport`: its first file."""
    return next(map(str, corpus_files(corpus)), describe(corpus))


def read_rows(
    corpus: Corpus | CorpusSpec, task: Task, split: str, report: DataReport | None = None
) -> Iterator[RawRow]:
    """The usable rows of a corpus.

    Training drops pairs with an empty side or of very different lengths; held-out pairs are complete. An
    empty text is dropped in every split.
    """
    spec = corpus if isinstance(corpus, CorpusSpec) else CorpusSpec(corpus)
    report = StrictReport() if report is None else report
    if task.name == "translate":
        return _read_pairs(spec, task, split, report)
    if is_phrasebook(spec.corpus) or not isinstance(spec.corpus, str):
        raise UsageError(
            f'{describe(spec.corpus)}: pairs of sentences are for task.name = "translate", not "{task.name}"'
        )
    path = find(spec.corpus)
    suffix = spec.suffix(path)
    match task.name:
        case "classify":
            return read_labels(path, suffix, task.multi_label, report)
        case "tag":
            return read_tags(path, suffix, report)
        case "answer":
            return read_questions(path, suffix, report)
    return read_documents(path, suffix, spec.documents, report)


def _read_pairs(spec: CorpusSpec, task: Task, split: str, report: DataReport) -> Iterator[RawRow]:
    paths = corpus_files(spec.corpus)
    if not isinstance(spec.corpus, str):
        rows = read_aligned(paths[0], paths[1], report)
    elif is_phrasebook(spec.corpus):
        rows = read_phrasebook(spec.corpus, task, split)
    else:
        rows = read_pair_file(paths[0], spec.suffix(paths[0]), task, report, labels=spec.is_multitask)
    if split == "train" and paths:
        rows = training_pairs(rows, str(paths[0]), report, check_ratio=not spec.is_multitask)
    return _verbalise(rows, spec) if spec.is_multitask else rows


def _verbalise(rows: Iterator[RawRow], spec: CorpusSpec) -> Iterator[RawRow]:
    for number, source, target in rows:
        yield number, spec.prefix + source, spec.label_words.get(target, target)
