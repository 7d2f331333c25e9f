"""`regard score`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    ModelFolder,
    Threads,
    open_model,
    portions,
    print_line,
    read_stdin,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.data import Example


def score(
    model: ModelFolder,
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
    from regard.data.corpora import read_corpus, split_columns

    translator = open_model(model, device, threads)
    if str(source) == "-":
        pairs: Iterator[Example] = (
            split_columns(line, f"stdin, line {n}") for n, line in enumerate(read_stdin(), start=1)
        )
    else:
        corpus = str(source) if target is None else (str(source), str(target))
        pairs = read_corpus(corpus, translator.folder.task, "test")
    total, pieces = 0.0, 0
    for portion in portions(pairs, AT_ONCE):
        rows = translator.score([pair.source for pair in portion], [pair.target for pair in portion])
        for row in rows:
            own = math.fsum(row)
            total, pieces = total + own, pieces + len(row)
            print_line(json.dumps({"log_probability": own, "pieces": row}) if as_json else f"{own:.4f}")
    if pieces:
        mean = total / pieces
        say(f"{pieces:,} pieces, log p {mean:.4f} a piece, perplexity {math.exp(-mean):.4f}")
