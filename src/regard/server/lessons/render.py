"""A lesson as JSON for the page: cells are computed, then values are put into sentences and figures."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pydoc import locate
from typing import Any

from torch import Tensor

from regard.config.reading import finite
from regard.server.lessons.document import CHOICE, FIELDS, Lesson, LessonCell, LessonStep
from regard.server.lessons.given import CELLS, Given, LessonUnavailable, Values
from regard.server.lessons.text import LessonText, text_json

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


def about_lesson(lesson: Lesson) -> Values:
    about = {"name": lesson.name, "title": lesson.title, "about": lesson.about, "uses": list(lesson.uses)}
    return {**about, "in_class": lesson.in_class}


def lesson_json(lesson: Lesson, given: Given, first: bool = False) -> Values:
    """A lesson as JSON, or its first step alone, which is sooner there. `missing`: why it has no steps."""
    try:
        if lesson.models:
            given = given.with_first(lesson.models)
        sizes = {"n": given.words, "d": given.width}
        scope = compute(lesson.preamble, given, {"model": given.name, "text": given.sentence, **sizes}) or {}
        computed = (
            step_json(step, replace(given, functions=[*given.functions]), scope) for step in lesson.steps
        )
        steps = list(islice(filter(None, computed), 1 if first else None))
    except LessonUnavailable as reason:
        return {**about_lesson(lesson), "steps": [], "missing": str(reason)}
    text = given.sentence if "text" in lesson.uses else ""
    content = {**about_lesson(lesson), "model": given.name, "text": text, **sizes}
    result: Values = finite({**content, "steps": steps, "missing": ""})
    return result


def compute(step: LessonStep, given: Given, scope: Values) -> Values | None:
    """The scope with what the cells of a step compute; None: the model has nothing for the step."""
    for cell in step.cells:
        if cell.computes and cell.info.holds(scope):
            if (values := call(cell, given, scope, cell.fields)) is None:
                return None
            scope = {**scope, cell.name: values}
    return scope


def call(cell: LessonCell, given: Given, scope: Values, fields: Mapping[str, LessonText]) -> Values | None:
    """The values of a cell's function, with the arguments that the document names."""
    arguments = {
        name: text.read(scope, cell.arguments[name])
        for name, text in fields.items()
        if name in cell.arguments
    }
    values = given(CELLS[cell.function], given, **arguments)
    return None if values is None else plain(values)


