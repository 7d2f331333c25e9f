"""A traced run in the terminal: the pieces, one look step by step, and the words that came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torch import Tensor

    from regard.interpret import Trace

MOST_ROWS = 40
NUMBERS = 4  # of a vector
STRONGEST = 3  # words at each step


def show(
    trace: Trace, console: Console, where: str | None, layer: int | None, head: int | None, step: int | None
) -> None:
    asked = any(given is not None for given in (where, layer, head, step))
    look = list(look_told(trace, where, layer, head or 0, step)) if trace.attentions or asked else []
    for part in [*pieces_told(trace), *look, *output_told(trace)]:  # all is known before the first is printed
        console.print(part)


def pieces_told(trace: Trace) -> Iterator[Table | Text]:
    for side, pieces in trace.tokens.items():
        if side == "output":
            continue
        yield Text(f"{side}: {len(pieces)} pieces", style="bold")
        table = Table("place", "piece", "id", "word")
        for place, (text, number, word) in enumerate(zip(pieces.shown, pieces.ids, pieces.words)):
            if place < MOST_ROWS:
                table.add_row(str(place), Text(text), str(number), str(word) if word >= 0 else "")
        yield table
        if len(pieces) > MOST_ROWS:
            yield Text(f"... and {len(pieces) - MOST_ROWS} more")


def look_told(
    trace: Trace, where: str | None, layer: int | None, head: int, step: int | None
) -> Iterator[Table | Text]:
    """softmax(q . k / sqrt(C)) of one query, key by key."""
    from regard.errors import UsageError
    from regard.interpret.figures import place_of

    place = place_of(trace, where, layer)
    weights = trace.weights(place, head)  # [T,S]
    queries, keys = trace.sides(place)
    step = len(queries) // 2 if step is None else step
    if step >= len(queries):
        raise UsageError(f"step = {step}: there are {len(queries)} pieces, from 0 on")
    products = raw_products(trace, place, head, step)
    columns = ["key", *(["q . k"] if products is not None else []), "score", "seen", "weight"]
    yield Text(f"{place}, head {head}: where {queries.shown[step]} (place {step}) looks", style="bold")
    table = Table(*columns)
    scores = trace[f"{place}.scores"][head, step].tolist()
    seen = trace[f"{place}.mask"][step].tolist() if f"{place}.mask" in trace else [True] * len(scores)
    shares = weights[step].tolist()
    order = sorted(range(len(keys)), key=lambda key: -shares[key])[:MOST_ROWS]
    for key in sorted(order):
        row = [f"{products[key]:.3f}"] if products is not None else []
        row += [f"{scores[key]:.3f}", "yes" if seen[key] else "hidden", f"{shares[key]:.4f}"]
        table.add_row(Text(keys.shown[key]), *row, style=None if seen[key] else "dim")
    yield table
    yield Text(f"the weights sum to {sum(shares):.4f}{scale_told(trace, place)}")
    if f"{place}.mixed" in trace:
        mixed = trace[f"{place}.mixed"][head, step]
        yield Text(f"sum of the values by the weights: {numbers(mixed)}, length {float(mixed.norm()):.3f}")


def raw_products(trace: Trace, place: str, head: int, step: int) -> list[float] | None:
    """q . k before anything is done to it; Bahdanau's scores are no products."""
    query, key = trace[f"{place}.query"], trace[f"{place}.key"]
    if query.dim() != 3:
        return None
    group = head * len(key) // len(query)  # heads may share keys
    found: list[float] = (key[group] @ query[head, step]).tolist()
    return found


def scale_told(trace: Trace, place: str) -> str:
    query = trace[f"{place}.query"]
    if query.dim() != 3:
        return ""
    if trace.meta.get("family") == "t5":
        return "; score = q . k + bias of the distance"
    return f"; score = q . k / sqrt({query.shape[-1]})"


def output_told(trace: Trace) -> Iterator[Table | Text]:
    """The most probable choices at each step."""
    from regard.interpret.comparison import behind, choices, texts
    from regard.interpret.pieces import visible

    logits = choices(trace)
    yield Text("the most probable choices", style="bold")
    table = Table("step", "after", *(f"{n + 1}." for n in range(STRONGEST)))
    first = max(0, int(trace.meta.get("prompt", 0)) - 1)
    for step in range(first, min(len(logits), first + MOST_ROWS)):
        best = logits[step].softmax(dim=-1).topk(min(STRONGEST, logits.shape[-1]))
        named = texts(trace, trace, best.indices.tolist())
        cells = [Text(f"{name} {p:.3f}") for name, p in zip(named, best.values.tolist())]
        table.add_row(str(step), Text(behind(trace, step)), *cells)
    yield table
    yield Text.assemble(("output: ", "bold"), visible(trace.output))


def numbers(vector: Tensor) -> str:
    some = ", ".join(f"{value:.3f}" for value in vector[:NUMBERS].tolist())
    return f"[{some}{', ...' if len(vector) > NUMBERS else ''}]"
