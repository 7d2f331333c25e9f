"""`regard embed`."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.answers import Concerns
from regard.cli.classify import Over
from regard.cli.terminal import (
    AsJson,
    Device,
    OneModel,
    Threads,
    one_line,
    read_inputs,
    say,
    thread_count,
    writable,
)
from regard.cli.translate import Texts, answer_all, is_typed
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Embedder, Embedding, TooLong
    from regard.tasks.embedder import Vector


def embed(
    model: OneModel,
    text: Texts = None,
    similar: Annotated[
        bool, typer.Option("--similarity", help="How alike the first text and each other one are: a cosine.")
    ] = False,
    npy: Annotated[
        Path | None, typer.Option("--npy", help="Write a float32 array [texts, width] for NumPy.")
    ] = None,
    as_json: AsJson = False,
    too_long: Over = "cut",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Give texts their vectors: a JSON list of numbers for each line of text.

    Any BERT folder serves; how its states become one vector stands in its sentence-transformers files, else
    it is their mean. With [bold]--similarity[/] a line is the cosine, a tab and the text.

    [bold]--json[/] gives an object a line

      line, text, vector (with --similarity: similarity),
      and where they apply cut (only the beginning was read), skipped

    [bold]Examples[/]

      regard embed -m sentence-transformers/all-MiniLM-L6-v2 "A small house."
      regard embed -m minilm sentences.txt --npy sentences.npy
      regard embed -m minilm --similarity "A small house." "A tiny home." "It rains."
    """
    from regard.tasks import Embedder, load_as

    output, npy = writable(output), writable(npy)
    if npy is not None and (similar or as_json or output is not None):
        raise UsageError(
            "--npy writes the vectors and nothing else: without --similarity, --json and --output"
        )
    embedder = load_as(Embedder, model, device, thread_count(threads))
    if not embedder.pooling.configured:
        say("the folder does not say how its states become a vector: it is their mean")
    answer = Vectors(embedder, too_long, as_json, npy is not None)
    if similar:
        answer = Similarities(embedder, too_long, as_json)
    answer_all(answer, read_inputs(text or []), is_typed(text), output, "embedding", "results")
    if npy is not None:
        write_array(npy, embedder.as_array(answer.kept))


@dataclass
class Vectors:
    """Lines of text to lines of numbers, or to nothing but what is kept for an array."""

    embedder: Embedder
    too_long: TooLong
    as_json: bool
    keep: bool = False
    kept: list[Embedding] = field(default_factory=list)
    concerns: Concerns = field(default_factory=Concerns)

    def __call__(self, lines: list[str], first: int) -> list[str]:
        found = self.embedder.embed(lines, too_long=self.too_long, first=first)
        for number, each in enumerate(found, first):
            self.look_at(each, number)
        if self.keep:
            self.kept += found
            return []
        return [line for number, each in enumerate(found, first) for line in self.lines_of(each, number)]

    def look_at(self, found: Embedding, number: int) -> None:
        if found.skipped:
            self.concerns.note("skipped: too long for the model", number)
        elif found.cut:
            self.concerns.note("too long for the model, which read only the beginning (--too-long)", number)
        if not found.text.strip():
            self.concerns.note("empty: its vector is that of no words", number)

    def lines_of(self, found: Embedding, number: int) -> list[str]:
        vector = "null" if found.vector is None else numbers(found.vector)
        return [self.as_object(found, number, f'"vector": {vector}') if self.as_json else vector]

    def as_object(self, found: Embedding, number: int, own: str) -> str:
        head = json.dumps({"line": number, "text": found.text}, ensure_ascii=False)
        marks = {"cut": found.cut, "skipped": found.skipped}
        told = "".join(f', "{name}": true' for name, mark in marks.items() if mark)
        return f"{head[:-1]}, {own}{told}}}"

    def end(self) -> None:
        self.concerns.say()


@dataclass
class Similarities(Vectors):
    """How alike the first text and each of the others are."""

    first: Vector | None = None
    count: int = 0

    def lines_of(self, found: Embedding, number: int) -> list[str]:
        from regard.tasks.embedder import similarity

        self.count += 1
        if self.count == 1:
            if found.vector is None:
                raise UsageError(
                    f"line {number}: the first text is too long, and all others are compared to it"
                )
            self.first = found.vector
            return []
        if found.vector is None or self.first is None:
            alike = "null" if self.as_json else "nan"
        else:
            alike = f"{similarity(self.first, found.vector):.4f}"
        if self.as_json:
            return [self.as_object(found, number, f'"similarity": {alike}')]
        return [f"{alike}\t{one_line(found.text)}"]

    def end(self) -> None:
        if self.count < 2:
            raise UsageError("--similarity compares the first text to others: give at least two")
        super().end()


def numbers(vector: Vector) -> str:
    """A JSON list with the fewest digits that give the same float32 again."""
    return f"[{', '.join(map(str, vector))}]"


def write_array(path: Path, array: Vector) -> None:
    import numpy as np

    from regard.storage import write_atomically

    content = io.BytesIO()
    np.save(content, array)
    write_atomically(path, content.getvalue())
    say(f"wrote {array.shape[0]:,} vectors of {array.shape[1]:,} numbers to {path}")
