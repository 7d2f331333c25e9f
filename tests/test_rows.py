"""Every task's corpora as rows: no text is lost, nothing is mended in silence, places are exact."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from regard.config import Task, Weighted, load_config, resolve
from regard.data.corpora import CorpusSpec, check_data, corpus_specs, parts, read_examples, read_rows
from regard.data.files import LONGEST_LINE
from regard.data.readers import CONTINUED, LABEL_SEPARATOR, MORE, RawRow
from regard.data.readers import text as text_rows
from regard.data.readers.annotated import TAG
from regard.data.readers.text import LONGEST_PART, OPENING, document_rows
from regard.data.report import ISSUE_KINDS, MAX_PLACES, DataReport
from regard.errors import UsageError

GENERATE, TAGGING, ANSWER = Task(name="generate"), Task(name="tag"), Task(name="answer")
CLASSIFY, MANY = Task(name="classify"), Task(name="classify", multi_label=True)
Places = dict[str, list[int]]

SEVERAL = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def put(path: Path, content: bytes | str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return str(path)


def put_objects(path: Path, objects: Sequence[object]) -> str:
    """As .jsonl, or as .parquet with one column."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(list(objects)), path)
        return str(path)
    return put(path, "".join(json.dumps(each) + "\n" for each in objects))


def read(corpus: str | CorpusSpec, task: Task, split: str = "train") -> tuple[list[RawRow], Places]:
    """The rows, and the lines of each kind of finding."""
    report = DataReport()
    rows = list(read_rows(corpus, task, split, report))
    assert set(report.counts) <= set(ISSUE_KINDS)
    assert all(min(report.counts[kind], MAX_PLACES) == len(places) for kind, places in report.places.items())
    return rows, {kind: [place.line for place in places] for kind, places in report.places.items()}


def complaint(corpus: str, task: Task) -> str:
    with pytest.raises(UsageError) as caught:
        list(read_rows(corpus, task, "train"))
    assert "\n" not in str(caught.value)
    assert str(caught.value.code).startswith("E_DATA_")
    return str(caught.value)


# text

NO_LINE_ENDS = st.characters(codec="utf-8", exclude_characters="\0\n\r\ufeff")
TEXT = st.text(st.sampled_from("ab \n\t\u00a0\u2003é字") | NO_LINE_ENDS | st.just("\n"), max_size=80)


@pytest.fixture(params=[1, 2, 7, 20])
def longest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(text_rows, "LONGEST_PART", request.param)
    return int(request.param)


@SEVERAL
@given(document=TEXT)
def test_the_parts_of_a_document_are_the_document(longest: int, document: str) -> None:
    rows = list(document_rows(enumerate(document.split("\n"), start=1)))
    assert "".join(text for _, text, _ in rows) == document
    targets = [target for _, _, target in rows]
    assert [target[:1] == CONTINUED for target in targets] == [number > 0 for number in range(len(rows))]
    assert [target.removeprefix(CONTINUED) for target in targets] == [
        *(MORE + text for _, text, _ in rows[1:]),
        *[""] * bool(rows),
    ]
    assert all(0 < len(text) <= longest for _, text, _ in rows) or document == ""
    for (_, before, _), (_, after, _) in pairwise(rows):
        hard = len(before) == longest and not any(c.isspace() for c in before.lstrip())
        assert (after[0].isspace() and not before[-1].isspace()) or hard or not before.strip()


@SEVERAL
@given(document=TEXT)
def test_the_number_of_a_part_is_the_line_of_its_first_word(longest: int, document: str) -> None:
    start = 0
    for number, text, _ in document_rows(enumerate(document.split("\n"), start=1)):
        word = start + len(text) - len(text.lstrip())
        if text.strip():
            assert number <= document.count("\n", 0, word) + 1
            assert start == 0 or number == document.count("\n", 0, word) + 1
        start += len(text)


