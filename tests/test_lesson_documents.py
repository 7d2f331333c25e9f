"""Lessons as documents: those of the package, a teacher's own, and broken ones, each refused with a code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from conftest import Refused
from regard.errors import UsageError
from regard.resources import PACKAGE
from regard.server import make_app
from regard.server.lessons import LESSONS, Given, add_lessons, lesson_json
from regard.server.lessons.document import FIELDS, read_lesson
from regard.server.lessons.given import CELLS
from regard.server.lessons.text import LessonText, text_json
from traced_models import TEXT, opened_task

BUILT_IN = PACKAGE / "builtin" / "lessons"
DOCS = Path(__file__).parent.parent / "docs" / "lessons.md"

FRONT = """---
title: Tokens of a class
number: 13
learn: A word is not always one token.
model: any
inputs: text
---
"""
QUESTION = """
```question
ask: How many tokens has it?
answer: {tokens.count}
tolerance: 0.5
digits: 0
```
"""
STEP = (
    """
## How many tokens

```values model.tokens
text: the small cat
```

We cut {text:token} for {model:token}; *here* is `the small cat`, see [Heads](?view=heads).
"""
    + QUESTION
    + """
It has {tokens.count}; the longest list of *n* words is {n}, and {{braces}} stay.

```table model.tokens
caption: Its tokens
as: again
```
"""
)
MORE = """
## What it says

A run, weights, choices and source.

```source regard.models.attention.scores
```

```question
ask: Does it say the same without positions?
answer: {run.same}
- [yes] yes
- [no] no
```

{if run.same} The same.

{if not run.same} Not the same: {run.other:token}.

```run
change: drop_positions
```

```matrix model.attention
caption: Weights of {attention.where}
where: encoder.0.self
head: 1
```

