"""Tables with column names (.csv, .tsv, .xlsx, .jsonl), and files that are refused by their type."""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from regard.config import Task, load_config
from regard.data import has_rows, iter_examples, text_lines
from regard.data.corpora import CorpusSpec, corpus_specs, read_rows
from regard.data.files import file_types
from regard.data.readers.tables import dialect
from regard.data.report import DataReport
from regard.errors import UsageError

CLASSIFY, MANY = Task(name="classify"), Task(name="classify", multi_label=True)
TRANSLATE, GENERATE = Task(source="en", target="de"), Task(name="generate")
TAGGING, ANSWER = Task(name="tag"), Task(name="answer")
SEVERAL = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Rows = list[tuple[int, str, str]]


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def put_excel(path: Path, rows: list[list[Any]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `documents` is not installed")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def read(path: Path, task: Task, **more: Any) -> tuple[Rows, dict[str, list[int]]]:
    report = DataReport()
    rows = list(read_rows(CorpusSpec(str(path), **more), task, "test", report))
    return rows, {kind: [place.line for place in places] for kind, places in report.places.items()}


def refusal(path: Path, task: Task, **more: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(path, task, **more)
    assert str(path) in str(caught.value)
    return caught.value


# names of columns


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("text,label\na film,good\n", {}),
        ("Label,id,Sentence\ngood,7,a film\n", {}),
        ("review,label\na film,good\n", {}),  # the only other column
        ("\ufefftext;label\na film;good\n", {}),  # Excel in Europe
        ("Review,Stars,Date\na film,good,May\n", {"text": "Review", "label": "stars"}),
        ("a film,May,good\n", {"text": 1, "label": 3}),
    ],
)
def test_columns_of_a_csv(tmp_path: Path, content: str, columns: dict[str, str | int]) -> None:
    rows, issues = read(put(tmp_path / "reviews.csv", content), CLASSIFY, columns=columns)
    first = 1 if columns.get("text") == 1 else 2
    assert rows == [(first, "a film", "good")]
    assert "malformed" not in issues
    assert issues.get("header", []) == [1] * (first - 1)


def test_a_header_that_nobody_knows_is_never_a_row(tmp_path: Path) -> None:
    error = refusal(put(tmp_path / "reviews.csv", "Review,Stars\na film,good\n"), CLASSIFY)
    assert error.code == "E_DATA_COLUMNS"
    assert "line 1" in str(error)
    assert '"Review", "Stars"' in str(error)
    for name, mark in (("pictures.csv", ","), ("pictures.tsv", "\t")):  # names of files are no texts
        table = put(tmp_path / name, f"file{mark}label\na.png{mark}cat\n")
        assert refusal(table, CLASSIFY).code == "E_DATA_COLUMNS"
    path = put(tmp_path / "reviews.tsv", "Review\tStars\na film\tgood\n")
    assert refusal(path, CLASSIFY, columns={"text": "Reviews", "label": "Stars"}).code == "E_DATA_COLUMNS"
    assert read(path, CLASSIFY, columns={"text": "Review", "label": "Stars"})[0] == [(2, "a film", "good")]
    with pytest.raises(UsageError) as caught:
        read(path, CLASSIFY, columns={"txt": "Review"})
    assert caught.value.code == "E_DATA_COLUMNS"


@pytest.mark.parametrize("header", ["en\tde", "source\ttarget", "DE\tid\tEN", "target\tsource\tscore"])
def test_the_header_of_pairs(tmp_path: Path, header: str) -> None:
    """It was read as a pair."""
    names = header.casefold().split("\t")
    values = {"en": "a cat", "source": "a cat", "de": "eine Katze", "target": "eine Katze"}
    content = f"{header}\n" + "\t".join(values.get(name, "1") for name in names) + "\n"
    rows, issues = read(put(tmp_path / "pairs.tsv", content), TRANSLATE)
    assert rows == [(2, "a cat", "eine Katze")]
    assert issues == {"header": [1]}


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({"english": "a cat", "german": "eine Katze"}, {"source": "english", "target": "german"}),
        ({"pair": {"a": "a cat", "b": "eine Katze"}}, {"source": "pair.a", "target": "pair.b"}),
        ({"translation": {"en": "a cat", "de": "eine Katze"}}, {}),
        ({"source": "web", "en": "a cat", "de": "eine Katze"}, {}),
    ],
)
def test_jsonl_has_any_field_names(tmp_path: Path, fields: object, columns: dict[str, str]) -> None:
    path = put(tmp_path / "pairs.jsonl", json.dumps(fields) + '\n{"source": "x"}\n')
    rows, issues = read(path, TRANSLATE, columns=columns)
    assert rows == [(1, "a cat", "eine Katze")]
    assert issues == {"malformed": [2]}


