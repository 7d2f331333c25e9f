"""`regard explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.builtin import builtin_translator, preload_detector
from regard.cli.terminal import (
    Device,
    Settings,
    Threads,
    parse_options,
    read_stdin,
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
    typer.Option("--model", "-m", help="A model folder or name; else a translator of the package."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="A page (.html), a figure (.svg .png .json .html) or all (.safetensors)."
    ),
]
View = Annotated[
    str | None,
    typer.Option(
        help="attention, heads, alignment, entropy, lens, positions or beam: what -o draws; "
        "page: all of the explorer in one .html. Usual: page for .html, else heads."
    ),
]
Layer = Annotated[int | None, typer.Option(min=0, help="A layer, from 0.")]
Head = Annotated[int | None, typer.Option(min=0, help="A head, from 0; else their mean.")]
Where = Annotated[str | None, typer.Option(help="An attention: decoder.3.cross, or its kind: self, cross.")]
Step = Annotated[int | None, typer.Option(min=0, help="The piece whose look is shown step by step, from 0.")]
Words = Annotated[bool, typer.Option("--words", help="Merge sub-words to words in the view attention.")]
Target = Annotated[str | None, typer.Option(help="What the model is made to say; else it decodes.")]
Context = Annotated[str | None, typer.Option(help="The text that a question is asked about.")]
ZeroHead = Annotated[
    list[str] | None, typer.Option(help="Switch a head off: decoder.3.cross:5; may come several times.")
]
Change = Annotated[
    list[str] | None, typer.Option(help='Any intervention as JSON: {"type": "drop_positions"}.')
]


def explain(
    text: Annotated[str, typer.Argument(help="One text; - reads stdin.")],
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
    option: Settings = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Show what a model does inside on one text: in the terminal, as a figure, or all numbers.

    Without -o: the pieces, one head's scores step by step (product, scale, mask,
    softmax), and the most probable words at each step.
    Layers, heads and steps are counted from 0.

    With a change ([bold]--zero-head[/], [bold]--change[/]) the run is compared with the unchanged one.
    Types: zero_head, uniform, drop_scale, drop_positions, unmask_future, replace_token

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

    output, view = checked(output, view)
    changes = [*map(switched_off, zero_head or []), *map(parsed, change or [])]
    text = "\n".join(read_stdin()) if text == "-" else text
    task = load(model or builtin_translator(text, None), device, thread_count(threads), "float32")
    given = {"target": target, "context": context, "decode": parse_options(option, None, 1)}
    plain = task.trace(text, **given)
    trace = task.trace(text, **given, interventions=changes) if changes else plain
    if output is None:
        from regard.cli.steps import show

        show(trace, tables(), where, layer, head, step)
        if changes:
            tables().print(compare(plain, trace).sentence, markup=False)
        return
    save(trace, output, view, layer, head, where, words)
    if changes:
        say(compare(plain, trace).sentence)
    say(f"wrote {output}")


def checked(output: Path | None, view: str | None) -> tuple[Path | None, str]:
    """What cannot be written is said before the work."""
    output = writable(output)
    endings = (".svg", ".png", ".html", ".json", ".safetensors")
    if output is not None and output.suffix.lower() not in endings:
        raise UsageError(f"{output}: the name must end with one of {', '.join(endings)}")
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


def switched_off(given: str) -> dict[str, Any]:
    where, colon, head = given.rpartition(":")
    if not colon or not head.isdecimal():
        raise UsageError(f"--zero-head {given}: write an attention and a head, such as decoder.3.cross:5")
    return {"type": "zero_head", "where": where, "head": int(head)}


def parsed(given: str) -> Any:
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        raise UsageError(f'--change {given}: not JSON; write it as {{"type": "drop_scale"}}') from None
