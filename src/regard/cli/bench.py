"""`regard bench`: how fast things are on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.terminal import AsJson, Device, Precision, Threads, print_line, say, tables, thread_count
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Config
    from regard.server.driver import Figures
    from regard.server.link import Address
    from regard.tasks.speed import Run, Way
    from regard.training.speed import Rates, TrainingSpeed

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
    import asyncio

    from regard.device import settle_memory
    from regard.server.driver import Drive, measure, questions_for, sentences

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
        settle_memory()  # a client that halts would be taken for a server that does
        found = asyncio.run(work(address))
    print_line(json.dumps(found.told())) if as_json else show(found)


@app.command("decode")
def decode(
    model: Annotated[Path, typer.Option("--model", "-m", help="A model that translates or generates.")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Texts, one a line; else of the phrasebook.")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Of the texts at most so many.")] = 200,
    beams: Annotated[list[int] | None, typer.Option("--beam", min=1, help="1 is greedy.")] = None,
    precisions: Annotated[
        list[str] | None, typer.Option("--precision", help="float32, bfloat16, int8 or auto; several times.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="ctranslate2 or transformers: the same model there; may come several times."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each way writes all texts.")] = 3,
    chart: Annotated[Path | None, typer.Option(help="Draw the speeds into this .png or .svg.")] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Tell how fast a model writes, in several precisions and beams, and in other programs.

    All ways write the same texts by turns, from text to text, tokenizing included;
    the middle of the rounds counts. Memory is what the process held at most.
    Other programs do not cut texts into sentences, so it is done before for all.

    [bold]Examples[/]

      regard bench decode -m runs/demo
      regard bench decode -m runs/demo --beam 1 --beam 5 --precision float32 --precision int8
      regard bench decode -m runs/demo --beam 5 --against ctranslate2 --against transformers
    """
    from regard.server.driver import sentences
    from regard.tasks.speed import decoding_speed

    refuse_other(chart)
    asked = (sentences(1) if file is None else read(file))[:texts]
    if against:
        asked = [sentence for text in asked for sentence in sentences_of(text)]
    runs = ways_to_write(model, asked, precisions or ["float32"], beams or [1, 4], device, threads)
    runs |= ways_elsewhere(model, asked, against or [], beams or [1, 4])
    say(f"{len(asked)} texts, {rounds} rounds of {len(runs)} ways ...")
    found = decoding_speed(runs, len(asked), rounds)
    if chart is not None:
        draw(chart, {str(each.way): each.tokens_per_second for each in found}, "pieces a second")
    if as_json:
        print_line(json.dumps([each.told() for each in found]))
        return
    rows = [
        (
            str(each.way),
            f"{each.texts_per_second:.1f}",
            f"{each.tokens_per_second:.0f}",
            f"{each.slowest:.0f} to {each.fastest:.0f}",
            f"{each.memory / 2**20:.0f} MiB",
        )
        for each in found
    ]
    show_rows("way", ["texts a second", "pieces a second", "in the rounds", "memory"], rows)


def sentences_of(text: str) -> list[str]:
    from regard.inputs.text import split_sentences

    return [sentence for sentence, _ in split_sentences(text) if sentence]


def ways_to_write(
    model: Path, texts: list[str], precisions: list[str], beams: list[int], device: str, threads: int
) -> dict[Way, Run]:
    from regard.tasks.speed import Way, runner

    ways = [Way(precision, beam) for precision in precisions for beam in beams]
    return {way: runner(model, texts, way, device, thread_count(threads)) for way in ways}


def ways_elsewhere(model: Path, texts: list[str], programs: list[str], beams: list[int]) -> dict[Way, Run]:
    from regard.export.rivals import PROGRAMS, rival
    from regard.tasks.speed import Way

    runs = {}
    for program in programs:
        if program not in PROGRAMS:
            raise UsageError(f"--against {program}: choose among {', '.join(PROGRAMS)}")
        for precision, beam in product(PROGRAMS[program], beams):
            runs[Way(precision, beam, program)] = rival(program, precision, model, texts, beam)
    return runs


