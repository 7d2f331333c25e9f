"""The terminal view of a training run: updated in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

Record = dict[str, Any]
BARS = "▁▂▃▄▅▆▇█"
SCORES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "f1": "F1",
    "accuracy": "accuracy",
    "word_error_rate": "word errors",
    "exact": "exact",
    "perplexity": "perplexity",
    "bits_per_byte": "bits a byte",
}
SHARES = ("f1", "accuracy", "word_error_rate", "exact")
LOWER_IS_BETTER = ("perplexity", "word_error_rate")
SHOWN = ("train", "valid", "average", "final-valid", "test")  # kinds of records


@contextmanager
def view(console: Console, plain: bool, unit: str = "tokens") -> Iterator[PlainView]:
    """`unit` is what an update counts: tokens, or texts or files where each has one label."""
    if plain or not console.is_terminal:
        yield PlainView(console, unit)
        return
    live = LiveView(console, unit)
    with Live(live.render(), console=console, refresh_per_second=4, transient=False) as screen:
        live.screen = screen
        yield live


class PlainView:
    """One line for each record."""

    def __init__(self, console: Console, unit: str = "tokens") -> None:
        self.console, self.unit = console, unit

    def log(self, text: str) -> None:
        self.console.print(Text(text))

    def record(self, record: Record) -> None:
        if record["kind"] in SHOWN:
            self.console.print(Text(line(record, self.unit)))


def line(record: Record, unit: str = "tokens") -> str:
    if record["kind"] == "train":
        return (
            f"step {record['step']}  epoch {record['epoch']:.2f}  loss {record['loss']:.4f}  "
            f"lr {record['lr']:.2e}  {record['tokens_per_second']:,.0f} {unit}/s"
        )
    scores = "".join(f"  {score}" for score in scores_of(record))
    sample = record.get("sample")
    shown = f"\n  {sample['source']}\n  -> {sample['output']}" if sample else ""
    return f"{record['kind']} at step {record['step']}  loss {record['loss']:.4f}{scores}{shown}"


def scores_of(record: Record) -> list[str]:
    """The scores of a validation, the most important first."""
    return [
        f"{name} {100 * record[key]:.1f} %" if key in SHARES else f"{name} {record[key]:.2f}"
        for key, name in SCORES.items()
        if key in record
    ]


class LiveView(PlainView):
    """Loss, speed, score, time left and one output of the model, updated in place."""

    def __init__(self, console: Console, unit: str = "tokens") -> None:
        super().__init__(console, unit)
        self.screen: Live | None = None
        self.losses: list[float] = []
        self.latest: Record = {}
        self.valid: Record = {}
        self.scores: list[float] = []
        self.limit: int | None = None

    def log(self, text: str) -> None:
        (self.screen.console if self.screen else self.console).print(Text(text, style="dim"))

    def record(self, record: Record) -> None:
        if record["kind"] == "train":
            self.latest = record
            self.losses.append(record["loss"])
        elif record["kind"] in SHOWN:
            self.valid = record
            if values := [record[key] for key in SCORES if key in record]:
                self.scores.append(values[0])
        if self.screen is not None:
            self.screen.update(self.render())

    def render(self) -> RenderableType:
        if not self.latest:
            return Text("preparing", style="dim")
        table = Table(box=None, show_header=False, pad_edge=False)
        at = self.latest
        left = time_left(at)
        table.add_row("step", f"{at['step']:,}" + (f" of {at['steps']:,}" if "steps" in at else ""), bar(at))
        table.add_row("loss", f"{at['loss']:.4f}", sparkline(self.losses))
        table.add_row(
            "speed", f"{at['tokens_per_second']:,.0f} {self.unit}/s", f"learning rate {at['lr']:.2e}"
        )
        table.add_row("time", f"{clock(at['seconds'])} elapsed", f"{clock(left)} left")
        parts: list[RenderableType] = [table]
        if self.valid:
            score = [*scores_of(self.valid), f"loss {self.valid['loss']:.4f}"][0]
            table.add_row(
                "valid",
                score,
                sparkline(self.scores, rising=not any(key in self.valid for key in LOWER_IS_BETTER)),
            )
            if sample := self.valid.get("sample"):
                parts.append(Text(f"  {sample['source']}", style="dim"))
                parts.append(Text(f"  {sample['output']}"))
        return Group(*parts)


def time_left(record: Record) -> float:
    """Seconds until the first limit is reached."""
    by_steps = record["seconds"] / record["step"] * (record["steps"] - record["step"])
    minutes = record.get("minutes")
    return float(by_steps if minutes is None else min(by_steps, 60 * minutes - record["seconds"]))


def bar(record: Record, width: int = 30) -> str:
    if "steps" not in record:
        return ""
    filled = round(width * float(record["step"] / record["steps"]))
    return "━" * filled + "╌" * (width - filled)


def sparkline(values: list[float], width: int = 30, rising: bool = False) -> str:
    """The last values as a row of small bars."""
    shown = [value for value in values if math.isfinite(value)][-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    if rising:
        low = min(low, 0.0)
    return "".join(BARS[round((len(BARS) - 1) * (value - low) / ((high - low) or 1.0))] for value in shown)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
