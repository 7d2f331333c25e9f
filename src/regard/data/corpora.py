"""Corpora to examples: two line-aligned files, TSV, JSONL, plain or .gz, or the built-in phrasebook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from regard.config import Corpora, Corpus, Data, Task
from regard.data.example import Example
from regard.data.files import find, lines
from regard.data.phrasebook import phrases
from regard.errors import UsageError
from regard.text.tokenizer import replace_surrogates

PHRASEBOOK_SIZE = {"train": 50_000, "valid": 500, "test": 1000}
TABLES = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz")


def read_examples(corpora: Corpora, task: Task, split: str) -> list[Example]:
    """All pairs of a setting such as `data.train`, in order.

    Nothing is learned from a pair with an empty side, so training leaves it out; a test set stays whole.
    """
    examples: list[Example] = []
    for corpus in parts(corpora):
        before = len(examples)
        found = read_corpus(corpus, task, split)
        whole = (
            [pair for pair in found if pair.source.strip() and pair.target.strip()]
            if split == "train"
            else found
        )
        examples += whole
        if len(examples) == before:
            raise UsageError(f"data.{split}: {describe(corpus)} holds no pair of sentences")
    return examples


def check_data(data: Data, task: Task) -> None:
    """Whether the corpora of a run are there and begin as they should; only a first pair is read."""
    for split in ("train", "valid", "test"):
        if getattr(data, split) is not None:
            check_corpora(getattr(data, split), task, split)


def check_corpora(corpora: Corpora, task: Task, split: str) -> None:
    for corpus in parts(corpora):
        names = [corpus] if isinstance(corpus, str) else corpus
        files = [find(name) for name in names if name.split(":")[0] != "phrasebook"]
        if not any(path.is_fifo() for path in files):  # what is read from a pipe is gone
            next(read_corpus(corpus, task, split), None)


def parts(corpora: Corpora) -> list[Corpus]:
    """One corpus or a list of them; two paths that are no tables are a [source, target] pair."""
    if isinstance(corpora, str):
        return [corpora]
    if len(corpora) == 2 and all(isinstance(part, str) and not is_whole(part) for part in corpora):
        return [(str(corpora[0]), str(corpora[1]))]
    found: list[Corpus] = []
    for part in corpora:
        if isinstance(part, str):
            found.append(part)
        elif len(part) == 2:
            found.append((part[0], part[1]))
        else:
            raise UsageError(f"a corpus of two files is a [source, target] pair, not {part}")
    if not found:
        raise UsageError("the list of corpora is empty")
    return found


def is_whole(name: str) -> bool:
    """Whether one name holds both sides."""
    return name.endswith(TABLES) or name.split(":")[0] == "phrasebook"


def describe(corpus: Corpus) -> str:
    return corpus if isinstance(corpus, str) else " and ".join(corpus)


def read_corpus(corpus: Corpus, task: Task, split: str) -> Iterator[Example]:
    if isinstance(corpus, tuple):
        return read_pair(find(corpus[0]), find(corpus[1]))
    if corpus.split(":")[0] == "phrasebook":
        return read_phrasebook(corpus, task, split)
    path = find(corpus)
    if corpus.endswith((".tsv", ".tsv.gz")):
        return read_tsv(path)
    if corpus.endswith((".jsonl", ".jsonl.gz")):
        return read_jsonl(path, task)
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    raise UsageError(
        f"{path}: one file must be .tsv or .jsonl (or .gz of these); "
        'for two files write ["file.source", "file.target"]'
    )


def read_pair(source: Path, target: Path) -> Iterator[Example]:
    """Two line-aligned files; never a shifted pair, so unequal counts are an error."""
    count = 0
    sides = zip_longest(lines(source), lines(target))
    for count, (left, right) in enumerate(sides, start=1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            total = count + sum(1 for _ in sides)
            raise UsageError(
                f"{short} has {count - 1} lines but {long} has {total}: "
                f"line {count} has no counterpart; the files must be aligned line by line"
            )
        yield Example(left, right)


def read_tsv(path: Path) -> Iterator[Example]:
    for number, line in enumerate(lines(path), start=1):
        if line.strip():
            yield split_columns(line, f"{path}, line {number}")


def split_columns(line: str, where: str) -> Example:
    """Source, tab, target; further columns (a score, a licence) are not looked at."""
    columns = line.split("\t")
    if len(columns) < 2:
        raise UsageError(f"{where}: no tab; write source, tab, target")
    return Example(columns[0], columns[1])


def read_jsonl(path: Path, task: Task) -> Iterator[Example]:
    """Objects with "source" and "target", or the two language codes, or these inside "translation"."""
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: not valid JSON ({error})") from None
        row = row.get("translation", row) if isinstance(row, dict) else {}
        row = row if isinstance(row, dict) else {}
        for left, right in (("source", "target"), (task.source, task.target)):
            if isinstance(row.get(left), str) and isinstance(row.get(right), str):
                # JSON can spell half a character ("\\ud800"), which no UTF-8 file can hold
                yield Example(replace_surrogates(row[left]), replace_surrogates(row[right]))
                break
        else:
            raise UsageError(
                f'{path}, line {number}: needs the strings "source" and "target" '
                f'(or "{task.source}" and "{task.target}")'
            )


def read_phrasebook(name: str, task: Task, split: str) -> Iterator[Example]:
    """`phrasebook` or `phrasebook:250000`; English and German, in either direction."""
    _, _, size = name.partition(":")
    if size and not size.isdecimal():
        raise UsageError(f'"{name}": write phrasebook:N with a number of pairs')
    if (task.source, task.target) not in (("en", "de"), ("de", "en")):
        raise UsageError(
            f"the phrasebook is English and German: set task.source and task.target to en and de, "
            f'not "{task.source}" and "{task.target}"'
        )

    for phrase in phrases(split, int(size or PHRASEBOOK_SIZE[split])):
        if task.source == "en":
            yield Example(phrase.english, phrase.german)
        else:
            yield Example(phrase.german, phrase.english)
