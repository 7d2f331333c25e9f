"""Files to examples to batches: no pair is ever shifted, every example comes once, errors name the line."""

from __future__ import annotations

import ast
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import regard.data
from regard.batch import collate
from regard.config import Corpora, Data, Task
from regard.data import lines
from regard.data.batches import cut
from regard.data.corpora import check_data, read_examples, read_rows
from regard.data.files import file_types
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.sample import IGNORED, Sample

ENGLISH_GERMAN = Task(source="en", target="de")


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def pairs_of(corpora: Corpora, task: Task = ENGLISH_GERMAN, split: str = "train") -> list[tuple[str, str]]:
    return [(example.source, example.target) for example in read_examples(corpora, task, split)]


def complaint(corpora: Corpora, task: Task = ENGLISH_GERMAN) -> str:
    with pytest.raises(UsageError) as caught:
        read_examples(corpora, task, "train")
    assert "\n" not in str(caught.value)
    assert str(caught.value.code).startswith("E_DATA_")
    return str(caught.value)


# lines


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"\n\n", ["", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u0085c\x0bd\x0ce\u2029f\x1cg\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\u2029f\x1cg"]),
        (b"a\x00b\n", ["a\x00b"]),
        (b" a \t\n", [" a \t"]),
    ],
)
def test_a_line_ends_at_newline_only(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    assert list(lines(put(tmp_path / name, content))) == expected


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_bad_utf8_is_told_with_file_line_and_byte(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, b"good\nbad \xff here\n")
    with pytest.raises(UsageError) as caught:
        list(lines(path))
    assert str(caught.value).startswith(f"{path}, line 2: byte 5 (0xff) is not UTF-8")


def test_what_is_no_text_file(tmp_path: Path) -> None:
    whole = gzip.compress(b"some text that is long enough to be cut\n" * 50)
    cut_short, no_gzip, text = tmp_path / "short.gz", tmp_path / "no.gz", tmp_path / "text"
    cut_short.write_bytes(whole[:-20])
    no_gzip.write_bytes(b"not compressed at all")
    text.write_bytes(b"")
    for path, word in (
        (cut_short, "damaged or cut short"),
        (no_gzip, "damaged or cut short"),
        (tmp_path, "is a folder"),
        (tmp_path / "none", "no such file"),
        (text / "below", "Not a directory"),
        (tmp_path / ("n" * 300), "name too long"),
    ):
        with pytest.raises(UsageError, match=word) as caught:
            list(lines(path))
        assert str(path) in str(caught.value)


# pairs

ANY_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(ANY_LINE, ANY_LINE), max_size=12), st.booleans())
def test_no_line_of_any_content_shifts_a_pair(
    tmp_path: Path, rows: list[tuple[str, str]], newline_at_end: bool
) -> None:
    """Each line carries its number, so a pair whose numbers differ was shifted."""
    left = [f"{number} {text}" for number, (text, _) in enumerate(rows)]
    right = [f"{number} {text}" for number, (_, text) in enumerate(rows)]
    for name, side in (("en", left), ("de", right)):
        text = "\n".join(side) + "\n" * (newline_at_end and bool(side))
        put(tmp_path / name, text.encode())
    names = str(tmp_path / "en"), str(tmp_path / "de")
    found = list(read_rows(names, ENGLISH_GERMAN, "test", DataReport()))
    for number, one, two in found:
        assert one.split(" ")[0] == two.split(" ")[0] == str(number - 1)
    whole = [n for n, sides in enumerate(rows, start=1) if "\0" not in "".join(sides)]
    assert [number for number, _, _ in found] == whole


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=8))
def test_random_bytes_are_read_or_counted(tmp_path: Path, raw: list[bytes]) -> None:
    en = put(tmp_path / "en", b"".join(line + b"\n" for line in raw))
    de = put(tmp_path / "de", b"".join(b"%d\n" % number for number in range(len(raw))))
    findings = DataReport()
    corpus = read_rows((str(en), str(de)), ENGLISH_GERMAN, "test", findings)
    if raw[0].startswith(tuple(map(bytes.fromhex, file_types()["magic"]))):
        with pytest.raises(UsageError) as caught:
            list(corpus)
        assert caught.value.code in ("E_DATA_TYPE", "E_DATA_ENCODING")
        return
    found = list(corpus)
    assert all(number == int(target) + 1 for number, _, target in found)
    assert len(found) + findings.counts["bad-utf8"] + findings.counts["nul"] == len(raw)
    for number, source, _ in found:
        assert raw[number - 1].decode().replace("\ufeff", "").removesuffix("\r") == source


