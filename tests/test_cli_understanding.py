"""`regard classify`, `tag`, `answer`, and `evaluate` for them, as a person and a pipe meet them."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from pathlib import Path

import pytest

import understanding
from conftest import Command, Refused

pytestmark = pytest.mark.usefixtures("same_threads")


# classify


def test_a_label_a_line_by_every_way_in(regard: Command, tmp_path: Path) -> None:
    model = understanding.model("classify")
    (tmp_path / "texts").write_text("ba lala\nbuhu de\n", encoding="utf-8")
    assert regard("classify", "-m", model, tmp_path / "texts", "fi grr").lines == ["happy", "sad", "angry"]
    assert regard("classify", "-m", model, stdin="ba lala\nbuhu de\n").lines == ["happy", "sad"]
    written = regard("classify", "-m", model, tmp_path / "texts", "-o", tmp_path / "out")
    assert (written.out, written.err) == ("", f"wrote 2 results to {tmp_path / 'out'}\n")
    assert (tmp_path / "out").read_text() == "happy\nsad\n"


def test_labels_with_probabilities(regard: Command) -> None:
    model = understanding.model("classify")
    (line,) = regard("classify", "-m", model, "ba lala", "--scores").lines
    p, label = line.split("\t")
    assert label == "happy"
    assert 0.5 < float(p) <= 1
    (line,) = regard("classify", "-m", model, "ba lala", "--all").lines  # the old name of -n 1000
    assert line == regard("classify", "-m", model, "ba lala", "-n", 3).lines[0]
    names, numbers = line.split("\t")[1::2], [float(p) for p in line.split("\t")[::2]]
    assert names[0] == "happy"
    assert set(names) == {"happy", "sad", "angry"}
    assert numbers == sorted(numbers, reverse=True)
    row = json.loads(regard("classify", "-m", model, "ba lala", "--json").out)
    assert (row["line"], row["text"], row["label"], row["precision"]) == (1, "ba lala", "happy", "float32")
    assert row["labels"] == [{"name": "happy", "probability": row["probabilities"]["happy"]}]
    assert [f"{row['probabilities'][name]:.4f}" for name in names] == line.split("\t")[::2]
    assert not row["truncated"]


def test_many_labels(regard: Command) -> None:
    model = understanding.model("many")
    first, none = regard("classify", "-m", model, "ba red de blue", "ba de").lines
    assert set(first.split(",")) == {"red", "blue"}
    assert none == ""


def test_texts_that_are_too_long_or_empty(regard: Command, refused: Refused) -> None:
    model = understanding.model("classify")
    long = "lala " + "ba " * 50
    found = regard("classify", "-m", model, "--json", stdin=f"ba grr\n{long}\n")
    assert [json.loads(line)["truncated"] for line in found.lines] == [False, True]
    assert "line 2: too long for the model, which read only a part of it (--on-too-long)" in found.err
    found = regard("classify", "-m", model, "--on-too-long", "skip", stdin=f"{long}\nba grr\n")
    assert found.lines == ["", "angry"]
    assert "line 1: skipped: too long for the model" in found.err
    told = refused("classify", "-m", model, "--on-too-long", "error", stdin=f"ba\n{long}\n")
    assert told.startswith("line 2: the text has ")
    assert regard("classify", "-m", model, stdin="ba grr\n\nba grr\n").lines == ["angry", "", "angry"]


# tag


def test_entities_marked_in_their_lines(regard: Command) -> None:
    model = understanding.model("tag")
    text = " ba Ana Smit, de\nfi\n\nOslo."
    assert regard("tag", "-m", model, stdin=text).lines == [" ba [PER Ana Smit], de", "fi", "", "[LOC Oslo]."]
    assert regard("tag", "-m", model, "--rows", stdin=text).lines == [
        "1\t4\t12\tPER\tAna Smit",
        "4\t0\t4\tLOC\tOslo",
    ]
    first, *_, last = [json.loads(line) for line in regard("tag", "-m", model, "--json", stdin=text).lines]
    assert (first["line"], first["text"], last["line"]) == (1, " ba Ana Smit, de", 4)
    (entity,) = first["entities"]
    assert 0.5 < entity.pop("score") <= 1
    assert entity == {"type": "PER", "start": 4, "end": 12, "text": "Ana Smit"}


def test_a_sentence_longer_than_the_model_is_told(regard: Command) -> None:
    found = regard("tag", "-m", understanding.model("tag"), "ba", "de Oslo " * 30, "--json")
    rows = [json.loads(line) for line in found.lines]
    assert rows[0]["windows"] == 1
    assert rows[1]["windows"] > 1
    assert len(rows[1]["entities"]) == 30
    assert "line 2: a sentence is too long for the model, and was read in parts" in found.err


def test_columns_in_and_out(regard: Command, refused: Refused, tmp_path: Path) -> None:
    model = understanding.model("tag")
    columns = "-DOCSTART- O\n\n# a comment\nAna NN O\nSmit NN O\n\n\nba\nOslo\n"
    expected = ["Ana\tB-PER", "Smit\tI-PER", "", "ba\tO", "Oslo\tB-LOC", ""]
    assert regard("tag", "-m", model, "--conll", stdin=columns).lines == expected
    written = regard("tag", "-m", model, "--conll", "-o", tmp_path / "out", stdin=columns)
    assert written.err == f"wrote 2 sentences to {tmp_path / 'out'}\n"
    assert (tmp_path / "out").read_text().split("\n")[:-1] == expected
    assert "take one" in refused("tag", "-m", model, "--conll", "--json", stdin=columns)


# answer

CONTEXT = "ba de zu fi ga\n"


def test_questions_about_a_text(regard: Command, tmp_path: Path) -> None:
    model = understanding.model("answer")
    (tmp_path / "context.txt").write_text(CONTEXT, encoding="utf-8")
    for context in (tmp_path / "context.txt", CONTEXT):
        found = regard("answer", "-m", model, "--context", context, "fu zu ?", "ko zu ?")
        assert found.lines == ["fi", "fi"], found.err
    assert regard("answer", "-m", model, "--context", CONTEXT, stdin="fu zu ?\n").lines == ["fi"]
    assert regard("answer", "-m", model, "--context", "-", "fu zu ?", stdin=CONTEXT).lines == ["fi"]
    lines = CONTEXT.replace(" ", "\r\n")
    (tmp_path / "lines.txt").write_bytes(lines.encode())
    asked = [("--context", tmp_path / "lines.txt", None), ("--context", "-", lines)]
    told = [regard("answer", "-m", model, *own, "fu zu ?", "--json", stdin=text).out for *own, text in asked]
    assert told[0] == told[1], "the offsets of a text from stdin count its line ends too"
    os.mkfifo(tmp_path / "pipe")  # as the shell's <(command)
    threading.Thread(target=(tmp_path / "pipe").write_text, args=(CONTEXT,)).start()
    assert regard("answer", "-m", model, "--context", tmp_path / "pipe", "fu zu ?").lines == ["fi"]
    (line,) = regard("answer", "-m", model, "--context", CONTEXT, "fu zu ?", "--scores").lines
    score, text = line.split("\t")
    assert (float(score) > 0, text) == (True, "fi")


def test_several_answers_and_none(regard: Command) -> None:
    model = understanding.model("answer")
    rows = [
        line.split("\t")
        for line in regard("answer", "-m", model, "--context", CONTEXT, "fu zu ?", "--num-results", 3).lines
    ]
    assert [row[0] for row in rows] == ["1"] * 3
    assert rows[0][2:] == ["9", "11", "fi"]
    assert all(CONTEXT[int(start) : int(end)] == text for _, _, start, end, text in rows)
    row = json.loads(
        regard("answer", "-m", model, "--context", CONTEXT, "fu zu ?", "--num-results", 2, "--json").out
    )
    assert (row["line"], row["question"], row["text"], len(row["answers"])) == (1, "fu zu ?", "fi", 2)
    assert set(row["answers"][0]) == {"text", "start", "end", "score", "probability"}
    assert regard("answer", "-m", model, "--context", "ba de fi", "fu zu ?").lines == [""]
    assert regard("answer", "-m", model, "--context", "ba de fi", "fu zu ?", "--min-score", "-999").lines != [
        ""
    ]


def squad(path: Path, questions: list[dict[str, object]], answers: bool) -> Path:
    own = [
        {
            "context": each["context"],
            "qas": [
                {"id": f"q{n}", "question": each["question"]}
                | ({"answers": each["answers"]} if answers else {})
            ],
        }
        for n, each in enumerate(questions)
    ]
    path.write_text(
        json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": own}]}), encoding="utf-8"
    )
    return path


def test_predictions_for_squads_own_script(regard: Command, refused: Refused, tmp_path: Path) -> None:
    model = understanding.model("answer")
    dice = random.Random(21)
    questions = [understanding.asked(dice) for _ in range(20)]
    bare = squad(tmp_path / "bare.json", questions, answers=False)  # a test set whose answers are secret
    written = regard("answer", "-m", model, bare, "-o", tmp_path / "predictions.json")
    assert (written.code, written.out) == (0, ""), written.err
    predictions = json.loads((tmp_path / "predictions.json").read_text())
    assert list(predictions) == [f"q{number}" for number in range(20)]
    expected = [each["answers"][0]["text"] if each["answers"] else "" for each in questions]  # type: ignore[index]
    right = [one == other for one, other in zip(predictions.values(), expected)]
    assert sum(right) >= 18
    shown = regard("answer", "-m", model, bare, "--json", "--num-results", 2)
    rows = [json.loads(line) for line in shown.lines]
    assert {row["id"]: row["text"] for row in rows} == predictions
    scored = squad(tmp_path / "scored.json", questions, answers=True)
    told = json.loads(regard("evaluate", "-m", model, "--data", scored, "--json").out)
    assert told["exact"] == pytest.approx(sum(right) / 20)
    assert "take --json" in refused("answer", "-m", model, bare, "--num-results", 2)


def test_questions_that_cannot_be_asked(regard: Command, refused: Refused, tmp_path: Path) -> None:
    model = understanding.model("answer")
    assert "--context is missing" in refused("answer", "-m", model, "fu zu ?")
    assert "no such file" in refused("answer", "-m", model, "--context", "folder/missing.txt", "fu ?")
    assert "give the questions as arguments" in refused("answer", "-m", model, "--context", "-", stdin="ba")
    blank = regard("answer", "-m", model, "--context", CONTEXT, stdin="fu zu ?\n\nfu zu ?\n")
    assert blank.lines == ["fi", "", "fi"]
    long = "ba " * 39 + "ba ?"
    told = refused("answer", "-m", model, "--context", "ba", long, "--on-too-long", "error")
    assert "41 tokens leave no room" in told
    assert "reads 32" in told
    twice = {"question": "fu ?", "context": "ba", "id": "x"}
    (tmp_path / "q.jsonl").write_text(f"{json.dumps(twice)}\n" * 2, encoding="utf-8")
    assert 'the id "x" occurs twice' in refused("answer", "-m", model, tmp_path / "q.jsonl")
    (tmp_path / "q.jsonl").write_text('{"question": "fu ?"}\n', encoding="utf-8")
    assert 'line 1: needs "question" and "context"' in refused("answer", "-m", model, tmp_path / "q.jsonl")


# evaluate


@pytest.mark.parametrize("corpus", ["classify", "many", "tag", "answer"])
def test_evaluate_gives_the_scores_of_the_run(regard: Command, corpus: str, tmp_path: Path) -> None:
    model = understanding.model(corpus)
    records = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    (record,) = [each for each in records if each["kind"] == "test"]
    found = json.loads(regard("evaluate", "-m", model, "--json", "-o", tmp_path / "rows").out)
    for key in record.keys() - {"kind", "step"}:
        assert found[key] == (pytest.approx(record[key], abs=1e-5) if key == "loss" else record[key]), key
    assert len((tmp_path / "rows").read_text().splitlines()) == found["sentences"] == 40
    shown = regard("evaluate", "-m", model).out
    assert f"{100 * record['f1']:.2f} %" in shown
    if "by_type" in record:
        assert all(name in shown for name in record["by_type"])


def test_labels_that_the_model_does_not_know_are_told_and_count_as_errors(
    regard: Command, tmp_path: Path
) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("ba lala\thappy\nde buhu\tsad\nfi ga\tbored\nba ga\tbored\n", encoding="utf-8")
    found = regard("evaluate", "-m", understanding.model("classify"), "--data", path, "--json")
    assert "2 texts have a label that this model does not know, which counts as an error: bored" in found.err
    assert json.loads(found.out)["accuracy"] == 0.5
    path = tmp_path / "test.conll"
    path.write_text("ba\tO\nOslo\tB-LOC\n\nBo\tB-DOG\n", encoding="utf-8")
    found = regard("evaluate", "-m", understanding.model("tag"), "--data", path, "--json")
    assert "1 sentence has a tag that this model does not know" in found.err
    row = json.loads(found.out)
    assert (row["precision"], row["recall"]) == (0.5, 0.5)


def test_texts_that_evaluate_cannot_read_are_told(regard: Command, tmp_path: Path) -> None:
    path, long = tmp_path / "test.tsv", "ba " * 40
    path.write_text(f"ba lala\thappy\n{long}lala\thappy\n", encoding="utf-8")
    found = regard("evaluate", "-m", understanding.model("classify"), "--data", path, "--json")
    assert "left out 1 of data.test: longer than 32 tokens (texts 2)" in found.err
    assert json.loads(found.out)["sentences"] == 1
    path.write_text("ba lala\thappy\n\tsad\n", encoding="utf-8")
    found = regard("evaluate", "-m", understanding.model("classify"), "--data", path, "--json")
    assert "left out 1 without a text (the first:" in found.err and "line 2" in found.err
    path.write_text(f"{long}lala\thappy\n", encoding="utf-8")
    model = understanding.model("classify")
    result = regard("evaluate", "-m", model, "--data", path)
    assert (result.code, result.out) == (2, "")
    assert "nothing is left to score: the model reads 32 tokens" in result.err


def test_what_evaluate_refuses(refused: Refused, tmp_path: Path) -> None:
    model = understanding.model("tag")
    assert "for models that translate" in refused("evaluate", "-m", model, "--beam", 3)
    assert "tokenize" in refused("evaluate", "-m", model, "--tokenize", "13b")
    bare = shutil.copytree(model, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    (bare / "run.toml").unlink()
    assert "names no test set" in refused("evaluate", "-m", bare)


def test_a_folder_without_its_run_is_evaluated(regard: Command, tmp_path: Path) -> None:
    model = understanding.model("tag")
    bare = shutil.copytree(model, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    (bare / "run.toml").unlink()
    test = model.parent / "test.conll"
    one, other = (
        json.loads(regard("evaluate", "-m", m, "--data", test, "--json").out) for m in (model, bare)
    )
    assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("command", ["translate", "tag", "answer", "generate", "fill"])
def test_a_model_of_another_task_names_its_command(refused: Refused, command: str) -> None:
    context = ["--context", "ba"] if command == "answer" else []
    told = refused(command, "-m", understanding.model("classify"), *context, "ba <mask>")
    assert 'this is a classify model; use "regard classify"' in told
