"""`regard score`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    Models,
    Threads,
    open_model,
    portions,
    print_line,
    read_stdin,
    say,
)


def score(
    model: Models,
    source: Annotated[Path, typer.Argument(help="Source file, or a .tsv of both sides, or - for stdin.")],
    target: Annotated[Path | None, typer.Argument(help="Target file.", show_default=False)] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """How probable the model finds given translations: log-probability of each line.

    [bold]Example[/]

      regard score -m runs/demo valid.en valid.de
    """
    from regard.data.corpora import read_rows, split_columns
    from regard.data.findings import Refused

    translator = open_model(model, device, threads)
    if str(source) == "-":
        pairs = split_columns(read_stdin(), "stdin", Refused())
    else:
        corpus = str(source) if target is None else (str(source), str(target))
        pairs = read_rows(corpus, translator.folder.task, "test")
    total, pieces = 0.0, 0
    for portion in portions(pairs, AT_ONCE):
        rows = translator.score([row[1] for row in portion], [row[2] for row in portion])
        for row in rows:
            own = math.fsum(row)
            total, pieces = total + own, pieces + len(row)
            print_line(json.dumps({"log_probability": own, "pieces": row}) if as_json else f"{own:.4f}")
    if pieces:
        mean = total / pieces
        say(f"{pieces:,} pieces, log p {mean:.4f} a piece, perplexity {math.exp(-mean):.4f}")
