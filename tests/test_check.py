"""Every line is checked: issues are counted with their places, the rest is used, no pair is shifted."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Command, Refused
from qa import dirty
from regard.config import Task, resolve
from regard.data import check as checking
from regard.data.check import Checked, ThinnedSample, check, make_report, portions, read_held_out
from regard.data.corpora import read_rows
from regard.data.files import LONGEST_LINE
from regard.data.readers.text import is_unbalanced
from regard.data.report import ISSUE_KINDS, MAX_PLACES, DataReport
from regard.errors import RegardError, UsageError
from regard.training.prepare import prepare_data

TASK = Task(source="en", target="de")
GOOD = b"a good line of %d words"


def put(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def look(task: Task = TASK, **data: object) -> Checked:
    config = resolve({"data": data, "task": task.model_dump()})
    report = make_report(config.data)
    return check(config.data, task, read_held_out(config.data, task, report), report)


def lines_found(checked: Checked) -> dict[str, list[int]]:
    return {kind: [line for _, line, _ in places(checked, kind)] for kind in checked.report.counts}


def left_out(checked: Checked) -> int:
    return sum(each["count"] for each in checked.report.to_json() if each["left_out"])


def places(checked: Checked, kind: str) -> list[tuple[str, int, int | None]]:
    return [(Path(p.file).name, p.line, p.byte) for p in checked.report.places.get(kind, [])]


def test_every_kind_is_found_in_its_place_and_nothing_shifts(tmp_path: Path) -> None:
    """The number in each line tells whether its partner is the right one."""
    lines = [b"line %d of the source" % number for number in range(14)]
    other = [b"zeile %d von vielen" % number for number in range(14)]
    lines[0] = b"\xef\xbb\xbf" + lines[0]
    lines[2] = b"bad \xff byte 2"
    other[3] = b"a NUL\x00 in 3"
    lines[4] += b"\r"
    other[5] = "zeile 5 von\u2028vielen".encode()
    other[6] = b"  "
    lines[7] = b"x" * 300
    other[8] = b"o" * (LONGEST_LINE + 5)
    other[9] = b"\xed\xa0\x80 half a character 9"
    names = put(tmp_path / "en", b"\n".join(lines)), put(tmp_path / "de", b"\n".join(other) + b"\n")
    checked = look(train=list(names))
    assert places(checked, "bom") == [("en", 1, 0)]
    assert places(checked, "bad-utf8") == [
        ("en", 3, sum(map(len, lines[:2])) + 2 + 4),
        ("de", 10, sum(map(len, other[:9])) + 9),
    ]
    assert places(checked, "nul") == [("de", 4, sum(map(len, other[:3])) + 3 + 5)]
    assert places(checked, "carriage-return") == [("en", 5, None)]
    assert places(checked, "odd-separator") == [("de", 6, sum(map(len, other[:5])) + 5 + 11)]
    assert [line for _, line, _ in places(checked, "empty")] == [7]
    assert [line for _, line, _ in places(checked, "ratio")] == [8]
    assert places(checked, "endless") == [("de", 9, sum(map(len, other[:8])) + 8)]
    assert places(checked, "no-newline") == [("en", 14, None)]
    rows = list(read_rows(names, TASK, "train", DataReport()))
    assert [number for number, _, _ in rows] == [1, 2, 5, 6, 11, 12, 13, 14]
    for number, source, target in rows:
        assert f" {number - 1} " in f"{source} "
        assert f" {number - 1} " in f"{target} "
    assert checked.corpora[0].pairs == 8
    assert left_out(checked) == 6


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), st.booleans())
def test_any_bytes_keep_the_lines_that_wc_counts(tmp_path: Path, pieces: list[bytes], ended: bool) -> None:
    from regard.data.files import checked_lines, file_types

    content = b"\n".join(pieces) + b"\n" * ended
    if content.startswith(tuple(map(bytes.fromhex, file_types()["magic"]))):
        content = b"." + content
    path = tmp_path / "file"
    path.write_bytes(content)
    count = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    assert len(list(checked_lines(path, DataReport()))) == count


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    put(path, b"a\tb\n" * 10)
    rows = read_rows(str(path), TASK, "train", DataReport())
    next(rows)
    with path.open("ab") as file:
        file.write(b"c\td\n")
    with pytest.raises(UsageError, match="changed while it was read"):
        list(rows)


def test_gzip_cut_short_names_the_place(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"%d some words\t%d einige worte\n" % (n, n * n) for n in range(3000)))
    (tmp_path / "pairs.tsv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"cut short after line \d+, byte \d+"):
        look(train=str(tmp_path / "pairs.tsv.gz"))


def test_wide_text_is_recognised(tmp_path: Path) -> None:
    path = put(tmp_path / "pairs.tsv", "a\tb\n".encode("utf-16"))
    with pytest.raises(UsageError, match="UTF-16"):
        look(train=path)


def test_a_corpus_of_which_nothing_is_left_says_why(tmp_path: Path) -> None:
    path = put(tmp_path / "pairs.tsv", b"no tab\nnone here\n")
    with pytest.raises(UsageError, match=r"pairs\.tsv has no pair .* to learn from \(.*line 1: no tab"):
        look(train=path)


def test_duplicates_are_counted_across_files_and_dropped_on_request(tmp_path: Path) -> None:
    one = put(tmp_path / "one.tsv", b"a b\tA B\nc d\tC D\na b\tA B\n")
    two = put(tmp_path / "two.tsv", b"e f\tE F\nc d\tC D\n")
    checked = look(train=[one, two])
    assert places(checked, "duplicate") == [("one.tsv", 3, None), ("two.tsv", 2, None)]
    assert [each.dropped.tolist() for each in checked.corpora] == [[], []]
    dropping = look(train=[one, two], duplicates="drop")
    assert [each.dropped.tolist() for each in dropping.corpora] == [[2], [1]]


def leaky(tmp_path: Path) -> dict[str, object]:
    train = [
        "the small dog sleeps under the old table\tder kleine hund schläft unter dem alten tisch",
        "nobody knows where the letters have gone\tniemand weiß wo die briefe geblieben sind",
        "The small dog sleeps, under the old table!\tDer kleine Hund schläft unter dem alten Tisch.",
        "the small dog sleeps under the new table\tder kleine hund schläft unter dem neuen tisch",
        "the small dog sleeps under the old table\tetwas ganz anderes steht auf dieser seite hier",
    ]
    test = "the small dog sleeps under the old table\tder kleine hund schläft unter dem alten tisch\n"
    return {
        "train": put(tmp_path / "train.tsv", "\n".join(train).encode()),
        "test": put(tmp_path / "test.tsv", test.encode()),
    }


def test_training_pairs_of_the_test_set_are_left_out_by_kind(tmp_path: Path) -> None:
    checked = look(**leaky(tmp_path))
    assert lines_found(checked) == {
        "leak-exact": [1],
        "leak-normalised": [3],
        "shared-exact": [5],
        "no-newline": [5],
    }
    assert checked.corpora[0].dropped.tolist() == [0, 2]  # and not row 3, which differs by one word
    assert "line 1 of data.test" in str(checked.report.places["leak-exact"][0])
    kept = look(**leaky(tmp_path), leaks="keep")
    assert kept.corpora[0].dropped.tolist() == []
    assert left_out(kept) == 0


KNOWN = "the small dog sleeps under the old table near the door"
TEXTS = [
    KNOWN,
    "nobody knows where the letters have gone since then",
    "The small dog sleeps, under the old table near the door!",
    "the small dog sleeps under the new table near the door",
]


@pytest.mark.parametrize(
    ("name", "task", "line"),
    [
        ("text.txt", Task(name="generate"), lambda text: f"{text}\n"),
        ("text.txt", Task(name="fill"), lambda text: f"{text}\n"),
        ("text.tsv", Task(name="classify"), lambda text: f"{text}\tgood\n"),
        ("text.jsonl", Task(name="classify"), lambda text: json.dumps({"text": text, "label": 1}) + "\n"),
        ("text.conll", Task(name="tag"), lambda text: text.replace(" ", " O\n") + " O\n\n"),
        (
            "text.jsonl",
            Task(name="answer"),
            lambda text: json.dumps({"question": text[:9], "context": text[9:], "answers": []}) + "\n",
        ),
    ],
)
def test_a_text_is_all_that_there_is_to_leak(
    tmp_path: Path, name: str, task: Task, line: Callable[[str], str]
) -> None:
    """Labels, tags and answers are the same everywhere, and no half of anything."""
    train = put(tmp_path / name, "".join(line(text) for text in TEXTS).encode())
    (tmp_path / "held").mkdir()
    test = put(tmp_path / "held" / name, line(KNOWN).encode())
    checked = look(task, train=train, test=test, documents="line")
    starts = [1 + sum(line(text).count("\n") for text in TEXTS[:number]) for number in range(4)]
    assert lines_found(checked) == {
        "leak-exact": [starts[0]],
        "leak-normalised": [starts[2]],
    }
    assert checked.corpora[0].dropped.tolist() == [0, 2]


def test_labels_are_collected_and_unseen_ones_told(tmp_path: Path) -> None:
    train = put(tmp_path / "train.tsv", b"one film\tb\nanother play\ta, c\nthird song\t\n")
    valid = put(tmp_path / "valid.tsv", b"some words\ta\nother words\td,b,e\nno words\t\nmore words\tf\n")
    many = Task(name="classify", multi_label=True)
    checked = look(many, train=train, valid=valid)
    assert checked.labels == ("a", "b", "c")
    assert places(checked, "unseen-label") == [("valid.tsv", 2, None), ("valid.tsv", 4, None)]
    assert checked.report.places["unseen-label"][0].note == "d, e"
    assert checked.corpora[0].dropped.tolist() == []
    both = look(many, train=train, valid=[valid, valid])
    assert [place.file for place in both.report.places["unseen-label"]] == ["data.valid"] * 4
    tags = put(tmp_path / "train.conll", b"a B-X\nb O\n\nc I-X\n")
    other = put(tmp_path / "test.conll", b"d B-X\ne O\n\nf B-Y\ng I-Y\n")
    checked = look(Task(name="tag"), train=tags, test=other)
    assert checked.labels == ("B-X", "I-X", "O")
    assert places(checked, "unseen-label") == [("test.conll", 4, None)]
    assert look(**leaky(tmp_path)).labels == ()


def test_a_label_whose_rows_are_all_held_out_is_unseen(tmp_path: Path) -> None:
    """Its only row was left out as a leak, and the label was still called known."""
    train = put(tmp_path / "train.tsv", b"one film\tgood\nanother play\tbad\nzap zip\trare\n")
    valid = put(tmp_path / "valid.tsv", b"zap zip\trare\n")
    checked = look(Task(name="classify"), train=train, valid=valid)
    assert checked.labels == ("bad", "good")
    assert places(checked, "unseen-label") == [("valid.tsv", 1, None)]


def test_a_corpus_without_a_label_is_refused(tmp_path: Path) -> None:
    train = put(tmp_path / "train.tsv", b"one film\t\nanother play\t\n")
    with pytest.raises(UsageError, match="no row has a label"):
        look(Task(name="classify", multi_label=True), train=train)


def test_a_corpus_that_is_told_by_words_leaks_by_its_source(tmp_path: Path) -> None:
    """Every label is in the held-out data, and every source begins with the same words."""
    train = put(tmp_path / "train.tsv", b"sentence\tlabel\nquite a film\t1\nquite a play\t0\nold news\t1\n")
    test = put(tmp_path / "test.tsv", b"sentence\tlabel\nquite a film\t1\nold news\t0\n")
    told = {"prefix": "is what people say of this one good or bad: ", "say": {"1": "good", "0": "bad"}}
    checked = look(train=[{"corpus": train, **told}], test=[{"corpus": test, **told}])
    assert lines_found(checked) == {"header": [1, 1], "leak-exact": [2, 4]}
    assert checked.sample[1] == (f"{told['prefix']}quite a play", "bad")


def test_duplicates_of_labelled_texts_have_the_same_label(tmp_path: Path) -> None:
    train = put(tmp_path / "train.tsv", b"film\tgood\nfilm\tbad\nfilm\tgood\n")
    assert lines_found(look(Task(name="classify"), train=train)) == {"duplicate": [3]}


@given(st.lists(st.integers(0, 30), max_size=60))
def test_a_portion_is_bounded_by_rows_and_by_characters(sizes: list[int]) -> None:
    rows = [(number, "s" * size, "t") for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "PORTION", 5)
        patch.setattr(checking, "CHARACTERS", 40)
        found = list(portions(iter(rows)))
    assert [row for portion in found for row in portion] == rows
    for number, portion in enumerate(found):
        size = sum(len(source) + len(target) for _, source, target in portion)
        assert 0 < len(portion) <= 5
        assert size - len(portion[-1][1]) - 1 < 40
        assert number == len(found) - 1 or len(portion) == 5 or size >= 40


def test_what_is_dropped_is_not_trained_on(tmp_path: Path) -> None:
    tree = {"data": leaky(tmp_path), "task": TASK.model_dump(), "text": {"kind": "word", "vocabulary": 400}}
    materials = prepare_data(resolve(tree), tmp_path / "run", print)
    assert len(materials.training) == 3
    assert {each["split"]: (each["pairs"], each["used"]) for each in materials.record["corpora"]} == {
        "train": (5, 3),
        "test": (1, 1),
    }
    with pytest.raises(RegardError, match=r"--strict: .*leak-exact"):
        prepare_data(resolve(tree), tmp_path / "other", print, strict=True)


def test_places_are_bounded_and_counts_are_not() -> None:
    report = DataReport()
    for number in range(1000):
        report.add("empty", "file", number)
    (issue,) = report.to_json()
    assert issue["count"] == 1000
    assert len(issue["places"]) == MAX_PLACES


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_short_way_to_absurd_lengths_changes_nothing(source: str, target: str) -> None:
    one, two = (
        len(text.encode()) + 16
        for text in (source.encode(errors="replace").decode(), target.encode(errors="replace").decode())
    )
    clean = source.encode(errors="replace").decode(), target.encode(errors="replace").decode()
    assert is_unbalanced(*clean) == (one > 8 * two or two > 8 * one)


@given(st.integers(1, 20), st.integers(0, 500), st.integers(10, 1000))
def test_a_thinned_sample_is_evenly_spread(limit: int, count: int, characters: int) -> None:
    thinned = ThinnedSample(limit, characters)
    for number in range(count):
        thinned.add(f"{number:09d}", "x")
    numbers = [int(source) for source, _ in thinned.rows]
    assert len(numbers) <= limit
    assert 10 * len(numbers) <= characters
    assert numbers == list(range(0, count, thinned.every))
    most = min(limit, characters // 10)
    assert len(numbers) == count if count <= most else len(numbers) >= most // 2


# sixty dirty corpora


@pytest.mark.parametrize(
    "case",
    [*dirty.bad_bytes(), *dirty.separators(), *dirty.marks_and_ends(), *dirty.lengths()],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_dirty_corpus_gives_the_documented_result(tmp_path: Path, case: dirty.Case, packed: bool) -> None:
    assert dirty.run_case(tmp_path, case, packed) is None


def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path) -> None:
    for case in dirty.refusals(tmp_path):
        assert dirty.run_refusal(*case) is None


def test_random_bytes_never_change_the_number_of_lines(tmp_path: Path) -> None:
    assert dirty.random_files(tmp_path, 300, seed=2) == 0


# the command


def test_data_check_lists_what_it_found(tmp_path: Path, regard: Command) -> None:
    data = leaky(tmp_path)
    result = regard("data", "check", data["train"], "--test", data["test"])
    assert result.code == 0
    assert any("leak-exact" in line and "left out" in line for line in result.lines)
    assert any(f"{data['train']}, line 3: line 1 of data.test" in line for line in result.lines)
    parsed = json.loads(regard("data", "check", data["train"], "--test", data["test"], "--json").lines[0])
    assert Counter({each["kind"]: each["count"] for each in parsed["findings"]})["leak-normalised"] == 1
    assert parsed["corpora"] == [{"name": data["train"], "pairs": 5, "used": 3}]
    assert {each["kind"] for each in parsed["findings"]} <= set(ISSUE_KINDS)
    strict = regard("data", "check", data["train"], "--strict")
    assert (strict.code, strict.err) == (1, "error: --strict: 1 kind of issues found, see above\n")


def test_data_check_of_a_run(tmp_path: Path, regard: Command) -> None:
    leaky(tmp_path)
    (tmp_path / "run.toml").write_text('[data]\ntrain = "train.tsv"\ntest = "test.tsv"\n')
    result = regard("data", "check", tmp_path / "run.toml")
    assert result.code == 0
    assert "3 rows to learn from" in result.lines[-1]


def test_data_check_of_another_task(tmp_path: Path, regard: Command, refused: Refused) -> None:
    train = put(tmp_path / "train.tsv", b"text\tlabel\na film\tgood,long\na play\tbad\n")
    valid = put(tmp_path / "valid.tsv", b"a song\tnew\n")
    result = regard("data", "check", train, "--valid", valid, "--task", "classify", "--many", "--json")
    parsed = json.loads(result.lines[0])
    assert parsed["corpora"] == [{"name": train, "pairs": 2, "used": 2}]
    assert {each["kind"]: each["count"] for each in parsed["findings"]} == {"header": 1, "unseen-label": 1}
    one, two = put(tmp_path / "one.txt", b"a\n\nb\n"), put(tmp_path / "two.txt", b"c\n")
    result = regard("data", "check", one, two, "--task", "generate", "--documents", "paragraph")
    assert result.lines == ["3 rows to learn from; no issues"]
    (tmp_path / "run.toml").write_text('[task]\nname = "tag"\n[data]\ntrain = "some.conll"\n')
    put(tmp_path / "some.conll", b"a O\n\nb\n")
    result = regard("data", "check", tmp_path / "run.toml")
    assert "misaligned" in result.lines[0]
    assert result.lines[-1] == "1 row to learn from"
    assert "task.name" in refused("data", "check", one, "--task", "summarise")
    run = tmp_path / "run.toml"
    message = refused("data", "check", run, "--test", one, "--many")  # both used to be ignored
    assert "--test, --many: " in message and "already sets this" in message
    assert "has no sentence with tags to learn from" in refused("data", "check", one, "--task", "tag")


def test_data_check_of_a_file_without_a_suffix(tmp_path: Path, regard: Command, refused: Refused) -> None:
    train = put(tmp_path / "eng.train", b"EU B-ORG\n\nhere O\n\n")
    result = regard("data", "check", train, "--task", "tag", "--format", "conll")
    assert result.lines == ["2 rows to learn from; no issues"]
    assert "format" in refused("data", "check", train, "--task", "tag")


def test_strict_training_stops_before_a_folder_is_begun(tmp_path: Path, refused: Refused) -> None:
    leaky(tmp_path)
    (tmp_path / "run.toml").write_text('[data]\ntrain = "train.tsv"\ntest = "test.tsv"\n')
    message = refused("train", tmp_path / "run.toml", "--output", tmp_path / "run", "--strict", code=1)
    assert "--strict" in message
    assert not (tmp_path / "run" / "run.toml").exists()
