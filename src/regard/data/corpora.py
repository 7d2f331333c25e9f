"""The corpora of a setting such as `data.train`, and their rows for the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from regard.config import Corpora, Corpus, Data, Task, Weighted
from regard.config.input import PixelText
from regard.config.schema import Config, TaskName
from regard.data.files import find, folder_stamp, format_suffix, stamp
from regard.data.readers import RawRow
from regard.data.readers.annotated import read_labels, read_questions, read_tags
from regard.data.readers.tables import TABLES, Columns, TableFormat
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
    "transcribe": "sound with a text",
    "caption": "picture with a text",
}
READERS = {"classify": read_labels, "tag": read_tags, "answer": read_questions}


@dataclass(frozen=True)
class CorpusSpec:
    """An entry of `data.train`: a corpus, how often it occurs in an epoch, and how it is read."""

    corpus: Corpus
    weight: float = 1.0
    prefix: str = ""
    label_words: Mapping[str, str] = field(default_factory=dict)  # targets to replace by words
    documents: Documents = "file"
    format: str | None = None  # None: by the suffix of the file
    columns: Columns = field(default_factory=dict)  # of a table; {}: by their usual names
    inputs_only: bool = False  # a table may lack the column of the targets
    files: str | None = None  # where the files of a table are; None: beside it
    pixels: PixelText | None = None  # its pictures are read as texts
    target: str = ""  # the language of its targets, in a mix of several

    @property
    def front(self) -> str:
        """What is before every source."""
        return (f">>{self.target}<< " if self.target else "") + self.prefix

    @property
    def is_multitask(self) -> bool:
        """True for one task of a text-to-text mix (it has a prefix or label words)."""
        return bool(self.prefix or self.label_words)

    def suffix(self, path: Path) -> str:
        return f".{self.format}" if self.format else format_suffix(path)


def corpus_specs(corpora: Corpora, task: Task, data: Data | None = None) -> list[CorpusSpec]:
    """The corpora in order; `data` has the settings that all of them share.

    For translation, two paths that are not tables are a [source, target] pair.
    """
    listed: list[str | list[str] | Weighted] = [corpora] if isinstance(corpora, str) else [*corpora]
    sides = [part for part in listed if isinstance(part, str) and not has_both_sides(part)]
    shared_format = data.format if data is not None else None
    if task.name == "translate" and len(listed) == len(sides) == 2 and shared_format in (None, "txt"):
        listed = [sides]
    specs = []
    for part in listed:
        entry = part if isinstance(part, Weighted) else Weighted(corpus=part)
        reads_pictures = task.input == "image" or (data is not None and data.pixels is not None)
        corpus: Corpus = (
            entry.corpus if isinstance(entry.corpus, str) else _pair(entry.corpus, task, reads_pictures)
        )
        if entry.format and not isinstance(corpus, str):
            raise _wrong(f"{describe(corpus)}: format is for a single file, not for a pair")
        specs.append(
            CorpusSpec(
                corpus,
                entry.weight,
                entry.prefix,
                entry.say,
                data.documents if data is not None else "file",
                entry.format or shared_format,
                entry.columns or (data.columns if data is not None else {}),
                files=entry.files or (data.files if data is not None else None),
                pixels=data.pixels if data is not None else None,
                target=entry.target,
            )
        )
    if not specs:
        raise _wrong("the list of corpora is empty")
    return specs


def _wrong(message: str) -> UsageError:
    return UsageError(message, code="E_DATA_CORPUS")


def _pair(names: list[str], task: Task, reads_pictures: bool) -> tuple[str, str]:
    if task.name != "translate" and not reads_pictures:  # a pair of IDX files
        raise _wrong(f'task.name = "{task.name}" reads single files, not the pair {names}')
    if len(names) != 2:
        raise _wrong(f"a corpus of two files is a [source, target] pair, not {names}")
    return names[0], names[1]


def parts(corpora: Corpora, task: Task | None = None) -> list[tuple[Corpus, float]]:
    """Corpora and their weights."""
    return [(spec.corpus, spec.weight) for spec in corpus_specs(corpora, task or Task())]


def epoch_weights(data: Data, task: Task, corpora: Sequence[Sequence[Mapping[str, int]]]) -> list[float]:
    """The weights of the training corpora, whose shards have so many pairs."""
    weights = [spec.weight for spec in corpus_specs(data.train, task)]
    if data.temperature == 1:
        return weights
    return tempered(weights, [sum(shard["pairs"] for shard in each) for each in corpora], data.temperature)


def language_tokens(config: Config) -> list[str]:
    """The tokens before the sources of a mix of target languages."""
    specs = corpus_specs(config.data.train, config.task, config.data)
    return [f">>{target}<<" for target in dict.fromkeys(each.target for each in specs if each.target)]


def tempered(weights: Sequence[float], counts: Sequence[int], temperature: float) -> list[float]:
    """The weights of corpora of so many pairs that are sampled by n^(1/T), in epochs of the same length.

    See Arivazhagan et al. 2019.
    """
    sizes = [weight * count for weight, count in zip(weights, counts, strict=True)]
    shares = [size ** (1 / temperature) for size in sizes]
    return [share * sum(sizes) / sum(shares) / count for share, count in zip(shares, counts, strict=True)]


def read_examples(
    corpora: Corpora,
    task: Task,
    split: str = "test",
    report: DataReport | None = None,
    data: Data | None = None,
) -> list[Example]:
    """All rows of a setting such as `data.test`, in order.

    Without a `report`, a line that cannot be used is an error; with one, it is dropped and reported.
    """
    examples: list[Example] = []
    for spec in corpus_specs(corpora, task, data):
        before = len(examples)
        examples += [
            Example(source, target, line) for line, source, target in read_rows(spec, task, split, report)
        ]
        if len(examples) == before:
            raise no_rows(spec, task, split)
    return examples


def iter_examples(
    path: str | Path,
    task: Task | TaskName,
    format: str | None = None,
    columns: Columns | None = None,
    *,
    inputs_only: bool = False,
    report: DataReport | None = None,
) -> Iterator[Example]:
    """The examples of one file, with their line numbers.

    `format` is the name of a format, if the name of the file does not tell it; `columns` names the columns of
    a table, as in {"text": "Review", "label": "Stars"}. With `inputs_only`, a table may lack the column of
    the targets, which are "" then. A line that cannot be used is an error, unless there is a `report`.
    """
    task = task if isinstance(task, Task) else Task(name=task)
    spec = CorpusSpec(str(path), format=format, columns=columns or {}, inputs_only=inputs_only)
    return (Example(source, target, line) for line, source, target in read_rows(spec, task, "test", report))


def has_rows(path: Path, task: Task, format: str | None = None) -> bool:
    """True for a file that is read as rows (a table, CoNLL columns, SQuAD's JSON), not as lines of text."""
    suffix = f".{format}" if format else format_suffix(path)
    annotated = {"tag": (".conll", ".bio", ".iob", ".iob2"), "answer": (".json",)}
    return suffix in (".tsv", *TABLES, *annotated.get(task.name, ()))


def check_data(data: Data, task: Task) -> None:
    """Check that the corpora of a run exist and that the first row of each can be read."""
    for split in ("train", "valid", "test"):
        if getattr(data, split) is not None:
            for spec in corpus_specs(getattr(data, split), task, data):
                for path in stamped_files(spec, task):
                    folder_stamp(path) if task.input != "text" or spec.pixels else stamp(path)
                if next(read_rows(spec, task, split, DataReport()), None) is None:
                    raise no_rows(spec, task, split)


def no_rows(spec: CorpusSpec, task: Task, split: str, reason: str = "") -> UsageError:
    message = f"data.{split}: {describe(spec.corpus)} has no {ROW_NAMES[task.name]}{reason}"
    return UsageError(message, code="E_DATA_EMPTY")


def has_both_sides(name: str) -> bool:
    """True for a name that holds both sides of its pairs."""
    return name.lower().endswith(ONE_FILE) or is_phrasebook(name)


def is_phrasebook(corpus: Corpus) -> bool:
    return isinstance(corpus, str) and corpus.split(":")[0] == "phrasebook"


def corpus_files(corpus: Corpus) -> list[Path]:
    names = [corpus] if isinstance(corpus, str) else corpus
    return [find(name) for name in names if not is_phrasebook(name)]


def stamped_files(spec: CorpusSpec, task: Task) -> list[Path]:
    """What the rows of a corpus are read from: its files, and for a table of files also where these are."""
    paths = corpus_files(spec.corpus)
    is_text = task.input == "text" and spec.pixels is None
    if is_text or not isinstance(spec.corpus, str) or paths[0].is_dir():
        return paths
    from regard.data.readers.media import files_beside

    return [*paths, find(spec.files) if spec.files else files_beside(paths[0])]


def describe(corpus: Corpus) -> str:
    return corpus if isinstance(corpus, str) else " and ".join(corpus)


def report_name(corpus: Corpus) -> str:
    """The name of a corpus in a `DataReport`: its first file."""
    return next(map(str, corpus_files(corpus)), describe(corpus))


def short_name(corpus: Corpus) -> str:
    """By file name: the model card is published, the folders of this machine are not."""
    return " and ".join(Path(name).name for name in ([corpus] if isinstance(corpus, str) else corpus))


def short_names(corpora: Corpora, task: Task) -> str:
    return ", ".join(short_name(corpus) for corpus, _ in parts(corpora, task))


def read_rows(
    corpus: Corpus | CorpusSpec, task: Task, split: str, report: DataReport | None = None
) -> Iterator[RawRow]:
    """The usable rows of a corpus.

    Training drops pairs with an empty side or of very different lengths; held-out pairs are complete. An
    empty text is dropped in every split.
    """
    spec = corpus if isinstance(corpus, CorpusSpec) else CorpusSpec(corpus)
    report = StrictReport() if report is None else report
    if spec.pixels is not None:
        return _read_pixels(spec, spec.pixels, split, report)
    table = TableFormat.of(task, spec.columns, spec.is_multitask, spec.inputs_only)
    if task.name == "translate":
        return _read_pairs(spec, task, split, report, table)
    if task.input != "text":
        return _read_media(spec, task, report, table)
    if is_phrasebook(spec.corpus) or not isinstance(spec.corpus, str):
        raise _wrong(
            f'{describe(spec.corpus)}: pairs of sentences are for task.name = "translate", not "{task.name}"'
        )
    path = find(spec.corpus)
    suffix = spec.suffix(path)
    if reader := READERS.get(task.name):
        return reader(path, suffix, report, table)
    return read_documents(path, suffix, report, spec.documents, table)


def _read_media(spec: CorpusSpec, task: Task, report: DataReport, table: TableFormat) -> Iterator[RawRow]:
    from regard.data.readers.media import read_idx, read_media

    paths = corpus_files(spec.corpus)
    if len(paths) == 2:
        return read_idx(*paths)
    files = find(spec.files) if spec.files else None
    return read_media(paths[0], spec.suffix(paths[0]), report, table, task, files)


def _read_pixels(spec: CorpusSpec, pixels: PixelText, split: str, report: DataReport) -> Iterator[RawRow]:
    """Pictures with labels as texts; a text is a whole document."""
    from regard.data.readers.media import media_content  # here: other corpora need no pillow
    from regard.inputs.pixels import picture_document

    pictures = Task(name="classify", input="image")
    for number, place, label in read_rows(replace(spec, pixels=None), pictures, split, report):
        try:
            yield number, picture_document(media_content(place), label, pixels), ""
        except UsageError as error:
            report.add("unreadable", place, number, note=str(error))


def _read_pairs(
    spec: CorpusSpec, task: Task, split: str, report: DataReport, table: TableFormat
) -> Iterator[RawRow]:
    paths = corpus_files(spec.corpus)
    if not isinstance(spec.corpus, str):
        rows = read_aligned(paths[0], paths[1], report)
    elif is_phrasebook(spec.corpus):
        rows = read_phrasebook(spec.corpus, task, split)
    else:
        rows = read_pair_file(paths[0], spec.suffix(paths[0]), report, task, table)
    if split == "train" and paths:
        rows = training_pairs(rows, str(paths[0]), report, check_ratio=not spec.is_multitask)
    if not spec.is_multitask and not spec.target:
        return rows
    front, words = spec.front, spec.label_words
    return ((line, front + source, words.get(target, target)) for line, source, target in rows)
