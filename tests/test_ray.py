"""Bulk work: every row of every format exactly once, in order, whatever the parts; bad rows are set aside."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from qa.bulk import actors
from regard.cli.terminal import Notes
from regard.errors import RegardError, UsageError
from regard.ray.parts import MAX_TRIES, PartWorker, join
from regard.ray.rows import RowRange, expand, read_rows, split
from regard.storage.models import find_model

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\0"), max_size=12)
SPECIAL = st.sampled_from(["", '"', 'a "b", c', "ä\u2028b", "two\nlines", "\ufeff", ",", "\t"])


class Upper:
    """A command: refuses texts with an x, dies at none."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json, self.notes = as_json, Notes()

    def open(self) -> None:
        self.calls = 0

    def __call__(self, lines: Sequence[str], first: int) -> list[str]:
        self.calls += 1
        if any("x" in line for line in lines):
            raise UsageError("an x", code="E_X")
        self.notes.add("seen", first, len(lines))
        rows = [{"line": number, "text": line.upper()} for number, line in enumerate(lines, first)]
        return [json.dumps(row) if self.as_json else row["text"] for row in rows]


def write_rows(path: Path, rows: list[str]) -> str:
    if path.suffix == ".txt":
        path.write_bytes("".join(f"{row}\n" for row in rows).encode())
    elif path.suffix == ".jsonl":
        lines = (json.dumps({"text": row, "id": number}) for number, row in enumerate(rows))
        path.write_text("".join(f"{line}\n" for line in lines))
    elif path.suffix == ".parquet":
        columns = {"id": list(range(len(rows))), "text": pyarrow.array(rows, pyarrow.string())}
        parquet.write_table(pyarrow.table(columns), path, row_group_size=3)
    else:
        text = io.StringIO()
        table = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n")
        table.writerows([["id", "text"], *([number, row] for number, row in enumerate(rows))])
        path.write_bytes(text.getvalue().encode())
    return str(path)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.sampled_from([".txt", ".jsonl", ".csv", ".tsv", ".parquet"]), st.integers(1, 5))
def test_parts_have_every_row_once_in_order(data: st.DataObject, suffix: str, size: int) -> None:
    texts = TEXT if suffix == ".txt" else TEXT | SPECIAL
    rows = [data.draw(st.lists(texts, max_size=9)) for _ in range(2)]
    if suffix == ".txt":  # a mark of byte order at the beginning of a file is none of its text
        rows = [[row.replace("\ufeff", "") for row in each] for each in rows]
    with tempfile.TemporaryDirectory() as name:
        files = [write_rows(Path(name) / f"{number}{suffix}", each) for number, each in enumerate(rows)]
        key = None if suffix == ".txt" else "id"
        parts = list(split(expand([f"{name}/*{suffix}"]), size, "text", key))
        assert expand(files) == expand([f"{name}/*{suffix}"])
        read = [row for part in parts for row in read_rows(part)]
    assert [row.value for row in read] == rows[0] + rows[1]
    assert [row.number for row in read] == list(range(1, len(read) + 1))
    assert [row.count for row in parts] == [len(list(each)) for each in by_part(parts, read)]
    assert all(part.count <= size for part in parts) and not any(row.reason for row in read)
    if key:
        assert [int(row.key) for row in read] == [*range(len(rows[0])), *range(len(rows[1]))]


def by_part(parts: list[RowRange], rows: list[Any]) -> Iterator[list[Any]]:
    for part in parts:
        yield [row for row in rows if part.first <= row.number < part.first + part.count]


def run_all(job: Upper, files: list[str], output: Path, size: int = 3, key: str | None = None) -> Any:
    worker, parts = PartWorker(job), []
    output.parent.mkdir(exist_ok=True)
    for number, part in enumerate(split(expand(files), size, "text", key)):
        parts.append(replace(part, output=str(output.parent / f"part-{number}.json")))
        worker.run(parts[-1])
    return join(parts, fsspec.filesystem("file"), str(output), 0)


