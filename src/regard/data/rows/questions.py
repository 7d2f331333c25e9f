"""Questions about a text: SQuAD's .json (1.1 and 2.0), or objects of "question", "context", "answers"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.files import whole_text
from regard.data.findings import Findings
from regard.data.formats import kind
from regard.data.rows import Row, Unfit
from regard.data.rows.tables import TABLES, Object, clean, objects, read_objects, text_of
from regard.errors import UsageError


def read_questions(path: Path, findings: Findings) -> Iterator[Row]:
    """A question with an answer that does not stand at its offset is left out, never mended: where else the
    same words stand, they may not be the answer.
    """
    if kind(path) in TABLES:
        return read_objects(path, findings, asked)
    if kind(path) == ".json":
        return read_squad(path, findings)
    raise UsageError(f"{path}: questions stand in SQuAD's .json, a .jsonl or a .parquet")


def read_squad(path: Path, findings: Findings) -> Iterator[Row]:
    for number, found in squad_objects(path, findings):
        try:
            sides = asked(found)
        except Unfit as wrong:
            note = f"question {found['id']}: {wrong.note}" if isinstance(found.get("id"), str) else wrong.note
            findings.add(wrong.kind, str(path), number, note=note)
        else:
            yield number, *sides


def question_objects(path: Path, findings: Findings) -> Iterator[tuple[int, Object]]:
    """What a file has of each question, answers or none, with its number in the file."""
    return squad_objects(path, findings) if kind(path) == ".json" else objects(path, findings)


def squad_objects(path: Path, findings: Findings) -> Iterator[tuple[int, Object]]:
    """Articles, their paragraphs, their questions; each with its context."""
    try:
        content = json.loads(whole_text(path, findings))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise UsageError(f'{path}: not SQuAD\'s layout: it needs an object with the list "data"')
    yield from enumerate(_questions(content["data"]), start=1)


def _questions(articles: list[Any]) -> Iterator[Object]:
    """Each with its context; what is not of SQuAD's layout gives an empty one, which is then missed."""
    for article in articles:
        for paragraph in _list(article, "paragraphs"):
            for question in _list(paragraph, "qas"):
                found = question if isinstance(question, dict) else {}
                yield {**found, "context": paragraph.get("context") if isinstance(paragraph, dict) else None}


def _list(found: object, name: str) -> list[Any]:
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, list) else [{}]


def asked(found: Object) -> tuple[str, str]:
    question, context = text_of(found, "question").replace("\n", " "), text_of(found, "context")
    answers = _answers(found)
    if not question.strip() or not context.strip():
        raise Unfit("empty")
    for text, start in answers:
        if not text.strip() or start < 0 or not context.startswith(text, start):
            raise Unfit("answer-not-there", f"at character {start}")
    return f"{question}\n{context}", json.dumps(answers, ensure_ascii=False)


def _answers(found: Object) -> list[tuple[str, int]]:
    """[{"text": ..., "answer_start": ...}, ...] as in SQuAD, or one object of two lists as on the hub."""
    value = found.get("answers")
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
    elif isinstance(value, list) and all(isinstance(each, dict) for each in value):
        texts, starts = [each.get("text") for each in value], [each.get("answer_start") for each in value]
    else:
        texts = starts = None
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise Unfit("malformed", 'needs "answers" with "text" and "answer_start"')
    if not all(isinstance(text, str) for text in texts) or not all(type(start) is int for start in starts):
        raise Unfit("malformed", 'needs strings as "text" and whole numbers as "answer_start"')
    if texts and found.get("is_impossible") is True:
        raise Unfit("malformed", "an answer to a question that is called impossible")
    return [(clean(text), start) for text, start in zip(texts, starts)]
