"""Files as arguments: what the commands of models that read pictures, videos or sounds share; `caption`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from regard.cli.tasks import CandidateCommand, TaskCommand
from regard.cli.terminal import explain, read_inputs, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Caption
    from regard.tasks.results import GeneratedText

BAD_FILE = ("E_AUDIO", "E_IMAGE", "E_MEDIA", "E_MODEL_INPUT")  # beginnings of codes of errors
FILES_AT_ONCE = 64  # read before their results are written


def read_files(texts: Sequence[str], lists: Iterable[Path], kind: str) -> Iterator[str]:
    """The files that arguments name: a file, a folder with files; stdin and `lists` name a file a line."""
    for path in lists:
        yield from read_inputs([str(path)])
    for name in texts or ([] if lists else ["-"]):
        if name == "-":
            yield from (line for line in read_inputs(["-"]) if line.strip())
        elif kind != "video" and os.path.isdir(name):  # noqa: PTH112  (of a video the folder holds its frames)
            yield from files_in(Path(name), kind)
        else:
            yield name


def files_in(folder: Path, kind: str) -> list[str]:
    """All files of a kind in a folder and its folders, by name."""
    from regard.data.readers.media import SUFFIXES

    files = sorted(
        str(each)
        for each in folder.rglob("*")
        if each.name.lower().endswith(SUFFIXES[kind]) and each.is_file()
    )
    if not files:
        suffixes = ", ".join(SUFFIXES[kind])
        raise UsageError(f"{folder}: no file of this model's kind in it ({suffixes})", code="E_DATA_EMPTY")
    return files


def table_file(place: str) -> Any:
    """The file that a row of a table names; some tables hold the bytes."""
    from regard.data.readers.media import media_content
    from regard.tasks.task_model import NamedFile

    return NamedFile(place, media_content(place))


def refuse_files(names: Iterable[str], model: object) -> None:
    """A picture or sound given to a model that reads text would be an unreadable text."""
    from regard.tasks.media import ONE, kind_of

    for name in names:
        if (kind := kind_of(name)) and os.path.isfile(name):  # noqa: PTH113  (a text may be longer than a name)
            message = f"{name} is {ONE[kind]}, and the model {model} reads text"
            raise UsageError(message, code="E_MODEL_INPUT")


def write_pictures(path: Path, texts: Sequence[GeneratedText]) -> None:
    """The pictures that a model wrote as PNG; of several, each has its number in its name."""
    from io import BytesIO

    from PIL import Image

    from regard.storage import write_atomically

    for number, each in enumerate(texts, 1):
        if each.picture is None:
            raise UsageError(
                f"{path}: the model wrote no picture: it was not trained with data.pixels, or its rows are "
                "not equally long; take another --seed, or a larger --max-length",
                code="E_NO_PICTURE",
            )
        file = path if len(texts) == 1 else path.with_stem(f"{path.stem}-{number}")
        content = BytesIO()
        Image.fromarray(each.picture).save(content, "PNG")
        write_atomically(file, content.getvalue())
        height, width = each.picture.shape
        say(f"wrote a picture of {width} x {height} pixels to {file}")


def is_bad_file(error: UsageError) -> bool:
    return str(error.code).startswith(BAD_FILE)


@dataclass
class FileCommand(TaskCommand):
    """The command of a task whose model may read files instead of texts."""

    skips_bad_files: ClassVar[bool] = True  # they are reported, and the others go on
    bad_files: int = field(init=False, default=0)

    def run(self) -> None:
        super().run()
        if self.bad_files:
            message = f"{self.bad_files:,} of {self.count:,} files could not be read"
            raise RegardError(message, code="E_FILES_SKIPPED")

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        """As of texts; of several files, one that cannot be read is reported and left out."""
        try:
            return super().__call__(lines, first)
        except UsageError as error:
            is_only = first == len(lines) == 1
            if is_only or not self.skips_bad_files or not is_bad_file(error):
                raise
        shown = []
        for number, line in enumerate(lines, first):
            try:
                shown += super().__call__([line], number)
            except UsageError as error:
                if not is_bad_file(error):
                    raise
                explain(str(error))
                self.bad_files += 1
        return shown

    def read(self) -> Iterable[Any]:
        if self.reads_files:
            return read_files(self.texts, self.files or [], self.task.reader.config.kind)
        refuse_files(self.texts, self.model)
        return super().read()

    @property
    def at_once(self) -> int:
        return FILES_AT_ONCE if self.reads_files else super().at_once

    @property
    def reads_files(self) -> bool:
        return bool(self.task.reads_files)

    def named(self, line: str, name: str) -> str:
        """A line of result, behind the name of its file if there are several."""
        is_one = len(self.names) == 1 and not os.path.isdir(self.names[0]) and self.names != ["-"]  # noqa: PTH112
        return line if is_one or not self.reads_files else f"{name}\t{line}"


@dataclass
class CaptionCommand(FileCommand, CandidateCommand):
    name = "caption"
    progress = ("describing", "captions")
    notes_on = """
        Prints a line for each file; of several files the name and a tab first. With -n all results, as
        `line ||| text ||| score`. A folder stands for all its pictures. A table with a column of files may
        have a column of questions.
    """
    examples = """
        regard caption -m runs/flickr photo.png
        regard caption -m runs/shapes photo.png --question "which colour is the circle?"
        regard caption -m runs/flickr pictures/ --json
    """
    argument_type = Annotated[
        list[str] | None, typer.Argument(help="Files or folders; nothing or - reads their names from stdin.")
    ]

    def read(self) -> Iterable[Any]:
        """(file, question) of each picture."""
        from regard.data import has_rows, iter_examples
        from regard.data.readers import PROMPT_SEPARATOR

        task, default = self.task.folder.task, self.options["question"] or ""
        if len(self.names) != 1 or not has_rows(Path(self.names[0]), task):
            return ((file, default) for file in super().read())
        examples = iter_examples(self.names[0], task, inputs_only=True)
        rows = ((each.source, each.target.rpartition(PROMPT_SEPARATOR)[0]) for each in examples)
        return ((table_file(place), question or default) for place, question in rows)

    def results(self, lines: Sequence[Any], first: int) -> Sequence[Any]:
        files, questions = [file for file, _ in lines], [question for _, question in lines]
        options = {**self.options, "question": None}
        return self.spec.run(self.task, files, options, questions=questions, first_line=first, warn=say)

    def lines(self, number: int, result: Caption) -> list[str]:
        return [self.named(line, result.file) for line in super().lines(number, result)]
