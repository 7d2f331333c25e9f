"""`regard classify`, `tag`, `answer` and `embed`: what the descriptions of these tasks lack."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.media import FileCommand, table_file
from regard.cli.tasks import TaskCommand
from regard.cli.terminal import (
    Scores,
    json_line,
    looks_like_path,
    one_line,
    read_all_stdin,
    say,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import AnswerResult, Classification, Embedding, Tagging


@dataclass
class ClassifyCommand(FileCommand):
    name = "classify"
    progress = ("classifying", "results")
    notes_on = """
        Prints a line for each line of text: its labels, comma-separated; with --scores probability, tab,
        label, tab, next probability ... A table with labels (.tsv, .csv, .jsonl) is scored too: the accuracy
        is printed on stderr. A model of pictures, videos or sounds takes files, folders of them, or a table
        with a column of files; of several files a line has the name and a tab first.
    """
    examples = """
        regard classify -m runs/reviews "A film to remember."
        regard classify -m runs/digits photo.png scans/
        regard classify -m runs/reviews reviews.txt --scores -o labels.tsv
    """

    scores: Scores = False
    targets: dict[int, str] = field(init=False, default_factory=dict)  # the labels of a table, by number
    right: int = field(init=False, default=0)

    def read(self) -> Iterable[str]:
        """Lines of text, or the texts of a table, whose labels are kept."""
        from regard.data import has_rows, iter_examples

        task = self.task.folder.task
        files = [*(self.files or []), *(Path(each) for each in self.texts if os.path.exists(each))]  # noqa: PTH110
        tables = [path for path in files if has_rows(path, task)]
        if not tables:
            return super().read()
        if len(files) > 1 or len(self.texts) > 1:
            raise UsageError(f"{tables[0]} is a table: give one such file at a time", code="E_CLASSIFY_TABLE")
        examples = list(iter_examples(tables[0], task, inputs_only=True))
        self.targets = {number: each.target for number, each in enumerate(examples, 1) if each.target}
        return (table_file(each.source) if self.reads_files else each.source for each in examples)

    def add_notes(self, number: int, result: Classification) -> None:
        from regard.data.objectives import split_labels

        super().add_notes(number, result)
        if target := self.targets.get(number):
            count = None if self.task.folder.task.multi_label else 1
            self.right += {label.name for label in result.labels[:count]} == set(split_labels(target))

    def lines(self, number: int, result: Classification) -> list[str]:
        line = ",".join(label.name for label in result.labels)
        if self.scores or self.shows_all:
            line = "\t".join(f"{label.probability:.4f}\t{label.name}" for label in result.labels)
        return [self.named(line, result.text)]

    def end(self) -> list[str]:
        if count := len(self.targets):
            say(f"{self.right:,} of {count:,} labels are right: accuracy {100 * self.right / count:.2f} %")
        return super().end()


@dataclass
class TagCommand(TaskCommand):
    name = "tag"
    progress = ("tagging", "lines")
    notes_on = """
        Prints each line with its entities marked, as in \\[PER Ada Lovelace] wrote. Programs should read
        [bold]--rows[/] or [bold]--json[/]: a text may contain brackets. The score of an entity is the
        probability of its least certain word.
    """
    examples = """
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
        if self.conll + self.rows + self.as_json > 1:
            raise UsageError("--rows, --conll and --json are different forms of the result: take one")
        super().run()

    def read(self) -> Iterable[Any]:
        return conll_sentences(super().read()) if self.conll else super().read()

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        if not self.conll:
            return super().__call__(lines, first)
        tags = self.task.tag_words(lines, first)
        rows = [[*(f"{word}\t{tag}" for word, tag in zip(*pair)), ""] for pair in zip(lines, tags)]
        return [row for sentence in rows for row in sentence]

    def summary(self) -> str:
        return f"{self.count:,} sentences" if self.conll else super().summary()

    def add_notes(self, number: int, result: Tagging) -> None:
        super().add_notes(number, result)
        if result.windows > 1:
            self.notes.add("a sentence is too long for the model, and was read in parts", number)

    def lines(self, number: int, result: Tagging) -> list[str]:
        if self.rows:
            score = "{0.score:.4f}\t" if self.scores else ""
            row = score + "{1}\t{0.start}\t{0.end}\t{0.type}\t{2}"
            return [row.format(each, number, " ".join(each.text.split())) for each in result.entities]
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
    from regard.data.readers.annotated import ends_sentence, is_comment, split_tag_columns

    for is_break, group in groupby(lines, ends_sentence):
        words = [split_tag_columns(line)[0] for line in dropwhile(is_comment, group)]
        if words and not is_break:
            yield words


# --- answer -----------------------------------------------------------------------------------------------