def test_every_task_reads_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    put(path, 'text,date\n"one\ntwo",1\n" ",2\n')
    assert read(path, GENERATE) == ([(2, "one\ntwo", "")], {"header": [1], "empty": [4]})
    put(path, "tokens,tags\nAda wrote,B-PER O\nAda,B-PER O\n")
    assert read(path, TAGGING) == ([(2, "Ada wrote", "B-PER O")], {"header": [1], "misaligned": [3]})
    put(path, "question,context,answer\nWho?,Ada wrote.,Ada\nWho?,Ada.,\nWho?,Ada and Ada,Ada\nWho?,Bo,Ada\n")
    rows, issues = read(path, ANSWER)
    assert rows == [(2, "Who?\nAda wrote.", '[["Ada", 0]]'), (3, "Who?\nAda.", "[]")]
    assert issues == {"header": [1], "answer-not-there": [4, 5]}
    put(path, 'text,labels\nx,"a, b"\ny,\n')
    assert read(path, MANY)[0] == [(2, "x", "a\x1fb"), (3, "y", "")]


def test_columns_and_format_of_a_config(tmp_path: Path) -> None:
    put(tmp_path / "train.data", "Review,Stars\na film,good\n")
    put(tmp_path / "valid.jsonl", '{"body": "a play", "Stars": "bad"}\n')
    (tmp_path / "run.toml").write_text(
        '[task]\nname = "classify"\n[data]\ntrain = "train.data"\nformat = "csv"\n'
        'columns = {text = "Review", label = "Stars"}\n'
        'valid = [{corpus = "valid.jsonl", format = "jsonl", columns = {text = "body", label = "Stars"}}]\n'
    )
    config = load_config(tmp_path / "run.toml")
    found = [
        row[1:]
        for split in (config.data.train, config.data.valid)
        for spec in corpus_specs(split or [], config.task, config.data)
        for row in read_rows(spec, config.task, "train")
    ]
    assert found == [("a film", "good"), ("a play", "bad")]
    (tmp_path / "run.toml").write_text('[data]\ntrain = "train.data"\ncolumns = {source = 0}\n')
    with pytest.raises(UsageError) as caught:
        load_config(tmp_path / "run.toml")
    assert caught.value.code == "E_CONFIG_VALUE"


# quotes

CELL = st.text(
    st.sampled_from('ab "\t\n,;') | st.characters(codec="utf-8", exclude_categories=["C"]), max_size=9
)
TABLE = st.lists(st.tuples(CELL, st.sampled_from("xyz")), min_size=1, max_size=5)


@SEVERAL
@given(table=TABLE, delimiter=st.sampled_from(",;\t"), end=st.sampled_from(["\n", "\r\n"]))
def test_what_python_writes_as_csv_is_read(
    tmp_path: Path, table: list[tuple[str, str]], delimiter: str, end: str
) -> None:
    assume(all(text.strip() and not set(text) & set("\ufeff\u2028\u2029") for text, _ in table))
    content = io.StringIO(newline="")
    csv.writer(content, delimiter=delimiter, lineterminator=end).writerows([("text", "label"), *table])
    rows, issues = read(put(tmp_path / "some.csv", content.getvalue()), CLASSIFY)
    assert [row[1:] for row in rows] == table
    lines = [2 + sum(1 + text.count("\n") for text, _ in table[:number]) for number in range(len(table))]
    assert [row[0] for row in rows] == lines
    assert set(issues) <= {"header", "carriage-return"}