@SEVERAL
@given(document=TEXT, ended=st.booleans())
def test_a_file_is_a_document_without_the_end_of_its_last_line(
    tmp_path: Path, longest: int, document: str, ended: bool
) -> None:
    path = put(tmp_path / "text.txt", document + "\n" * ended)
    rows, found = read(path, GENERATE)
    content = document if ended else document.removesuffix("\n")
    if "".join(text for _, text, _ in rows) != content:
        assert not rows
        assert not content.strip()
        assert found.get("empty", []) == [1] * bool(document + "\n" * ended)


def test_what_a_document_is(tmp_path: Path) -> None:
    path = put(tmp_path / "some.raw.gz", "\none\n two \n\n \nthree\n\n\n")
    assert read(path, GENERATE) == ([(1, "\none\n two \n\n \nthree\n\n", "")], {})
    paragraphs, found = read(CorpusSpec(path, documents="paragraph"), Task(name="fill"))
    assert (paragraphs, found) == ([(2, "one\n two ", ""), (6, "three", "")], {})
    lines, found = read(CorpusSpec(path, documents="line"), GENERATE, "valid")
    assert lines == [(2, "one", ""), (3, " two ", ""), (6, "three", "")]
    assert found == {"empty": [1, 4, 5, 7, 8]}


def test_a_long_document_is_cut_into_rows_of_64_ki_characters(tmp_path: Path) -> None:
    line = "ein langes wörtchen und noch eines"
    path = put(tmp_path / "long.txt", f"{line}\n" * 5000)
    rows, found = read(path, GENERATE)
    assert found == {}
    assert "".join(text for _, text, _ in rows) == "\n".join([line] * 5000)
    opening = [MORE + text[:OPENING] for _, text, _ in rows[1:]]
    assert [target for _, _, target in rows] == [opening[0], CONTINUED + opening[1], CONTINUED]
    assert all(LONGEST_PART - 40 < len(text) <= LONGEST_PART for _, text, _ in rows[:-1])
    assert all(text[0] in " \n" for _, text, _ in rows[1:])
    objects = put_objects(tmp_path / "long.jsonl", [{"text": "x" * (2 * LONGEST_PART)}, {"text": "short"}])
    rows, _ = read(objects, GENERATE)
    assert [(number, len(text), target) for number, text, target in rows] == [
        (1, LONGEST_PART, MORE + "x" * OPENING),
        (1, LONGEST_PART, CONTINUED),
        (2, 5, ""),
    ]


def test_dirty_text(tmp_path: Path) -> None:
    content = (
        b"\xef\xbb\xbfone\r\ntwo \xff\nthr\0ee\n" + b"x" * (LONGEST_LINE + 9) + b"\nfi\xe2\x80\xa8ve\r\nsix"
    )
    rows, found = read(put(tmp_path / "text", content), GENERATE)
    assert rows == [(1, "one\nfi\u2028ve\nsix", "")]
    assert found == {
        "bom": [1],
        "carriage-return": [1, 5],
        "bad-utf8": [2],
        "nul": [3],
        "endless": [4],
        "odd-separator": [5],
        "no-newline": [6],
    }


@pytest.mark.parametrize("name", ["text.jsonl", "text.jsonl.gz", "text.parquet"])
def test_objects_with_a_text(tmp_path: Path, name: str) -> None:
    path = put_objects(
        tmp_path / name, [{"text": "a\n\nb\n"}, {"text": " \n"}, {"text": None}, {"text": "c"}]
    )
    rows, found = read(CorpusSpec(path, documents="line"), GENERATE)
    assert rows == [(1, "a\n\nb\n", ""), (4, "c", "")]
    assert found == {"empty": [2], "malformed": [3]}


def test_what_is_no_text(tmp_path: Path) -> None:
    assert "not plain text" in complaint(put(tmp_path / "memory.tmx", "<tmx/>"), GENERATE)
    assert "not plain text" in complaint(put(tmp_path / "squad.json.gz", "{}"), GENERATE)
    assert complaint(str(tmp_path / "none.txt"), GENERATE).endswith("no such file")
    assert "UTF-16" in complaint(put(tmp_path / "wide.txt", "a".encode("utf-16")), GENERATE)
    assert 'are for task.name = "translate"' in complaint("phrasebook", GENERATE)
    with pytest.raises(UsageError, match="has no text"):
        read_examples(put(tmp_path / "empty.txt", ""), GENERATE, "test")