@dataclass
class AnswerCommand(TaskCommand):
    name = "answer"
    progress = ("answering", "answers")
    notes_on = """
        Prints a line for each question, empty for "no answer"; with -n a line for each answer: line, score,
        start, end, text, with tabs. Questions of a table or a SQuAD file have their contexts: the result is
        one JSON object of id and answer, the format of SQuAD's evaluation script.
    """
    examples = """
        regard answer -m runs/squad --context article.txt "Who wrote it?" "When?"
        regard answer -m runs/squad --context article.txt < questions.txt
        regard answer -m runs/squad dev-v1.1.json -o predictions.json
    """
    argument_type = Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions or files of them; nothing or - reads stdin. Or a table or SQuAD file."
        ),
    ]

    context: Annotated[
        str | None, typer.Option(help="The text that contains the answers, or its file; - is stdin.")
    ] = None
    scores: Scores = False
    table: Path | None = field(init=False, default=None)  # a file of questions with contexts
    ids: list[str] = field(init=False, default_factory=list)  # of questions
    predictions: dict[str, str] = field(init=False, default_factory=dict)  # answers by id

    def run(self) -> None:
        if self.context is None:
            self.table = self.data_file()
        else:
            self.context = self.read_context(self.context)
        super().run()

    def read(self) -> Iterable[tuple[str, str, str]]:
        """(id, question, context) of each question; the default id is its number."""
        if self.table is not None:
            return read_questions(self.table)
        questions = enumerate(super().read(), 1)
        return ((str(number), question, self.context or "") for number, question in questions)

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        names, questions, contexts = (list(column) for column in zip(*lines))
        inputs = {"question": questions, "context": contexts}
        results = self.spec.run(self.task, inputs, self.options, first_line=first)
        for name, each in zip(names, results):
            if name in self.predictions:
                raise UsageError(f'{self.table}: the id "{name}" occurs twice', code="E_ANSWER_ID")
            self.predictions[name] = each.text
        self.ids += names
        return results

    def row(self, number: int, result: AnswerResult) -> dict[str, Any]:
        name = {"id": self.ids[number - 1]} if self.table else {}
        return name | super().row(number, result)

    def end(self) -> list[str]:
        if self.table and not self.count:
            raise UsageError(f"{self.table} contains no question", code="E_DATA_EMPTY")
        super().end()
        return [json_line(self.predictions)] if self.table and not self.as_json else []

    def lines(self, number: int, result: AnswerResult) -> list[str]:
        if self.table:  # all answers are one object, see `end`
            return []
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

        names = self.names
        if len(names) != 1 or not has_rows(Path(names[0]), Task(name="answer")):
            raise UsageError(
                "--context is missing: give the text that contains the answers, or its file",
                code="E_INPUT_MISSING",
            )
        if (self.shows_all or self.scores) and not self.as_json:
            raise UsageError(f"{names[0]}: predictions are one answer each; take --json with -n or --scores")
        return Path(names[0])


def read_questions(path: Path) -> Iterator[tuple[str, str, str]]:
    """(id, question, context) of each question of a file, with or without answers."""
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
class EmbedCommand(FileCommand):
    name = "embed"
    skips_bad_files = False  # the n-th vector is that of the n-th file
    progress = ("embedding", "results")
    notes_on = """
        Prints a JSON list of numbers for each line of text. With [bold]--similarity[/] a line is the cosine,
        a tab and the text. A model of pictures, videos or sounds takes files, or folders of them.
    """
    examples = """
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
    first: Any = field(init=False, default=None)  # the vector of the first text

    def run(self) -> None:
        if self.npy is not None and (self.similar or self.as_json or self.output is not None):
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

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        results = super().results(lines, first)
        if self.similar and first == 1:
            self.first = results[0].vector
            if self.first is None:
                raise UsageError(
                    "line 1: the first text is too long, and all others are compared to it", code="E_TOO_LONG"
                )
        return results

    def lines(self, number: int, result: Embedding) -> list[str]:
        from regard.tasks.results import shortest_digits

        if self.npy is not None:
            self.embeddings.append(result)
            return []
        if not self.similar:
            return [json.dumps(shortest_digits(result.vector))]
        return [f"{self.cosine(result):.4f}\t{one_line(result.text)}"] if number > 1 else []

    def row(self, number: int, result: Embedding) -> dict[str, Any]:
        row = super().row(number, result)
        if not self.similar:
            return row
        del row["vector"]
        cosine = self.cosine(result)
        return {**row, "similarity": None if math.isnan(cosine) else round(cosine, 4)} if number > 1 else {}

    def cosine(self, result: Embedding) -> float:
        """The cosine similarity with the first text; NaN for a text that was skipped."""
        from regard.tasks.embedder import similarity

        return math.nan if result.vector is None else similarity(self.first, result.vector)

    def end(self) -> list[str]:
        if self.similar and self.count < 2:
            raise UsageError("--similarity compares the first text to others: give at least two")
        return super().end()


def write_array(path: Path, array: Any) -> None:
    import numpy as np

    from regard.storage import write_atomically

    content = io.BytesIO()
    np.save(content, array)
    write_atomically(path, content.getvalue())
    say(f"wrote {array.shape[0]:,} vectors of {array.shape[1]:,} numbers to {path}")
