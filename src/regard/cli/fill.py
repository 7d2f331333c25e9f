"""`regard fill`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    AsJson,
    Device,
    OneModel,
    Threads,
    one_line,
    read_inputs,
    thread_count,
    writable,
)
from regard.cli.translate import Output, answer_all, is_typed

if TYPE_CHECKING:
    from regard.tasks.filler import Filler, Filling

Texts = Annotated[
    list[str] | None, typer.Argument(help="Texts with <mask>, or files; nothing or - reads stdin.")
]
NBest = Annotated[
    int, typer.Option(min=1, max=1000, help="Texts a line, as `line ||| text ||| probability`.")
]
Scores = Annotated[bool, typer.Option("--scores", help="Put the probability and a tab before the text.")]
USUAL_GUESSES = 5  # of each gap, in --json


def fill(
    model: OneModel,
    text: Texts = None,
    nbest: NBest = 1,
    scores: Scores = False,
    as_json: AsJson = False,
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    r"""Fill the gaps of each line: <mask>, \[MASK] or three underscores stand for what is missing.

    A BERT puts one piece into each gap. Several gaps of a line are guessed each
    by itself, and the best texts are those with the highest product.
    A T5 writes any number of pieces, gap after gap.
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
    answer = Fillings(filler, nbest, scores, as_json)
    answer_all(answer, read_inputs(text or []), is_typed(text), output, "filling", "lines")


@dataclass(frozen=True)
class Fillings:
    """Lines with gaps to lines of result."""

    filler: Filler
    nbest: int
    scores: bool
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        """The results of lines, of which the first has the number `first`."""
        gapped = {number: line for number, line in enumerate(lines, first) if line.strip()}
        count = max(self.nbest, USUAL_GUESSES if self.as_json else 1)
        found = dict(zip(gapped, self.filler.fill_lines(list(gapped.values()), count, list(gapped))))
        results: list[str] = []
        for number, line in enumerate(lines, first):
            own = found.get(number)
            results += (
                [as_object(number, line, own, self.nbest)] if self.as_json else self.as_lines(number, own)
            )
        return results

    def as_lines(self, number: int, found: Filling | None) -> list[str]:
        if found is None:
            return [""]
        lines = []
        for each in found.candidates[: self.nbest]:
            text = one_line(each.text)
            if self.nbest > 1:
                text = f"{number - 1} ||| {text} ||| {each.probability:.4f}"
            elif self.scores:
                text = f"{each.probability:.4f}\t{text}"
            lines.append(text)
        return lines

    def end(self) -> None:
        pass


def as_object(number: int, line: str, found: Filling | None, nbest: int) -> str:
    candidates = [each.__dict__ for each in found.candidates[:nbest]] if found else []
    guesses = [[each._asdict() for each in own] for own in found.guesses] if found else []
    row = {"line": number, "source": line, "text": found.text if found else line}
    return json.dumps(row | {"candidates": candidates, "guesses": guesses}, ensure_ascii=False)
