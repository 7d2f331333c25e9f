"""Reports of the tasks beside translation, made from small folders written here by hand."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import load_config
from regard.errors import UsageError
from regard.metrics import perplexity_scores
from regard.metrics.answers import squad_scores
from regard.metrics.labels import classification_scores, spans, tagging_scores
from regard.training.report import draw_curves, evaluate_command, score_line, write_report
from regard.training.report.page import printable
from regard.training.report.texts import CONTEXT, MAX_LABELS, entity_errors, excerpt, masked_pairs, type_rows
from report_pages import HOSTILE, Page, write_rows

Rows = list[dict]
WORDS = ["red", "boats", "sleep", "under", "Mount", "Kara", "while", "Ilse", "Brandt", "sings", "a", "song"]
ENTITIES = {"Mount": "B-LOC", "Kara": "I-LOC", "Ilse": "B-PER", "Brandt": "I-PER"}
dice = random.Random(5)


def sentence() -> list[str]:
    return [dice.choice(WORDS) for _ in range(dice.randint(4, 12))]


def classified(
    many: bool = False, labels: tuple[str, ...] = ("calm", "loud", "odd | even")
) -> tuple[Rows, dict]:
    rows = []
    for _ in range(40):
        p = [dice.random() for _ in labels]
        p = p if many else [each / sum(p) for each in p]
        best = max(zip(p, labels))[1]
        output = [label for label, each in zip(labels, p) if each > 0.5] if many else [best]
        reference = output if dice.random() < 0.7 else [dice.choice(labels)]
        row = {"source": " ".join(sentence()), "reference": reference, "output": output}
        rows.append({**row, "probabilities": dict(zip(labels, p))})
    reference, output = [row["reference"] for row in rows], [row["output"] for row in rows]
    return rows, classification_scores(reference, output, labels, many)


def tagged() -> tuple[Rows, dict]:
    rows = []
    for _ in range(30):
        words = sentence()
        tags = [ENTITIES.get(word, "O") for word in words]
        output = [tag if dice.random() < 0.8 else dice.choice(["O", "B-PER", "B-LOC"]) for tag in tags]
        rows.append({"source": words, "reference": tags, "output": output})
    return rows, tagging_scores([row["reference"] for row in rows], [row["output"] for row in rows])


def answered() -> tuple[Rows, dict]:
    rows = []
    for number in range(30):
        words = [word for _ in range(8) for word in sentence()]
        start = dice.randrange(len(words) - 4)
        reference = [] if number % 5 == 0 else [" ".join(words[start : start + 3])]
        output = " ".join(words[start : start + dice.choice([0, 2, 3])])
        row = {"source": "who sleeps?", "context": " ".join(words), "reference": reference, "output": output}
        rows.append({**row, "score": dice.uniform(-3, 9)})
    scores, each = squad_scores([row["reference"] for row in rows], [row["output"] for row in rows])
    return [{**row, "exact": exact, "f1": f1} for row, (exact, f1) in zip(rows, each)], scores


def filled() -> tuple[Rows, dict]:
    rows = []
    for _ in range(20):
        words = sentence()
        guess = [words[1], words[3] if dice.random() < 0.5 else "song"]
        text = " ".join("<mask>" if number in (1, 3) else word for number, word in enumerate(words))
        row = {"source": text, "reference": [words[1], words[3]], "output": guess}
        rows.append({**row, "log_probability": dice.uniform(-9, 0)})
    right = sum(a == b for row in rows for a, b in zip(row["reference"], row["output"]))
    return rows, {"accuracy": right / 40}


def generated() -> tuple[Rows, dict]:
    rows = [{"source": " ".join(sentence()), "output": " ".join(sentence())} for _ in range(12)]
    return rows, perplexity_scores(-5000.0, 2500, 9000)


MADE = {
    "classify": classified,
    "tag": tagged,
    "answer": answered,
    "fill": filled,
    "generate": generated,
}
SETTINGS = {"generate": "gpt", "classify": "bert", "tag": "bert", "answer": "bert", "fill": "bert"}
OWN = {
    "classify": ["Labels", "Errors"],
    "tag": ["Entities", "Errors"],
    "answer": ["Answers", "Errors"],
    "fill": ["Predictions", "Texts"],
    "generate": ["Continuations"],
}


def run_folder(place: Path, task: str, rows: Rows, scores: dict, more: str = "") -> Path:
    """The files that a run of some updates leaves, without its model."""
    folder = place / f"my-{task}"
    folder.mkdir()
    (folder / "run.toml").write_text(
        f'[task]\nname = "{task}"\n{more}\n[data]\ntrain = "train.txt"\ntest = "test.txt"\n'
        f'[model]\npreset = "{SETTINGS[task]}-tiny"\n'
    )
    steps = range(10, 210, 10)
    train = [
        {
            "kind": "train",
            "step": n,
            "loss": 3 / n**0.5,
            "lr": 1e-4 * n,
            "tokens_per_second": 900.0 + n,
            "tokens": 90 * n,
            "seconds": n / 3,
        }
        for n in steps
    ]
    numbers = {key: value for key, value in scores.items() if isinstance(value, float)}
    valid = [
        {"kind": "valid", "step": n, "loss": 3.1 / n**0.5, **{k: v * (1 - 4 / n) for k, v in numbers.items()}}
        for n in (50, 100, 150, 200)
    ]
    run = {
        "kind": "run", "step": 200, "epochs": 2.5, "tokens": 18000, "chosen": "best", "parameters": 1_842_176,
        "vocabulary": [8000], "device": "cpu", "precision": "float32", "threads": 2, "seconds": 66.0,
        "updating": 60.0, "waiting": 1.0, "validating": 4.0, "saving": 2.0, "flops": 3e12, "peak": 9e10,
    }  # fmt: skip
    final = {"kind": "test", "step": 200, "loss": 0.25, **scores, "sentences": len(rows)}
    write_rows(folder / "metrics.jsonl", [*train, *valid, final, run])
    write_rows(folder / "test.jsonl", rows)
    corpora = [{"name": "train.txt", "split": "train", "pairs": 900, "used": 890, "weight": 1.0}]
    finding = {"kind": "empty", "meaning": "an empty text", "count": 10, "left_out": True, "places": []}
    (folder / "data.json").write_text(json.dumps({"corpora": corpora, "findings": [finding]}))
    return folder


def pages(folder: Path) -> tuple[str, Page]:
    write_report(folder)
    html, text = (folder / name for name in ("report.html", "report.md"))
    return text.read_text(encoding="utf-8"), Page(html.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def same_dice() -> None:
    """A test has the same rows whichever ran before."""
    dice.seed(5)


@pytest.fixture(params=sorted(MADE))
def task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- every task -------------------------------------------------------------------------------------------


def test_the_page_of_every_task(task: str, tmp_path: Path) -> None:
    rows, scores = MADE[task]()
    text, page = pages(run_folder(tmp_path, task, rows, scores))
    names = ["Scores", "Curves", "Data", *OWN[task], "Model and training", "Time and cost"]
    assert re.findall(r"^## (.*)$", text, re.M) == names
    assert [each for each in page.texts if each in names] == names
    assert text.startswith(f"# my-{task}: ")
    assert not set(page.tags) & {"script", "link", "img", "iframe", "a"}
    assert "pairs" not in text and "BLEU" not in text and "chrF" not in text and "not recorded" not in text
    curves = 2 + {"generate": 1, "fill": 1}.get(task, 2) + 2  # losses, scores, rate and speed
    assert [attributes.get("class") for _, attributes in page.elements].count("curve") == curves
    assert "| train.txt | train | 900 | 890 | 10 | 1 |" in text
    assert f"regard evaluate -m my-{task} --data test.txt\n" in text


def test_the_scores_of_the_record_are_score_line(task: str, tmp_path: Path) -> None:
    """In the table, in the overview, and by the curve's last point: all in per cent where they are shares."""
    rows, scores = MADE[task]()
    text, _ = pages(run_folder(tmp_path, task, rows, scores))
    (line,) = re.findall(r"^\| test \|.*$", text, re.M)
    shares = {key: scores[key] for key in ("accuracy", "f1", "precision", "recall", "exact") if key in scores}
    assert f"| {len(rows)} |" in line
    assert all(f"| {100 * value:.2f} % |" in line for value in shares.values())
    assert "| 0.2500 |" in line
    first = {
        "classify": "accuracy",
        "tag": "f1",
        "answer": "f1",
        "fill": "accuracy",
        "generate": "perplexity",
    }
    value = scores[first[task]]
    cell = f"{value:.2f}" if task == "generate" else f"{100 * value:.2f} %"
    assert f"| {cell} | on the test data |" in text
    metric = {**first, "generate": "bits_per_byte"}[task]
    last = scores[metric] * (1 - 4 / 200) * (1 if task == "generate" else 100)
    assert f"to {last:.4g} at update 200" in text


