"""`regard export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.terminal import AsJson, OneModel, Threads, print_line, say


def calibrate(
    model: OneModel,
    sample: Annotated[
        Path | None,
        typer.Option(help="A text a line to measure with; else what the run validates with."),
    ] = None,
    threads: Threads = 0,
) -> None:
    """Measure on texts how far a model's numbers reach, so that it decodes in bytes (int8).

    Writes calibration.json into the folder. From then on `regard translate`, `generate` and `serve` use int8
    on a CPU, unless --precision float32 says otherwise: about the same text in less time.

    [bold]Examples[/]

      regard calibrate -m runs/first
      regard calibrate -m models/opus-mt-en-fr --sample sentences.txt
    """
    from regard.device import choose_machine
    from regard.export import calibrate

    choose_machine("cpu", precision="float32", threads=threads).use()
    count, origin = calibrate(model, sample)
    say(f"measured {model} on {count} texts ({origin})")


def export(
    model: OneModel,
    form: Annotated[Literal["ctranslate2", "onnx"], typer.Option("--format", "-f", help="For which engine.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must not exist yet.")],
    precision: Annotated[
        Literal["float32", "float16", "int8"], typer.Option(help="Of the weights (ctranslate2).")
    ] = "float32",
    sample: Annotated[
        Path | None,
        typer.Option(help="A text a line to check with; else what the run validates with."),
    ] = None,
    as_json: AsJson = False,
    threads: Threads = 0,
) -> None:
    """Write a model for CTranslate2 or ONNX Runtime, and check that it gives the same text there.

    The folder appears only if at least 99.5 % of the texts of a sample are equal and all numbers agree; its
    README.md has a few lines of Python that use it. float16 and int8 round the weights: the same model is
    checked in float32 first, then how much rounding changes is told.

    [bold]--json[/] gives an object

      path, format, precision, sample (where the texts come from), texts,
      equal (share of equal texts, by search), largest, mean (difference of numbers)

    [bold]Examples[/]

      regard export -m runs/first -f ctranslate2 -o first-ct2
      regard export -m runs/first -f ctranslate2 -o first-int8 --precision int8
      regard export -m runs/first -f onnx -o first-onnx --sample sentences.txt
    """
    from regard.device import choose_machine
    from regard.export import export_model

    choose_machine("cpu", precision="float32", threads=threads).use()
    found = export_model(model, form, out, precision, sample, say)
    if as_json:
        head = {"path": str(out), "format": form, "precision": precision, "sample": found.origin}
        print_line(json.dumps(head | found.figures.as_json(), ensure_ascii=False))
    say(f"wrote {out}: {found.figures.told}")
