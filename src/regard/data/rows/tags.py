"""Sentences whose words have tags: CoNLL columns, or objects with "tokens" and "tags"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.files import checked_lines
from regard.data.findings import Findings
from regard.data.formats import kind
from regard.data.rows import Row, Unfit
from regard.data.rows.tables import TABLES, Object, clean, list_of, read_objects
from regard.errors import UsageError

SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".tsv", ".txt")
# Outside; beginning, inside and end (or last) of a span; a single (or unit) word: IOB, IOB2, IOBES, BILOU.
TAG = re.compile(r"O|[BIESLU]-\S+")

_BETWEEN = re.compile(r"[ \t]+")
_SPACE = re.compile(r"\s+")


def read_tags(path: Path, findings: Findings) -> Iterator[Row]:
    """Words and tags, as many of one as of the other.

    In a row a space stands between words, so that white space inside a word ("New York", in a file of tabs or
    an object) becomes a no-break space, U+00A0.
    """
    if kind(path) in TABLES:
        return read_objects(path, findings, tagged)
    if kind(path) in SUFFIXES:
        return read_conll(path, findings)
    raise UsageError(f"{path}: words with tags stand in one of {', '.join((*SUFFIXES, *TABLES))}")


def read_conll(path: Path, findings: Findings) -> Iterator[Row]:
    """A word a line: the word in the first column, its tag in the last, tabs or spaces between them.

    A blank line or "-DOCSTART-" ends a sentence; before its first word "# text" and "#name=value" are
    comments unless they end in a tag. A sentence with a line that cannot be used is left out.
    """
    sentence = _Sentence()
    for number, line in enumerate(checked_lines(path, findings), start=1):
        if line is None:  # it is counted already, and without it the others do not say what was said
            sentence.spoil(number)
        elif not line.strip() or line.startswith("-DOCSTART-"):
            yield from sentence.rows(str(path), findings)
            sentence = _Sentence()
        elif sentence.first or not is_comment(line):
            sentence.add(number, line)
    yield from sentence.rows(str(path), findings)


class _Sentence:
    """What has been read of one."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self.first = 0  # line
        self.columns = 0  # of the first line
        self.wrong: tuple[int, str] | None = None  # the first line that is no word and tag
        self.spoilt = False

    def add(self, number: int, line: str) -> None:
        self.first = self.first or number
        columns = split_columns(line)
        self.columns = self.columns or len(columns)
        if len(columns) < 2:
            self.wrong = self.wrong or (number, "one column; write word, tab, tag")
        elif len(columns) != self.columns:
            self.wrong = self.wrong or (number, f"{len(columns)} columns below {self.columns}")
        elif not columns[0] or TAG.fullmatch(columns[-1]) is None:
            self.wrong = self.wrong or (number, "no word and tag such as O, B-PER, I-PER")
        else:
            self.words.append(_SPACE.sub("\u00a0", columns[0]))
            self.tags.append(columns[-1])

    def spoil(self, number: int) -> None:
        self.first, self.spoilt = self.first or number, True

    def rows(self, file: str, findings: Findings) -> Iterator[Row]:
        if self.wrong is not None:
            findings.add("misaligned", file, self.wrong[0], note=self.wrong[1])
        elif self.words and not self.spoilt:
            yield self.first, " ".join(self.words), " ".join(self.tags)


def split_columns(line: str) -> list[str]:
    """At tabs where there are any, else at spaces; other white space belongs to a word."""
    if "\t" in line:
        return [column.strip() for column in line.strip(" ").split("\t")]
    return _BETWEEN.split(line.strip(" "))


def is_comment(line: str) -> bool:
    is_more = len(columns := split_columns(line)) > 1 or "=" in line  # than a word without a tag, "#hashtag"
    return line.startswith("#") and is_more and TAG.fullmatch(columns[-1]) is None


def tagged(found: Object) -> tuple[str, str]:
    words, tags = list_of(found, "tokens", "words"), list_of(found, "tags", "ner_tags")
    if len(words) != len(tags):
        raise Unfit("misaligned", f"{len(words)} words and {len(tags)} tags")
    if not words:
        raise Unfit("empty")
    return " ".join(_words(words)), " ".join(_tags(tags))


def _words(values: Sequence[object]) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise Unfit("misaligned", "a word that is empty, or no string")
        yield _SPACE.sub("\u00a0", clean(value).strip())


def _tags(values: Sequence[object]) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str) or TAG.fullmatch(value) is None:
            raise Unfit("misaligned", "needs tags such as O, B-PER, I-PER (not their numbers)")
        yield value
