"""What a setting such as `data.train` names, and its corpora as rows of the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regard.config import Corpora, Corpus, Data, Task, Weighted
from regard.data.files import find, stamp
from regard.data.findings import Findings, Refused
from regard.data.rows import Row as Row
from regard.data.rows.labels import read_labels
from regard.data.rows.pairs import WHOLE, learnable, read_one, read_phrasebook, read_two
from regard.data.rows.questions import read_questions
from regard.data.rows.tags import read_tags
from regard.data.rows.text import Documents, read_text
from regard.errors import UsageError
from regard.sample import Example

# What a row of a task is, to a person.
UNITS = {
    "translate": "pair of sentences",
    "generate": "text",
    "fill": "text",
    "classify": "text with a label",
    "tag": "sentence with tags",
    "answer": "question",
}


@dataclass(frozen=True)
class Listed:
    """A corpus as a config lists it: what it is, how often it comes, and how it is read."""

    corpus: Corpus
    weight: float = 1.0
    prefix: str = ""
    say: Mapping[str, str] = field(default_factory=dict)
    documents: Documents = "file"

    @property
    def told(self) -> bool:
        """Whether it is one task of several, told by words: its targets are then no translations."""
        return bool(self.prefix or self.say)


def listed(corpora: Corpora, task: Task, documents: Documents = "file") -> list[Listed]:
    """Corpora in order; to a translator two paths that are no tables are a [source, target] pair."""
    pairs = task.name == "translate"
    if isinstance(corpora, str):
        return [Listed(corpora, documents=documents)]
    if pairs and len(corpora) == 2 and all(isinstance(part, str) and not is_whole(part) for part in corpora):
        return [Listed((str(corpora[0]), str(corpora[1])), documents=documents)]
    found: list[Listed] = []
    for part in corpora:
        given = part if isinstance(part, Weighted) else Weighted(corpus=part)
        corpus: Corpus = given.corpus if isinstance(given.corpus, str) else _pair(given.corpus, task)
        found.append(Listed(corpus, given.weight, given.prefix, given.say, documents))
    if not found:
        raise UsageError("the list of corpora is empty")
    return found


def _pair(names: list[str], task: Task) -> tuple[str, str]:
    if task.name != "translate":
        raise UsageError(f'task.name = "{task.name}" reads one file at a time, not the pair {names}')
    if len(names) != 2:
        raise UsageError(f"a corpus of two files is a [source, target] pair, not {names}")
    return names[0], names[1]


def parts(corpora: Corpora, task: Task | None = None) -> list[tuple[Corpus, float]]:
    """Corpora and their weights."""
    return [(each.corpus, each.weight) for each in listed(corpora, task or Task())]


def read_examples(
    corpora: Corpora,
    task: Task,
    split: str,
    findings: Findings | None = None,
    documents: Documents = "file",
) -> list[Example]:
    """All rows of a setting such as `data.test`, in order.

    Without `findings` a line that cannot be used is an error; with them it is left out and recorded.
    """
    examples: list[Example] = []
    for each in listed(corpora, task, documents):
        before = len(examples)
        examples += [Example(source, target) for _, source, target in read_rows(each, task, split, findings)]
        if len(examples) == before:
            raise UsageError(f"data.{split}: {describe(each.corpus)} holds no {UNITS[task.name]}")
    return examples


def check_data(data: Data, task: Task) -> None:
    """Whether the corpora of a run are there and begin as they should; only a first row is read."""
    for split in ("train", "valid", "test"):
        if getattr(data, split) is not None:
            for each in listed(getattr(data, split), task, data.documents):
                for path in files(each.corpus):
                    stamp(path)
                if next(read_rows(each, task, split, Findings()), None) is None:
                    raise UsageError(f"data.{split}: {describe(each.corpus)} holds no {UNITS[task.name]}")


def is_whole(name: str) -> bool:
    """Whether one name holds both sides."""
    return name.lower().endswith(WHOLE) or is_phrasebook(name)


def is_phrasebook(corpus: Corpus) -> bool:
    return isinstance(corpus, str) and corpus.split(":")[0] == "phrasebook"


def files(corpus: Corpus) -> list[Path]:
    names = [corpus] if isinstance(corpus, str) else corpus
    return [find(name) for name in names if not is_phrasebook(name)]


def describe(corpus: Corpus) -> str:
    return corpus if isinstance(corpus, str) else " and ".join(corpus)


def read_rows(
    corpus: Corpus | Listed, task: Task, split: str, findings: Findings | None = None
) -> Iterator[Row]:
    """The usable rows of a corpus.

    Nothing is learned from a pair with an empty side or of absurd lengths, so training leaves it out; a test
    set of pairs stays whole. Of a text that is empty nothing can be asked, so it is left out everywhere.
    """
    each = corpus if isinstance(corpus, Listed) else Listed(corpus)
    found = Refused() if findings is None else findings
    if task.name == "translate":
        return _read_pairs(each, task, split, found)
    if is_phrasebook(each.corpus) or not isinstance(each.corpus, str):
        raise UsageError(
            f'{describe(each.corpus)}: pairs of sentences are for task.name = "translate", not "{task.name}"'
        )
    path = find(each.corpus)
    match task.name:
        case "classify":
            return read_labels(path, task.multi_label, found)
        case "tag":
            return read_tags(path, found)
        case "answer":
            return read_questions(path, found)
    return read_text(path, each.documents, found)


def _read_pairs(each: Listed, task: Task, split: str, findings: Findings) -> Iterator[Row]:
    paths = files(each.corpus)
    if not isinstance(each.corpus, str):
        rows = read_two(paths[0], paths[1], findings)
    elif is_phrasebook(each.corpus):
        rows = read_phrasebook(each.corpus, task, split)
    else:
        rows = read_one(paths[0], task, findings, labels=each.told)
    if split == "train" and paths:
        rows = learnable(rows, str(paths[0]), findings, alike=not each.told)
    return _told(rows, each) if each.told else rows


def _told(rows: Iterator[Row], each: Listed) -> Iterator[Row]:
    for number, source, target in rows:
        yield number, each.prefix + source, each.say.get(target, target)