@SEVERAL
@given(table=TABLE, style=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_a_quoted_tsv_is_recognised(tmp_path: Path, table: list[tuple[str, str]], style: Any) -> None:
    assume(all(text.strip() and not set(text) & set("\ufeff\u2028\u2029") for text, _ in table))
    content = io.StringIO(newline="")
    writer = csv.writer(content, delimiter="\t", lineterminator="\n", quoting=style)
    writer.writerows([("text", "label"), *table])
    rows, _ = read(put(tmp_path / "some.tsv", content.getvalue()), CLASSIFY)
    assert [row[1:] for row in rows] == table


@pytest.mark.parametrize(
    "content",
    [
        '"Hello," she said.\tgood\n',
        'a film\tgood\n"Hello."\tgood\n',
        '"Hello\tgood\nand "goodbye"\tgood\n',
        'a 12" pipe\tgood\n"\tgood\n',
    ],
)
def test_quotations_are_text(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "some.tsv", content)
    assert dialect(path, ".tsv") == ("\t", False)
    rows, issues = read(path, CLASSIFY)
    assert [text for _, text, _ in rows] == [line.split("\t")[0] for line in content.splitlines()]
    assert issues == {}


def test_wrong_lines_of_a_csv(tmp_path: Path) -> None:
    content = b'text,label\na,x\n"b\n\xff",x\nc,x,y\nd\n"e" f,x\n\n"g ""1""",x\n"h,x\n'
    rows, issues = read(put(tmp_path / "some.csv", content), CLASSIFY)
    assert rows == [(2, "a", "x"), (9, 'g "1"', "x")]
    assert issues == {"header": [1], "bad-utf8": [4], "malformed": [5, 6, 7, 10]}
    with pytest.raises(UsageError) as caught:
        list(iter_examples(put(tmp_path / "other.csv", "text,label\na,x\nb\n"), "classify"))
    assert caught.value.code == "E_DATA_ROW"
    assert f"{tmp_path / 'other.csv'}, line 3" in str(caught.value)


# Excel


def test_a_sheet(tmp_path: Path) -> None:
    rows = [
        ["Text", "Label", None],
        ["a film", 1],
        [None, None],
        ["a play", 2.5, "note"],
        [date(2026, 5, 1), True],
    ]
    path = put_excel(tmp_path / "reviews.xlsx", rows)
    found, issues = read(path, CLASSIFY)
    assert found == [(2, "a film", "1"), (5, "2026-05-01 00:00:00", "true")]
    assert issues == {"header": [1], "malformed": [4]}
    path = put_excel(tmp_path / "pairs.xlsx", [["a cat", "eine Katze"], ["a dog", "ein Hund"]])
    assert refusal(path, TRANSLATE).code == "E_DATA_COLUMNS"
    pairs, _ = read(path, TRANSLATE, columns={"source": 1, "target": 2})
    assert pairs == [(1, "a cat", "eine Katze"), (2, "a dog", "ein Hund")]


@pytest.mark.parametrize("content", [b"", b"text,label\n", b"PK\x03\x04 cut short"])
def test_a_damaged_sheet(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("openpyxl", reason="the extra `documents` is not installed")
    assert refusal(put(tmp_path / "some.xlsx", content), CLASSIFY).code == "E_DATA_DAMAGED"


def test_the_extra_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    error = refusal(put(tmp_path / "some.xlsx", b""), CLASSIFY)
    assert error.code == "E_EXTRA_MISSING"
    assert "regard[documents]" in str(error)


# files that commands read


def test_examples_have_their_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "reviews.tsv", "a film\tgood\n\na play\tbad\n")
    assert [(e.line, e.source, e.target) for e in iter_examples(path, CLASSIFY)] == [
        (1, "a film", "good"),
        (3, "a play", "bad"),
    ]
    path = put(tmp_path / "texts.csv", "id,text\n1,a film\n")
    with pytest.raises(UsageError):
        list(iter_examples(path, "classify"))
    (example,) = iter_examples(path, "classify", inputs_only=True)
    assert (example.source, example.target) == ("a film", "")
    path = put(tmp_path / "questions.jsonl", '{"question": "Who?", "context": "Ada."}\n')
    (example,) = iter_examples(path, "answer", inputs_only=True)
    assert (example.source, example.target) == ("Who?\nAda.", "")
    (example,) = iter_examples(put(tmp_path / "eng.train", "EU B-ORG\n"), "tag", "conll")
    assert (example.source, example.target) == ("EU", "B-ORG")
    path = put(tmp_path / "texts.tsv", "a film\na play\n")
    assert [e.source for e in iter_examples(path, "classify", inputs_only=True)] == ["a film", "a play"]


def test_what_is_read_as_rows() -> None:
    assert has_rows(Path("a.csv"), CLASSIFY)
    assert has_rows(Path("a.jsonl.gz"), TRANSLATE)
    assert has_rows(Path("a.conll"), TAGGING)
    assert has_rows(Path("eng.train"), TAGGING, "conll")
    assert not has_rows(Path("a.conll"), CLASSIFY)
    assert not has_rows(Path("a.txt"), TAGGING)


@pytest.mark.parametrize("suffix", [*file_types()["binary"], *file_types()["markup"]])
def test_a_type_that_is_not_handled_is_never_read_as_lines(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UsageError) as caught:
        next(text_lines(put(tmp_path / f"some{suffix}", "a line\n")))
    assert caught.value.code == "E_DATA_TYPE"
    if suffix in file_types()["binary"]:
        assert refusal(tmp_path / f"some{suffix}", GENERATE).code == "E_DATA_TYPE"
        assert refusal(tmp_path / f"some{suffix}", TRANSLATE).code == "E_DATA_TYPE"


@pytest.mark.parametrize(
    "content", [b"%PDF-1.7\n", b"PK\x03\x04\x14\0", b"\x89PNG\r\n", b"{\\rtf1\n", b"\x1f\x8b\x08"]
)
def test_a_type_is_also_known_by_the_first_bytes(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path / "some.txt", content)
    assert refusal(path, GENERATE).code == "E_DATA_TYPE"
    assert refusal(path, TAGGING).code == "E_DATA_TYPE"
    with pytest.raises(UsageError) as caught:
        next(text_lines(path))
    assert caught.value.code == "E_DATA_TYPE"
