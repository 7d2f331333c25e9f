"""`regard bench`: how fast things are on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import AsJson, Device, Precision, Threads, print_line, say, tables
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.serve.driver import Figures
    from regard.serve.link import Address

app = typer.Typer(help="Measure how fast things are on this machine.", no_args_is_help=True)

Folders = Annotated[
    list[Path] | None, typer.Argument(help="Model folders or names to serve meanwhile.", metavar="DIR")
]
Url = Annotated[str | None, typer.Option(help="A running server, as http://127.0.0.1:8000.")]
Key = Annotated[str | None, typer.Option(help="The key that the server wants.", envvar="REGARD_KEY")]
Lines = Annotated[
    Path | None, typer.Option("--file", "-f", help="Texts to send, one a line; else of the phrasebook.")
]
Clients = Annotated[int, typer.Option(min=1, max=4096, help="Each asks again when it has its answer.")]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="Instead of clients: requests a second, by chance (Poisson).")
]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Which model of several; the first unless told.")]
MaxTokens = Annotated[int, typer.Option(min=1, max=1024, help="Pieces that a language model writes at most.")]
Seed = Annotated[int, typer.Option(help="Of the sentences and of the moments at which requests come.")]


@app.command("serve")
def serve(
    folders: Folders = None,
    url: Url = None,
    key: Key = None,
    file: Lines = None,
    clients: Clients = 32,
    rate: Rate = None,
    seconds: Seconds = 30.0,
    model: Model = "",
    max_tokens: MaxTokens = 32,
    seed: Seed = 1,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Drive a server with requests and tell how long its answers take.

    It starts `regard serve` with the folders given, or asks a running one (--url).
    With --clients each client asks again as soon as it is answered; with --rate
    requests come by chance, and time counts from when a request was due. Each text
    is sent to the route of the model's task; tokens are those that the server
    counts.

    [bold]Examples[/]

      regard bench serve runs/demo
      regard bench serve runs/demo --rate 20 --seconds 60 --json
      regard bench serve --url http://127.0.0.1:8000 --clients 8 --file texts.txt
    """
    from regard.serve.driver import Drive, measure, questions_for, sentences

    if bool(folders) == bool(url):
        raise UsageError("give either the folder of a model to serve, or --url of a running server")
    texts = sentences(seed) if file is None else read(file)
    options = ["--device", device, "--threads", str(threads), "--precision", precision]
    drive = Drive(clients, rate, seconds, seed)

    async def work(address: Address) -> Figures:
        questions = await questions_for(address, texts, model, max_tokens)
        say(f"{drive.way} for {seconds:g} s ...")
        return await measure(address, questions, drive)

    with server([str(folder) for folder in folders or []], options, url, key) as address:
        found = asyncio.run(work(address))
    print_line(json.dumps(found.told())) if as_json else show(found)


def read(file: Path) -> list[str]:
    from regard.data.files import lines

    found = [line for line in lines(file) if line.strip()]
    if not found:
        raise UsageError(f"{file}: there is no text in it")
    return found


@contextmanager
def server(folders: list[str], options: list[str], url: str | None, key: str | None) -> Iterator[Address]:
    """The server that is asked: the one at `url`, or one that lives as long as it is measured."""
    from regard.serve.link import Address
    from regard.serve.process import started

    if url is not None:
        yield Address.of(url, key)
        return
    with started([*folders, *options]) as own:
        yield own.address


def show(found: Figures) -> None:
    from rich.table import Table

    table = Table(title=f"{found.way}, {found.seconds:g} s", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    rows = {
        "p50": f"{1000 * found.p50:.0f} ms",
        "p95": f"{1000 * found.p95:.0f} ms",
        "p99": f"{1000 * found.p99:.0f} ms",
        "requests a second": f"{found.requests_per_second:.1f}",
        "tokens a second": f"{found.tokens_per_second:.0f} written, {found.tokens_read_per_second:.0f} read",
        "answered": f"{found.answered} of {found.asked}",
        "refused": f"{found.refused}",
        "failed": f"{found.failed}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    tables().print(table)
