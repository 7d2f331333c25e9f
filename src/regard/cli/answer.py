"""`regard answer`."""

from __future__ import annotations

import json
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
    OneModel,
    Threads,
    looks_like_path,
    messages,
    one_line,
    portions,
    print_line,
    read_all_stdin,
    read_inputs,
    say,
    thread_count,
    writable,
)
from regard.cli.translate import answer_all, is_typed
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Answered, Answerer

DATA = (".json", ".jsonl", ".parquet")  # files that have contexts beside their questions


def answer(
    model: OneModel,
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions or files of them; nothing or - reads stdin. Or a SQuAD .json, .jsonl, .parquet."
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The text that answers stand in, or its file; - is stdin.")
    ] = None,
    nbest: Annotated[
        int, typer.Option(min=1, help="Answers a question: number, score, start, end, text, with tabs.")
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Put the score and a tab before the text.")
    ] = False,
    no_answer: Annotated[
        float | None,
        typer.Option(
            help="Give no answer below this score; else below 0, if training had questions without one.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Find the answers to questions in a text: a line of result for each question, empty for "no answer".

    Start and end are characters of the context, counted from 0; the end is the first one behind. A score
    tells how much better an answer is than none. Questions of a SQuAD file come with their contexts: the
    result is one JSON object of id and answer, which SQuAD's own evaluation script reads.

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
    result = Results(answerer, text, nbest, scores, no_answer, as_json)
    answer_all(result, read_inputs(questions or []), is_typed(questions), output, "answering", "answers")


def data_file(questions: Sequence[str]) -> Path | None:
    from regard.data.files import format_suffix

    if len(questions) == 1 and format_suffix(Path(questions[0])) in DATA:
        return Path(questions[0])
    raise UsageError("--context is missing: the text that answers stand in, or its file")


def read_context(name: str, questions: Sequence[str]) -> str:
    """All of a file, or the text itself; its line ends stay as they are, since answers are counted in it."""
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
class Results:
    """Lines of questions to lines of answers."""

    answerer: Answerer
    context: str
    nbest: int
    scores: bool
    no_answer: float | None
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        pairs = [(line, self.context) for line in lines]
        found = self.answerer.answer_pairs(pairs, self.nbest, self.no_answer, first)
        if self.as_json:
            return [as_object({"line": number}, each) for number, each in enumerate(found, first)]
        return [line for number, each in enumerate(found, first) for line in self.as_lines(number, each)]

    def end(self) -> None:
        pass

    def as_lines(self, number: int, found: Answered) -> Iterator[str]:
        for each in found.answers:
            text = one_line(each.text)
            if self.nbest > 1:
                text = f"{number}\t{each.score:.4f}\t{each.start}\t{each.end}\t{text}"
            elif self.scores:
                text = f"{each.score:.4f}\t{text}"
            yield text


def as_object(name: dict[str, object], found: Answered) -> str:
    row = name | {"question": found.question, "text": found.text}
    row["answers"] = [
        asdict(each) | ({} if math.isfinite(each.score) else {"score": None}) for each in found.answers
    ]
    return json.dumps(row, ensure_ascii=False)


@dataclass(frozen=True)
class Asked:
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
        for portion in portions(read_asked(path), AT_ONCE):
            pairs = [(each.question, each.context) for each in portion]
            found = answerer.answer_pairs(pairs, nbest, no_answer, len(predictions) + 1)
            for one, each in zip(portion, found):
                if one.id in predictions:
                    raise UsageError(f'{path}: the id "{one.id}" stands there twice')
                predictions[one.id] = each.text
                results += [as_object({"id": one.id}, each)] if as_json else []
            status.update(f"answering: {len(predictions):,} questions")
    if not predictions:
        raise UsageError(f"{path} holds no question")
    lines = results if as_json else [json.dumps(predictions, ensure_ascii=False)]
    if output is None:
        for line in lines:
            print_line(line)
        return
    from regard.storage import write_text

    write_text(output, "".join(f"{line}\n" for line in lines))
    say(f"wrote {len(predictions):,} answers to {output}")


def read_asked(path: Path) -> Iterator[Asked]:
    """Questions with contexts; their answers need not be there. One without an id has its number as such."""
    from regard.data.files import format_suffix
    from regard.data.readers import InvalidRow, string_field
    from regard.data.readers.annotated import question_objects
    from regard.data.report import StrictReport

    for number, found in question_objects(path, format_suffix(path), StrictReport()):
        name = found.get("id", number)
        if not isinstance(name, str | int):
            raise UsageError(f"{path}, question {number}: its id is neither a string nor a number")
        try:
            yield Asked(str(name), string_field(found, "question"), string_field(found, "context"))
        except InvalidRow as wrong:
            raise UsageError(f"{path}, question {name}: {wrong.note}") from None
