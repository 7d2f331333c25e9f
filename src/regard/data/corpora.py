"""Corpora to pairs: two line-aligned files, TSV, JSONL, translators' formats, or the built-in phrasebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

from regard.config import Corpora, Corpus, Data, Task, Weighted
from regard.data.example import Example
from regard.data.files import checked_lines, find, stamp
from regard.data.findings import Findings, Refused
from regard.data.formats import FORMATS, read_pairs
from regard.data.phrasebook import phrases
from regard.errors import UsageError
from regard.text.tokenizer import replace_surrogates

PHRASEBOOK_SIZE = {"train": 50_000, "valid": 500, "test": 1000}
TABLES = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz", ".parquet", *FORMATS)

ROWS_AT_ONCE = 10_000

# A pair is absurd if one side is this many times longer, in UTF-8 bytes, after a mercy for short ones:
# "Yes." may well be a sentence of thirty letters elsewhere.
RATIO, MERCY = 8, 16

Row = tuple[int, str, str]  # line (or entry) number, source, target


def read_examples(
    corpora: Corpora, task: Task, split: str, findings: Findings | None = None
) -> list[Example]:
    """All pairs of a setting such as `data.test`, in order.

    Without `findings` a line that cannot be used is an error; with them it is left out and recorded.
    """
    examples: list[Example] = []
    for corpus, _ in parts(corpora):
        before = len(examples)
        examples += [
            Example(source, target) for _, source, target in read_rows(corpus, task, split, findings)
        ]
        if len(examples) == before:
            raise UsageError(f"data.{split}: {describe(corpus)} holds no pair of sentences")
    return examples


def check_data(data: Data, task: Task) -> None:
    """Whether the corpora of a run are there and begin as they should; only a first pair is read."""
    for split in ("train", "valid", "test"):
        if getattr(data, split) is not None:
            for corpus, _ in parts(getattr(data, split)):
                for path in files(corpus):
                    stamp(path)
                if next(read_rows(corpus, task, split, Findings()), None) is None:
                    raise UsageError(f"data.{split}: {describe(corpus)} holds no pair of sentences")


def parts(corpora: Corpora) -> list[tuple[Corpus, float]]:
    """Corpora and their weights; two paths that are no tables are a [source, target] pair."""
    if isinstance(corpora, str):
        return [(corpora, 1.0)]
    if len(corpora) == 2 and all(isinstance(part, str) and not is_whole(part) for part in corpora):
        return [((str(corpora[0]), str(corpora[1])), 1.0)]
    found: list[tuple[Corpus, float]] = []
    for part in corpora:
        corpus, weight = (part.corpus, part.weight) if isinstance(part, Weighted) else (part, 1.0)
        if isinstance(corpus, str):
            found.append((corpus, weight))
        elif len(corpus) == 2:
            found.append(((corpus[0], corpus[1]), weight))
        else:
            raise UsageError(f"a corpus of two files is a [source, target] pair, not {corpus}")
    if not found:
        raise UsageError("the list of corpora is empty")
    return found


def is_whole(name: str) -> bool:
    """Whether one name holds both sides."""
    return name.lower().endswith(TABLES) or is_phrasebook(name)


def is_phrasebook(corpus: Corpus) -> bool:
    return isinstance(corpus, str) and corpus.split(":")[0] == "phrasebook"


def files(corpus: Corpus) -> list[Path]:
    names = [corpus] if isinstance(corpus, str) else corpus
    return [find(name) for name in names if not is_phrasebook(name)]


def describe(corpus: Corpus) -> str:
    return corpus if isinstance(corpus, str) else " and ".join(corpus)


def read_rows(corpus: Corpus, task: Task, split: str, findings: Findings | None = None) -> Iterator[Row]:
    """The usable pairs of a corpus with their line numbers.

    Nothing is learned from a pair with an empty side or of absurd lengths, so training leaves it out;
    a test set stays whole.
    """
    found = Refused() if findings is None else findings
    rows = _rows(corpus, task, split, found)
    return _learnable(rows, str(files(corpus)[0]), found) if split == "train" and files(corpus) else rows


def _rows(corpus: Corpus, task: Task, split: str, findings: Findings) -> Iterator[Row]:
    if isinstance(corpus, tuple):
        return read_pair(find(corpus[0]), find(corpus[1]), findings)
    if is_phrasebook(corpus):
        return read_phrasebook(corpus, task, split)
    path, name = find(corpus), corpus.lower()
    if name.endswith((".tsv", ".tsv.gz")):
        return read_tsv(path, findings)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return read_jsonl(path, task, findings)
    if name.endswith(".parquet"):
        return read_parquet(path, task, findings)
    if name.endswith(FORMATS):
        return read_pairs(path, task)
    stamp(path)
    raise UsageError(
        f"{path}: one file must be one of {', '.join(TABLES)}; "
        'for two files write ["file.source", "file.target"]'
    )


def _learnable(rows: Iterator[Row], file: str, findings: Findings) -> Iterator[Row]:
    for number, source, target in rows:
        if not source.strip() or not target.strip():
            findings.add("empty", file, number)
        elif is_absurd(source, target):
            findings.add("ratio", file, number, note=f"{len(source)} and {len(target)} characters")
        else:
            yield number, source, target


def is_absurd(source: str, target: str) -> bool:
    one, two = len(source), len(target)
    if one + MERCY <= 2 * (two + MERCY) and two + MERCY <= 2 * (one + MERCY):
        return False  # a character has four bytes at most, so this is no pair to count the bytes of
    one, two = len(source.encode()) + MERCY, len(target.encode()) + MERCY
    return one > RATIO * two or two > RATIO * one


def read_pair(source: Path, target: Path, findings: Findings) -> Iterator[Row]:
    """Two line-aligned files; never a shifted pair, so unequal counts are an error."""
    end = object()
    sides = zip_longest(checked_lines(source, findings), checked_lines(target, findings), fillvalue=end)
    for number, (left, right) in enumerate(sides, start=1):
        if left is end or right is end:
            short, long = (source, target) if left is end else (target, source)
            total = number + sum(1 for _ in sides)
            raise UsageError(
                f"{short} has {number - 1} lines but {long} has {total}: "
                f"line {number} has no counterpart; the files must be aligned line by line"
            )
        if isinstance(left, str) and isinstance(right, str):
            yield number, left, right


def read_tsv(path: Path, findings: Findings) -> Iterator[Row]:
    return split_columns(checked_lines(path, findings), str(path), findings)


def split_columns(lines: Iterable[str | None], name: str, findings: Findings) -> Iterator[Row]:
    """Source, tab, target; further columns (a score, a licence) are not looked at."""
    for number, line in enumerate(lines, start=1):
        if line is None or not line.strip():
            continue
        columns = line.split("\t", 2)
        if len(columns) > 1:
            yield number, columns[0], columns[1]
        else:
            findings.add("malformed", name, number, note="no tab; write source, tab, target")


def read_jsonl(path: Path, task: Task, findings: Findings) -> Iterator[Row]:
    """Objects with "source" and "target", or the two language codes, or these inside "translation"."""
    for number, line in enumerate(checked_lines(path, findings), start=1):
        if line is None or not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            findings.add("malformed", str(path), number, note=f"not valid JSON ({error})")
            continue
        if (pair := _sides(row, task)) is not None:
            yield number, *pair
        else:
            wanted = f'"source" and "target" (or "{task.source}" and "{task.target}")'
            findings.add("malformed", str(path), number, note=f"needs the strings {wanted}")


def read_parquet(path: Path, task: Task, findings: Findings) -> Iterator[Row]:
    """The columns or objects of a .jsonl, as the hub's datasets have them; some thousand rows at a time."""
    stamp(path)
    try:
        library = import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(f'{path}: to read .parquet files, pip install "regard[hub]"') from None
    number = 0
    try:
        portions = library.ParquetFile(path).iter_batches(ROWS_AT_ONCE)
        rows = (row for portion in portions for row in portion.to_pylist())
        for number, row in enumerate(rows, start=1):
            if (pair := _sides(row, task)) is not None:
                yield number, *pair
            else:
                findings.add("malformed", str(path), number, note="a row without its two sides")
    except (OSError, ValueError) as error:  # the library's own errors are of these kinds
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path}, after row {number}: not a readable .parquet file ({reason})") from None


def _sides(row: object, task: Task) -> tuple[str, str] | None:
    row = row.get("translation", row) if isinstance(row, dict) else None
    if not isinstance(row, dict):
        return None
    for names in (("source", "target"), (task.source, task.target)):
        left, right = (row.get(name) for name in names)
        if isinstance(left, str) and isinstance(right, str):
            # JSON can spell half a character ("\\ud800"), which no UTF-8 file can hold
            return replace_surrogates(left), replace_surrogates(right)
    return None


def read_phrasebook(name: str, task: Task, split: str) -> Iterator[Row]:
    """`phrasebook` or `phrasebook:250000`; English and German, in either direction."""
    _, _, size = name.partition(":")
    if size and not size.isdecimal():
        raise UsageError(f'"{name}": write phrasebook:N with a number of pairs')
    if (task.source, task.target) not in (("en", "de"), ("de", "en")):
        raise UsageError(
            f"the phrasebook is English and German: set task.source and task.target to en and de, "
            f'not "{task.source}" and "{task.target}"'
        )
    for number, phrase in enumerate(phrases(split, int(size or PHRASEBOOK_SIZE[split])), start=1):
        if task.source == "en":
            yield number, phrase.english, phrase.german
        else:
            yield number, phrase.german, phrase.english
