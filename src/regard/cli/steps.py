"""A trace in the terminal: the tokens, one attention step by step, and the predictions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torch import Tensor

    from regard.interpret import Trace

MAX_ROWS = 40
NUMBERS = 4  # of a vector
CHOICES = 3  # at each step


def show(
    trace: Trace, console: Console, where: str | None, layer: int | None, head: int | None, step: int | None
) -> None:
    selected = any(option is not None for option in (where, layer, head, step))
    if trace.attentions or selected:
        attention = list(attention_table(trace, where, layer, head or 0, step))
    else:
        attention = []
    for part in [*token_tables(trace), *attention, *prediction_table(trace)]:  # errors before any output
        console.print(part)


def token_tables(trace: Trace) -> Iterator[Table | Text]:
    for side, tokens in trace.tokens.items():
        if side == "output":
            continue
        yield Text(f"{side}: {len(tokens)} tokens", style="bold")
        table = Table("position", "token", "id", "word")
        rows = list(zip(tokens.shown, tokens.ids, tokens.words))
        for position, (text, number, word) in enumerate(rows[:MAX_ROWS]):
            table.add_row(str(position), Text(text), str(number), str(word) if word >= 0 else "")
        yield table
        if len(tokens) > MAX_ROWS:
            yield Text(f"... and {len(tokens) - MAX_ROWS} more")


def attention_table(
    trace: Trace, where: str | None, layer: int | None, head: int, step: int | None
) -> Iterator[Table | Text]:
    """softmax(q . k / sqrt(C)) of one query, key by key."""
    from regard.errors import UsageError
    from regard.interpret.figures import find_attention

    name = find_attention(trace, where, layer)
    weights = trace.weights(name, head)  # [T,S]
    queries, keys = trace.sides(name)
    step = len(queries) // 2 if step is None else step
    if step >= len(queries):
        raise UsageError(f"step = {step}: there are {len(queries)} tokens, from 0 on")
    products = raw_products(trace, name, head, step)
    columns = ["key", *(["q . k"] if products is not None else []), "score", "visible", "weight"]
    yield Text(f"{name}, head {head}: query {queries.shown[step]} (position {step})", style="bold")
    table = Table(*columns)
    scores = trace[f"{name}.scores"][head, step].tolist()
    mask = trace[f"{name}.mask"][step].tolist() if f"{name}.mask" in trace else [True] * len(scores)
    row_weights = weights[step].tolist()
    largest = sorted(range(len(keys)), key=lambda key: -row_weights[key])[:MAX_ROWS]
    for key in sorted(largest):
        row = [f"{products[key]:.3f}"] if products is not None else []
        row += [f"{scores[key]:.3f}", "yes" if mask[key] else "masked", f"{row_weights[key]:.4f}"]
        table.add_row(Text(keys.shown[key]), *row, style=None if mask[key] else "dim")
    yield table
    yield Text(f"the weights sum to {sum(row_weights):.4f}{score_equation(trace, name)}")
    if f"{name}.mixed" in trace:
        mixed = trace[f"{name}.mixed"][head, step]
        yield Text(f"weighted sum of the values: {format_vector(mixed)}, norm {float(mixed.norm()):.3f}")


def raw_products(trace: Trace, name: str, head: int, step: int) -> list[float] | None:
    """q . k before scale and bias; Bahdanau's scores are not products."""
    query, key = trace[f"{name}.query"], trace[f"{name}.key"]
    if query.dim() != 3:
        return None
    kv_head = head * len(key) // len(query)  # heads may share keys
    products: list[float] = (key[kv_head] @ query[head, step]).tolist()
    return products


def score_equation(trace: Trace, name: str) -> str:
    query = trace[f"{name}.query"]
    if query.dim() != 3:
        return ""
    if trace.meta.get("family") == "t5":
        return "; score = q . k + bias of the distance"
    return f"; score = q . k / sqrt({query.shape[-1]})"


def predictions(trace: Trace) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """The text before each step, and the most probable choices there."""
    from regard.interpret.predictions import choice_logits, choice_texts, text_before

    logits = choice_logits(trace)
    for step in range(first_step(trace), len(logits)):
        best = logits[step].softmax(dim=-1).topk(min(CHOICES, logits.shape[-1]))
        texts = choice_texts(trace, trace, best.indices.tolist())
        yield text_before(trace, step), list(zip(texts, best.values.tolist()))


def first_step(trace: Trace) -> int:
    return max(0, int(trace.meta.get("prompt", 0)) - 1)


def prediction_table(trace: Trace) -> Iterator[Table | Text]:
    """The most probable choices at each step."""
    from regard.interpret.activations import visible

    yield Text("the most probable choices", style="bold")
    table = Table("step", "after", *(f"{n + 1}." for n in range(CHOICES)))
    for step, (after, choices) in enumerate(islice(predictions(trace), MAX_ROWS), first_step(trace)):
        cells = [Text(f"{text} {p:.3f}") for text, p in choices]
        table.add_row(str(step), Text(after), *cells)
    yield table
    yield Text.assemble(("output: ", "bold"), visible(trace.output))


def format_vector(vector: Tensor) -> str:
    values = ", ".join(f"{value:.3f}" for value in vector[:NUMBERS].tolist())
    return f"[{values}{', ...' if len(vector) > NUMBERS else ''}]"