@app.command("train")
def train(
    config: Annotated[Path | None, typer.Argument(help="A run's TOML file.", show_default=False)] = None,
    presets: Annotated[
        list[str] | None, typer.Option("--preset", help="Instead: sizes, on the phrasebook.")
    ] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Any field of the run.")] = None,
    updates: Annotated[int, typer.Option(min=2, help="How many are timed.")] = 20,
    against: Annotated[
        list[str] | None,
        typer.Option(help="transformers or torch.nn: a model of this shape there; may come several times."),
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the speeds into this .png or .svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell how fast a run would learn on this machine, and in other programs.

    Some updates of the run, on its own data, are timed; nothing is kept. The share
    of the peak is of a large matrix product in the same precision, measured now.
    Others learn from the same batches by turns, in float32 and in bfloat16.

    [bold]Examples[/]

      regard bench train run.toml
      regard bench train --preset transformer-tiny --preset transformer-base
      regard bench train run.toml --against transformers --against torch.nn
    """
    from regard.export.learning import learners, see_that_they_can
    from regard.training.speed import training_speed

    refuse_other(chart)
    runs = runs_of(config, presets or [], override or [])
    for run in runs.values():
        see_that_they_can(against or [], run.model)
    found = {}
    for name, run in runs.items():
        say(f"{name}: {updates} updates ...")
        found[name] = training_speed(run, updates, partial(learners, against or [], run))
    if chart is not None:
        draw(chart, speeds_of(found), "target tokens a second")
    if as_json:
        print_line(json.dumps({name: each.told() for name, each in found.items()}))
        return
    rows = [
        (
            name,
            f"{each.parameters:,}",
            f"{each.precision}, {each.threads} threads",
            shown(each.rates),
            f"{each.milliseconds:.0f} ms",
            f"{each.share_of_peak:.0%} of {each.peak / 1e9:.0f} GFLOP/s",
            f"{each.memory / 2**20:.0f} MiB",
        )
        for name, each in found.items()
    ]
    heads = ["parameters", "machine", "target tokens a second", "an update", "of the peak", "memory"]
    show_rows("run", heads, rows)
    if against:
        others = [
            (f"{name}, {other}", shown(rival.rates), f"{rival.ratio:.2f} times")
            for name, each in found.items()
            for other, rival in each.against.items()
        ]
        show_rows("the same in", ["target tokens a second", "Regard does"], others)


def speeds_of(found: Mapping[str, TrainingSpeed]) -> dict[str, float]:
    """Of runs and of what they raced against."""
    speeds = {}
    for name, each in found.items():
        speeds[name] = each.rates.middle
        speeds |= {f"{name}, {other}": rival.rates.middle for other, rival in each.against.items()}
    return speeds


def shown(rates: Rates) -> str:
    return f"{rates.middle:.0f} ({rates.slowest:.0f} to {rates.fastest:.0f})"


def runs_of(config: Path | None, presets: list[str], override: list[str]) -> dict[str, Config]:
    """The runs to time, by name."""
    from regard.config import load_config
    from regard.config.load import apply_override, resolve

    if (config is None) == (not presets):
        raise UsageError("give either a run's TOML file, or --preset, once or several times")
    if config is not None:
        return {config.stem: load_config(config, override)}
    runs = {}
    for preset in presets:
        tree: dict[str, Any] = {
            "task": {"name": "translate", "source": "en", "target": "de"},
            "data": {"train": "phrasebook:20000"},
            "model": {"preset": preset},
        }
        for each in override:
            apply_override(tree, each)
        runs[preset] = resolve(tree, where=f"--preset {preset}")
    return runs


def refuse_other(chart: Path | None) -> None:
    """Before the work, not after it."""
    if chart is not None and chart.suffix not in (".png", ".svg"):
        raise UsageError(f"{chart}: a chart is a .png or a .svg file")


def draw(chart: Path, speeds: dict[str, float], unit: str) -> None:
    """A bar for each."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from regard.storage import write_atomically

    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.45 * len(speeds)), layout="constrained")
    bars = axes.barh(list(speeds), list(speeds.values()), color="#3f6fb0")
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.15)
    picture = io.BytesIO()
    figure.savefig(picture, format=chart.suffix.lstrip("."), dpi=110)
    plt.close(figure)
    write_atomically(chart, picture.getvalue())
    say(f"{chart} drawn")


def show_rows(first: str, heads: list[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table()
    table.add_column(first)
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    tables().print(table)


def read(file: Path) -> list[str]:
    from regard.data.files import lines

    found = [line for line in lines(file) if line.strip()]
    if not found:
        raise UsageError(f"{file}: there is no text in it")
    return found


@contextmanager
def server(folders: list[str], options: list[str], url: str | None, key: str | None) -> Iterator[Address]:
    """The server that is asked: the one at `url`, or one that lives as long as it is measured."""
    from regard.server.link import Address
    from regard.server.process import started

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
