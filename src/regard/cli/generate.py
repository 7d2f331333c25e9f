"""`regard generate` and `regard fill`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.terminal import (
    AsJson,
    Device,
    LineResults,
    OneModel,
    Output,
    Precision,
    Settings,
    Threads,
    answer_texts,
    json_line,
    one_line,
    parse_options,
    print_line,
    put,
    read_inputs,
    say,
    thread_count,
    writable,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.tasks.filler import Filler, Filling
    from regard.tasks.generator import GeneratedText, Generator, TooLongPrompt

Prompts = Annotated[list[str] | None, typer.Argument(help="Prompts or files; nothing or - reads stdin.")]
EachLine = Annotated[bool, typer.Option("--lines", help="Every line is a prompt, not the text as a whole.")]
OnlyNew = Annotated[bool, typer.Option("--only-new", help="Print what follows without the prompt.")]
Count = Annotated[int, typer.Option(min=1, max=1000, help="Texts for each prompt.")]
Longest = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of tokens; default: of the folder, else 200.")
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Sampling temperature; default: of the folder, else 0.8."),
]
TopK = Annotated[int | None, typer.Option(min=0, help="Sample from the k most probable tokens; 0 = all.")]
TopP = Annotated[
    float | None, typer.Option(help="Sample from the smallest set of tokens with this probability.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of sampling; the same seed gives the same text.")]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Beam search with so many beams instead of sampling; 1 is greedy.")
]
Over = Annotated[
    Literal["error", "cut"],
    typer.Option("--too-long", help="A prompt too long for the model: stop, or read its end."),
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
    """Continue a prompt: prints it and the tokens that follow, as they are generated.

    Samples at temperature 0.8 from all tokens; the section decode of the folder's
    run.toml or an option changes that.
    All of stdin is one prompt, without its last newline; it may be empty.
    Samples are separated by a line `---`.

    A model with learned positions reads a limited number of tokens. Where a text
    grows beyond them, it continues from the last half of them.

    [bold]--json[/] gives an object a text

      prompt, text (what follows), tokens (their number),
      log_probability (as sampled: after temperature, top-k and top-p),
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
    given = parse_options(option, beam, 1)
    given |= {name: value for name, value in short.items() if value is not None}
    generator = load_as(Generator, model, device, thread_count(threads), precision)
    options = generator.options(given)
    if not options.sample and count > options.beam:
        raise UsageError(f"{count} texts of a search need a beam of at least {count}, not {options.beam}")
    writer = Writer(generator, options, count, only_new, too_long)
    for number, text in enumerate(read_prompts(prompt or [], lines)):
        writer.print_objects(text) if as_json else writer.print_texts(text, number == 0)


@dataclass(frozen=True)
class Writer:
    """Prints texts as they are generated."""

    generator: Generator
    options: Decode
    count: int
    only_new: bool
    too_long: TooLongPrompt

    def print_texts(self, prompt: str, first: bool) -> None:
        for number, parts in enumerate(self.texts(prompt)):
            if number or not first:
                print_line(BETWEEN)
            end = "" if self.only_new else prompt
            put(end, flush=True)
            for part in parts:
                put(part, flush=True)
                end = part
            put("" if end.endswith("\n") else "\n", flush=True)

    def texts(self, prompt: str) -> Iterator[Iterator[str]]:
        """Samples one after another; the results of a beam search when it ends."""
        if self.options.sample or self.options.beam == 1:
            one = self.options.model_copy(update={"beam": 1})
            for sample in range(self.count):
                yield self.generator.stream_one(prompt, one, sample, self.too_long, say)
        else:
            yield from (iter([result.text]) for result in self.written(prompt))

    def written(self, prompt: str) -> list[GeneratedText]:
        wide = {"beam": self.count} if self.options.sample else {}
        options = self.options.model_copy(update=wide)
        return self.generator.write([prompt], options, self.too_long, say)[0][: self.count]

    def print_objects(self, prompt: str) -> None:
        for result in self.written(prompt):
            row = {
                "prompt": result.prompt,
                "text": result.text,
                "tokens": len(result.tokens),
                "log_probability": result.log_probability,
                "finished": result.finished,
            }
            print_line(json_line(row), flush=True)


def read_prompts(names: list[str], lines: bool) -> Iterator[str]:
    """Each argument is one prompt, or each of its lines."""
    if names in ([], ["-"]) and sys.stdin is not None and sys.stdin.isatty():
        say("type a prompt a line; Ctrl-D ends" if lines else "type a prompt; Ctrl-D ends it")
    for name in names or ["-"]:
        text = read_inputs([name])
        yield from text if lines else ["\n".join(text)]


# --- fill -------------------------------------------------------------------------------------------------

GappedTexts = Annotated[
    list[str] | None, typer.Argument(help="Texts with <mask>, or files; nothing or - reads stdin.")
]
NBest = Annotated[
    int, typer.Option(min=1, max=1000, help="Texts a line, as `line ||| text ||| probability`.")
]
Probabilities = Annotated[
    bool, typer.Option("--scores", help="Put the probability and a tab before the text.")
]
USUAL_GUESSES = 5  # of each gap, in --json


def fill(
    model: OneModel,
    text: GappedTexts = None,
    nbest: NBest = 1,
    scores: Probabilities = False,
    as_json: AsJson = False,
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    r"""Fill in the gaps of each line: <mask>, \[MASK] or three underscores.

    A BERT puts one token into each gap. Several gaps of a line are predicted
    independently; the best texts have the highest product of probabilities.
    A T5 writes any number of tokens, gap after gap.
    A blank line stays blank.

    [bold]--json[/] gives an object a line

      line, source, text, candidates (best first: text, probability),
      guesses (of each gap, best first: piece, probability)

    [bold]Examples[/]

      regard fill -m runs/demo "The <mask> sleeps."
      regard fill -m runs/demo --nbest 3 lines.txt
    """
    from regard.tasks import load_as
    from regard.tasks.filler import Filler

    output = writable(output)
    filler = load_as(Filler, model, device, thread_count(threads))
    answer_texts(FilledLines(filler, nbest, scores, as_json), text, output, "filling", "lines")


@dataclass
class FilledLines(LineResults):
    """Lines with gaps to lines of result."""

    filler: Filler
    nbest: int
    scores: bool
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        gapped = {number: line for number, line in enumerate(lines, first) if line.strip()}
        count = max(self.nbest, USUAL_GUESSES if self.as_json else 1)
        fillings = dict(zip(gapped, self.filler.fill_lines(list(gapped.values()), count, list(gapped))))
        results: list[str] = []
        for number, line in enumerate(lines, first):
            filling = fillings.get(number)
            results += [self.object(number, line, filling)] if self.as_json else self.lines(number, filling)
        return results

    def lines(self, number: int, filling: Filling | None) -> list[str]:
        if filling is None:
            return [""]
        lines = []
        for each in filling.candidates[: self.nbest]:
            text = one_line(each.text)
            if self.nbest > 1:
                text = f"{number - 1} ||| {text} ||| {each.probability:.4f}"
            elif self.scores:
                text = f"{each.probability:.4f}\t{text}"
            lines.append(text)
        return lines

    def object(self, number: int, line: str, filling: Filling | None) -> str:
        candidates = [each.__dict__ for each in filling.candidates[: self.nbest]] if filling else []
        guesses = [[each._asdict() for each in gap] for gap in filling.guesses] if filling else []
        row = {"line": number, "source": line, "text": filling.text if filling else line}
        return json_line(row | {"candidates": candidates, "guesses": guesses})
