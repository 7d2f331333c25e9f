"""`regard generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.terminal import (
    AsJson,
    Device,
    OneModel,
    Precision,
    Threads,
    print_line,
    put,
    read_inputs,
    say,
    thread_count,
)
from regard.cli.translate import Settings, parse_options
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.tasks.generator import GeneratedText, Generator, TooLongPrompt

Prompts = Annotated[list[str] | None, typer.Argument(help="Prompts or files; nothing or - reads stdin.")]
EachLine = Annotated[bool, typer.Option("--lines", help="Every line is a prompt, not the text as a whole.")]
OnlyNew = Annotated[bool, typer.Option("--only-new", help="Print what follows without the prompt.")]
Count = Annotated[int, typer.Option(min=1, max=1000, help="Texts for each prompt.")]
Longest = Annotated[
    int | None, typer.Option(min=1, help="Pieces at most; 200 unless the folder says otherwise.")
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Of drawing, 0.8 unless the folder says otherwise; below 1 takes fewer risks."),
]
TopK = Annotated[int | None, typer.Option(min=0, help="Draw from the k most probable pieces; 0 = all.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the smallest set of this probability.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Of drawing; the same one gives the same text.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Search with so many beams, not draw; 1 is greedy.")]
Over = Annotated[
    Literal["error", "cut"],
    typer.Option("--too-long", help="A prompt that the model cannot read at once: stop, or read its end."),
]
BETWEEN = "---"  # a line between two texts


def generate(
    model: OneModel,
    prompt: Prompts = None,
    lines: EachLine = False,
    only_new: OnlyNew = False,
    count: Count = 1,
    max_length: Longest = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    beam: Beam = None,
    option: Settings = None,
    too_long: Over = "error",
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Go on with a text: the prompt, and what the model writes after it, piece by piece.

    It is drawn, at the temperature 0.8 and from all pieces, unless the section
    decode of the folder's run.toml or an option here says otherwise.
    All of stdin is one prompt, without the end of its last line;
    an empty one lets the model begin.
    Between several texts stands a line of three hyphens.

    A model with learned positions reads so many pieces at once. Where its text
    grows beyond them, it goes on from the last half of what it read, and
    forgets the rest.

    [bold]--json[/] gives an object a text

      prompt, text (what follows), tokens (how many pieces it has),
      log_probability (as drawn: after temperature, top-k and top-p),
      finished (false: cut off at the length limit)

    [bold]Examples[/]

      regard generate -m runs/demo "Once upon a time"
      regard generate -m runs/demo --count 3 --top-p 0.9 --seed 7 < beginning.txt
      regard generate -m runs/demo "Once upon a time" --beam 1
    """
    from regard.tasks import load_as
    from regard.tasks.generator import Generator

    short = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    given = parse_options(option, beam, 1) | {
        name: value for name, value in short.items() if value is not None
    }
    generator = load_as(Generator, model, device, thread_count(threads), precision)
    options = generator.options(given)
    if not options.sample and count > options.beam:
        raise UsageError(f"{count} texts of a search need a beam of at least {count}, not {options.beam}")
    writer = Writer(generator, options, count, only_new, too_long)
    for number, text in enumerate(read_prompts(prompt or [], lines)):
        writer.print_objects(text) if as_json else writer.print_texts(text, number == 0)


@dataclass(frozen=True)
class Writer:
    """Prints texts as they come."""

    generator: Generator
    options: Decode
    count: int
    only_new: bool
    too_long: TooLongPrompt

    def print_texts(self, prompt: str, first: bool) -> None:
        for number, pieces in enumerate(self.texts(prompt)):
            if number or not first:
                print_line(BETWEEN)
            end = "" if self.only_new else prompt
            put(end, flush=True)
            for piece in pieces:
                put(piece, flush=True)
                end = piece
            put("" if end.endswith("\n") else "\n", flush=True)

    def texts(self, prompt: str) -> Iterator[Iterator[str]]:
        """Draws one after another; those of a search with several beams when all are known."""
        if self.options.sample or self.options.beam == 1:
            one = self.options.model_copy(update={"beam": 1})
            for draw in range(self.count):
                yield self.generator.stream_one(prompt, one, draw, self.too_long, say)
        else:
            yield from (iter([found.text]) for found in self.written(prompt))

    def written(self, prompt: str) -> list[GeneratedText]:
        wide = {"beam": self.count} if self.options.sample else {}
        options = self.options.model_copy(update=wide)
        return self.generator.write([prompt], options, self.too_long, say)[0][: self.count]

    def print_objects(self, prompt: str) -> None:
        for found in self.written(prompt):
            row = {
                "prompt": found.prompt,
                "text": found.text,
                "tokens": len(found.tokens),
                "log_probability": found.log_probability,
                "finished": found.finished,
            }
            print_line(json.dumps(row, ensure_ascii=False), flush=True)


def read_prompts(names: list[str], lines: bool) -> Iterator[str]:
    """Each argument is one prompt, or each of its lines."""
    if names in ([], ["-"]) and sys.stdin is not None and sys.stdin.isatty():
        say("type a prompt a line; Ctrl-D ends" if lines else "type a prompt; Ctrl-D ends it")
    for name in names or ["-"]:
        text = read_inputs([name])
        yield from text if lines else ["\n".join(text)]
