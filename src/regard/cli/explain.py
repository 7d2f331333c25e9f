"""`regard explain`: a trace in the terminal or in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.builtin import builtin_translator, preload_detector
from regard.cli.terminal import (
    AsJson,
    Beam,
    Device,
    Precision,
    Settings,
    Threads,
    parse_options,
    print_line,
    read_inputs,
    say,
    tables,
    thread_count,
    writable,
)
from regard.cli.why import Against, For, Why, check_why, show_why, why_object
from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.interpret import Trace
    from regard.interpret.drawing import Figure
    from regard.interpret.page import Page

Model = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A model folder or name; default: a built-in translator."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="A page (.html), a figure (.svg .png .json .html) or the trace (.safetensors)."
    ),
]
View = Annotated[
    str | None,
    typer.Option(
        help="The figure of -o: attention, heads, alignment, entropy, lens, positions or beam; "
        "page: the whole explorer in one .html. Default: page for .html, else heads."
    ),
]
Layer = Annotated[int | None, typer.Option(min=0, help="A layer, from 0.")]
Head = Annotated[int | None, typer.Option(min=0, help="A head, from 0; default: the mean of all heads.")]
Where = Annotated[str | None, typer.Option(help="An attention: decoder.3.cross, or its kind: self, cross.")]
Step = Annotated[
    int | None, typer.Option(min=0, help="The query token whose attention is shown, or with --why the step.")
]
Words = Annotated[bool, typer.Option("--words", help="Merge sub-words into words in the view attention.")]
Target = Annotated[str | None, typer.Option(help="The output to trace; default: what the model decodes.")]
Context = Annotated[str | None, typer.Option(help="The text that contains the answer to a question.")]
ZeroHead = Annotated[list[str] | None, typer.Option(help="Ablate a head: decoder.3.cross:5; repeatable.")]
Change = Annotated[
    list[str] | None, typer.Option(help='Any intervention as JSON: {"type": "drop_positions"}.')
]


SUFFIXES = (".svg", ".png", ".html", ".json", ".safetensors")
MAX_ROWS = 40
NUMBERS = 4  # of a vector
CHOICES = 3  # at each step


def explain(
    text: Annotated[str, typer.Argument(help="One text, a file of it, a picture or sound; - reads stdin.")],
    model: Model = None,
    output: Output = None,
    view: View = None,
    layer: Layer = None,
    head: Head = None,
    where: Where = None,
    step: Step = None,
    why: Why = False,
    word: For = None,
    against: Against = None,
    words: Words = False,
    target: Target = None,
    context: Context = None,
    zero_head: ZeroHead = None,
    change: Change = None,
    beam: Beam = None,
    option: Settings = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Trace a model on one text: in the terminal, as a figure, a page or a file with all tensors.

    Without -o: the tokens, the scores of one head step by step (product, scale, mask,
    softmax), and the most probable tokens at each step. Layers, heads and steps are counted
    from 0. The model runs in float32, unless [bold]--precision[/] names another.

    [bold]--why[/]: one word against another: what the embedding, each head and each feed-forward
    layer add to the difference of their logits, what the heads propose, and gradient x input.

    With an intervention ([bold]--zero-head[/], [bold]--change[/]) the run is compared with the plain one.
    Types: zero_head, uniform, drop_scale, drop_positions, unmask_future, replace_token, edit, patch

    [bold]--json[/] gives an object: text, output, precision, tokens (of each side), steps (after;
    choices: text, probability), comparison (with an intervention), why (with [bold]--why[/])

    [bold]Examples[/]

      regard explain "I see the small house."
      regard explain -m runs/demo "I see the small house." --view lens -o lens.svg
      regard explain -m runs/demo "I see the small house." -o page.html
      regard explain -m runs/demo "I see it." --view attention --layer 2 --head 1 -o head.png
      regard explain -m runs/demo "I see it." --zero-head decoder.2.cross:1
      regard explain "I see the small house." --why --step 4 --for Haus
    """
    preload_detector([text], model is None)
    output = writable(output)
    check_options(output, view, words, step, as_json)
    check_why(why, word, against, output)
    interventions = [*map(parse_zero_head, zero_head or []), *map(parse_change, change or [])]
    text = text if model and is_media(text) else "\n".join(read_inputs([text]))
    path = model or builtin_translator(text, None)
    is_plain = precision in ("auto", "float32") and not (interventions or target or option or beam)
    with_model = makes_page(output, view) and is_plain
    task = open_task(path, device, threads, precision, with_model)
    arguments = {"target": target, "context": context, "decode": parse_options(option, beam)}
    trace, comparison = traced(task, text, arguments, interventions)
    if output is None:
        question = (step, word, against) if why else None
        print_trace(trace, comparison, (where, layer, head, step), question, as_json)
        return
    page = page_with_model(path.name, task, text, context) if with_model else None
    (page or trace_file(trace, output, view, layer, head, where, words)).save(output)
    for line in filter(None, (comparison, f"wrote {output}")):
        say(line)


def is_media(text: str) -> bool:
    from regard.data.readers.media import SUFFIXES

    return text.lower().endswith(tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes))