def test_hostile_text_is_shown_as_text(task: str, tmp_path: Path) -> None:
    """Whatever stands in texts, labels, types and answers: as many elements of the same kinds, no mark-up."""
    rows, scores = MADE[task]()
    _, page = pages(run_folder(tmp_path, task, rows, scores))

    def worse(value: object, key: str = "") -> object:
        """Every text of a value made hostile, each to another one where it must stay another."""
        if isinstance(value, dict):
            return {f"{name}{HOSTILE}": each for name, each in value.items()}
        if isinstance(value, list):
            return [each if each == "O" else f"{each}{HOSTILE}" for each in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) else value

    evil = [{key: worse(value) for key, value in row.items()} for row in rows]
    again = dict(scores)
    if "by_type" in scores:
        again["by_type"] = {f"{name}{HOSTILE}": values for name, values in scores["by_type"].items()}
    if "confusion" in scores:
        again["confusion"] = {**scores["confusion"], "labels": worse(scores["confusion"]["labels"])}
    (tmp_path / "evil").mkdir()
    folder = run_folder(tmp_path / "evil", task, evil, again)
    text, after = pages(folder)
    assert set(after.tags) == set(page.tags)
    if task not in ("answer", "fill"):  # where the hostile text is too long, other rows come first
        assert Counter(after.tags) == Counter(page.tags)
    assert any(printable("<script>alert(1)</script>") in each for each in after.texts)
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    assert "<" not in outside and "http://" not in outside
    assert not {"\x00", "\x1b", "\u202e"} & set(text)
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in outside.split("\n") if line[:1] == "|"]
    clean = [
        line.count("|") - line.count("\\|")
        for line in pages(tmp_path / f"my-{task}")[0].split("\n")
        if line[:1] == "|"
    ]
    assert Counter(bars).keys() == Counter(clean).keys()


