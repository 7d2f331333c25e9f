"""`regard classify`, `tag`, `answer` and `embed`: what the descriptions of these tasks lack."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from regard.cli.tasks import TaskCommand
from regard.cli.terminal import (
    AT_ONCE,
    Scores,
    json_line,
    looks_like_path,
    messages,
    one_line,
    portions,
    put_lines,
    read_all_stdin,
    say,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import AnswerResult, Classification, Embedding, Tagging


@dataclass
class ClassifyCommand(TaskCommand):
    name: ClassVar[str] = "classify"
    progress: ClassVar[tuple[str, str]] = ("classifying", "results")
    notes_on: ClassVar[str] = """
        Prints a line for each line of text: its labels, comma-separated; with --scores probability, tab,
        label, tab, next probability ... A table with labels (.tsv, .csv, .jsonl) is scored too: the accuracy
        is printed on stderr.
    """
    examples: ClassVar[str] = """
        regard classify -m runs/reviews "A film to remember."
        regard classify -m runs/reviews reviews.txt --scores -o labels.tsv
    """

    scores: Scores = False
    targets: dict[int, str] = field(init=False, default_factory=dict)  # the labels of a table, by number
    right: int = field(init=False, default=0)

    def read(self) -> Iterable[str]:
        """Lines of text, or the texts of a table, whose labels are kept."""
        from regard.data import has_rows, iter_examples

        task = self.task.folder.task
        files = [*(self.common["files"] or []), *(Path(each) for each in self.texts if os.path.exists(each))]  # noqa: PTH110
        tables = [path for path in files if has_rows(path, task)]
        if not tables:
            return super().read()
        if len(files) > 1 or len(self.texts) > 1:
            raise UsageError(f"{tables[0]} is a table: give one such file at a time", code="E_CLASSIFY_TABLE")
        examples = list(iter_examples(tables[0], task, inputs_only=True))
        self.targets = {number: each.target for number, each in enumerate(examples, 1) if each.target}
        return [each.source for each in examples]

    def add_notes(self, number: int, result: Classification) -> None:
        from regard.data.objectives import split_labels

        super().add_notes(number, result)
        if target := self.targets.get(number):
            count = None if self.task.folder.task.multi_label else 1
            self.right += {label.name for label in result.labels[:count]} == set(split_labels(target))

    def lines(self, number: int, result: Classification) -> list[str]:
        if self.scores or self.shows_all:
            return ["\t".join(f"{label.probability:.4f}\t{label.name}" for label in result.labels)]
        return [",".join(label.name for label in result.labels)]

    def end(self) -> None:
        if count := len(self.targets):
            say(f"{self.right:,} of {count:,} labels are right: accuracy {100 * self.right / count:.2f} %")
        super().end()


@dataclass
class TagCommand(TaskCommand):
    name: ClassVar[str] = "tag"
    progress: ClassVar[tuple[str, str]] = ("tagging", "lines")
    notes_on: ClassVar[str] = """
        Prints each line with its entities marked, as in \\[PER Ada Lovelace] wrote. Programs should read
        [bold]--rows[/] or [bold]--json[/]: a text may contain brackets. The score of an entity is the
        probability of its least certain word.
    """
    examples: ClassVar[str] = """
        regard tag -m runs/names "Ada Lovelace lived in London."
        regard tag -m runs/names article.txt --rows | cut -f 4,5 | sort | uniq -c
        regard tag -m runs/names --conll < words.conll > tagged.conll
    """

    rows: Annotated[
        bool, typer.Option("--rows", help="A row for each entity: line, start, end, type, text, with tabs.")
    ] = False
    conll: Annotated[
        bool, typer.Option("--conll", help="Read a word a line (the first column), write word, tab, tag.")
    ] = False
    scores: Annotated[
        bool,
        typer.Option("--scores", help="Put the score of the least certain entity and a tab first."),
    ] = False

    def run(self) -> None:
        if self.conll + self.rows + self.common["as_json"] > 1:
            raise UsageError("--rows, --conll and --json are different forms of the result: take one")
        if not self.conll:
            super().run()
            return
        self.open()
        shown: list[str] = []
        count = 0
        for portion in portions(conll_sentences(self.read()), AT_ONCE):
            for words, tags in zip(portion, self.task.tag_words(portion, count + 1)):
                shown += [*(f"{word}\t{tag}" for word, tag in zip(words, tags)), ""]
            count += len(portion)
        put_lines(shown, self.output, f"{count:,} sentences")

    def add_notes(self, number: int, result: Tagging) -> None:
        super().add_notes(number, result)
        if result.windows > 1:
            self.notes.add("a sentence is too long for the model, and was read in parts", number)

    def lines(self, number: int, result: Tagging) -> list[str]:
        if self.rows:
            places = [
                (each, [str(number), str(each.start), str(each.end), each.type]) for each in result.entities
            ]
            rows = ["\t".join([*place, " ".join(each.text.split())]) for each, place in places]
            return [
                f"{each.score:.4f}\t{row}" if self.scores else row for each, row in zip(result.entities, rows)
            ]
        text = with_brackets(result)
        least = min((each.score for each in result.entities), default=1.0)
        return [f"{least:.4f}\t{text}" if self.scores else text]


def with_brackets(tagging: Tagging) -> str:
    """The text, with brackets around its entities."""
    parts, at = [], 0
    for each in tagging.entities:
        parts += [tagging.text[at : each.start], f"[{each.type} {each.text}]"]
        at = each.end
    return "".join([*parts, tagging.text[at:]])


def conll_sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """The first column of each sentence; other columns, such as tags, are ignored."""
    from regard.data.readers.annotated import is_comment, split_tag_columns

    words: list[str] = []
    for line in lines:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if words:
                yield words
            words = []
        elif words or not is_comment(line):
            words.append(split_tag_columns(line)[0])
    if words:
        yield words


# --- answer -----------------------------------------------------------------------------------------------


@dataclass
class AnswerCommand(TaskCommand):
    name: ClassVar[str] = "answer"
    progress: ClassVar[tuple[str, str]] = ("answering", "answers")
    notes_on: ClassVar[str] = """
        Prints a line for each question, empty for "no answer"; with -n a line for each answer: line, score,
        start, end, text, with tabs. Questions of a table or a SQuAD file have their contexts: the result is
        one JSON object of id and answer, the format of SQuAD's evaluation script.
    """
    examples: ClassVar[str] = """
        regard answer -m runs/squad --context article.txt "Who wrote it?" "When?"
        regard answer -m runs/squad --context article.txt < questions.txt
        regard answer -m runs/squad dev-v1.1.json -o predictions.json
    """
    argument_type: ClassVar[Any] = Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions or files of them; nothing or - reads stdin. Or a table or SQuAD file."
        ),
    ]

    context: Annotated[
        str | None, typer.Option(help="The text that contains the answers, or its file; - is stdin.")
    ] = None
    scores: Scores = False

    def run(self) -> None:
        if self.context is None:
            self.answer_data(self.data_file())
            return
        self.context = self.read_context(self.context)
        super().run()

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        inputs = {"question": lines, "context": self.context or ""}
        return self.spec.run(self.task, inputs, self.options, first_line=first)

    def lines(self, number: int, result: AnswerResult) -> list[str]:
        if self.shows_all and self.options["num_results"] > 1:
            return [
                f"{number}\t{each.score:.4f}\t{each.start}\t{each.end}\t{one_line(each.text)}"
                for each in result.answers
            ]
        text = one_line(result.text)
        return [f"{result.score:.4f}\t{text}" if self.scores else text]

    def read_context(self, name: str) -> str:
        """A whole file, or the text itself, with its line ends: they count in the positions of answers."""
        from regard.data.files import read_text
        from regard.data.report import StrictReport

        if name == "-":
            if not self.texts or "-" in self.texts:
                raise UsageError("--context -: stdin holds the context, so give the questions as arguments")
            return read_all_stdin()
        if os.path.exists(name):  # noqa: PTH110  (Path.exists raises for a text longer than a file name)
            return read_text(Path(name), StrictReport())
        if looks_like_path(name):
            raise UsageError(f"--context {name}: no such file", code="E_NO_FILE")
        return name

    def data_file(self) -> Path:
        from regard.config import Task
        from regard.data import has_rows

        names = [*map(str, self.common["files"] or []), *self.texts]
        if len(names) != 1 or not has_rows(Path(names[0]), Task(name="answer")):
            raise UsageError(
                "--context is missing: give the text that contains the answers, or its file",
                code="E_INPUT_MISSING",
            )
        if (self.shows_all or self.scores) and not self.common["as_json"]:
            raise UsageError(f"{names[0]}: predictions are one answer each; take --json with -n or --scores")
        return Path(names[0])

    def answer_data(self, path: Path) -> None:
        """Answer a file of questions with contexts; every question gets an answer."""
        self.open()
        predictions: dict[str, str] = {}
        shown: list[str] = []
        with messages().status("answering") as status:
            for portion in portions(read_questions(path), AT_ONCE):
                names, questions, contexts = (list(column) for column in zip(*portion))
                inputs = {"question": questions, "context": contexts}
                first = len(predictions) + 1
                results = self.spec.run(self.task, inputs, self.options, first_line=first)
                for number, (name, each) in enumerate(zip(names, results), first):
                    if name in predictions:
                        raise UsageError(f'{path}: the id "{name}" occurs twice', code="E_ANSWER_ID")
                    predictions[name] = each.text
                    row = self.json(number, each)
                    shown.append(f'{{"id": {json.dumps(name, ensure_ascii=False)}, {row[1:]}')
                status.update(f"answering: {len(predictions):,} questions")
        if not predictions:
            raise UsageError(f"{path} contains no question", code="E_DATA_EMPTY")
        lines = shown if self.common["as_json"] else [json_line(predictions)]
        put_lines(lines, self.output, f"{len(predictions):,} answers")
        self.end()


def read_questions(path: Path) -> Iterator[tuple[str, str, str]]:
    """(id, question, context) of each question, with or without answers; the default id is its number."""
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
            yield str(name), string_field(row, "question"), string_field(row, "context")
        except InvalidRow as wrong:
            raise UsageError(f"{path}, question {name}: {wrong.note}") from None


# --- embed ------------------------------------------------------------------------------------------------


@dataclass
class EmbedCommand(TaskCommand):
    name: ClassVar[str] = "embed"
    progress: ClassVar[tuple[str, str]] = ("embedding", "results")
    notes_on: ClassVar[str] = """
        Prints a JSON list of numbers for each line of text. With [bold]--similarity[/] a line is the cosine,
        a tab and the text.
    """
    examples: ClassVar[str] = """
        regard embed -m sentence-transformers/all-MiniLM-L6-v2 "A small house."
        regard embed -m minilm sentences.txt --npy sentences.npy
        regard embed -m minilm --similarity "A small house." "A tiny home." "It rains."
    """

    similar: Annotated[
        bool, typer.Option("--similarity", help="Cosine similarity of the first text and each other one.")
    ] = False
    npy: Annotated[
        Path | None, typer.Option("--npy", help="Write a float32 array [texts, width] for NumPy.")
    ] = None
    embeddings: list[Any] = field(init=False, default_factory=list)  # for --npy
    count: int = field(init=False, default=0)
    first: Any = field(init=False, default=None)  # the vector of the first text

    def run(self) -> None:
        if self.npy is not None and (self.similar or self.common["as_json"] or self.output is not None):
            raise UsageError(
                "--npy writes the vectors and nothing else: without --similarity, --json and --output"
            )
        super().run()
        if self.npy is not None:
            write_array(self.npy, self.task.as_array(self.embeddings))

    def open(self) -> None:
        super().open()
        if not self.task.pooling.configured:
            say("the folder does not set the pooling of its hidden states: using the mean")

    def add_notes(self, number: int, result: Embedding) -> None:
        super().add_notes(number, result)
        if not result.text.strip():
            self.notes.add("empty: its vector is that of no words", number)

    def lines(self, number: int, result: Embedding) -> list[str]:
        from regard.tasks.results import shortest_digits

        if self.npy is not None:
            self.embeddings.append(result)
            return []
        if not self.similar:
            return [json.dumps(shortest_digits(result.vector))]
        return [f"{each}\t{one_line(result.text)}" for each in self.cosine(number, result, "nan")]

    def json(self, number: int, result: Embedding) -> str:
        if not self.similar:
            return super().json(number, result)
        row = {"line": number, "text": result.text, "truncated": result.truncated, "skipped": result.skipped}
        cosine = self.cosine(number, result, "null")
        return f'{json_line(row)[:-1]}, "similarity": {cosine[0]}}}' if cosine else ""

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        return [line for line in super().__call__(lines, first) if line]

    def cosine(self, number: int, result: Embedding, unknown: str) -> list[str]:
        """The cosine similarity with the first text; none for the first itself."""
        from regard.tasks.embedder import similarity

        self.count += 1
        if self.count == 1:
            if result.vector is None:
                raise UsageError(
                    f"line {number}: the first text is too long, and all others are compared to it",
                    code="E_TOO_LONG",
                )
            self.first = result.vector
            return []
        return [unknown if result.vector is None else f"{similarity(self.first, result.vector):.4f}"]

    def end(self) -> None:
        if self.similar and self.count < 2:
            raise UsageError("--similarity compares the first text to others: give at least two")
        super().end()


def write_array(path: Path, array: Any) -> None:
    import numpy as np

    from regard.storage import write_atomically

    content = io.BytesIO()
    np.save(content, array)
    write_atomically(path, content.getvalue())
    say(f"wrote {array.shape[0]:,} vectors of {array.shape[1]:,} numbers to {path}")