def print_trace(
    trace: Trace, comparison: str, chosen: tuple[Any, ...], question: tuple[Any, ...] | None, as_json: bool
) -> None:
    """`question`: step, word and other word of --why."""
    if as_json:
        row = as_object(trace, comparison)
        row |= {"why": why_object(trace, *question)} if question else {}
        print_line(json.dumps(row, ensure_ascii=False))
        return
    if question:
        show_why(trace, tables(), *question)
    else:
        show(trace, tables(), *chosen)
    if comparison:
        tables().print(comparison, markup=False)


def open_task(path: Path, device: str, threads: int, precision: str, plain: bool) -> Any:
    """The model; `plain` as it was trained, since an engine packs the weights."""
    from regard.tasks import load

    engine = "plain" if plain else "auto"
    return load(path, device, thread_count(threads), "float32" if precision == "auto" else precision, engine)


def traced(task: Any, text: str, arguments: dict[str, Any], interventions: list[Any]) -> tuple[Trace, str]:
    """The run, and with interventions how it differs from the one without."""
    from regard.interpret import compare

    if is_media(text) and not task.reads_files:  # a file of another kind: refused by its name
        text = "\n".join(read_inputs([text]))
    plain: Trace = task.trace(text, **arguments)
    if not interventions:
        return plain, ""
    changed: Trace = task.trace(text, **arguments, interventions=interventions)
    return changed, compare(plain, changed).sentence


def check_options(
    output: Path | None, view: str | None, words: bool, step: int | None, as_json: bool
) -> None:
    """Refuse, before the model is loaded, an output that cannot be written and options without effect."""
    if output is None and (view or words):
        name = "--view" if view else "--words"
        raise UsageError(f"{name}: for a figure; give its file with -o", code="E_OPTION_OUTPUT")
    if output is not None and (step is not None or as_json):
        name = "--json" if as_json else "--step"
        raise UsageError(f"{name}: for the terminal; leave it or -o out", code="E_OPTION_OUTPUT")
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{output}: the name must end with one of {', '.join(SUFFIXES)}")
    if view == "page" and output is not None and output.suffix.lower() != ".html":
        raise UsageError("--view page: the page is written with -o and a name that ends with .html")


def as_object(trace: Trace, comparison: str) -> dict[str, Any]:
    """A trace as JSON: what was read, written, and most probable at each step."""
    steps = [
        {"after": after, "choices": [{"text": text, "probability": p} for text, p in choices]}
        for after, choices in predictions(trace)
    ]
    tokens = {side: list(tokens.shown) for side, tokens in trace.tokens.items()}
    row = {"text": trace.meta["text"], "output": trace.output, "precision": trace.meta["precision"]}
    row |= {"tokens": tokens, "steps": steps}
    return row | ({"comparison": comparison} if comparison else {})


def trace_file(trace: Trace, output: Path, view: str | None, *which: Any) -> Trace | Page | Figure:
    """What is saved: all tensors, the page, or a figure of the tensors `which`."""
    if output.suffix.lower() == ".safetensors":
        return trace
    return trace.page() if makes_page(output, view) else trace.figure(view or "heads", *which)


def makes_page(output: Path | None, view: str | None) -> bool:
    """Whether the whole explorer is written."""
    return output is not None and (view == "page" or (view is None and output.suffix.lower() == ".html"))


def page_with_model(name: str, task: Any, text: str, context: str | None) -> Page | None:
    """The page with the model inside, where it can run in a browser."""
    from regard.server.site import model_page

    try:
        return model_page(name, task, text, context)
    except UsageError as error:
        say(f"the page has this run alone: {error}")
        return None


def parse_zero_head(argument: str) -> dict[str, Any]:
    where, colon, head = argument.rpartition(":")
    if not colon or not head.isdecimal():
        raise UsageError(f"--zero-head {argument}: write an attention and a head, such as decoder.3.cross:5")
    return {"type": "zero_head", "where": where, "head": int(head)}


def parse_change(argument: str) -> Any:
    try:
        return json.loads(argument)
    except (ValueError, RecursionError):
        raise UsageError(f'--change {argument}: not JSON; write it as {{"type": "drop_scale"}}') from None


# --- the terminal ---------------------------------------------------------------------------------------


def show(
    trace: Trace, console: Console, where: str | None, layer: int | None, head: int | None, step: int | None
) -> None:
    parts = list(token_tables(trace))
    if trace.attentions or any(option is not None for option in (where, layer, head, step)):
        parts += attention_table(trace, where, layer, head or 0, step)
    for part in [*parts, *prediction_table(trace)]:  # errors before any output
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
    name = trace.attention_name(where, layer)
    weights = trace.weights(name, head)  # [T,S]
    queries, keys = trace.sides(name)
    step = trace.default_step(name) if step is None else step
    if step >= len(queries):
        raise UsageError(f"step = {step}: there are {len(queries)} tokens, from 0 on")
    products = raw_products(trace, name, head, step)
    columns = ["key", *(["q . k"] if products is not None else []), "score", "visible", "weight"]
    yield Text(f"{name}, head {head}: query {trace.query_labels(name)[step]} (position {step})", style="bold")
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
    yield Text("another query: --step; another head: --layer, --head, --where", style="dim")
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
