"""`regard answer`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    LineResults,
    OneModel,
    Output,
    Scores,
    Threads,
    answer_texts,
    json_line,
    looks_like_path,
    messages,
    one_line,
    portions,
    put_lines,
    read_all_stdin,
    thread_count,
    writable,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Answered, Answerer

DATA = (".json", ".jsonl", ".parquet")  # files of questions with contexts


def answer(
    model: OneModel,
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions or files of them; nothing or - reads stdin. Or a SQuAD .json, .jsonl, .parquet."
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The text that contains the answers, or its file; - is stdin.")
    ] = None,
    nbest: Annotated[
        int, typer.Option(min=1, help="Answers a question: number, score, start, end, text, with tabs.")
    ] = 1,
    scores: Scores = False,
    no_answer: Annotated[
        float | None,
        typer.Option(
            help="Give no answer below this score; default: 0 if the training data has such questions.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Find the answers to questions in a text: a line of result for each question, empty for "no answer".

    Start and end are characters of the context, counted from 0; the end is exclusive. The score is the
    margin over "no answer". Questions of a SQuAD file have their contexts: the result is one JSON object
    of id and answer, the format of SQuAD's evaluation script.

    [bold]--json[/] gives an object a line

      line (or id), question, text, answers (best first: text, start, end, score,
      probability: of both ends, in the part of the context that was read at once)

    [bold]Examples[/]

      regard answer -m runs/squad --context article.txt "Who wrote it?" "When?"
      regard answer -m runs/squad --context article.txt < questions.txt
      regard answer -m runs/squad dev-v1.1.json -o predictions.json
    """
    from regard.tasks import Answerer, load_as

    output = writable(output)
    data = None if context is not None else data_file(questions or [])
    if data is not None and (nbest > 1 or scores) and not as_json:
        raise UsageError(f"{data}: predictions are one answer each; take --json with --nbest or --scores")
    text = "" if context is None else read_context(context, questions or [])
    answerer = load_as(Answerer, model, device, thread_count(threads))
    if data is not None:
        answer_data(answerer, data, nbest, no_answer, as_json, output)
        return
    results = AnswerLines(answerer, text, nbest, scores, no_answer, as_json)
    answer_texts(results, questions, output, "answering", "answers")


def data_file(questions: Sequence[str]) -> Path | None:
    from regard.data.files import format_suffix

    if len(questions) == 1 and format_suffix(Path(questions[0])) in DATA:
        return Path(questions[0])
    raise UsageError("--context is missing: give the text that contains the answers, or its file")


def read_context(name: str, questions: Sequence[str]) -> str:
    """A whole file, or the text itself, with its line ends: they count in the positions of answers."""
    from regard.data.files import read_text
    from regard.data.report import StrictReport

    if name == "-":
        if not questions or "-" in questions:
            raise UsageError("--context -: stdin holds the context, so give the questions as arguments")
        return read_all_stdin()
    if os.path.exists(name):  # noqa: PTH110  (Path.exists raises for a text longer than a file name)
        return read_text(Path(name), StrictReport())
    if looks_like_path(name):
        raise UsageError(f"--context {name}: no such file")
    return name


@dataclass
class AnswerLines(LineResults):
    """Lines of questions to lines of answers."""

    answerer: Answerer
    context: str
    nbest: int
    scores: bool
    no_answer: float | None
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        pairs = [(line, self.context) for line in lines]
        results = self.answerer.answer_pairs(pairs, self.nbest, self.no_answer, first)
        if self.as_json:
            return [as_object({"line": number}, each) for number, each in enumerate(results, first)]
        return [line for number, each in enumerate(results, first) for line in self.as_lines(number, each)]

    def as_lines(self, number: int, result: Answered) -> Iterator[str]:
        for each in result.answers:
            text = one_line(each.text)
            if self.nbest > 1:
                text = f"{number}\t{each.score:.4f}\t{each.start}\t{each.end}\t{text}"
            elif self.scores:
                text = f"{each.score:.4f}\t{text}"
            yield text


def as_object(name: dict[str, object], result: Answered) -> str:
    row = name | {"question": result.question, "text": result.text}
    row["answers"] = [
        asdict(each) | ({} if math.isfinite(each.score) else {"score": None}) for each in result.answers
    ]
    return json_line(row)


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str


def answer_data(
    answerer: Answerer, path: Path, nbest: int, no_answer: float | None, as_json: bool, output: Path | None
) -> None:
    """Answer a file of questions with contexts; every question gets an answer."""
    predictions: dict[str, str] = {}
    results: list[str] = []
    with messages().status("answering") as status:
        for portion in portions(read_questions(path), AT_ONCE):
            pairs = [(each.question, each.context) for each in portion]
            answers = answerer.answer_pairs(pairs, nbest, no_answer, len(predictions) + 1)
            for one, each in zip(portion, answers):
                if one.id in predictions:
                    raise UsageError(f'{path}: the id "{one.id}" occurs twice')
                predictions[one.id] = each.text
                results += [as_object({"id": one.id}, each)] if as_json else []
            status.update(f"answering: {len(predictions):,} questions")
    if not predictions:
        raise UsageError(f"{path} contains no question")
    put_lines(results if as_json else [json_line(predictions)], output, f"{len(predictions):,} answers")


def read_questions(path: Path) -> Iterator[Question]:
    """Questions with contexts, with or without answers; the default id is the number of the question."""
    from regard.config import Task
    from regard.data.files import format_suffix
    from regard.data.readers import InvalidRow, string_field
    from regard.data.readers.annotated import question_records
    from regard.data.readers.tables import TableFormat
    from regard.data.report import StrictReport

    table = TableFormat.of(Task(name="answer"), inputs_only=True)
    for number, row in question_records(path, format_suffix(path), StrictReport(), table):
        name = row.get("id", number)
        if not isinstance(name, str | int):
            raise UsageError(f"{path}, question {number}: its id is neither a string nor a number")
        try:
            yield Question(str(name), string_field(row, "question"), string_field(row, "context"))
        except InvalidRow as wrong:
            raise UsageError(f"{path}, question {name}: {wrong.note}") from None
