"""Texts with labels, words with tags, questions with answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any

from regard.data.files import checked_lines, read_text
from regard.data.readers import LABEL_SEPARATOR, InvalidRow, RawRow, label_name, list_field, string_field
from regard.data.readers.tables import TABLES, Record, TableFormat, read_table, records
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.text.tokenizer import replace_surrogates

TAG_SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".tsv", ".txt")
# Outside; begin, inside and end (or last) of a span; a single (or unit) word: IOB, IOB2, IOBES, BILOU.
TAG = re.compile(r"O|[BIESLU]-\S+")

_SPACES = re.compile(r"[ \t]+")
_WHITE_SPACE = re.compile(r"\s+")


# --- texts with labels


def read_labels(path: Path, suffix: str, report: DataReport, table: TableFormat) -> Iterator[RawRow]:
    """A multi-label text has any number of labels: a list in an object, comma-separated in a cell."""
    if suffix in (".tsv", *TABLES):
        return read_table(path, suffix, report, table, partial(labelled_record, many=table.multi_label))
    raise UsageError(
        f"{path}: labelled texts need a .tsv (text, tab, label), a .csv, .xlsx, .jsonl or .parquet",
        code="E_DATA_TYPE",
    )


def labelled_record(record: Record, many: bool) -> tuple[str, str]:
    text, label = string_field(record, "text"), record.get("label")
    if label is None:  # a text to classify
        return text, ""
    names = [label_name(value) for value in (label if isinstance(label, list) else [label])]
    labels = list(dict.fromkeys(name for name in names if name))  # without repetitions
    if not all(names) or LABEL_SEPARATOR in "".join(labels):
        raise InvalidRow("malformed", "a label that is empty, or neither a string nor a number")
    if not many and len(labels) != 1:
        note = f"{len(labels)} labels; for any number of them set task.multi_label = true"
        raise InvalidRow("malformed", note)
    if not text.strip():
        raise InvalidRow("empty")
    return text, LABEL_SEPARATOR.join(labels)


# --- words with tags: CoNLL columns, or tables with "tokens" and "tags"


def read_tags(path: Path, suffix: str, report: DataReport, table: TableFormat) -> Iterator[RawRow]:
    """Words and tags, joined by spaces.

    White space inside a word ("New York", in a file with tabs or an object) becomes a no-break space, U+00A0.
    """
    if suffix in TABLES:
        return read_table(path, suffix, report, table, tagged_record)
    if suffix in TAG_SUFFIXES:
        return read_conll(path, report)
    raise UsageError(
        f"{path}: tagged words need one of {', '.join((*TAG_SUFFIXES, *TABLES))}; "
        'for a file of another name write {corpus = "...", format = "conll"}',
        code="E_DATA_TYPE",
    )


def read_conll(path: Path, report: DataReport) -> Iterator[RawRow]:
    """A word a line: the word in the first column, its tag in the last, tabs or spaces between columns.

    A blank line or "-DOCSTART-" ends a sentence. Before its first word, "# text" and "#name=value" are
    comments unless they end in a tag. A sentence with an unusable line is dropped.
    """
    lines = enumerate(checked_lines(path, report), start=1)
    for is_break, group in groupby(lines, lambda line: line[1] is not None and ends_sentence(line[1])):
        if not is_break:
            yield from sentence_row(list(group), str(path), report)


def ends_sentence(line: str) -> bool:
    return not line.strip() or line.startswith("-DOCSTART-")


def sentence_row(lines: list[tuple[int, str | None]], file: str, report: DataReport) -> Iterator[RawRow]:
    """The row of one sentence; a line that is None is already in the report."""
    lines = list(dropwhile(lambda line: line[1] is not None and is_comment(line[1]), lines))
    rows = [(number, split_tag_columns(line)) for number, line in lines if line is not None]
    for number, columns in rows:
        width, note = len(rows[0][1]), ""
        if len(columns) < 2:
            note = "one column; write word, tab, tag"
        elif len(columns) != width:
            note = f"{len(columns)} columns below {width}"
        elif not columns[0] or TAG.fullmatch(columns[-1]) is None:
            note = "no word and tag such as O, B-PER, I-PER"
        if note:
            report.add("misaligned", file, number, note=note)
            return
    if rows and len(rows) == len(lines):
        words = (_WHITE_SPACE.sub("\u00a0", columns[0]) for _, columns in rows)
        yield lines[0][0], " ".join(words), " ".join(columns[-1] for _, columns in rows)


def split_tag_columns(line: str) -> list[str]:
    """Split at tabs if there are any, else at spaces; other white space is part of a word."""
    if "\t" in line:
        return [column.strip() for column in line.strip(" ").split("\t")]
    return _SPACES.split(line.strip(" "))


def is_comment(line: str) -> bool:
    columns = split_tag_columns(line)
    is_hashtag = len(columns) == 1 and "=" not in line  # a word without a tag
    return line.startswith("#") and not is_hashtag and TAG.fullmatch(columns[-1]) is None


def tagged_record(record: Record) -> tuple[str, str]:
    words = list_field(record, "tokens")
    tags = list_field(record, "tags") if "tags" in record else ["O"] * len(words)  # words to tag
    if len(words) != len(tags):
        raise InvalidRow("misaligned", f"{len(words)} words and {len(tags)} tags")
    if not words:
        raise InvalidRow("empty")
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise InvalidRow("misaligned", "a word that is empty, or not a string")
    if not all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags):
        raise InvalidRow("misaligned", "needs tags such as O, B-PER, I-PER (not their numbers)")
    words = [_WHITE_SPACE.sub("\u00a0", replace_surrogates(word).strip()) for word in words]
    return " ".join(words), " ".join(tags)


# --- questions: SQuAD's .json (1.1 and 2.0), or tables with "question", "context", "answers"


def read_questions(path: Path, suffix: str, report: DataReport, table: TableFormat) -> Iterator[RawRow]:
    """Drop a question whose answer is not at its offset: another occurrence may not be the answer."""
    for number, record in question_records(path, suffix, report, table):
        try:
            if "answers" not in record and not table.inputs_only:
                raise InvalidRow("malformed", 'needs "answers" with "text" and "answer_start"')
            sides = question_record(record)
        except InvalidRow as error:
            is_named = suffix == ".json" and isinstance(record.get("id"), str)
            name = f"question {record['id']}: " if is_named else ""
            report.add(error.kind, str(path), number, note=f"{name}{error.note}")
        else:
            yield number, *sides


def question_records(
    path: Path, suffix: str, report: DataReport, table: TableFormat
) -> Iterator[tuple[int, Record]]:
    """The fields of each question and its number in the file."""
    if suffix == ".json":
        return squad_records(path, report)
    if suffix in (".tsv", *TABLES):
        return records(path, suffix, report, table)
    raise UsageError(
        f"{path}: questions need SQuAD's .json, a .jsonl, .csv, .tsv, .xlsx or .parquet", code="E_DATA_TYPE"
    )


def squad_records(path: Path, report: DataReport) -> Iterator[tuple[int, Record]]:
    """Articles, their paragraphs, their questions; each with its context."""
    try:
        content = json.loads(read_text(path, report))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON ({error})", code="E_DATA_FORMAT") from None
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        message = f'{path}: not SQuAD\'s layout: it needs an object with the list "data"'
        raise UsageError(message, code="E_DATA_FORMAT")
    yield from enumerate(_questions(content["data"]), start=1)


def _questions(articles: list[Any]) -> Iterator[Record]:
    """Where the layout is wrong, an object without fields, which is then reported as malformed."""
    for article in articles:
        for paragraph in _items(article, "paragraphs"):
            for question in _items(paragraph, "qas"):
                fields = question if isinstance(question, dict) else {}
                yield {**fields, "context": paragraph.get("context") if isinstance(paragraph, dict) else None}


def _items(value: object, name: str) -> list[Any]:
    items = value.get(name) if isinstance(value, dict) else None
    return items if isinstance(items, list) else [{}]


def question_record(record: Record) -> tuple[str, str]:
    """The question and its context; the answers as JSON, "" if the record has no field for them."""
    question, context = string_field(record, "question").replace("\n", " "), string_field(record, "context")
    answers = _answers(record, context) if "answers" in record else None
    if not question.strip() or not context.strip():
        raise InvalidRow("empty")
    for text, start in answers or ():
        if not text.strip() or start < 0 or not context.startswith(text, start):
            raise InvalidRow("answer-not-there", f"at character {start}")
    return f"{question}\n{context}", "" if answers is None else json.dumps(answers, ensure_ascii=False)


def _answers(record: Record, context: str) -> list[tuple[str, int]]:
    """[{"text": ..., "answer_start": ...}, ...] as in SQuAD, or one object of two lists as on the hub.

    A string, as in a .csv, is an answer that occurs once in the context; "" if there is no answer.
    """
    answers = record["answers"]
    if isinstance(answers, str):
        if context.count(answers) > 1 and answers.strip():
            raise InvalidRow("answer-not-there", "occurs several times, so that its place is unknown")
        return [(answers, context.find(answers))] if answers.strip() else []
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
    elif isinstance(answers, list) and all(isinstance(each, dict) for each in answers):
        texts, starts = [each.get("text") for each in answers], [each.get("answer_start") for each in answers]
    else:
        texts = starts = None
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise InvalidRow("malformed", 'needs "answers" with "text" and "answer_start"')
    if not all(isinstance(text, str) for text in texts) or not all(type(start) is int for start in starts):
        raise InvalidRow("malformed", 'needs strings as "text" and whole numbers as "answer_start"')
    if texts and record.get("is_impossible") is True:
        raise InvalidRow("malformed", "is_impossible is true, but there is an answer")
    return [(replace_surrogates(text), start) for text, start in zip(texts, starts)]