def test_a_row_that_is_of_another_task_is_named(task: str, tmp_path: Path) -> None:
    rows, scores = MADE[task]()
    folder = run_folder(tmp_path, task, rows, scores)
    for wrong in ({"source": 1}, {**rows[0], "output": 3}, {**rows[0], "source": None}, [], "x"):
        write_rows(folder / "test.jsonl", [rows[0], wrong])
        with pytest.raises(UsageError, match=re.escape(f"{folder / 'test.jsonl'}, line 2: ")):
            write_report(folder)


def test_a_run_that_goes_on(task: str, tmp_path: Path) -> None:
    rows, scores = MADE[task]()
    folder = run_folder(tmp_path, task, rows, scores)
    lines = (folder / "metrics.jsonl").read_text().split("\n")
    (folder / "metrics.jsonl").write_text("\n".join(line for line in lines if '"train"' in line))
    for name in ("test.jsonl", "data.json"):
        (folder / name).unlink()
    text, _ = pages(folder)
    assert "not finished yet" in text
    assert "Not scored yet" in text
    assert "tokens so far" in text
    assert draw_curves(folder).read_bytes().startswith(b"\x89PNG")


def test_all_right(task: str, tmp_path: Path) -> None:
    """A report of a model without an error says so."""
    rows, scores = MADE[task]()
    for row in rows:
        row |= {"exact": 1, "f1": 1.0}
        reference = row.get("reference")
        row["output"] = (reference or [""])[0] if task == "answer" else reference or row["output"]
    text, _ = pages(run_folder(tmp_path, task, rows, scores))
    assert ("None: " in text) == (task in ("classify", "tag", "answer"))
    assert ("40 of 40 masked tokens" in text) == (task == "fill")


