"""The commands of tasks, made from the descriptions in `regard.tasks.spec`.

Inputs, options, defaults and the JSON of a result follow from the description. A subclass of `TaskCommand`
adds what only the command has: more options, how texts are read, how a result is shown as lines.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import typer

from regard.cli.builtin import builtin_for
from regard.cli.terminal import (
    TYPE,
    AsJson,
    Device,
    Files,
    Notes,
    OneModelOrBuiltin,
    Output,
    Precision,
    Scores,
    Texts,
    Threads,
    is_typed,
    json_line,
    messages,
    one_line,
    parse_options,
    portions,
    put_lines,
    read_inputs,
    thread_count,
    writable,
)
from regard.tasks.results import as_dict
from regard.tasks.spec import TASKS, Option, TaskSpec

OnCluster = Annotated[
    Literal["ray"] | None,
    typer.Option("--on", help="Run on a Ray cluster: files at any fsspec address, -o OUT, -m MODEL."),
]
Workers = Annotated[int, typer.Option(min=1, max=1024, help="With --on: processes, each with a model.")]
Column = Annotated[str, typer.Option(help="With --on: the column of a table to read.")]
Key = Annotated[str | None, typer.Option(help="With --on: a column to copy into the results.")]
AT_ONCE = 2000  # lines read before they are sorted by length and run together


@dataclass
class TaskCommand:
    """The command of a task. Its fields are options: these of all commands, more in a subclass."""

    name: ClassVar[str]
    progress: ClassVar[tuple[str, str]] = ("working", "results")  # what it does, what it writes
    examples: ClassVar[str]
    notes_on: ClassVar[str] = ""  # more help
    model_type: ClassVar[Any] = OneModelOrBuiltin
    model_default: ClassVar[Any] = None
    argument_type: ClassVar[Any] = Texts

    files: Files = None
    as_json: AsJson = False
    output: Output = None
    device: Device = "auto"
    precision: Precision = "auto"
    threads: Threads = 0
    on: OnCluster = None
    workers: Workers = 1
    column: Column = "text"
    key: Key = None

    model: Any = field(init=False)  # its path, or several
    texts: list[str] = field(init=False)  # or files
    options: dict[str, Any] = field(init=False)  # of the task
    shows_all: bool = field(init=False)  # -n was given: all results are lines
    notes: Notes = field(init=False, default_factory=Notes)
    task: Any = field(init=False, default=None)
    count: int = field(init=False, default=0)  # texts so far

    @property
    def spec(self) -> TaskSpec:
        return TASKS[self.name]

    @property
    def names(self) -> list[str]:
        """The files of -i, then the texts or files that are arguments."""
        return [*map(str, self.files or []), *self.texts]

    def run(self) -> None:
        """Open the model, read the texts, write the results."""
        if self.on is not None:
            from regard.cli.bulk import run_on_ray

            run_on_ray(self)
            return
        self.open()
        advice = "type the name of a file a line; Ctrl-D ends" if self.task.reads_files else TYPE
        self.write(self.read(), 1 if is_typed(self.names, advice) else self.at_once)

    def write(self, rows: Iterable[Any], at_once: int = AT_ONCE) -> None:
        """Write the results of rows, portion by portion: at once to stdout, or in the end into a file."""
        shown: list[str] = []
        doing = self.progress[0]
        shows_status = at_once > 1 and sys.stderr is not None and sys.stderr.isatty()
        with messages().status(doing) if shows_status else nullcontext() as status:
            for portion in portions(rows, at_once):
                shown += self(portion, self.count + 1)
                self.count += len(portion)
                if status is not None:
                    status.update(f"{doing}: {self.count:,} lines")
                if self.output is None:
                    put_lines(shown)
                    shown = []
        put_lines([*shown, *self.end()], self.output, self.summary())

    @property
    def at_once(self) -> int:
        return AT_ONCE

    def summary(self) -> str:
        """What was written into a file."""
        return f"{self.count:,} {self.progress[1]}"

    def read(self) -> Iterable[Any]:
        return read_inputs(self.texts, self.files or [])

    def open(self) -> None:
        from regard.tasks import load, load_as

        if self.model is None:
            self.model = builtin_for(self.name, self.names)
        arguments = (self.model, self.device, thread_count(self.threads), self.precision)
        classes = self.spec.classes
        self.task = load_as(classes[0], *arguments) if len(classes) == 1 else load(*arguments)

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        """The lines of result of some texts, the first of which has the number `first`."""
        shown: list[str] = []
        for number, each in enumerate(self.results(lines, first), first):
            self.add_notes(number, each)
            if not self.as_json:
                shown += self.lines(number, each)
            elif row := self.row(number, each):
                shown.append(json_line(row))
        return shown

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        return self.spec.run(self.task, lines, self.options, first_line=first)

    def row(self, number: int, result: Any) -> dict[str, Any]:
        """A result as an object of --json; an empty one is not printed."""
        return {"line": number, **as_dict(result)}

    def lines(self, number: int, result: Any) -> list[str]:
        """A result as lines of text."""
        raise NotImplementedError

    def add_notes(self, number: int, result: Any) -> None:
        if result.skipped:
            self.notes.add("skipped: too long for the model", number)
        elif getattr(result, "truncated", False):
            self.notes.add("too long for the model, which read only a part of it (--on-too-long)", number)

    def end(self) -> list[str]:
        """What is printed after all texts: notes on stderr; more lines of result are returned."""
        self.notes.print()
        return []


@dataclass
class CandidateCommand(TaskCommand):
    """The command of a task whose results have candidates."""

    scores: Scores = False

    score: ClassVar[str] = "score"  # the attribute of a candidate
    blank: ClassVar[str] = "text"  # the attribute of a result without candidates

    def lines(self, number: int, result: Any) -> list[str]:
        if not result.candidates:
            return [one_line(getattr(result, self.blank))]
        shown = []
        for each in result.candidates if self.shows_all else result.candidates[:1]:
            text, score = one_line(each.text), f"{getattr(each, self.score):.4f}"
            if self.shows_all and self.options["num_results"] > 1:
                text = f"{number} ||| {text} ||| {score}"
            elif self.scores:
                text = f"{score}\t{text}"
            shown.append(text)
        return shown


# --- from a description to a command ----------------------------------------------------------------------


def make_command(kind: type[TaskCommand]) -> Callable[..., None]:
    """The function that typer reads: the options of the task, of its command, and of all commands."""
    spec, hints = TASKS[kind.name], get_type_hints(kind, include_extras=True)
    common = {each.name for each in fields(TaskCommand)}
    extra = sorted((each for each in fields(kind) if each.init), key=lambda each: each.name in common)
    types: dict[str, tuple[Any, Any]] = {
        "typer_context": (typer.Context, inspect.Parameter.empty),
        "model": (kind.model_type, kind.model_default),
        "text": (kind.argument_type, None),
        **{name: option_type(each) for name, each in spec.options.items()},
        **{each.name: (hints[each.name], each.default) for each in extra},
    }

    def command(typer_context: typer.Context, **values: Any) -> None:
        instance = kind(**{each.name: values[each.name] for each in extra})
        instance.options = {name: option_value(each, values[name]) for name, each in spec.options.items()}
        instance.model, instance.texts = values["model"], values["text"] or []
        if instance.on is None:
            instance.output = writable(instance.output)
        source = typer_context.get_parameter_source("num_results") if "num_results" in values else None
        instance.shows_all = source is not None and source.name == "COMMANDLINE"
        if instance.on is not None:
            from regard.cli.bulk import check_bulk

            check_bulk(instance)
        instance.run()

    command.__name__, command.__doc__ = kind.name, help_text(kind)
    command.__annotations__ = {}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in types.items()
        ]
    )
    return command


def option_type(option: Option) -> tuple[Any, Any]:
    """An option of a task as typer has it, and its default."""
    name, kind, default = f"--{option.name.replace('_', '-')}", option.type, option.default
    if option.name == "decode":
        name, kind = "--set", list[str] | None
        settings = typer.Option(name, help="Any field of the section decode: --set length_penalty=0.6.")
        return Annotated[kind, settings], None
    if option.name == "json_schema":
        return Annotated[Path | None, typer.Option(name, metavar="FILE", help=option.description)], None
    if isinstance(default, tuple):
        kind, default = list[str] | None, None
        option_help = f"{option.description.rstrip('.')}; repeatable."
        return Annotated[kind, typer.Option(name, help=option_help)], default
    names = [name, "-n"] if option.name == "num_results" else [name]
    if default is True:
        names = [f"{name}/--no-{option.name}"]
    limits = {"min": option.limit("ge"), "max": option.limit("le")} if kind is not bool else {}
    return Annotated[kind, typer.Option(*names, help=option.description, **limits)], default


def option_value(option: Option, value: Any) -> Any:
    if option.name == "decode":
        return parse_options(value) or None
    if option.name == "json_schema":
        from regard.storage import read_json

        return None if value is None else read_json(value)
    return tuple(value or ()) if isinstance(option.default, tuple) else value


def help_text(kind: type[TaskCommand]) -> str:
    """The help of a command: what the task does, the fields of its JSON, examples."""
    spec = TASKS[kind.name]
    names = ", ".join(["line", *(each.name for each in fields(spec.result))])
    shown = textwrap.fill(names, 93, initial_indent="  ", subsequent_indent="  ")
    examples = textwrap.indent(inspect.cleandoc(kind.examples), "  ")
    texts = [spec.description.replace("[", "\\["), inspect.cleandoc(kind.notes_on)]
    parts = [part.replace("\n", " ") for text in texts for part in text.split("\n\n")]
    parts += [f"[bold]--json[/] gives an object a line\n\n{shown}", f"[bold]Examples[/]\n\n{examples}"]
    return "\n\n".join(part for part in parts if part)