```slider model.choices
over: temperature
at: 0.5 | 1 | 2
show: bars
caption: Probabilities, best {choices.best}
count: 4
```
"""


def written(folder: Path, text: str, name: str = "13-own.md") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rendered(path: Path, model: str = "transformer", **more: Any) -> dict[str, Any]:
    lessons = add_lessons(path.parent)
    return lesson_json(lessons["own"], Given({model: opened_task(model)}, model, **more))


# The package's documents


@pytest.mark.parametrize("path", sorted(BUILT_IN.glob("*.md")), ids=lambda path: path.stem)
def test_the_cells_of_a_document_exist(path: Path) -> None:
    lesson = read_lesson(path)
    assert path.name == f"{lesson.number:02d}-{lesson.name}.md"
    cells = [cell for step in (lesson.preamble, *lesson.steps) for cell in step.cells]
    assert {cell.function for cell in cells if cell.computes} <= {*CELLS}
    assert {cell.kind for cell in cells} <= {*FIELDS}


def test_every_cell_is_used_or_documented() -> None:
    documents = "".join(path.read_text(encoding="utf-8") for path in BUILT_IN.glob("*.md"))
    page = DOCS.read_text(encoding="utf-8")
    assert {name for name in CELLS if f" {name}\n" not in documents and f"`{name}`" not in page} == set()
    assert {kind for kind in FIELDS if f"`{kind}`" not in page} == {"front"}


def test_the_documents_are_numbered_in_order() -> None:
    assert [lesson.number for lesson in LESSONS.values()] == list(range(1, 22))


# A teacher's own


def test_a_teachers_document_comes_after_the_built_in_ones(tmp_path: Path) -> None:
    own = rendered(written(tmp_path, FRONT + STEP), text=TEXT)
    assert list(add_lessons(tmp_path)) == [*LESSONS, "own"]
    assert (own["title"], own["uses"], own["missing"]) == ("Tokens of a class", ["model", "text"], "")
    (step,) = own["steps"]
    assert step["text"][0][1] == {"token": TEXT}
    assert step["text"][0][4:] == [
        "; ",
        {"em": "here"},
        " is ",
        {"code": "the small cat"},
        ", see ",
        {"link": "Heads", "href": "?view=heads"},
        ".",
    ]
    count = len(opened_task("transformer").folder.source.encode("the small cat"))
    assert step["question"]["answer"] == count
    assert step["why"] == [
        f"It has {count}; the longest list of ",
        {"em": "n"},
        " words is 50, and {braces} stay.",
    ]
    assert "regard.server.lessons.model.tokens" in step["functions"]


def test_runs_weights_sliders_and_sources(tmp_path: Path) -> None:
    own = rendered(written(tmp_path, FRONT + STEP + MORE), text=TEXT)
    step = own["steps"][1]
    (source,) = step["before"]
    assert source["kind"] == "source"
    assert source["text"].startswith("def scores(")
    runs, weights, slider = step["after"]
    task = opened_task("transformer")
    plain, other = task.trace(TEXT), task.trace(TEXT, interventions=[{"type": "drop_positions"}])
    assert [row[1] for row in runs["rows"]] == [plain.output, other.output]
    same = plain.output == other.output
    assert step["question"]["options"][step["question"]["answer"]] == ("yes" if same else "no")
    assert weights["caption"] == "Weights of encoder.0.self"
    assert weights["values"][0] == pytest.approx(plain.weights("encoder.0.self", 1)[0].tolist())
    assert slider["places"] == ["0.5", "1", "2"]
    largest = [figure["values"][0] for figure in slider["figures"]]
    assert largest == sorted(largest, reverse=True)
    p = plain["logits"][0].softmax(dim=-1).max()
    assert largest[1] == pytest.approx(float(p), abs=1e-6)


def test_a_document_may_name_its_model(tmp_path: Path) -> None:
    path = written(tmp_path, FRONT.replace("model: any", "model: gpt | none-such") + STEP)
    own = lesson_json(
        add_lessons(tmp_path)["own"], Given({name: opened_task(name) for name in ("rnn", "gpt")}, "rnn")
    )
    assert (own["model"], own["uses"]) == ("gpt", ["text"])
    assert "gpt" in rendered(path, "rnn")["missing"]


def test_a_step_without_values_is_left_out(tmp_path: Path) -> None:
    text = (
        FRONT
        + STEP
        + STEP.replace("model.tokens\ntext: the small cat", "order.dropped")
        .replace("How many tokens", "Order")
        .replace("tokens.count", "dropped.same")
        .replace("model.tokens", "order.dropped\ncolumns: a")
    )
    own = rendered(written(tmp_path, text), "rnn")
    assert [step["title"] for step in own["steps"]] == ["How many tokens"]


def test_the_routes_list_it(tmp_path: Path) -> None:
    written(tmp_path, FRONT + STEP)
    app = make_app({"rnn": opened_task("rnn")}, lessons=add_lessons(tmp_path))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        assert client.get("/api/v1/lessons").json()["lessons"][-1]["name"] == "own"
        assert client.get("/api/v1/lessons/own").json()["steps"][0]["title"] == "How many tokens"


def test_the_example_of_the_docs_is_a_lesson(tmp_path: Path) -> None:
    lines = DOCS.read_text(encoding="utf-8").split("\n")
    start = lines.index("---")
    own = rendered(written(tmp_path, "\n".join(lines[start : lines.index("```", start)])), text=TEXT)
    (step,) = own["steps"]
    assert len(step["after"][0]["rows"]) == step["question"]["answer"]


# Values


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{x}", "1234.50"),
        ("{x:.1f}", "1234.5"),
        ("{x:,.0f}", "1,234"),
        ("{tiny:.2}", "3e−07"),
        ("{tiny:.2f}", "0.00"),
        ("{share:.0%}", "25%"),
        ("{minus:.2}", "−0.50"),
        ("{list.max} {list.min} {list.mean} {list.sum:.1f} {list.count}", "3 1 2.00 6.0 3"),
        ("{list.first} {list.last} {list.argmax} {list.argmin} {list.1}", "1 2 1 0 3"),
        ("{list}", "1, 3, 2"),
        ("{{x}}", "{x}"),
    ],
)
def test_values_in_sentences(text: str, shown: str) -> None:
    values = {"x": 1234.5, "tiny": 3e-7, "share": 0.25, "minus": -0.5, "list": [1, 3, 2]}
    assert LessonText(text, "a.md", 1).fill(values) == shown


@pytest.mark.parametrize(
    "text", ["{x.__class__}", "{x.real}", "{x[0]}", "{x!r}", "{f()}", "{list.append}", "{y}"]
)
def test_nothing_but_values_is_reached(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        LessonText(text, "a.md", 7).fill({"x": 1.0, "list": [1]})
    assert caught.value.code == "E_LESSON_VALUE"
    assert "a.md, line 7: " in str(caught.value)


def test_links_lead_to_views_or_pages_only() -> None:
    assert text_json("[a](javascript:alert) [b](//x.org)") == "[a](javascript:alert) [b](//x.org)"
    assert text_json("[a](https://x.org)") == [{"link": "a", "href": "https://x.org"}]


# Broken documents: what is replaced, by what, the code, and the text of the line that is named


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("---\ntitle", "title", "E_LESSON_FRONT", "title: Tokens of a class"),
        ("title: Tokens of a class\n", "", "E_LESSON_FIELD", "---"),
        ("learn:", "lern:", "E_LESSON_FIELD", "lern: A word is not always one token."),
        ("number: 13", "number: last", "E_LESSON_FIELD", "number: last"),
        ("inputs: text", "inputs: words", "E_LESSON_FRONT", "inputs: words"),
        ("```question", "```qestion", "E_LESSON_CELL", "```qestion"),
        ("```values model.tokens", "```values model.token", "E_LESSON_CELL", "```values model.token"),
        ("```values model.tokens", "```values", "E_LESSON_CELL", "```values"),
        ("as: again\n```", "as: again", "E_LESSON_CELL", "```table model.tokens"),
        ("as: again\n", "", "E_LESSON_VALUE", "```table model.tokens"),
        ("```table", "```source os.system\n```\n```table", "E_LESSON_CELL", "```source os.system"),
        ("```table", "```source regard.no.such\n```\n```table", "E_LESSON_CELL", "```source regard.no.such"),
        ("text: the small", "txt: the small", "E_LESSON_FIELD", "txt: the small cat"),
        ("caption: Its tokens", "caption Its tokens", "E_LESSON_FIELD", "caption Its tokens"),
        ("digits: 0", "digits: none", "E_LESSON_FIELD", "digits: none"),
        ("ask: How many tokens has it?\n", "", "E_LESSON_FIELD", "```question"),
        ("```table model.tokens", "```table", "E_LESSON_FIELD", "as: again"),
        ("```table model.tokens\ncaption: Its tokens\nas: again", "```table", "E_LESSON_FIELD", "```table"),
        ("tolerance: 0.5\n", "", "E_LESSON_QUESTION", "```question"),
        ("tolerance: 0.5\n", "- [x] one\n- [x] two\n", "E_LESSON_QUESTION", "```question"),
        ("tolerance: 0.5\n", "- [< 2] one\n- [< 3] two\n", "E_LESSON_QUESTION", "```question"),
        ("tolerance: 0.5\n", "- one\n- two\n", "E_LESSON_QUESTION", "```question"),
        (QUESTION, "", "E_LESSON_STEP", "## How many tokens"),
        (QUESTION, QUESTION * 2, "E_LESSON_STEP", "## How many tokens"),
        (STEP, STEP[: STEP.index("It has")], "E_LESSON_STEP", "## How many tokens"),
        ("## How many tokens\n", "", "E_LESSON_STEP", "---"),
        ("It has {tokens.count}", "It has {token.count}", "E_LESSON_VALUE", "It has {token.count}; the"),
        (
            "It has {tokens.count}",
            "It has {tokens.count!r}",
            "E_LESSON_VALUE",
            "It has {tokens.count!r}; the",
        ),
        ("It has {tokens.count}", "It has {1 + 1}", "E_LESSON_VALUE", "It has {1 + 1}; the"),
    ],
)
def test_a_broken_document_is_refused(tmp_path: Path, old: str, new: str, code: str, line: str) -> None:
    text = FRONT + STEP
    assert old in text
    text = text.replace(old, new, 1)
    with pytest.raises(UsageError) as caught:
        read_lesson(written(tmp_path, text))
    assert caught.value.code == code
    place = re.match(r"13-own\.md, line (\d+): ", str(caught.value))
    assert place, str(caught.value)
    assert text.splitlines()[int(place[1]) - 1].startswith(line)


def test_a_value_that_no_cell_computes_is_named_when_it_is_shown(tmp_path: Path) -> None:
    text = FRONT + STEP.replace("It has {tokens.count}", "It has {tokens.cuont}")
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=r"13-own\.md, line 24: \{tokens\.cuont\}.* count") as caught:
        rendered(path)
    assert caught.value.code == "E_LESSON_VALUE"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("own.md", FRONT + STEP, "E_LESSON_NAME"),
        ("01-mixing.md", FRONT + STEP, "E_LESSON_NAME"),
        ("13-other-own.md", FRONT, "E_LESSON_STEP"),
        ("README.txt", "", "E_LESSON_FOLDER"),
    ],
)
def test_a_wrong_folder_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    written(tmp_path, text, name)
    with pytest.raises(UsageError) as caught:
        add_lessons(tmp_path)
    assert caught.value.code == code


def test_two_documents_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("13-own.md", "14-own.md"):
        written(tmp_path, FRONT + STEP, name)
    with pytest.raises(UsageError, match="own") as caught:
        add_lessons(tmp_path)
    assert caught.value.code == "E_LESSON_NAME"


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "13-own.md").write_bytes(b"---\n\xff\xfe")
    with pytest.raises(UsageError) as caught:
        add_lessons(tmp_path)
    assert caught.value.code == "E_LESSON_FILE"


@pytest.mark.parametrize("command", ["explore", "serve"])
def test_the_commands_refuse_before_they_load_a_model(refused: Refused, tmp_path: Path, command: str) -> None:
    written(tmp_path, FRONT + STEP.replace("```question", "```qestion"))
    message = refused(command, "--lessons", tmp_path, "-m", "no-such-model")
    assert message.startswith("13-own.md, line 17: ")


def test_the_places_for_teachers_are_there() -> None:
    """Each lesson and step that the table of topics names."""
    table = DOCS.read_text(encoding="utf-8").split("## Where to find what")[1].split("## Routes")[0]
    places = re.findall(r"`([a-z0-9]+)`((?:,? (?:to )?\d+)+)", table)
    assert len(places) > 40
    for name, steps in places:
        last = max(map(int, re.findall(r"\d+", steps)))
        assert last <= len(LESSONS[name].steps), f"{name} {steps}"
