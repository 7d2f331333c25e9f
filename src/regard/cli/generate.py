"""`regard generate`, `fill` and `score`: what the descriptions of these tasks lack."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from regard.cli.tasks import CandidateCommand, TaskCommand
from regard.cli.terminal import (
    AT_ONCE,
    Models,
    json_line,
    portions,
    print_line,
    put,
    put_lines,
    read_inputs,
    read_stdin,
    say,
)
from regard.errors import UsageError
from regard.tasks.task_model import decode_fields

if TYPE_CHECKING:
    from regard.tasks import Generation, TextScore

BETWEEN = "---"  # a line between two texts


@dataclass
class GenerateCommand(CandidateCommand):
    name: ClassVar[str] = "generate"
    progress: ClassVar[tuple[str, str]] = ("generating", "texts")
    score: ClassVar[str] = "log_probability"
    notes_on: ClassVar[str] = """
        Prints the prompt and the tokens that follow, as they are generated. Samples at temperature 0.8 from
        all tokens; the section decode of the folder's run.toml or an option changes that.
        All of stdin is one prompt, without its last newline; it may be empty.
        Texts are separated by a line `---`.
    """
    examples: ClassVar[str] = """
        regard generate -m runs/demo "Once upon a time"
        regard generate -m runs/demo -n 3 --top-p 0.9 --seed 7 < beginning.txt
        regard generate -m runs/demo "Once upon a time" --beam 1
    """

    each_line: Annotated[
        bool, typer.Option("--lines", help="Every line is a prompt, not the text as a whole.")
    ] = False
    only_new: Annotated[bool, typer.Option("--only-new", help="Print what follows without the prompt.")] = (
        False
    )
    written: int = field(init=False, default=0)  # texts

    def run(self) -> None:
        self.open()
        streams = self.output is None and not self.common["as_json"] and not self.scores
        shown: list[str] = []
        for number, prompt in enumerate(self.read(), 1):
            if streams:
                self.print_stream(prompt)
                continue
            lines = self([prompt], number)
            shown += lines
            if self.output is None:
                for line in lines:
                    print_line(line, flush=True)
        if self.output is not None:
            put_lines(shown, self.output, f"{self.written:,} texts")
        self.end()

    def read(self) -> Iterator[str]:
        """Each argument is one prompt, or each of its lines."""
        names = [*map(str, self.common["files"] or []), *self.texts]
        if names in ([], ["-"]) and sys.stdin is not None and sys.stdin.isatty():
            say("type a prompt a line; Ctrl-D ends" if self.each_line else "type a prompt; Ctrl-D ends it")
        for name in names or ["-"]:
            text = read_inputs([name])
            yield from text if self.each_line else ["\n".join(text)]

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        return self.spec.run(self.task, lines, self.options, warn=say)

    def lines(self, number: int, result: Generation) -> list[str]:
        """The texts, each after a line of hyphens but the first."""
        shown = []
        for each in result.candidates:
            text = each.text if self.only_new else result.prompt + each.text
            if self.scores:
                text = f"{each.log_probability:.4f}\t{text}"
            shown += [BETWEEN, text.removesuffix("\n")] if self.written else [text.removesuffix("\n")]
            self.written += 1
        return shown

    def print_stream(self, prompt: str) -> None:
        """Samples one after another, as they are generated; the results of a beam search when it ends."""
        count = self.options["num_results"]
        short = {name: self.options[name] for name in DECODE_OPTIONS}
        options = self.task.decode_options(decode_fields(self.options["decode"], **short), count)
        on_too_long = self.options["on_too_long"]
        if not (options.sample or options.beam == 1) or on_too_long == "skip":
            for line in self([prompt], 1):
                print_line(line, flush=True)
            return
        one = options.model_copy(update={"beam": 1})
        for sample in range(count):
            if self.written:
                print_line(BETWEEN)
            self.written += 1
            end = "" if self.only_new else prompt
            put(end, flush=True)
            for part in self.task.stream_one(prompt, one, sample, on_too_long, say):
                put(part, flush=True)
                end = part
            put("" if end.endswith("\n") else "\n", flush=True)


DECODE_OPTIONS = ("max_length", "temperature", "top_k", "top_p", "seed", "beam")


@dataclass
class FillCommand(CandidateCommand):
    name: ClassVar[str] = "fill"
    progress: ClassVar[tuple[str, str]] = ("filling", "lines")
    score: ClassVar[str] = "probability"
    notes_on: ClassVar[str] = """
        Prints the best text; with -n all results, as `line ||| text ||| probability`.
        A blank line stays blank.
    """
    examples: ClassVar[str] = """
        regard fill -m runs/demo "The <mask> sleeps."
        regard fill -m runs/demo -n 3 lines.txt
    """


# --- score ------------------------------------------------------------------------------------------------


@dataclass
class ScoreCommand(TaskCommand):
    name: ClassVar[str] = "score"
    progress: ClassVar[tuple[str, str]] = ("scoring", "scores")
    model_type: ClassVar[Any] = Models
    notes_on: ClassVar[str] = """
        Prints the log-probability of each line. The totals of all lines are printed on stderr, or with
        --total alone. Texts of a language model may be tables.
        A long text is read in overlapping windows: each token is scored once, with at least
        (window - stride) tokens of context.
    """
    examples: ClassVar[str] = """
        regard score -m runs/demo valid.en valid.de
        regard score -m runs/gpt --document --total book.txt
    """
    argument_type: ClassVar[Any] = Annotated[
        list[str],
        typer.Argument(help="Source and target, or a .tsv of both; texts for a language model. - is stdin."),
    ]

    document: Annotated[
        bool, typer.Option("--document", help="Language models: a file is one text, not one a line.")
    ] = False
    total: Annotated[bool, typer.Option("--total", help="Print only the totals of all texts.")] = False
    all_scores: list[Any] = field(init=False, default_factory=list)

    def run(self) -> None:
        if self.common["precision"] == "auto":
            self.common["precision"] = "float32"
        self.open()
        if not isinstance(self.task, self.spec.classes):
            name = self.task.folder.task.name if hasattr(self.task, "folder") else "embed"
            raise UsageError(
                f"{self.common['model'][0]}: a {name} model cannot score texts; see regard {name}",
                code="E_MODEL_TASK",
            )
        rows = self.read_pairs() if self.translates else self.read_texts()
        shown: list[str] = []
        for portion in portions(rows, 1 if self.document else AT_ONCE):
            lines = self(portion, len(self.all_scores) + 1)
            shown += [] if self.total else lines
            if self.output is None and shown:
                put_lines(shown, None, "")
                shown = []
        if not self.all_scores:
            raise UsageError(f"{', '.join(self.texts)}: no text to score", code="E_DATA_EMPTY")
        self.print_totals(shown)
        self.end()

    @property
    def translates(self) -> bool:
        from regard.tasks import Translator

        return isinstance(self.task, Translator)

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        inputs = {"target": [target for _, target in lines]}
        if self.translates:
            inputs["source"] = [source for source, _ in lines]
        scores = self.spec.run(self.task, inputs, self.options)
        self.all_scores += scores
        return scores

    def lines(self, number: int, result: TextScore) -> list[str]:
        return [f"{result.log_probability:.4f}"]

    def print_totals(self, shown: list[str]) -> None:
        from regard.tasks.results import total_score

        numbers = total_score(self.all_scores)
        summary = (
            f"{numbers['tokens']:,} tokens, {numbers['bytes']:,} bytes, "
            f"perplexity {numbers['perplexity']:.4f}, {numbers['bits_per_byte']:.4f} bits per byte"
        )
        precision = self.task.precision
        if self.total:
            row = json_line({**numbers, "precision": precision})
            shown = [row if self.common["as_json"] else summary]
        else:
            say(f"{summary} ({precision})")
        if self.output is not None or self.total:
            put_lines(shown, self.output, f"{len(self.all_scores):,} scores")

    def read_pairs(self) -> Iterator[tuple[str, str]]:
        from regard.data.corpora import read_rows
        from regard.data.readers.text import split_pairs
        from regard.data.report import StrictReport

        files = self.texts
        if self.document:
            raise UsageError("--document is for language models; this one translates", code="E_OPTION_TASK")
        if len(files) > 2:
            raise UsageError(f"{files[2]}: translations are scored from two files, source and target")
        if files[0] == "-":
            if len(files) > 1:
                raise UsageError(
                    f"{files[1]}: from stdin come lines with a tab, source and target; give no file"
                )
            rows = split_pairs(read_stdin(), "stdin", StrictReport())
        else:
            corpus = files[0] if len(files) == 1 else (files[0], files[1])
            rows = read_rows(corpus, self.task.folder.task, "test")
        return ((row[1], row[2]) for row in rows)

    def read_texts(self) -> Iterator[tuple[str, str]]:
        """The lines of all files, or each file as a whole without its last newline; rows of tables."""
        from regard.data import iter_examples
        from regard.data.files import format_suffix, lines
        from regard.data.readers.tables import TABLES

        for name in self.texts:
            path = Path(name)
            if name != "-" and format_suffix(path) in TABLES:
                yield from (("", example.source) for example in iter_examples(path, "generate"))
                continue
            content = read_stdin() if name == "-" else lines(path)
            texts = ["\n".join(content)] if self.document else content
            yield from (("", text) for text in texts if text or not self.document)