@pytest.mark.parametrize("longer", ["en", "de"])
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, longer: str) -> None:
    shorter = "de" if longer == "en" else "en"
    long, short = put(tmp_path / longer, b"a\n" * 7), put(tmp_path / shorter, b"a\n" * 5)
    message = complaint([str(tmp_path / "en"), str(tmp_path / "de")])
    assert f"{short} has 5 lines but {long} has 7" in message
    assert "line 6" in message


def test_pairs_with_an_empty_side_are_left_out_and_shift_nothing(tmp_path: Path) -> None:
    en = put(tmp_path / "en", b"one\n\n  \nfour\nfive\n")
    de = put(tmp_path / "de", "eins\nzwei\ndrei\n\u00a0\nfünf\n".encode())
    assert pairs_of([str(en), str(de)]) == [("one", "eins"), ("five", "fünf")]


def test_two_corpora_of_two_files_each(tmp_path: Path) -> None:
    for name, text in (("a.en", b"a"), ("a.de", b"A"), ("b.en", b"b"), ("b.de.gz", b"B")):
        put(tmp_path / name, text)
    names = [
        [str(tmp_path / "a.en"), str(tmp_path / "a.de")],
        [str(tmp_path / "b.en"), str(tmp_path / "b.de.gz")],
    ]
    assert pairs_of(names) == [("a", "A"), ("b", "B")]


def test_two_tables_are_two_corpora_and_no_pair(tmp_path: Path) -> None:
    one, two = put(tmp_path / "one.tsv", b"a\tA\n"), put(tmp_path / "two.jsonl.gz", b'{"en": "b", "de": "B"}')
    assert pairs_of([str(one), str(two)]) == [("a", "A"), ("b", "B")]


def test_a_corpus_without_a_pair_is_named(tmp_path: Path) -> None:
    empty = put(tmp_path / "empty.tsv", b"")
    assert complaint(str(empty)) == f"data.train: {empty} has no pair of sentences"
    assert "has no pair" in complaint([str(put(tmp_path / "en", b"\n")), str(put(tmp_path / "de", b"x\n"))])


def test_one_plain_file_is_not_a_corpus(tmp_path: Path) -> None:
    assert '["file.source", "file.target"]' in complaint(str(put(tmp_path / "text.en", b"a\n")))
    assert complaint(str(tmp_path / "none.en")).endswith("no such file")


def test_tsv(tmp_path: Path) -> None:
    path = put(tmp_path / "pairs.tsv.gz", b"a\tA\n\n \nb\tB\tCC-BY\n\tempty\nc\x0c\tC\n")
    assert pairs_of(str(path)) == [("a", "A"), ("b", "B"), ("c\x0c", "C")]
    broken = put(tmp_path / "broken.tsv", b"a\tA\nno tab here\n")
    assert complaint(str(broken)).startswith(f"{broken}, line 2: no tab; write source, tab, target")


