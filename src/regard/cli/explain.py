"""`regard explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.interpret import Trace

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
Step = Annotated[int | None, typer.Option(min=0, help="The query token whose attention is shown, from 0.")]
Words = Annotated[bool, typer.Option("--words", help="Merge sub-words into words in the view attention.")]
Target = Annotated[str | None, typer.Option(help="The output to trace; default: what the model decodes.")]
Context = Annotated[str | None, typer.Option(help="The text that contains the answer to a question.")]
ZeroHead = Annotated[list[str] | None, typer.Option(help="Ablate a head: decoder.3.cross:5; repeatable.")]
Change = Annotated[
    list[str] | None, typer.Option(help='Any intervention as JSON: {"type": "drop_positions"}.')
]


def explain(
    text: Annotated[str, typer.Argument(help="One text, or a file of it; - reads stdin.")],
    model: Model = None,
    output: Output = None,
    view: View = None,
    layer: Layer = None,
    head: Head = None,
    where: Where = None,
    step: Step = None,
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
    softmax), and the most probable tokens at each step.
    Layers, heads and steps are counted from 0. The model runs in float32, unless
    [bold]--precision[/] names another.

    With an intervention ([bold]--zero-head[/], [bold]--change[/]) the run is compared with the plain one.
    Types: zero_head, uniform, drop_scale, drop_positions, unmask_future, replace_token

    [bold]--json[/] gives an object

      text, output, precision, tokens (of each side), steps (after; choices: text, probability),
      comparison (with an intervention)

    [bold]Examples[/]

      regard explain "I see the small house."
      regard explain -m runs/demo "I see the small house." --view lens -o lens.svg
      regard explain -m runs/demo "I see the small house." -o page.html
      regard explain -m runs/demo "I see the small house." -o heads.svg
      regard explain -m runs/demo "I see it." --view attention --layer 2 --head 1 -o head.png
      regard explain -m runs/demo "I see it." --zero-head decoder.2.cross:1
      regard explain -m runs/demo "I see it." -o run.safetensors
    """
    preload_detector(model, None, [text])
    from regard.interpret import compare
    from regard.tasks import load

    for name, is_given in {"--view": view is not None, "--words": words}.items():
        if is_given and output is None:
            raise UsageError(f"{name}: for a figure; give its file with -o", code="E_OPTION_OUTPUT")
    if output is not None and (step is not None or as_json):
        name = "--json" if as_json else "--step"
        raise UsageError(f"{name}: for the terminal; leave it or -o out", code="E_OPTION_OUTPUT")
    output, view = check_output(output, view)
    interventions = [*map(parse_zero_head, zero_head or []), *map(parse_change, change or [])]
    text = "\n".join(read_inputs([text]))
    path = model or builtin_translator(text, None)
    task = load(path, device, thread_count(threads), "float32" if precision == "auto" else precision)
    arguments = {"target": target, "context": context, "decode": parse_options(option, beam)}
    plain = task.trace(text, **arguments)
    trace = task.trace(text, **arguments, interventions=interventions) if interventions else plain
    comparison = compare(plain, trace).sentence if interventions else ""
    from regard.cli.steps import show

    if as_json:
        print_line(json.dumps(as_object(trace, comparison), ensure_ascii=False))
    elif output is None:
        show(trace, tables(), where, layer, head, step)
        if comparison:
            tables().print(comparison, markup=False)
    else:
        save(trace, output, view, layer, head, where, words)
        if comparison:
            say(comparison)
        say(f"wrote {output}")


def as_object(trace: Trace, comparison: str) -> dict[str, Any]:
    """A trace as JSON: what was read, written, and most probable at each step."""
    from regard.cli.steps import predictions

    steps = [
        {"after": after, "choices": [{"text": text, "probability": p} for text, p in choices]}
        for after, choices in predictions(trace)
    ]
    tokens = {side: list(tokens.shown) for side, tokens in trace.tokens.items()}
    row = {"text": trace.meta["text"], "output": trace.output, "precision": trace.meta["precision"]}
    row |= {"tokens": tokens, "steps": steps}
    return row | ({"comparison": comparison} if comparison else {})


def check_output(output: Path | None, view: str | None) -> tuple[Path | None, str]:
    """Refuse an output that cannot be written before the model is loaded."""
    output = writable(output)
    suffixes = (".svg", ".png", ".html", ".json", ".safetensors")
    if output is not None and output.suffix.lower() not in suffixes:
        raise UsageError(f"{output}: the name must end with one of {', '.join(suffixes)}")
    page = output is not None and output.suffix.lower() == ".html"
    if view == "page" and not page:
        raise UsageError("--view page: the page is written with -o and a name that ends with .html")
    return output, view or ("page" if page else "heads")


def save(
    trace: Trace,
    output: Path,
    view: str,
    layer: int | None,
    head: int | None,
    where: str | None,
    words: bool,
) -> None:
    if output.suffix.lower() == ".safetensors":
        trace.save(output)
    elif view == "page":
        trace.page().save(output)
    else:
        trace.figure(view, layer, head, where, words).save(output)


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
