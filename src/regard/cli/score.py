"""`regard score`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import (
    AsJson,
    Device,
    ModelFolder,
    Threads,
    messages,
    open_model,
    portions,
    print_line,
    read_stdin,
)
from regard.errors import UsageError

AT_ONCE = 2000


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
    from regard.config import Task
    from regard.data.corpora import read_corpus

    translator = open_model(model, device, threads)
    if str(source) == "-":
        pairs = (split_pair(number, line) for number, line in enumerate(read_stdin(), start=1))
    else:
        corpus = str(source) if target is None else (str(source), str(target))
        pairs = ((pair.source, pair.target) for pair in read_corpus(corpus, Task(), "test"))
    total, pieces = 0.0, 0
    for portion in portions(pairs, AT_ONCE):
        rows = translator.score([left for left, _ in portion], [right for _, right in portion])
        for row in rows:
            own = math.fsum(row)
            total, pieces = total + own, pieces + len(row)
            print_line(json.dumps({"log_probability": own, "pieces": row}) if as_json else f"{own:.4f}")
    if pieces:
        mean = total / pieces
        messages().print(f"{pieces:,} pieces, log p {mean:.4f} a piece, perplexity {math.exp(-mean):.4f}")


def split_pair(number: int, line: str) -> tuple[str, str]:
    left, tab, right = line.partition("\t")
    if not tab:
        raise UsageError(f"stdin, line {number}: no tab; write source, tab, target")
    return left, right
