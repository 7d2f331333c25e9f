"""The commands of tasks, made from the descriptions in `regard.tasks.spec`.

Inputs, options, defaults and the JSON of a result follow from the description. A subclass of `TaskCommand`
adds what only the command has: more options, how texts are read, how a result is shown as lines.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from regard.cli.terminal import (
    AsJson,
    Device,
    Files,
    Notes,
    OneModel,
    Output,
    Precision,
    Texts,
    Threads,
    answer_lines,
    is_typed,
    one_line,
    parse_options,
    read_inputs,
    thread_count,
    writable,
)
from regard.tasks.results import as_dict
from regard.tasks.spec import TASKS, Option, TaskSpec

COMMON: dict[str, tuple[Any, Any]] = {
    "files": (Files, None),
    "as_json": (AsJson, False),
    "output": (Output, None),
    "device": (Device, "auto"),
    "precision": (Precision, "auto"),
    "threads": (Threads, 0),
}


@dataclass
class TaskCommand:
    """The command of a task. Its fields are the options that only the command has."""

    name: ClassVar[str]
    progress: ClassVar[tuple[str, str]] = ("working", "results")  # what it does, what it writes
    examples: ClassVar[str]
    notes_on: ClassVar[str] = ""  # more help
    model_type: ClassVar[Any] = OneModel
    model_default: ClassVar[Any] = inspect.Parameter.empty
    argument_type: ClassVar[Any] = Texts

    options: dict[str, Any] = field(init=False)  # of the task
    common: dict[str, Any] = field(init=False)  # of all commands
    shows_all: bool = field(init=False)  # -n was given: all results are lines
    notes: Notes = field(init=False, default_factory=Notes)
    task: Any = field(init=False, default=None)

    @property
    def spec(self) -> TaskSpec:
        return TASKS[self.name]

    @property
    def texts(self) -> list[str]:
        return self.common["text"] or []

    @property
    def output(self) -> Path | None:
        path: Path | None = self.common["output"]
        return path

    def run(self) -> None:
        """Open the model, read the texts, write the results."""
        self.open()
        lines = self.read()
        typed = not self.common["files"] and is_typed(self.texts)
        answer_lines(self, lines, typed, self.output, *self.progress, self.end)

    def read(self) -> Iterable[Any]:
        return read_inputs(self.texts, self.common["files"] or [])

    def open(self) -> None:
        from regard.tasks import load, load_as

        classes = self.spec.classes
        arguments = [self.common[name] for name in ("model", "device", "threads", "precision")]
        arguments[2] = thread_count(arguments[2])
        self.task = load_as(classes[0], *arguments) if len(classes) == 1 else load(*arguments)

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        """The lines of result of some texts, the first of which has the number `first`."""
        results = self.results(lines, first)
        shown: list[str] = []
        for number, each in enumerate(results, first):
            self.add_notes(number, each)
            shown += [self.json(number, each)] if self.common["as_json"] else self.lines(number, each)
        return shown

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        return self.spec.run(self.task, lines, self.options, first_line=first)

    def json(self, number: int, result: Any) -> str:
        return json.dumps({"line": number, **as_dict(result)}, ensure_ascii=False)

    def lines(self, number: int, result: Any) -> list[str]:
        """A result as lines of text."""
        raise NotImplementedError

    def add_notes(self, number: int, result: Any) -> None:
        if result.skipped:
            self.notes.add("skipped: too long for the model", number)
        elif getattr(result, "truncated", False):
            self.notes.add("too long for the model, which read only a part of it (--on-too-long)", number)

    def end(self) -> None:
        self.notes.print()


@dataclass
class CandidateCommand(TaskCommand):
    """The command of a task whose results have candidates."""

    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each result.")] = (
        False
    )

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
    extra = [each for each in fields(kind) if each.init]
    types: dict[str, tuple[Any, Any]] = {
        "typer_context": (typer.Context, inspect.Parameter.empty),
        "model": (kind.model_type, kind.model_default),
        "text": (kind.argument_type, None),
        **{name: option_type(each) for name, each in spec.options.items()},
        **{each.name: (hints[each.name], each.default) for each in extra},
        **COMMON,
    }

    def command(typer_context: typer.Context, **values: Any) -> None:
        instance = kind(**{each.name: values[each.name] for each in extra})
        instance.options = {name: option_value(each, values[name]) for name, each in spec.options.items()}
        instance.common = {name: values[name] for name in ("model", "text", *COMMON)}
        instance.common["output"] = writable(values["output"])
        source = typer_context.get_parameter_source("num_results") if "num_results" in values else None
        instance.shows_all = source is not None and source.name == "COMMANDLINE"
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
    return tuple(value or ()) if isinstance(option.default, tuple) else value


def help_text(kind: type[TaskCommand]) -> str:
    """The help of a command: what the task does, the fields of its JSON, examples."""
    spec = TASKS[kind.name]
    names = ", ".join(["line", *(each.name for each in fields(spec.result))])
    rows: list[str] = []
    row = ""
    for name in names.split(" "):
        if len(row) + len(name) > 90:
            rows, row = [*rows, row], ""
        row += f" {name}" if row else name
    shown = "\n".join(f"  {each}" for each in [*rows, row])
    examples = "\n".join(f"  {line}" for line in inspect.cleandoc(kind.examples).splitlines())
    texts = [spec.description.replace("[", "\\["), inspect.cleandoc(kind.notes_on)]
    parts = [part.replace("\n", " ") for text in texts for part in text.split("\n\n")]
    parts += [f"[bold]--json[/] gives an object a line\n\n{shown}", f"[bold]Examples[/]\n\n{examples}"]
    return "\n\n".join(part for part in parts if part)
