"""`regard explain --why`: what each part of the model adds to a logit, in the terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.interpret import Trace
    from regard.interpret.attribution import Contributions

Why = Annotated[bool, typer.Option("--why", help="What each part of the model adds to the logit of a word.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="WORD", help="The word of --why; default: the chosen one.")
]
Against = Annotated[
    str | None,
    typer.Option(metavar="WORD", help="The word it is compared with; default: the next most probable one."),
]

HEADS = 8  # heads that are listed
WIDTH = 24  # characters of the longest bar
Word = str | None


def check_why(why: bool, word: Word, against: Word, output: Path | None) -> None:
    for name, value in (("--for", word), ("--against", against)):
        if value is not None and not why:
            raise UsageError(f"{name}: a word of --why", code="E_OPTION_OUTPUT")
    if why and output is not None:
        raise UsageError("--why: for the terminal; leave it or -o out", code="E_OPTION_OUTPUT")


def question(trace: Trace, step: int | None, word: Word, against: Word) -> tuple[int, int, int]:
    """The step, the choice, and the one it is compared with."""
    from regard.interpret.choices import choice_number, default_step, runner_up

    step = default_step(trace) if step is None else step
    number = choice_number(trace, step, word)
    other = runner_up(trace, step, number) if against is None else choice_number(trace, step, against)
    return step, number, other


def why_object(trace: Trace, step: int | None, word: Word, against: Word) -> dict[str, Any]:
    step, number, other = question(trace, step, word, against)
    parts = trace.contributions(step, number, other)
    gradients = trace.gradient_x_input(step, number, other)
    return asdict(parts) | {"gradient_x_input": {side: each.tolist() for side, each in gradients.items()}}


def show_why(trace: Trace, console: Console, step: int | None, word: Word, against: Word) -> None:
    from regard.interpret.predictions import text_before

    step, number, other = question(trace, step, word, against)
    parts = trace.contributions(step, number, other)
    console.print(Text(f"step {step}, after {text_before(trace, step) or 'the beginning'}:", style="bold"))
    equation = f"logit({parts.text}) - logit({parts.against}) = {parts.total:+.3f}, the sum of"
    console.print(Text(equation, style="bold"))
    console.print(layer_table(parts))
    if heads := [each for each in parts.largest(len(parts.parts)) if each.head is not None]:
        console.print(Text("the heads with the largest shares, and the tokens they propose", style="bold"))
        console.print(head_table(heads[:HEADS]))
    console.print(Text(f"gradient x input of log p({parts.text}) - log p({parts.against})", style="bold"))
    for side, values in trace.gradient_x_input(step, number, other).items():
        console.print(token_table(side, trace.tokens[side].shown, values.tolist()))


def layer_table(parts: Contributions) -> Table:
    table = Table("part", "share", "", "its heads")
    sums = parts.by_layer()
    most = max(map(abs, sums.values()), default=0.0)
    for name, value in sums.items():
        heads = [each for each in parts.parts if each.name == name and each.head is not None]
        strongest = sorted(heads, key=lambda each: -abs(each.value))[:3]
        row = ", ".join(f"{each.head}: {each.value:+.2f}" for each in strongest)
        table.add_row(name, f"{value:+.3f}", bar(value, most), row)
    if abs(parts.rest) >= 0.0005:
        table.add_row("rest", f"{parts.rest:+.3f}", bar(parts.rest, most), "rounding, interventions")
    return table


def head_table(heads: list[Any]) -> Table:
    table = Table("attention", "head", "share", "proposes")
    for each in heads:
        words = ", ".join(text for text, _ in each.proposals)
        table.add_row(each.name, str(each.head), f"{each.value:+.3f}", Text(words))
    return table


def token_table(side: str, texts: tuple[str, ...], values: list[float]) -> Table:
    table = Table(f"{side} token", "gradient x input", "")
    most = max(map(abs, values), default=0.0)
    for text, value in zip(texts, values):
        table.add_row(Text(text), f"{value:+.3f}", bar(value, most))
    return table


def bar(value: float, most: float) -> Text:
    length = round(WIDTH * abs(value) / most) if most else 0
    return Text("█" * length, style="blue" if value >= 0 else "red")
