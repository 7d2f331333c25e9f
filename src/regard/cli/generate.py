"""`regard generate`, `fill` and `score`: what the descriptions of these tasks lack."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.media import write_pictures
from regard.cli.tasks import AT_ONCE, CandidateCommand, TaskCommand
from regard.cli.terminal import (
    Models,
    is_typed,
    json_line,
    print_line,
    put,
    read_inputs,
    read_stdin,
    say,
)
from regard.errors import UsageError
from regard.tasks.task_model import decode_fields

if TYPE_CHECKING:
    from regard.tasks import Generation, TextScore

BETWEEN = "---"  # a line between two texts
FIRST_PROMPT = "Once upon a time"  # of the built-in model, where nobody gives one
LINE = "\n"


@dataclass
class GenerateCommand(CandidateCommand):
    name = "generate"
    progress = ("generating", "texts")
    score = "log_probability"
    notes_on = """
        Prints the prompt and the tokens that follow, as they are generated. Samples at temperature 0.8 from
        all tokens; the section decode of the folder's run.toml or an option changes that.
        All of stdin is one prompt, without its last newline; it may be empty.
        Texts are separated by a line `---`. With [bold]-o name.png[/] a model of pictures (data.pixels)
        writes the picture of a label; several are name-1.png, name-2.png ...
    """
    examples = """
        regard generate -m runs/demo "Once upon a time"
        regard generate -m runs/digits "7" -o seven.png
        regard generate -m runs/demo -n 3 --top-p 0.9 --seed 7 < beginning.txt
        regard generate -m runs/demo "Once upon a time" --beam 1
        regard generate -m runs/demo "The film was" --choices " good" --choices " bad" -n 2 --scores
    """

    each_line: Annotated[
        bool, typer.Option("--lines", help="Every line is a prompt, not the text as a whole.")
    ] = False
    only_new: Annotated[bool, typer.Option("--only-new", help="Print what follows without the prompt.")] = (
        False
    )
    written: int = field(init=False, default=0)  # texts

    def run(self) -> None:
        if self.model is None and not self.names and sys.stdin is not None and sys.stdin.isatty():
            say(f'No prompt was given; this one is used: "{FIRST_PROMPT}"')
            self.texts = [FIRST_PROMPT]
        self.open()
        if self.output is None or self.output.suffix.lower() != ".png":
            self.write(self.read(), at_once=1)
            return
        prompts = [f"{each.removesuffix(LINE)}{LINE}" for each in self.read()]  # labels are lines
        room = {"max_length": self.options["max_length"] or self.task.window}
        results = self.spec.run(self.task, prompts, {**self.options, **room}, warn=say)
        write_pictures(self.output, [each for result in results for each in result.candidates])

    def read(self) -> Iterator[str]:
        """Each argument is one prompt, or each of its lines."""
        one, many = "type a prompt; Ctrl-D ends it", "type a prompt a line; Ctrl-D ends"
        is_typed(self.names, many if self.each_line else one)
        for name in self.names or ["-"]:
            text = read_inputs([name])
            yield from text if self.each_line else ["\n".join(text)]

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        is_shown = self.output is None and not self.as_json and not self.scores
        return self.print_stream(lines[0]) if is_shown else super().__call__(lines, first)

    def summary(self) -> str:
        return f"{self.written:,} texts"

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

    def print_stream(self, prompt: str) -> list[str]:
        """Print samples one after another, as they are generated; of a beam search return the lines."""
        count = self.options["num_results"]
        short = {name: self.options[name] for name in DECODE_OPTIONS}
        options = self.task.decode_options(decode_fields(self.options["decode"], **short), count)
        on_too_long = self.options["on_too_long"]
        is_free = not self.options["choices"] and self.options["json_schema"] is None
        if not (options.sample or options.beam == 1) or on_too_long == "skip" or not is_free:
            return super().__call__([prompt], 1)
        one = options.model_copy(update={"beam": 1})
        for sample in range(count):
            parts = self.task.stream_one(prompt, one, sample, on_too_long, say)  # refuses a wrong prompt
            if self.written:
                print_line(BETWEEN)
            self.written += 1
            end = "" if self.only_new else prompt
            put(end, flush=True)
            for part in parts:
                put(part, flush=True)
                end = part
            put("" if end.endswith("\n") else "\n", flush=True)
        return []


DECODE_OPTIONS = ("max_length", "temperature", "top_k", "top_p", "seed", "beam")


@dataclass
class FillCommand(CandidateCommand):
    name = "fill"
    progress = ("filling", "lines")
    score = "probability"
    notes_on = """
        Prints the best text; with -n all results, as `line ||| text ||| probability`.
        A blank line stays blank.
    """
    examples = """
        regard fill -m runs/demo "The <mask> sleeps."
        regard fill -m runs/demo -n 3 lines.txt
    """


# --- score ------------------------------------------------------------------------------------------------


@dataclass
class ScoreCommand(TaskCommand):
    name = "score"
    progress = ("scoring", "scores")
    model_type = Models
    model_default = inspect.Parameter.empty
    notes_on = """
        Prints the log-probability of each line. The totals of all lines are printed on stderr, or with
        --total alone. Texts of a language model may be tables.
        A long text is read in overlapping windows: each token is scored once, with at least
        (window - stride) tokens of context.
    """
    examples = """
        regard score -m runs/demo valid.en valid.de
        regard score -m runs/gpt --document --total book.txt
    """
    argument_type = Annotated[
        list[str],
        typer.Argument(help="Source and target, or a .tsv of both; texts for a language model. - is stdin."),
    ]

    document: Annotated[
        bool, typer.Option("--document", help="Language models: a file is one text, not one a line.")
    ] = False
    total: Annotated[bool, typer.Option("--total", help="Print only the totals of all texts.")] = False
    all_scores: list[Any] = field(init=False, default_factory=list)

    def run(self) -> None:
        if self.precision == "auto":
            self.precision = "float32"
        self.open()
        if not isinstance(self.task, self.spec.classes):
            name = self.task.folder.task.name if hasattr(self.task, "folder") else "embed"
            raise UsageError(
                f"{self.model[0]}: a {name} model cannot score texts; see regard {name}",
                code="E_MODEL_TASK",
            )
        rows = self.read_pairs() if self.translates else self.read_texts()
        self.write(rows, 1 if self.document else AT_ONCE)

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

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        shown = super().__call__(lines, first)
        return [] if self.total else shown

    def lines(self, number: int, result: TextScore) -> list[str]:
        return [f"{result.log_probability:.4f}"]

    def end(self) -> list[str]:
        from regard.tasks.results import total_score

        if not self.all_scores:
            raise UsageError(f"{', '.join(self.texts)}: no text to score", code="E_DATA_EMPTY")
        numbers = total_score(self.all_scores)
        summary = (
            f"{numbers['tokens']:,} tokens, {numbers['bytes']:,} bytes, "
            f"perplexity {numbers['perplexity']:.4f}, {numbers['bits_per_byte']:.4f} bits per byte"
        )
        precision = self.task.precision
        if not self.total:
            say(f"{summary} ({precision})")
            return super().end()
        super().end()
        return [json_line({**numbers, "precision": precision}) if self.as_json else summary]

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