def test_bad_rows_are_set_aside_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = [
        '{"text": "a"}',
        "{",
        '{"text": 5}',
        "[]",
        '{"other": "b"}',
        '{"text": "x"}',
        '{"text": "b\\ud800"}',
    ]
    path.write_text("\n".join([*lines, '{"text": "c"}']))
    result = run_all(Upper(), [str(path)], tmp_path / "out" / "out.txt")
    assert (tmp_path / "out" / "out.txt").read_text() == "A\n" + "\n" * 6 + "C\n"
    assert [number for number, _ in result.bad] == [2, 3, 4, 5, 6, 7] and result.rows == 8
    stored = [json.loads(line) for line in (tmp_path / "out" / "out.txt.bad.jsonl").read_text().splitlines()]
    assert [each["row"] for each in stored] == [2, 3, 4, 5, 6, 7] and stored[4]["reason"] == "an x"
    assert sum(each["count"]["seen"] for each in result.notes if each["count"]) == 2
    (tmp_path / "latin.txt").write_bytes("ä\nb\n".encode("latin-1"))
    assert run_all(Upper(), [str(tmp_path / "latin.txt")], tmp_path / "l" / "o.txt").bad == [(1, "not UTF-8")]
    with pytest.raises(UsageError) as caught:  # not of one row, but of all
        run_all(Upper(), [write_rows(tmp_path / "x.txt", ["x", "xx"])], tmp_path / "x" / "out.txt")
    assert caught.value.code == "E_BULK_ROWS"


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_tables_keep_the_key(suffix: str, tmp_path: Path) -> None:
    source = write_rows(tmp_path / f"in{suffix}", ["a", "b", "x", "d"])
    output = tmp_path / "out" / f"out{suffix}"
    run_all(Upper(as_json=True), [source], output, 2, "id")
    if suffix == ".parquet":
        rows = parquet.read_table(output).to_pylist()
    elif suffix == ".csv":
        rows = list(csv.DictReader(output.read_text().splitlines()))
    else:
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(int(row["key"]), int(row["line"])) for row in rows] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [row.get("text") or None for row in rows] == ["A", "B", None, "D"] and rows[2]["error"] == "an x"


def test_rows_that_end_every_worker_end_the_work(tmp_path: Path) -> None:
    part = next(split([write_rows(tmp_path / "in.txt", ["a"])], 1, "text"))
    part = replace(part, output=str(tmp_path / "part.json"))
    for _ in range(MAX_TRIES):
        PartWorker(Upper()).run(part)
    with pytest.raises(RegardError) as caught:
        PartWorker(Upper()).run(part)
    assert caught.value.code == "E_RAY_WORKERS"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("none.txt", None, "E_NO_FILE"),
        ("nosuch://a/b.txt", None, "E_NO_FILE"),
        ("a.csv", b"id,txt\n1,a\n", "E_DATA_COLUMN"),
        ("a.parquet", b"PAR1", "E_DATA_TYPE"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes | None, code: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        list(split(expand([name if "://" in name else str(tmp_path / name)]), 2, "text"))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["answer", "--context", "a", "b.txt"], 2),
        (["embed", "--similarity", "a.txt", "-o", "o"], 2),
        (["translate", "a.txt"], 2),
        (["classify", "a.txt", "-o", "o.txt", "--key", "id"], 2),
    ],
)
def test_what_cannot_be_done_by_parts_is_refused(arguments: list[str], code: int) -> None:
    from regard.cli import main

    with pytest.raises(SystemExit) as caught:
        main([*arguments, "-m", "phrasebook-transformer", "--on", "ray"])
    assert caught.value.code == code


# --- on a cluster


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_worker_is_killed_and_the_output_is_that_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from regard.data.phrasebook import phrases

    source = write_rows(tmp_path / "in.txt", [row.english for row in phrases("valid", 5000)])
    command = [sys.executable, "-m", "regard", "translate", "-m", "phrasebook-transformer", source, "-o"]
    subprocess.run([*command, str(tmp_path / "one.txt")], check=True, capture_output=True)
    process = subprocess.Popen([*command, str(tmp_path / "ray.txt"), "--on", "ray", "--workers", "2"])
    parts = tmp_path / ".ray.txt.parts"
    while not (parts.is_dir() and any(".try-" in each.name for each in parts.iterdir())):
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(actors(process.pid)[0], signal.SIGKILL)
    assert process.wait() == 0
    assert (tmp_path / "ray.txt").read_bytes() == (tmp_path / "one.txt").read_bytes()
    assert not parts.exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")
def test_a_dataset_gets_columns() -> None:
    ray = pytest.importorskip("ray")
    import regard
    import regard.ray

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        model = "phrasebook-transformer"
        texts = ["I see the house.", None, "He sleeps."]
        dataset = ray.data.from_items([{"id": number, "text": text} for number, text in enumerate(texts)])
        rows = regard.ray.map(dataset, "translate", model, beam=2).take_all()
        expected = regard.load(find_model(Path(model))).translate([texts[0], texts[2]], beam=2)
        rows.sort(key=lambda row: row["id"])
        assert [row["output"] for row in rows] == [expected[0], None, expected[1]]
        assert [row["error"] for row in rows] == [None, "not text", None]
        assert json.loads(rows[0]["result"])["source"] == texts[0]
        with pytest.raises(UsageError):
            regard.ray.map(dataset, "translate", model, beams=2)
    finally:
        ray.shutdown()
