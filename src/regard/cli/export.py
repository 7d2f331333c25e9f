"""`regard export` and `regard calibrate`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.terminal import AsJson, OneModel, Threads, print_line, say

Sample = Annotated[
    Path | None, typer.Option(help="File with one text per line; default: the validation texts of the run.")
]


def calibrate(
    model: OneModel,
    sample: Sample = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs of texts that a translator was not trained on: fit its confidence instead."),
    ] = None,
    other_language: Annotated[
        list[Path] | None,
        typer.Option(help="With --pairs: texts in languages that the model does not read; repeatable."),
    ] = None,
    threads: Threads = 0,
) -> None:
    """Calibrate activation ranges on sample text to enable int8 inference, or the confidence of translations.

    Writes calibration.json into the folder. Then `regard translate`, `generate` and `serve` use int8 on a
    CPU by default (--precision float32 turns it off): nearly the same text in less time.

    With --pairs it writes confidence.json: then every translation has the probability that it is usable. The
    folder's README.md shows how well that is calibrated.

    [bold]Examples[/]

      regard calibrate -m runs/first
      regard calibrate -m models/opus-mt-en-fr --sample sentences.txt
      regard calibrate -m runs/first --pairs held-out.tsv --other-language french.txt
    """
    from regard.device import choose_machine
    from regard.errors import UsageError
    from regard.export import calibrate
    from regard.storage import models as builtin

    if builtin.find_model(model).resolve().is_relative_to(builtin.PLACE.resolve()):
        message = (
            f"{model} is a built-in model, which belongs to the package: copy its folder, and name the copy"
        )
        raise UsageError(message, code="E_MODEL_BUILTIN")
    if pairs is not None:
        from regard.data.files import lines
        from regard.evaluation.confidence import fit_confidence

        others = [line for path in other_language or [] for line in lines(path)]
        fit_confidence(model, pairs, others, threads=threads, log=say)
        return
    choose_machine("cpu", precision="float32", threads=threads).use()
    count, origin = calibrate(model, sample)
    say(f"calibrated {model} on {count} texts ({origin})")


def export(
    model: OneModel,
    form: Annotated[
        Literal["ctranslate2", "argos", "onnx", "gguf"],
        typer.Option(
            "--format", "--to", "-f", help="The engine; gguf is for llama.cpp, argos for LibreTranslate."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The new folder; of argos the new .argosmodel file.")
    ],
    precision: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Precision of the weights (not onnx)."),
    ] = "float32",
    sample: Sample = None,
    as_json: AsJson = False,
    threads: Threads = 0,
) -> None:
    """Export a model to CTranslate2, Argos, ONNX Runtime or GGUF; check that it gives the same text there.

    The folder is written only if at least 99.5 % of the texts of a sample are equal and all numbers agree.
    Its README.md has a short Python program. float16 and int8 round the weights: the model is checked in
    float32 first, then the effect of rounding is reported.

    [bold]--json[/] gives an object

      path, format, precision, sample (origin of the texts), texts,
      equal (share of equal texts, by search), largest, mean (difference of numbers)

    [bold]Examples[/]

      regard export -m runs/first -f ctranslate2 -o first-ct2
      regard export -m runs/first -f ctranslate2 -o first-int8 --precision int8
      regard export -m runs/first -f onnx -o first-onnx --sample sentences.txt
      regard export -m runs/zh-en --to argos -o zh-en.argosmodel --precision int8
      regard export -m models/smollm2 --to gguf -o smollm2-gguf --precision int8
    """
    from regard.device import choose_machine
    from regard.export import export_model

    choose_machine("cpu", precision="float32", threads=threads).use()
    if form == "argos":
        from regard.export.to_argos import export_argos

        result = export_argos(model, output, precision, sample, say)
    else:
        result = export_model(model, form, output, precision, sample, say)
    if as_json:
        head = {"path": str(output), "format": form, "precision": precision, "sample": result.origin}
        print_line(json.dumps(head | asdict(result.agreement), ensure_ascii=False))
    say(f"wrote {output}: {result.agreement.summary}")
