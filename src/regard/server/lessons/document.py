"""Read a lesson: a Markdown document with front matter, a heading for each step, and fenced cells.

docs/lessons.md describes the format. A broken document is refused with file, line and a code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pydoc import locate
from typing import Any

from regard.errors import UsageError, near_miss
from regard.server.lessons.given import CELLS
from regard.server.lessons.text import LessonText

FILE_NAME = re.compile(r"\d+-([a-z][a-z0-9-]*)\.md")
INFO = re.compile(r"([a-z]+)(?: (?!if\b)([\w.]+))?(?: if ((?:not )?[\w.]+))?")  # kind, function, condition
MATTER = re.compile(r"---\n(.*?)^---$", re.MULTILINE | re.DOTALL)
CONDITION = re.compile(r"\{if ((?:not )?[\w.]+)\}\s+")
FIELD = re.compile(r"(?:- |([a-z_]+):(?= |$))(.*)")  # "- item" or "name: value"
BLOCK = re.compile(
    r"^(?P<fence>```|~~~)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$"
    r"|^(?P<open>```|~~~)|^#+ (?P<title>[^\n]*)"
    r"|(?P<text>(?:^(?!```|~~~|# |## |### )[^\n]*\S[^\n]*\n?)+)",
    re.MULTILINE | re.DOTALL,
)
CHOICE = re.compile(r"\[(x| |yes|no|else|(?:<=|>=|<|>|=) -?[\d.]+)\] (.+)")

GLOBALS = {"model", "text", "n", "d"}  # names that every document has
# The fields of each kind of cell: a type is needed, a value is a default; "-" are items.
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "front": {"title": str, "number": int, "learn": str, "model": ["any"], "inputs": []}
    | {"in_class": 0},  # front matter
    "values": {},
    "matrix": {"caption": str, "values": list, "rows": list, "columns": list, "signed": False, "mask": None},
    "table": {"caption": str, "columns": list, "rows": [], "digits": 3, "-": []},
    "bars": {"caption": str, "names": [], "values": [], "digits": 2, "unit": "", "-": []},
    "lines": {"caption": str, "across": str, "places": list, "series": {}, "even": False, "log": False}
    | {"digits": 3, "-": []},
    "diagram": {"caption": str, "boxes": [], "arrows": [], "-": []},
    "run": {"caption": "What it says", "columns": ["", "output"], "digits": 3},  # a table of model.run
    "slider": {"over": str, "at": list, "show": str},  # and the fields of the figure that it shows
    "question": {
        "ask": str,
        "answer": None,
        "choices": [],
        "tolerance": "",
        "digits": 2,
        "unit": "",
        "-": [],
    },
    "formula": {},
    "text": {},
    "source": {},
}
FIGURES = ("matrix", "table", "bars", "lines", "diagram")


@dataclass(frozen=True)
class LessonCell:
    kind: str
    function: str  # of CELLS; of a source cell: what is shown
    info: LessonText  # its first line, with a condition
    fields: Mapping[str, LessonText]
    items: Sequence[LessonText]
    body: LessonText  # of a formula or a text

    @property
    def name(self) -> str:
        """What its values are called in the step."""
        return self.fields["as"].text if "as" in self.fields else self.function.rpartition(".")[2]

    @property
    def computes(self) -> bool:
        return bool(self.function) and self.kind not in ("source", "slider")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its function, with their defaults."""
        function = CELLS.get(self.function, lambda given: None)
        return {name: each.default for name, each in [*inspect.signature(function).parameters.items()][1:]}

    @property
    def spec(self) -> dict[str, Any]:
        shown = self.fields["show"].text if "show" in self.fields else ""
        return {**FIELDS[self.kind], **(FIELDS[shown] if shown in FIGURES else {})}

    def require(self, fields: Mapping[str, Any]) -> None:
        if missing := [
            name for name, each in self.spec.items() if isinstance(each, type) and name not in fields
        ]:
            raise self.info.error(f"{self.kind} needs {', '.join(missing)}", "E_LESSON_FIELD")


@dataclass(frozen=True)
class LessonStep:
    """A heading, and what stands below it."""

    title: LessonText
    blocks: list[LessonText | LessonCell] = field(default_factory=list)
    claims: list[LessonText] = field(default_factory=list)  # quotations: claims that the step tests

    @property
    def cells(self) -> list[LessonCell]:
        return [block for block in self.blocks if isinstance(block, LessonCell)]

    @property
    def question(self) -> LessonCell:
        return next(each for each in self.cells if each.kind == "question")