# labels


def test_texts_with_labels(tmp_path: Path) -> None:
    content = "a film\tgood\n\n\tbad\na play\t \nno tab\na\tb\tc\n spaced \t good \nagain\tgood,bad\n"
    rows, found = read(put(tmp_path / "reviews.tsv.gz", content), CLASSIFY, "test")
    assert rows == [(1, "a film", "good"), (7, " spaced ", "good"), (8, "again", "good,bad")]
    assert found == {"empty": [3], "malformed": [4, 5, 6]}


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("sentence\tlabel", "a film\tgood"),
        ("Text\tLabels", "a film\tgood"),
        ("id\ttext\tlabel", "17\ta film\tgood"),
        ("review\tstars\tlabel", "a film\t5\tgood"),
    ],
)
def test_a_header_is_told_and_says_which_column_is_which(tmp_path: Path, header: str, line: str) -> None:
    rows, found = read(put(tmp_path / "reviews.tsv", f"{header}\n{line}\nx\ta\tb\tc\n"), CLASSIFY)
    assert rows == [(2, "a film", "good")]
    assert found == {"header": [1], "malformed": [3]}
    assert not ISSUE_KINDS["header"].dropped


def test_a_header_stands_in_the_first_line_only(tmp_path: Path) -> None:
    rows, found = read(put(tmp_path / "things.tsv", "a film\tgood\non the jar\tlabel\n"), CLASSIFY)
    assert rows == [(1, "a film", "good"), (2, "on the jar", "label")]
    assert found == {}


def test_any_number_of_labels(tmp_path: Path) -> None:
    content = "one\ta\ntwo\ta, b\nnone\t\ntwice\ta,a\ngap\ta,,b\n"
    rows, found = read(put(tmp_path / "topics.tsv", content), MANY)
    both = LABEL_SEPARATOR.join("ab")
    assert rows == [(1, "one", "a"), (2, "two", both), (3, "none", ""), (4, "twice", "a")]
    assert found == {"malformed": [5]}
    objects = [
        {"text": "x", "labels": ["a", "b"]},
        {"text": "y", "labels": []},
        {"text": "z", "label": "a,b"},
    ]
    rows, found = read(put_objects(tmp_path / "topics.jsonl", objects), MANY)
    assert rows == [(1, "x", both), (2, "y", ""), (3, "z", "a,b")]
    assert found == {}
    rows, found = read(put_objects(tmp_path / "topics.jsonl", objects), CLASSIFY)
    assert rows == [(3, "z", "a,b")]
    assert found == {"malformed": [1, 2]}


@pytest.mark.parametrize(
    ("value", "label"),
    [("good", "good"), (" good ", "good"), (3, "3"), (3.0, "3"), (0.5, "0.5"), (0, "0"), (True, "true")],
)
@pytest.mark.parametrize("name", ["reviews.jsonl", "reviews.parquet"])
def test_labels_of_objects(tmp_path: Path, name: str, value: object, label: str) -> None:
    objects = [{"sentence": "a film", "label": value}, {"sentence": " ", "label": value}]
    rows, found = read(put_objects(tmp_path / name, objects), CLASSIFY)
    assert rows == [(1, "a film", label)]
    assert found == {"empty": [2]}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"text": "a"}',
        '{"text": "a", "label": null}',
        '{"text": "a", "label": ""}',
        '{"text": "a", "label": {"name": "b"}}',
        '{"text": "a", "label": NaN}',
        '{"text": "a", "labels": ["b", "c"]}',
        '{"text": "a", "label": "b\\u001fc"}',
        '{"text": 5, "label": "b"}',
    ],
)
def test_what_is_no_text_with_a_label(tmp_path: Path, line: str) -> None:
    path = put(tmp_path / "reviews.jsonl", f'{{"text": "a", "label": "b"}}\n{line}\n')
    assert read(path, CLASSIFY) == ([(1, "a", "b")], {"malformed": [2]})
    assert complaint(path, CLASSIFY).startswith(f"{path}, line 2: ")


