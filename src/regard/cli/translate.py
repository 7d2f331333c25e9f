"""`regard translate`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    ModelFolder,
    Threads,
    messages,
    one_line,
    open_model,
    portions,
    print_line,
    read_inputs,
    say,
    writable,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translation


def translate(
    model: ModelFolder,
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts or files; nothing or - reads stdin.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.")] = None,
    nbest: Annotated[int, typer.Option(min=1, help="Candidates a line, as `line ||| text ||| score`.")] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Put the score and a tab before the text.")
    ] = False,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Add a tab and the word alignment, source-target.")
    ] = False,
    as_json: AsJson = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any field of the section decode: --set length_penalty=0.6."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="What every translation begins with.")] = None,
    split: Annotated[
        Literal["auto", "always", "never"], typer.Option(help="Cut lines into sentences; auto: long ones.")
    ] = "auto",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Translate lines of text; order and blank lines are kept.

    [bold]Examples[/]

      echo "I see the small house." | regard translate -m runs/demo
      regard translate -m runs/demo article.txt -o article.de.txt
      regard translate -m runs/demo "The cat sleeps." --nbest 3 --beam 5
    """
    from regard.tasks import decode_options

    output = writable(output)
    translator = open_model(model, device, threads)
    chosen = decode_options(translator.folder.decode, parse_options(option, beam, nbest))
    interactive = is_typed(text)
    lines = read_inputs(text or [])
    results: list[str] = []
    count = 0
    with nullcontext() if interactive else messages().status("translating") as status:
        for portion in portions(lines, 1 if interactive else AT_ONCE):
            prefixes = [prefix] * len(portion) if prefix is not None else None
            for each in translator.translate_lines(portion, chosen, nbest, alignment, split, prefixes):
                count += 1
                as_text = as_lines(count, each, nbest, scores, alignment)
                results += [as_object(count, each)] if as_json else as_text
            if status is not None:
                status.update(f"translated {count:,} lines")
            if output is None:
                for line in results[:-1]:
                    print_line(line)
                print_line(results[-1], flush=True)
                results = []
    if output is not None:
        from regard.store import write_text

        write_text(output, "".join(f"{line}\n" for line in results))
        say(f"wrote {count:,} translations to {output}")


def is_typed(text: list[str] | None) -> bool:
    """Whether a person types the lines; they are told how, and answered line by line."""
    typed = text in (None, [], ["-"]) and sys.stdin is not None and sys.stdin.isatty()
    if typed:
        say("type a sentence a line; Ctrl-D ends")
    return typed


def parse_options(given: list[str] | None, beam: int | None, nbest: int) -> dict[str, object]:
    """`--set field=value` and the short options as fields of [decode]."""
    from regard.config.load import parse_value

    options: dict[str, object] = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each}: write field=value, for example --set length_penalty=0.6")
        options[name.strip().removeprefix("decode.")] = parse_value(value)
    if beam is not None:
        options["beam"] = beam
    elif nbest > 1 and "beam" not in options:
        options["beam"] = max(4, nbest)
    return options


def as_object(number: int, found: Translation) -> str:
    """All that is known of a line, as JSON."""
    candidates = [
        {
            "text": each.text,
            "score": each.score,
            "log_probability": each.log_probability,
            **({"alignment": [list(link) for link in each.alignment]} if each.alignment is not None else {}),
        }
        for each in found.candidates
    ]
    row = {"line": number, "source": found.source, "text": found.text, "candidates": candidates}
    return json.dumps(row, ensure_ascii=False)


def as_lines(number: int, found: Translation, nbest: int, scores: bool, alignment: bool) -> list[str]:
    from regard.trace import pharaoh

    lines = []
    for each in found.candidates:
        text = one_line(each.text)
        if nbest > 1:
            text = f"{number - 1} ||| {text} ||| {each.score:.4f}"
        elif scores:
            text = f"{each.score:.4f}\t{text}"
        if alignment:
            text += f"\t{pharaoh(each.alignment or [])}"
        lines.append(text)
    return lines