@dataclass(frozen=True)
class Lesson:
    name: str
    title: str
    number: int
    about: str
    models: Sequence[str]  # the first that is there; "any": the one chosen in the page; empty: none is needed
    uses: Sequence[str]  # of "model", "text", "sizes"
    in_class: int  # the step for a teacher's list, from 1; 0: none
    preamble: LessonStep  # cells before the first heading, for all steps
    steps: Sequence[LessonStep]


def read_folder(folder: Path) -> list[Lesson]:
    """The lessons of a folder, in the order of their numbers."""
    lessons = sorted(map(read_lesson, sorted(folder.glob("*.md"))), key=lambda lesson: lesson.number)
    if not lessons:
        raise UsageError(f"{folder}: no folder with lessons (files NN-name.md)", code="E_LESSON_FOLDER")
    return lessons


def read_lesson(path: Path) -> Lesson:
    start = LessonText("", path.name, 1)
    if (file_name := FILE_NAME.fullmatch(path.name)) is None:
        raise start.error("call the file NN-name.md, such as 13-tokens.md", "E_LESSON_NAME")
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise start.error("cannot be read as UTF-8 text", "E_LESSON_FILE") from None
    if (matter := MATTER.match(content)) is None:
        raise start.error("begin with front matter between two lines of ---", "E_LESSON_FRONT")
    front = LessonCell("front", "", start, *read_fields(replace(start, text=matter[1], line=2)), start)
    check_cell(front)
    title, number, learn, model, inputs, in_class = (
        front.fields[name].read({}, each) if name in front.fields else each
        for name, each in front.spec.items()
    )
    models = [] if model == ["none"] else model
    uses = [*(["model"] if "any" in models else []), *inputs]
    if {*inputs} - {"text", "sizes"}:
        raise front.fields["inputs"].error("inputs: text, sizes, or text | sizes", "E_LESSON_FRONT")
    preamble, *steps = read_steps(content, matter.end(), path.name)
    check_step(preamble, preamble)
    for step in steps:
        check_step(step, preamble)
    if not steps:
        raise start.error("no step; a step begins with a heading: ## Title", "E_LESSON_STEP")
    return Lesson(file_name[1], title, number, learn, models, uses, in_class, preamble, steps)


def read_steps(text: str, place: int, file: str) -> list[LessonStep]:
    """What is before the first heading, then a step for each heading."""
    steps = [LessonStep(LessonText("", file, 1))]
    for block in BLOCK.finditer(text, place):
        here = LessonText("", file, text.count("\n", 0, block.start()) + 1)
        if block["open"]:
            raise here.error("this cell has no end: ```", "E_LESSON_CELL")
        if block["title"]:
            steps.append(LessonStep(replace(here, text=block["title"].strip())))
        elif block["text"] is None:
            steps[-1].blocks.append(read_cell(block["info"].strip(), block["body"], here))
        elif block["text"].startswith("> "):
            steps[-1].claims.append(replace(here, text=" ".join(block["text"].replace("> ", "").split())))
        else:
            for part in re.split(r"\n(?=- )", block["text"]):
                words = re.sub("^- ", "• ", " ".join(part.split()))
                condition = CONDITION.match(words)
                start, needs = (condition.end(), condition[1]) if condition else (0, "")
                steps[-1].blocks.append(replace(here, text=words[start:], condition=needs))
    return steps


def read_cell(info: str, body: str, here: LessonText) -> LessonCell:
    match = INFO.fullmatch(info)
    if match is None or match[1] not in FIELDS:
        raise here.error(f"{info}: no such cell{near_miss(info, FIELDS)}", "E_LESSON_CELL")
    kind, function = match[1], match[2] or ("model.run" if match[1] == "run" else "")
    first = replace(here, condition=match[3] or "")
    content = replace(here, text=body.rstrip("\n"), line=here.line + 1)
    if kind in ("formula", "text"):
        return LessonCell(kind, function, first, {}, [], content)
    return LessonCell(kind, function, first, *read_fields(content), replace(content, text=""))


def read_fields(body: LessonText) -> tuple[dict[str, LessonText], list[LessonText]]:
    """Lines "name: value" and "- item"; a line that begins with spaces continues the one before."""
    entries: list[tuple[str, LessonText]] = []
    for number, line in enumerate(body.text.split("\n"), body.line):
        here = replace(body, text=line, line=number)
        if line.startswith(" ") and entries:
            name, text = entries[-1]
            entries[-1] = name, replace(text, text=f"{text.text} {line.strip()}")
        elif match := FIELD.fullmatch(line.rstrip()):
            entries.append((match[1] or "-", replace(here, text=match[2].strip())))
        elif line.strip():
            message = 'write "name: value", "- item", or continue a line after two spaces'
            raise here.error(message, "E_LESSON_FIELD")
    return {name: text for name, text in entries if name != "-"}, [
        text for name, text in entries if name == "-"
    ]