def test_labels_stand_in_tables(tmp_path: Path) -> None:
    assert "need a .tsv" in complaint(put(tmp_path / "reviews.txt", "a film\tgood\n"), CLASSIFY)


# tags

WORD = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6)
SPAN = st.sampled_from(["O", "B-PER", "I-PER", "E-creative-work", "S-MISC", "L-x", "U-ÖRT"])
SENTENCES = st.lists(st.lists(st.tuples(WORD, SPAN), min_size=1, max_size=5), min_size=1, max_size=5)


@SEVERAL
@given(
    sentences=SENTENCES,
    between=st.sampled_from(["\t", " ", "  "]),
    columns=st.sampled_from([[], ["NN"], ["NN", "I-NP"]]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_columns_read_back(
    tmp_path: Path, sentences: list[list[tuple[str, str]]], between: str, columns: list[str], ends: str
) -> None:
    blocks = [[between.join([word, *columns, tag]) for word, tag in sentence] for sentence in sentences]
    content = (ends * 2).join(ends.join(block) for block in blocks) + ends
    rows, found = read(put(tmp_path / "some.conll", content), TAGGING)
    assert [list(zip(words.split(" "), tags.split(" "))) for _, words, tags in rows] == sentences
    firsts = [1 + sum(len(block) + 1 for block in blocks[:number]) for number in range(len(blocks))]
    assert [number for number, _, _ in rows] == firsts
    assert set(found) <= {"carriage-return"}
    objects = [{"tokens": [w for w, _ in s], "ner_tags": [t for _, t in s]} for s in sentences]
    again, found = read(put_objects(tmp_path / "some.jsonl", objects), TAGGING)
    assert [row[1:] for row in again] == [row[1:] for row in rows]
    assert found == {}


@pytest.mark.parametrize(
    "tags",
    [
        "I-PER I-PER B-PER",
        "B-LOC I-LOC O",
        "B-ORG I-ORG E-ORG",
        "S-ORG O O",
        "B-ORG I-ORG L-ORG",
        "U-a-b O O",
    ],
)
def test_the_usual_schemes_of_tags(tmp_path: Path, tags: str) -> None:
    content = "".join(f"{word} {tag}\n" for word, tag in zip("abc", tags.split()))
    assert read(put(tmp_path / "some.iob", content), TAGGING) == ([(1, "a b c", tags)], {})


def test_only_tabs_and_spaces_part_columns(tmp_path: Path) -> None:
    rows, found = read(put(tmp_path / "some.conll", "New\u00a0York  NNP B-LOC\n  x\u2003y\t\tO\n"), TAGGING)
    assert rows == [(1, "New\u00a0York x\u00a0y", "B-LOC O")]
    assert found == {}


@pytest.mark.parametrize("tag", ["", "o", "PER", "B_PER", "B-", "X-PER", "B-a b", "O ", "0"])
def test_what_is_no_tag(tag: str) -> None:
    assert TAG.fullmatch(tag) is None


def test_a_sentence_with_a_wrong_line_is_left_out_and_counted_once(tmp_path: Path) -> None:
    lines = [
        b"-DOCSTART- -X- O",
        b"",
        b"# id = 1",
        b"#\tO",
        b"New York\tB-LOC",
        b" ",
        b"one\tO",
        b"column",
        b"again PER",
        b"",
        b"a\tPER",
        b"",
        b"\tO",
        b"",
        b"last\tO",
        b"b\xffd\tO",
        b"",
        b"",
        b"x\tO",
        b"# id = 2",
        b"",
        b"end\tO",
        b"-DOCSTART-",
        b"next\tU-X",
    ]
    rows, found = read(put(tmp_path / "some.bio.gz", b"\n".join(lines)), TAGGING)
    assert rows == [
        (4, "# New\u00a0York", "O B-LOC"),
        (22, "end", "O"),
        (24, "next", "U-X"),
    ]
    assert found == {"misaligned": [8, 11, 13, 20], "bad-utf8": [16], "no-newline": [24]}
    path = put(tmp_path / "wrong.txt", b"one O\ntwo\n")
    assert complaint(path, TAGGING).startswith(f"{path}, line 2: one column; write word, tab, tag")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"tokens": ["a"], "tags": ["O", "O"]}, "misaligned"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "misaligned"),
        ({"tokens": ["a", 5], "tags": ["O", "O"]}, "misaligned"),
        ({"tokens": ["a"], "ner_tags": [3]}, "misaligned"),
        ({"tokens": ["a"], "tags": ["PER"]}, "misaligned"),
        ({"tokens": [], "tags": []}, "empty"),
        ({"tokens": "a b", "tags": ["O", "O"]}, "malformed"),
        ({"tokens": ["a"]}, "malformed"),
    ],
)
def test_objects_that_are_no_tagged_words(tmp_path: Path, found: object, kind: str) -> None:
    good = {"words": ["New York", "b\nc"], "tags": ["B-LOC", "O"]}
    rows, places = read(put_objects(tmp_path / "some.jsonl", [good, found]), TAGGING)
    assert rows == [(1, "New\u00a0York b\u00a0c", "B-LOC O")]
    assert places == {kind: [2]}