@pytest.mark.parametrize(
    "row",
    [
        {"source": "s", "target": "t"},
        {"en": "s", "de": "t"},
        {"translation": {"en": "s", "de": "t"}},
        {"translation": {"source": "s", "target": "t"}, "id": 7},
        {"de": "t", "en": "s", "fr": "u"},
    ],
)
def test_jsonl_in_its_usual_shapes(tmp_path: Path, row: dict[str, object]) -> None:
    path = put(tmp_path / "pairs.jsonl", json.dumps(row).encode() + b"\n\n")
    assert pairs_of(str(path)) == [("s", "t")]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", '"source" and "target"'),
        ('"text"', '"source" and "target"'),
        ('{"source": "s"}', '"source" and "target"'),
        ('{"source": "s", "target": 5}', '"source" and "target"'),
        ('{"translation": "s"}', '(or "en" and "de")'),  # was a traceback
        ('{"translation": ["s", "t"]}', '(or "en" and "de")'),
    ],
)
def test_jsonl_errors_name_the_line(tmp_path: Path, row: str, word: str) -> None:
    path = put(tmp_path / "pairs.jsonl", b'{"source": "s", "target": "t"}\n' + row.encode())
    message = complaint(str(path))
    assert message.startswith(f"{path}, line 2: ")
    assert word in message


def test_parquet_as_the_hub_has_it(tmp_path: Path) -> None:
    table = {"translation": [{"en": f"line {n}", "de": f"zeile {n}"} for n in range(25_000)]}
    parquet.write_table(pyarrow.table(table), tmp_path / "train.parquet", row_group_size=7000)
    found = pairs_of(str(tmp_path / "train.parquet"))
    assert found == [(f"line {n}", f"zeile {n}") for n in range(25_000)]
    columns = pyarrow.table({"en": ["a", None, "c"], "de": ["A", "B", "C"]})
    parquet.write_table(columns, tmp_path / "columns.parquet")
    findings = DataReport()
    rows = list(read_rows(str(tmp_path / "columns.parquet"), ENGLISH_GERMAN, "train", findings))
    assert rows == [(1, "a", "A"), (3, "c", "C")]
    assert findings.places["malformed"][0].line == 2
    whole = (tmp_path / "train.parquet").read_bytes()
    for name, content in (("none", b""), ("cut", whole[:-9]), ("false", b"PAR1" + bytes(40) + b"PAR1")):
        (tmp_path / f"{name}.parquet").write_bytes(content)
        assert "not a readable .parquet file" in complaint(str(tmp_path / f"{name}.parquet"))


def test_half_a_character_in_json_becomes_the_replacement_character(tmp_path: Path) -> None:
    """JSON can spell a lone surrogate. As a sample in metrics.jsonl it would have ended the run."""
    path = put(tmp_path / "pairs.jsonl", rb'{"source": "a\ud800", "target": "\ud83d\ude00"}')
    assert pairs_of(str(path)) == [("a\ufffd", "😀")]


def test_names_of_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert "set the environment variable REGARD_DATA" in complaint("data:set/pairs.tsv")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert complaint("data:set/pairs.tsv") == f"{tmp_path / 'set' / 'pairs.tsv'}: no such file"
    (tmp_path / "set").mkdir()
    put(tmp_path / "set" / "pairs.tsv", b"a\tA\n")
    assert pairs_of("data:set/pairs.tsv") == [("a", "A")]


def test_the_phrasebook_in_both_directions() -> None:
    forth = pairs_of("phrasebook:20")
    back = pairs_of("phrasebook:20", Task(source="de", target="en"))
    assert len(forth) == 20
    assert [(right, left) for left, right in back] == forth
    test = pairs_of("phrasebook:20", split="test")
    assert not set(test) & set(forth)


def test_phrasebook_errors() -> None:
    assert '"phrasebook:abc": write phrasebook:N' in complaint("phrasebook:abc")
    assert "write phrasebook:N" in complaint("phrasebook:-5")
    assert "has no pair" in complaint("phrasebook:0")
    assert 'not "en" and "fr"' in complaint("phrasebook", Task(source="en", target="fr"))