def test_the_picture_has_the_curves_of_the_task(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves: dict[str, list[float]] = {}

    def plot(axes: object, xs: list[float], ys: list[float], label: str, **more: object) -> None:
        curves[label] = list(ys)

    monkeypatch.setattr("matplotlib.axes.Axes.plot", plot)
    rows, scores = MADE[task]()
    draw_curves(run_folder(tmp_path, task, rows, scores))
    expected = {
        "classify": {"accuracy": "accuracy", "macro F1": "f1"},
        "tag": {"F1": "f1", "accuracy of words": "accuracy"},
        "answer": {"F1": "f1", "exact match": "exact"},
        "fill": {"accuracy": "accuracy"},
        "generate": {"bits per byte": "bits_per_byte"},
    }[task]
    assert set(curves) == {"training", "validation", "learning rate", *expected}
    for name, key in expected.items():
        factor = 1 if task == "generate" else 100
        assert curves[name][-1] == pytest.approx(factor * scores[key] * 0.98)


# --- one line ---------------------------------------------------------------------------------------------


def test_a_record_in_one_line() -> None:
    record = {"kind": "test", "step": 9, "loss": 0.24123, "sentences": 872}
    assert score_line(
        "classify", {**record, "accuracy": 0.9123, "f1": 0.9108, "by_type": {}, "confusion": {}}
    ) == ("test: accuracy 91.2 %, macro F1 91.1 %, loss 0.2412 on 872 texts")
    many = {"accuracy": 0.5, "f1": 0.6, "exact": 0.5, "micro_f1": 0.75, "by_type": {}}
    assert score_line("classify", record | many) == (
        "test: accuracy 50.0 %, macro F1 60.0 %, micro F1 75.0 %, loss 0.2412 on 872 texts"
    )
    tags = {"accuracy": 0.98, "f1": 0.88, "precision": 0.875, "recall": 0.9, "by_type": {}}
    assert score_line("tag", record | tags) == (
        "test: F1 88.0 %, precision 87.5 %, recall 90.0 %, accuracy of words 98.0 %, "
        "loss 0.2412 on 872 sentences"
    )
    assert score_line("answer", {**record, "kind": "final-valid", "exact": 0.75, "f1": 0.8}) == (
        "final-valid: F1 80.0 %, exact match 75.0 %, loss 0.2412 on 872 questions"
    )
    assert (
        score_line("fill", {**record, "accuracy": 0.5}) == "test: accuracy 50.0 %, loss 0.2412 on 872 texts"
    )
    assert score_line("generate", {**record, "perplexity": 1234.5, "bits_per_byte": 1.5}) == (
        "test: perplexity 1,234.50, 1.500 bits per byte, loss 0.2412 on 872 texts"
    )
    translated = {
        "bleu": 40.256,
        "chrf": 60.5,
        "exact": 0.335,
        "bleu_interval": [40, 1],
        "chrf_interval": [60, 1],
    }
    assert score_line("translate", record | translated | {"sentences": 1000}) == (
        "test: BLEU 40.26, chrF 60.50, 33.5 % of 1000 exact, loss 0.2412"
    )


def test_the_scores_as_the_metrics_give_them_are_all_score_line(task: str) -> None:
    scores = MADE[task]()[1]
    line = score_line(task, {"kind": "test", "loss": 1.0, "sentences": 2, **scores})
    shares = {key: value for key, value in scores.items() if isinstance(value, float) and task != "generate"}
    assert all(f"{100 * value:.1f} %" in line for value in shares.values())
    assert line.count("%") == len(shares)


def test_the_command_of_other_tasks_names_no_tokenisation(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "tag", *tagged())
    config = load_config(folder / "run.toml")
    assert evaluate_command(config, "x y") == "regard evaluate -m 'x y' --data test.txt"


# --- labels -----------------------------------------------------------------------------------------------


def test_the_confusion_matrix_stands_there_in_both_pages(tmp_path: Path) -> None:
    rows, scores = classified()
    text, page = pages(run_folder(tmp_path, "classify", rows, scores))
    labels, counts = scores["confusion"]["labels"], scores["confusion"]["counts"]
    assert "| reference ↓ output → | calm | loud | odd \\| even |" in text
    for label, row in zip(labels, counts):
        name = label.replace("|", "\\|")
        assert f"| {name} | {' | '.join(map(str, row))} |" in text
    cells = [attributes for tag, attributes in page.elements if tag == "td" and "style" in attributes]
    assert [attributes["class"] for attributes in cells] == [
        f"number {c}" for c in ["right", *["wrong"] * 3] * 2 + ["right"]
    ]
    expected = [(count / sum(row)) ** 0.5 for row in counts for count in row]
    assert [float(str(attributes["style"]).split(":")[1]) for attributes in cells] == pytest.approx(
        expected, abs=0.006
    )


def test_errors_come_with_the_surest_first(tmp_path: Path) -> None:
    rows, scores = classified()
    text, _ = pages(run_folder(tmp_path, "classify", rows, scores))
    wrong = [row["probabilities"][row["output"][0]] for row in rows if row["output"] != row["reference"]]
    probabilities = [float(p) for p in re.findall(r"^probability: ([\d.]+) %", text, re.M)]
    assert probabilities == pytest.approx([100 * p for p in sorted(wrong, reverse=True)[:12]], abs=0.06)
    assert f"{len(wrong)} of 40 texts of the test data are wrong" in text


def test_many_labels(tmp_path: Path) -> None:
    rows, scores = classified(many=True)
    rows[0] |= {"reference": ["calm"], "output": [], "probabilities": {"calm": 0.001, "loud": 0.0}}
    text, page = pages(run_folder(tmp_path, "classify", rows, scores, "multi_label = true"))
    assert "micro F1" in text and "many labels" in text
    assert "matrix" not in [attributes.get("class") for _, attributes in page.elements]
    assert re.search(r"^reference +calm\noutput +no label$", text, re.M)
    assert re.findall(r"^probability: .*", text, re.M)[0] == "probability: 0.1 % calm"


def test_very_many_labels_have_a_list_instead_of_a_matrix(tmp_path: Path) -> None:
    labels = tuple(f"label-{number}" for number in range(MAX_LABELS + 1))
    rows, scores = classified(labels=labels)
    rows += [{**rows[0], "reference": ["label-3"], "output": ["label-7"]}] * 50
    scores = classification_scores([r["reference"] for r in rows], [r["output"] for r in rows], labels, False)
    text, page = pages(run_folder(tmp_path, "classify", rows, scores))
    assert "matrix" not in [attributes.get("class") for _, attributes in page.elements]
    pairs = Counter((r["reference"][0], r["output"][0]) for r in rows if r["reference"] != r["output"])
    assert f"| label-3 | label-7 | {pairs['label-3', 'label-7']} |" in text


def test_a_table_of_labels_ends_somewhere() -> None:
    types = {f"label {n}": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "count": n} for n in range(70)}
    rows = type_rows(types)
    assert [row[0] for row in (rows[0], rows[-2], rows[-1])] == ["label 69", "label 10", "and 10 more"]
    assert len(type_rows(dict(list(types.items())[:60]))) == 60