def plain(value: Any) -> Any:
    """Tensors and sequences as lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def step_json(step: LessonStep, given: Given, scope: Values) -> Values | None:
    """Paragraphs and figures before the question and after it."""
    if (computed := compute(step, given, scope)) is None:
        return None
    scope, place = computed, step.blocks.index(step.question)
    text, before = blocks_json(step.blocks[:place], given, scope)
    why, after = blocks_json(step.blocks[place + 1 :], given, scope)
    return {
        "title": step.title.fill(scope),
        "text": text,
        "question": question_json(step.question, scope),
        "why": why[0] if why else "",
        "functions": given.functions,
        "before": before,
        "after": after,
        "then": why[1:],
        "claim": " ".join(each.fill(scope) for each in step.claims),
    }


def blocks_json(
    blocks: Sequence[LessonText | LessonCell], given: Given, scope: Values
) -> tuple[list[Any], list[Values]]:
    """Paragraphs, and figures with the number of paragraphs that stand above each."""
    texts: list[Any] = []
    figures: list[Values] = []
    for block in blocks:
        if isinstance(block, LessonText):
            texts += [text_json(block.fill(scope))] if block.holds(scope) else []
        elif block.kind != "values" and block.info.holds(scope):
            figures.append({**figure_json(block, given, scope), "place": len(texts)})
    return texts, figures


def question_json(cell: LessonCell, scope: Values) -> Values:
    spec = cell.spec
    fields = {
        name: cell.fields[name].read(scope, each) if name in cell.fields else each
        for name, each in spec.items()
    }
    question, answer = {"text": text_json(fields["ask"])}, fields["answer"]
    if cell.items:
        marks, texts = zip(*[CHOICE.fullmatch(item.text).groups() for item in cell.items])  # type: ignore[union-attr]
        options = [replace(item, text=text).fill(scope) for item, text in zip(cell.items, texts)]
        place = next(place for place, mark in enumerate(marks) if is_right(mark, answer))
        return {"kind": "choice", **question, "options": options, "answer": place}
    if fields["choices"]:
        return {"kind": "choice", **question, "options": fields["choices"], "answer": int(answer)}
    try:
        number, percent, _ = str(fields["tolerance"]).partition("%")
        answer = float(answer)
        tolerance = abs(answer) * float(number) / 100 if percent else float(number)
    except (TypeError, ValueError):
        raise cell.info.error("answer and tolerance are numbers", "E_LESSON_QUESTION") from None
    shown = {"digits": fields["digits"], "unit": fields["unit"]}
    return {"kind": "number", **question, "answer": answer, "tolerance": tolerance, **shown}


def is_right(mark: str, answer: Any) -> bool:
    """Whether a choice with this mark is the right one; the first that is counts."""
    if mark in ("yes", "no"):
        return bool(answer) == (mark == "yes")
    sign, _, number = mark.partition(" ")
    return mark in ("x", "else") or (sign in COMPARE and bool(COMPARE[sign](answer, float(number))))


def figure_json(cell: LessonCell, given: Given, scope: Values) -> Values:
    if cell.kind in ("formula", "text"):
        return {"kind": cell.kind, "text": cell.body.fill(scope)}
    if cell.kind == "source":
        return {"kind": "source", "caption": cell.function, "text": inspect.getsource(locate(cell.function))}  # type: ignore[arg-type]
    if cell.kind != "slider":
        return drawn(cell, "table" if cell.kind == "run" else cell.kind, scope.get(cell.name, {}), scope)
    over, at = cell.fields["over"].text, cell.fields["at"]
    places, figures = at.read(scope, list), []
    for place in places:
        values = call(cell, given, scope, {**cell.fields, over: replace(at, text=place)}) or {}
        figures.append(drawn(cell, cell.fields["show"].text, values, {**scope, cell.name: values}))
    return {"kind": "slider", "caption": over, "places": places, "figures": figures}


def drawn(cell: LessonCell, kind: str, values: Values, scope: Values) -> Values:
    """A figure: what the document says, else what its function computed, else defaults."""
    spec = {**FIELDS[kind], **cell.spec}
    fields = {name: each for name, each in spec.items() if not isinstance(each, type)}
    fields |= {name: each for name, each in values.items() if name in FIELDS[kind]}
    fields |= {
        name: text.read(scope, spec[name]) for name, text in cell.fields.items() if name in FIELDS[kind]
    }
    cell.require({**fields, **cell.fields})
    items = [row for item in cell.items for row in rows_of(item, scope, flat=kind == "table")]
    if kind == "lines":
        fields["series"] = [
            {"name": name, "values": each} for name, each in items or fields["series"].items()
        ]
    elif kind == "bars" and items:
        fields["names"], fields["values"] = map(list, zip(*items))
    elif kind == "diagram":
        arrows = [row for row in items if " -> " in str(row[0])]
        fields["boxes"] = [*fields["boxes"], *(row for row in items if row not in arrows)]
        fields["arrows"] = [*fields["arrows"], *([*row[0].split(" -> "), *row[1:]] for row in arrows)]
    elif items:
        fields["rows"] = items
    return {
        "kind": kind,
        **{name: each for name, each in fields.items() if name in FIELDS[kind] and name != "-"},
    }


def rows_of(item: LessonText, scope: Values, flat: bool) -> list[list[Any]]:
    """The row of an item "- a | b"; many if `a` is a list or has a #, which counts them from 0."""
    parts = [replace(item, text=part.strip()).read(scope, str) for part in item.text.split("|")]
    lists = [part for part in parts if isinstance(part, list)]
    rows = [parts]
    if lists and (isinstance(parts[0], list) or "#" in str(parts[0])):
        count = min(map(len, lists))
        rows = [[part[row] if isinstance(part, list) else part for part in parts] for row in range(count)]
        if isinstance(parts[0], str):
            rows = [[parts[0].replace("#", str(row)), *rest] for row, (_, *rest) in enumerate(rows)]
    if not flat:
        return rows
    return [[each for part in row for each in (part if isinstance(part, list) else [part])] for row in rows]