def test_tags_stand_in_columns(tmp_path: Path) -> None:
    assert "need one of .conll" in complaint(put(tmp_path / "some.xml", "<a/>"), TAGGING)


# questions

CONTEXT = "Über \U0001f600 Bäume:\nthe oak stands by the oak door."


def answer(text: str, start: int) -> dict[str, object]:
    return {"text": text, "answer_start": start}


def squad(*questions: dict[str, object]) -> str:
    return json.dumps({"version": "2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]})


def test_squad(tmp_path: Path) -> None:
    start = CONTEXT.index("oak")
    content = squad(
        {"id": "a", "question": "Which\ntree?", "answers": [answer("oak", start), answer("Bäume", 7)]},
        {"id": "b", "question": "Which door?", "answers": [], "is_impossible": True},
        {"id": "c", "question": "Which one?", "answers": [answer("oak", start + 1)]},
        {"id": "d", "question": "Where?", "answers": [answer("door", 0), answer("oak", start)]},
        {"id": "e", "question": " ", "answers": [answer("oak", start)]},
        {"id": "f", "question": "What?"},
        {"id": "g", "question": "What?", "answers": [answer("oak", start)], "is_impossible": True},
        {"id": "h", "question": "What?", "answers": [{"text": "oak", "answer_start": "18"}]},
        {"id": "i", "question": "What?", "answers": [answer("", 4)]},
        {"id": "j", "question": "What?", "answers": [answer(".", -1)]},
        {"id": "k", "question": "Last?", "answers": [answer("door.", len(CONTEXT) - 5)]},
    )
    path = put(tmp_path / "some.json.gz", content)
    rows, found = read(path, ANSWER, "valid")
    assert [(number, source) for number, source, _ in rows] == [
        (1, f"Which tree?\n{CONTEXT}"),
        (2, f"Which door?\n{CONTEXT}"),
        (11, f"Last?\n{CONTEXT}"),
    ]
    answers = [json.loads(target) for _, _, target in rows]
    assert answers == [[["oak", start], ["Bäume", 7]], [], [["door.", len(CONTEXT) - 5]]]
    for (_, source, _), wanted in zip(rows, answers):
        context = source.partition("\n")[2]
        assert all(context[begin : begin + len(text)] == text for text, begin in wanted)
    assert found == {"answer-not-there": [3, 4, 9, 10], "empty": [5], "malformed": [6, 7, 8]}
    assert complaint(path, ANSWER).startswith(f"{path}, line 3: question c: at character {start + 1}")


def test_the_flat_form_of_the_hub(tmp_path: Path) -> None:
    start = CONTEXT.index("door")
    objects = [
        {
            "id": "a",
            "question": "Which?",
            "context": CONTEXT,
            "answers": {"text": ["door"], "answer_start": [start]},
        },
        {"id": "b", "question": "Who?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}},
        {"id": "c", "question": "Who?", "context": CONTEXT, "answers": {"text": ["he"], "answer_start": [3]}},
    ]
    for name in ("some.jsonl", "some.parquet"):
        rows, found = read(put_objects(tmp_path / name, objects), ANSWER)
        assert rows == [
            (1, f"Which?\n{CONTEXT}", json.dumps([["door", start]])),
            (2, f"Who?\n{CONTEXT}", "[]"),
        ]
        assert found == {"answer-not-there": [3]}
    uneven = [{"question": "Who?", "context": "he", "answers": {"text": ["he"], "answer_start": []}}]
    assert read(put_objects(tmp_path / "uneven.jsonl", uneven), ANSWER) == ([], {"malformed": [1]})


def test_a_mark_inside_a_context_is_counted(tmp_path: Path) -> None:
    """A byte order mark inside a line of JSON was removed, and every answer behind it stood one too far."""
    context = "the old\ufeff door"
    asked = {"question": "Which?", "context": context, "answers": {"text": ["door"], "answer_start": [9]}}
    path = tmp_path / "some.jsonl"
    path.write_text("\ufeff" + json.dumps(asked, ensure_ascii=False) + "\n", encoding="utf-8")
    rows, found = read(str(path), ANSWER)
    assert rows == [(1, f"Which?\n{context}", json.dumps([["door", 9]]))]
    assert found == {"bom": [1]}


@SEVERAL
@given(context=st.text(min_size=1, max_size=30).filter(str.strip), data=st.data())
def test_an_answer_is_where_it_was_put(tmp_path: Path, context: str, data: st.DataObject) -> None:
    """Whatever the signs, also halves of characters: offsets count characters of the context as read."""
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    assume(context[start:end].strip())
    asked = {"question": "?", "answers": [answer(context[start:end], start)]}
    content = {"data": [{"paragraphs": [{"context": context, "qas": [asked]}]}]}
    ((_, source, target),), found = read(put(tmp_path / "some.json", json.dumps(content)), ANSWER)
    ((text, begin),) = json.loads(target)
    assert source.partition("\n")[2][begin : begin + len(text)] == text
    assert (begin, len(text)) == (start, end - start)
    assert found == {}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", 'the list "data"'),
        (b'{"data": {}}', 'the list "data"'),
        (b'{"data": "\xff"}', "byte 10: 0xff is not UTF-8"),
        ('{"data": []}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_no_squad(tmp_path: Path, content: bytes, word: str) -> None:
    path = put(tmp_path / "some.json", content)
    with pytest.raises(UsageError) as caught:
        read(path, ANSWER)
    assert str(caught.value).startswith(path)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        [5],
        [{}],
        [{"paragraphs": [5]}],
        [{"paragraphs": [{"context": "a"}]}],
        [{"paragraphs": [{"context": "a", "qas": [5]}]}],
        [{"paragraphs": [{"qas": [{"question": "b", "answers": []}]}]}],
    ],
)
def test_a_hole_in_squad_is_counted(tmp_path: Path, data: list[object]) -> None:
    path = put(tmp_path / "some.json", b"\xef\xbb\xbf" + json.dumps({"data": data}).encode())
    assert read(path, ANSWER) == ([], {"bom": [1], "malformed": [1]})


def test_questions_stand_in_json(tmp_path: Path) -> None:
    assert "SQuAD's .json" in complaint(put(tmp_path / "some.txt", "a\tb\n"), ANSWER)


# corpora of several tasks, told by words


def test_a_prefix_and_words_for_labels(tmp_path: Path) -> None:
    reviews = put(
        tmp_path / "reviews.tsv", f"id\tsentence\tlabel\n7\t{'long ' * 90}\t1\n8\t \t0\n9\tdull\t0\n"
    )
    objects = put_objects(tmp_path / "more.jsonl", [{"text": "fine", "label": 1}, {"en": "yes", "de": "ja"}])
    pairs = put(tmp_path / "pairs.tsv", "sentence\tlabel\na\tb\n")
    told = {"prefix": "sentiment: ", "say": {"1": "good", "0": "bad"}}
    corpora = [Weighted(corpus=reviews, **told), Weighted(corpus=objects, weight=0.5, **told), pairs]
    task = Task(source="en", target="de")
    one, two, three = corpus_specs(corpora, task)
    assert (two.weight, two.prefix, two.label_words) == (0.5, told["prefix"], told["say"])
    rows, found = read(one, task)
    assert rows == [(2, f"sentiment: {'long ' * 90}", "good"), (4, "sentiment: dull", "bad")]
    assert found == {"header": [1], "empty": [3]}
    assert read(two, task) == ([(1, "sentiment: fine", "good"), (2, "sentiment: yes", "ja")], {})
    assert read(three, task) == ([(1, "sentence", "label"), (2, "a", "b")], {})  # a dictionary may say so
    assert parts(corpora, task) == [(reviews, 1.0), (objects, 0.5), (pairs, 1.0)]
    plain = put(tmp_path / "told.tsv", "a\tb\nc\td\te\n")
    assert read(CorpusSpec(plain, prefix="to B: "), task) == ([(1, "to B: a", "b"), (2, "to B: c", "d")], {})


def test_two_files_are_a_pair_to_a_translator_only(tmp_path: Path) -> None:
    names = [put(tmp_path / "one.txt", "a\n"), put(tmp_path / "two.txt", "b\n")]
    assert [each.corpus for each in corpus_specs(names, Task())] == [tuple(names)]
    assert [each.corpus for each in corpus_specs(names, GENERATE)] == names
    assert [example.source for example in read_examples(names, GENERATE, "train")] == ["a", "b"]
    with pytest.raises(UsageError, match="reads single files"):
        corpus_specs([names], GENERATE)


def test_check_data_reads_a_first_row_of_every_task(tmp_path: Path) -> None:
    from regard.config import Data

    good = put(tmp_path / "good.conll", "a O\n")
    check_data(Data(train=[good, good], valid=good), TAGGING)
    with pytest.raises(UsageError, match=r"data\.test: .*empty\.conll has no sentence with tags"):
        check_data(Data(train=good, test=put(tmp_path / "empty.conll", "\n")), TAGGING)


# real corpora


@pytest.fixture
def corpora(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where REGARD_DATA says, or beside the repository."""
    folder = Path(os.environ.get("REGARD_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "sst2").is_dir():
        pytest.skip("the public corpora are not here; REGARD_DATA names their folder")
    monkeypatch.setenv("REGARD_DATA", str(folder))
    return folder


@pytest.mark.parametrize(
    ("task", "name", "count", "expected"),
    [
        (CLASSIFY, "sst2/train.tsv.gz", 67_349, {"header": 1}),
        (CLASSIFY, "sst2/dev.tsv.gz", 872, {"header": 1}),
        (TAGGING, "ner/wikigold.conll.gz", 1841 - 145, {}),  # 145 blocks are only "-DOCSTART-"
        (TAGGING, "ner/wnut17.train.conll.gz", 3394, {}),
        (TAGGING, "ner/wnut17.dev.conll.gz", 1009, {"bom": 1}),
        (TAGGING, "ner/wnut17.test.conll.gz", 1287, {}),
        (ANSWER, "squad/train.json.gz", 7459, {}),
        (ANSWER, "squad/valid.json.gz", 1098, {}),
    ],
)
def test_public_corpora(corpora: Path, task: Task, name: str, count: int, expected: dict[str, int]) -> None:
    report = DataReport()
    rows = list(read_rows(f"data:{name}", task, "train", report))
    assert len(rows) == count
    assert dict(report.counts) == expected
    assert all(source.strip() and target for _, source, target in rows)
    if task is TAGGING:
        assert all(len(words.split(" ")) == len(tags.split(" ")) for _, words, tags in rows)
    if task is CLASSIFY:
        assert {target for _, _, target in rows} == {"0", "1"}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("tinyshakespeare.txt.gz", 40_000),
        ("wikitext-2.train.raw.gz", 36_718),
        ("wikitext-2.valid.raw.gz", 3760),
        ("wikitext-2.test.raw.gz", 4358),
    ],
)
def test_public_text(corpora: Path, name: str, lines: int) -> None:
    content = gzip.decompress((corpora / "text" / name).read_bytes()).decode()
    report = DataReport()
    rows = list(read_rows(f"data:text/{name}", GENERATE, "train", report))
    assert "".join(text for _, text, _ in rows) == content.replace("\ufeff", "").removesuffix("\n")
    assert set(report.counts) <= {"bom"}
    by_line = list(read_rows(CorpusSpec(f"data:text/{name}", documents="line"), GENERATE, "train", report))
    assert len(by_line) + report.counts["empty"] == lines


def test_rows_of_another_width_are_misaligned(tmp_path: Path) -> None:
    """A row without its last column gave its chunk as the tag of an entity, and nobody was told."""
    rows = "EU NNP B-NP B-ORG\nrejects VBZ B-VP\nit PRP B-NP O\n\nthe DT O\n\nNew York NNP B-LOC\nis VBZ O\n"
    found, places = read(put(tmp_path / "some.conll", rows), TAGGING)
    assert [source for _, source, _ in found] == ["the"]
    assert places["misaligned"] == [2, 8]


def test_comments_of_every_kind(tmp_path: Path) -> None:
    text = (
        "#begin document (x); part 000\n#sent_id=1\n# text = one\nAda\tB-PER\n\n#WIN\tO\n\n#lost\nBo\tB-PER\n"
    )
    found, places = read(put(tmp_path / "some.conll", text), TAGGING)
    assert [(source, target) for _, source, target in found] == [("Ada", "B-PER"), ("#WIN", "O")]
    assert places["misaligned"] == [8], "a word without a tag is no comment"


def test_a_row_of_nothing_but_a_tab_keeps_its_place(tmp_path: Path) -> None:
    """It vanished, and everything below was one line off."""
    file = put(tmp_path / "some.tsv", "a\tb\n\t\nc\td\n\n")
    rows, _ = read(file, Task(), "test")
    assert [row[0] for row in rows] == [1, 2, 3]
    assert read(file, Task())[1] == {"empty": [2]}
    assert read(put(tmp_path / "labels.tsv", "a\tb\n\t\nc\td\n"), CLASSIFY)[1] == {"malformed": [2]}


def test_a_link_has_the_format_of_its_name(tmp_path: Path) -> None:
    """The suffix of its target was used, so that files of a hub's cache or of DVC were refused."""
    put(tmp_path / "blob", "a\tb\n")
    (tmp_path / "pairs.tsv").symlink_to(tmp_path / "blob")
    (tmp_path / "run.toml").write_text('[data]\ntrain = "pairs.tsv"\n')
    config = load_config(tmp_path / "run.toml")
    assert config.data.train == str(tmp_path / "pairs.tsv")
    check_data(config.data, config.task)
    assert read(str(config.data.train), config.task) == ([(1, "a", "b")], {})


@pytest.mark.parametrize(
    ("name", "format_name", "task", "content"),
    [
        ("eng.train", "conll", TAGGING, "EU NNP B-ORG\n\n"),
        ("reviews.data.gz", "tsv", CLASSIFY, "EU\tgood\n"),
        ("part-00000", "jsonl", GENERATE, '{"text": "EU"}\n'),
        ("dev-v1.1", "json", ANSWER, squad({"question": "EU", "answers": []})),
        ("pairs.csv", "tsv", Task(), "EU\tUE\n"),
        ("memory", "po", Task(), 'msgid "EU"\nmsgstr "UE"\n'),
    ],
)
def test_a_corpus_can_name_its_format(
    tmp_path: Path, name: str, format_name: str, task: Task, content: str
) -> None:
    """A CoNLL file named eng.train could not be used."""
    path = put(tmp_path / name, content)
    (spec,) = corpus_specs([Weighted(corpus=path, format=format_name)], task)
    rows, _ = read(spec, task)
    assert [source.split("\n")[0] for _, source, _ in rows] == ["EU"]


def test_formats_that_are_refused() -> None:
    with pytest.raises(UsageError, match="format is for a single file"):
        corpus_specs([Weighted(corpus=["a", "b"], format="tsv")], Task())
    with pytest.raises(UsageError) as caught:
        resolve({"data": {"train": [{"corpus": "a", "format": "docx"}]}})
    assert caught.value.code == "E_CONFIG_VALUE"