# --- entities ---------------------------------------------------------------------------------------------

tags = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(tags, tags), max_size=10))
def test_every_entity_is_counted_once(pairs: list[tuple[str, str]]) -> None:
    """Right, wrong, missed and spurious part the entities of both sides; right ones are seqeval's."""
    reference, output = [a for a, _ in pairs], [b for _, b in pairs]
    entities = entity_errors({"reference": reference, "output": output})
    assert Counter([*entities.right, *(a for a, _ in entities.wrong), *entities.missed]) == Counter(
        spans(reference)
    )
    assert Counter([*entities.right, *(b for _, b in entities.wrong), *entities.spurious]) == Counter(
        spans(output)
    )
    assert set(entities.right) == set(spans(reference)) & set(spans(output))
    assert all(a != b and a[1] <= b[2] and b[1] <= a[2] for a, b in entities.wrong)
    assert (entities.errors == 0) == (spans(reference) == spans(output))


def test_mistakes_in_words(tmp_path: Path) -> None:
    words = ["Ilse", "Brandt", "saw", "Mount", "Kara", "on", "Monday", "with", "Otto", "in", "June"]
    reference = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "O", "O", "B-PER", "O", "O"]
    output = ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-LOC", "O", "B-LOC", "O", "O"]
    rows = [
        {"source": words, "reference": reference, "output": output},
        {"source": ["Ilse"], "reference": ["B-PER"], "output": ["O"]},
    ]
    scores = tagging_scores([row["reference"] for row in rows], [row["output"] for row in rows])
    text, _ = pages(run_folder(tmp_path, "tag", rows, scores))
    assert (
        "sentence  Ilse Brandt saw Mount Kara on Monday with Otto in June\n"
        "wrong     Mount Kara (LOC) was tagged Mount (LOC); Otto (PER) was tagged Otto (LOC)\n"
        "spurious  Monday (LOC)\n"
        "right     Ilse Brandt (PER)\n"
    ) in text
    assert "missed    Ilse (PER)\n" in text
    for name, count in (("right", 1), ("wrong type", 1), ("wrong words", 1), ("missed", 1), ("spurious", 1)):
        assert f"| {name} | {count} |" in text
    assert "| PER | 3 | 100.00 % | 33.33 % | 50.00 % |" in text