# Checks


def check_step(step: LessonStep, preamble: LessonStep) -> None:
    for cell in step.cells:
        check_cell(cell)
    computed: set[str] = {*GLOBALS}
    for cell in (*preamble.cells, *(step.cells if step is not preamble else ())):
        if cell.name in computed:
            message = f"two cells compute {{{cell.name}}}; rename one of them with a field as: NAME"
            raise cell.info.error(message, "E_LESSON_VALUE")
        computed |= {cell.name} if cell.function in CELLS else set()
    paragraphs = [block for block in step.blocks if isinstance(block, LessonText)]
    in_cells = [
        text for each in step.cells for text in (each.info, each.body, *each.fields.values(), *each.items)
    ]
    for text in (step.title, *step.claims, *paragraphs, *in_cells):
        for name in text.names() - computed:
            hint = near_miss(name, computed) or f"; there are {', '.join(sorted(computed))}"
            raise text.error(f"{{{name}}}: no cell of this step computes it{hint}", "E_LESSON_VALUE")
    if step is preamble:
        if paragraphs or any(each.kind != "values" for each in step.cells):
            raise step.title.error("before the first heading there are only values cells", "E_LESSON_STEP")
        return
    if sum(each.kind == "question" for each in step.cells) != 1:
        raise step.title.error("a step has one question", "E_LESSON_STEP")
    check_question(step.question)
    place = step.blocks.index(step.question)
    for part in (step.blocks[:place], step.blocks[place:]):
        if not any(isinstance(block, LessonText) for block in part):
            raise step.title.error("a step has a paragraph before and after its question", "E_LESSON_STEP")


def check_cell(cell: LessonCell) -> None:
    here = cell.info
    if cell.kind == "source":
        inner = "__" in cell.function or not cell.function.startswith("regard.")
        if inner or not callable(locate(cell.function)):
            raise here.error(f"{cell.function}: no function or class of regard", "E_LESSON_CELL")
    elif (cell.function or cell.kind in ("values", "slider")) and cell.function not in CELLS:
        message = f"{cell.function or cell.kind}: no such function{near_miss(cell.function, CELLS)}"
        raise here.error(message, "E_LESSON_CELL")
    spec = {**cell.spec, **cell.arguments, **({"as": ""} if cell.computes else {})}
    check_fields(cell.fields, spec, cell.kind)
    if cell.items and "-" not in spec:
        raise cell.items[0].error(f"{cell.kind} has no items", "E_LESSON_FIELD")
    if not cell.computes:
        cell.require(cell.fields)
    if cell.kind == "slider" and cell.fields["show"].text not in FIGURES:
        raise cell.fields["show"].error(f"show: {', '.join(FIGURES)}", "E_LESSON_FIELD")
    if cell.kind == "slider" and cell.fields["over"].text not in cell.arguments:
        raise cell.fields["over"].error(f"over: an argument of {cell.function}", "E_LESSON_FIELD")


def check_fields(fields: Mapping[str, LessonText], spec: Mapping[str, Any], what: str) -> None:
    for name, text in fields.items():
        if name not in spec:
            hint = near_miss(name, spec) or f"; there are {', '.join(spec)}"
            raise text.error(f"{name}: no such field of {what}{hint}", "E_LESSON_FIELD")
        if "{" not in text.text:
            text.read({}, spec[name])


def check_question(cell: LessonCell) -> None:
    """Its choices: one is ticked, each has a condition, or a function computes them; else a number."""
    marks = [match[1] if (match := CHOICE.fullmatch(item.text)) else "" for item in cell.items]
    ticked = {*marks} == {"x", " "} and marks.count("x") == 1
    judged = marks[-1:] == ["else"] or {*marks} == {"yes", "no"}
    plain = not marks and bool({"choices", "tolerance"} & {*cell.fields})
    if "" in marks or not (ticked or ((judged or plain) and "answer" in cell.fields)):
        raise cell.info.error(
            "a question has an answer with a tolerance or choices; or choices - [x] and - [ ]; or an answer "
            "and choices - [< 0.5], ..., - [else]; or an answer and - [yes], - [no]",
            "E_LESSON_QUESTION",
        )