def test_check_data_sees_what_is_missing_by_the_first_pair(tmp_path: Path) -> None:
    here = str(put(tmp_path / "here.tsv", b"a\tA\n\xff\n"))
    check_data(Data(train=[here, "phrasebook"], valid=here), ENGLISH_GERMAN)
    for wrong, word in (
        ([here, str(tmp_path / "none.tsv")], r"none\.tsv: no such file"),
        ([[here, str(tmp_path)]], "is a folder"),
        ([[here, here, here]], r"\[source, target\] pair"),
        ("phrasebook:many", "write phrasebook:N"),
        (str(put(tmp_path / "plain.en", b"a")), r"must be one of \.tsv, \.csv, \.jsonl"),
    ):
        with pytest.raises(UsageError, match=word):
            check_data(Data.model_construct(train=here, valid=None, test=wrong), ENGLISH_GERMAN)
    with pytest.raises(UsageError, match="English and German"):
        check_data(Data(train="phrasebook"), Task(source="en", target="fr"))


def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """Training reads its files twice, and opening a pipe would wait for a writer."""
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is a pipe"):
        check_data(Data(train=str(pipe)), ENGLISH_GERMAN)


# batches


def greedy(lengths: list[int], tokens: int) -> list[list[int]]:
    """The plain way to cut: add while it fits."""
    batches: list[list[int]] = []
    for number, length in enumerate(lengths):
        if batches and (len(batches[-1]) + 1) * length <= tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


@given(st.lists(st.integers(0, 50), max_size=60).map(sorted), st.integers(1, 150))
def test_cut_equals_a_greedy_cutter(lengths: list[int], tokens: int) -> None:
    order = np.arange(len(lengths))
    # a length of 0 costs nothing: the cutter counts it as 1 to bound the batch
    found = cut(order, np.array(lengths, dtype=np.int64).clip(min=1), tokens)
    assert [batch.tolist() for batch in found] == greedy([max(1, length) for length in lengths], tokens)


# collate


def test_collate_pads_on_the_right_with_position_minus_one() -> None:
    batch = collate([Sample([7, 8, 1], [2, 9], [9, 1]), Sample([7, 1], [2, 5, 6, 4], [5, 6, 4, 1])])
    assert batch.source is not None
    assert batch.target is not None
    assert batch.labels is not None
    assert batch.source.ids.tolist() == [[7, 8, 1], [7, 1, 0]]
    assert batch.source.positions.tolist() == [[0, 1, 2], [0, 1, -1]]
    assert batch.target.ids.tolist() == [[2, 9, 0, 0], [2, 5, 6, 4]]
    assert batch.target.positions.tolist() == [[0, 1, -1, -1], [0, 1, 2, 3]]
    assert batch.labels.tolist() == [[9, 1, IGNORED, IGNORED], [5, 6, 4, 1]]
    assert (batch.source.count, batch.target.count) == (5, 6)
    assert {tensor.dtype for tensor in (batch.source.ids, batch.target.positions, batch.labels)} == {
        torch.int64
    }


@given(st.lists(st.lists(st.integers(3, 99), max_size=9), min_size=1, max_size=6), st.integers(1, 8))
def test_collate_rounds_up_to_a_multiple(rows: list[list[int]], multiple: int) -> None:
    batch = collate([Sample([*row, 1]) for row in rows], multiple)
    assert batch.target is None
    assert batch.labels is None
    assert batch.source is not None
    width = batch.source.ids.shape[1]
    longest = max(len(row) + 1 for row in rows)
    assert width % multiple == 0
    assert longest <= width < longest + multiple
    for row, ids, positions in zip(rows, batch.source.ids, batch.source.positions):
        assert ids[positions >= 0].tolist() == [*row, 1]
        assert positions.tolist() == [*range(len(row) + 1), *[-1] * (width - len(row) - 1)]


def test_collate_of_nothing_asked_is_an_empty_batch() -> None:
    batch = collate([Sample()])
    assert (batch.source, batch.target, batch.labels) == (None, None, None)


def test_every_refusal_has_a_code() -> None:
    """Programs and tests depend on codes; an error class of the package has its own."""
    for path in Path(regard.data.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("UsageError", "RegardError"):
                assert any(keyword.arg == "code" for keyword in node.keywords), f"{path}:{node.lineno}"