# --- answers ----------------------------------------------------------------------------------------------


def test_questions_with_and_without_an_answer(tmp_path: Path) -> None:
    rows, scores = answered()
    text, _ = pages(run_folder(tmp_path, "answer", rows, scores))
    for name, group in (
        ("with an answer", [row for row in rows if row["reference"]]),
        ("without an answer", [row for row in rows if not row["reference"]]),
    ):
        answers = sum(row["output"] != "" for row in group)
        exact, f1 = (100 * sum(row[key] for row in group) / len(group) for key in ("exact", "f1"))
        assert (
            f"| {name} | {len(group)} | {answers} | {len(group) - answers} | {exact:.2f} % | {f1:.2f} % |"
            in text
        )
    scores_of_errors = [float(p) for p in re.findall(r"^F1 ([\d.]+) %, model's score", text, re.M)]
    worst = sorted(100 * row["f1"] for row in rows if not row["exact"])[:12]
    assert scores_of_errors == pytest.approx(worst, abs=0.06)


@settings(max_examples=60, deadline=None)
@given(st.text("ab ", max_size=900), st.integers(0, 900), st.integers(1, 20))
def test_the_excerpt_is_of_the_context_and_holds_the_answer(context: str, start: int, size: int) -> None:
    reference = context[start : start + size]
    text = excerpt(context, (reference, "zz"))
    inner = text.removeprefix("… ").removesuffix(" …")
    assert inner in context
    assert reference in inner
    assert len(inner) <= 2 * CONTEXT + size


# --- running text -----------------------------------------------------------------------------------------


def test_lines_of_a_text_stay_lines(tmp_path: Path) -> None:
    """And nothing in them ends the fence."""
    rows = [{"source": "one\n```\ntwo", "output": "three\r\n~~~\n"}]
    text, page = pages(run_folder(tmp_path, "generate", rows, generated()[1]))
    fence = "````"
    lines = [
        "prompt        one",
        "              ```",
        "              two",
        "continuation  three\\u000d",
        "              ~~~",
    ]
    assert "\n".join([f"{fence}text", *lines, fence]) in text
    assert "one\n```\ntwo" in page.texts


# --- gaps -------------------------------------------------------------------------------------------------


def test_spans_of_t5_are_compared_by_their_names() -> None:
    row = {
        "reference": ["<extra_id_0>", " red", " boat", "<extra_id_1>", " sleep", "<extra_id_2>"],
        "output": [" x", "<extra_id_1>", " sleep", "<extra_id_0>", " red"],
    }
    assert masked_pairs(row) == [(" red boat", " red"), (" sleep", " sleep")]
    assert masked_pairs({"reference": ["a", "b"], "output": ["a", "c"]}) == [("a", "a"), ("b", "c")]


def test_the_pieces_most_often_mistaken(tmp_path: Path) -> None:
    row = {"source": "a <mask> <mask>", "reference": [" the", "s|s"], "output": ["the", "x"]}
    right = {**row, "output": row["reference"]}
    text, _ = pages(run_folder(tmp_path, "fill", [row, row, right], {"accuracy": 1 / 3}))
    assert "2 of 6 masked tokens" in text
    assert "| ␣the | the | 2 |" in text  # the space is all that differs
    assert "| s\\|s | x | 2 |" in text
    assert "0 of 2 right" in text and "2 of 2 right" in text
