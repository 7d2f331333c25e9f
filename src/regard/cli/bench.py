"""`regard bench`: how fast training and decoding are on this machine."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.terminal import AsJson, Device, Threads, print_line, print_table, say, thread_count
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Config

app = typer.Typer(help="Measure training and decoding speed on this machine.", no_args_is_help=True)
WARM_UP = 3  # updates that are not timed: kernels are chosen and memory is allocated
NEW_TOKENS = 64  # written by a language model for each prompt
TEXTS = 400  # phrasebook sentences, unless --file is given
RACES = "races against other programs and load tests are in bench/ of the source repository: see "


@app.command("serve", hidden=True, context_settings={"ignore_unknown_options": True})
def serve(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    """Moved to bench/load.py of the source repository."""
    raise UsageError(RACES + "python -m bench.load --help", code="E_MOVED")


@app.command("decode")
def decode(
    model: Annotated[Path, typer.Option("--model", "-m", help="A model that translates or generates.")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Texts, one per line; default: phrasebook sentences.")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Use at most this many texts.")] = 200,
    beams: Annotated[list[int] | None, typer.Option("--beam", min=1, help="1 is greedy; repeatable.")] = None,
    precisions: Annotated[
        list[str] | None, typer.Option("--precision", help="float32, bfloat16, int8 or auto; repeatable.")
    ] = None,
    against: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed passes over all texts.")] = 3,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Measure how fast a model writes, by precision and beam width.

    All settings decode the same texts in interleaved rounds, tokenization included;
    the median round counts. Memory is the process's peak so far.

    [bold]Examples[/]

      regard bench decode -m runs/demo
      regard bench decode -m runs/demo --beam 1 --beam 5 --precision float32 --precision int8
    """
    from regard.device import peak_memory

    if against:
        raise UsageError(RACES + "python -m bench.race translate --help", code="E_MOVED")
    lines = (sentences() if file is None else read(file))[:texts]
    settings = [(precision, beam) for precision in precisions or ["float32"] for beam in beams or [1, 4]]
    runs = {each: decoder(model, lines, *each, device, threads) for each in settings}
    say(f"{len(lines)} texts, {rounds} rounds of {len(runs)} settings ...")
    tokens, memory = {}, {}
    for each, run in runs.items():  # a first pass to warm up
        tokens[each], memory[each] = run(), peak_memory()
    times: dict[tuple[str, int], list[float]] = {each: [] for each in settings}
    order = random.Random(0)
    for _ in range(rounds):
        for each in order.sample(settings, len(settings)):
            times[each].append(timed(runs[each]))
    results: list[dict[str, Any]] = [
        {
            "precision": each[0],
            "beam": each[1],
            "program": "regard",
            "texts": len(lines),
            "rounds": rounds,
            "texts_per_second": len(lines) / statistics.median(times[each]),
            "tokens_per_second": tokens[each] / statistics.median(times[each]),
            "slowest": tokens[each] / max(times[each]),
            "fastest": tokens[each] / min(times[each]),
            "memory": memory[each],
        }
        for each in settings
    ]
    if as_json:
        print_line(json.dumps(results))
        return
    rows = [
        (
            f"{row['precision']}, {'greedy' if row['beam'] == 1 else str(row['beam']) + ' beams'}",
            f"{row['texts_per_second']:.1f}",
            f"{row['tokens_per_second']:.0f} ({row['slowest']:.0f} to {row['fastest']:.0f})",
            f"{row['memory'] / 2**20:.0f} MiB",
        )
        for row in results
    ]
    print_table(rows, ["setting", "texts per second", "tokens per second", "memory"], [1, 2, 3], boxed=True)


def decoder(
    path: Path, texts: Sequence[str], precision: str, beam: int, device: str, threads: int
) -> Callable[[], int]:
    """A function that decodes all texts and returns the number of tokens written."""
    from regard.tasks import Generator, Translator, load

    model = load(path, device=device, threads=thread_count(threads), precision=precision)
    if isinstance(model, Translator):
        options = model.folder.decode.model_copy(update={"beam": beam, "sample": False})
        end = model.folder.target.end
        return lambda: sum(
            token != end
            for translation in model.translate_lines(texts, options, other_language="translate", check=False)
            for token in translation.candidates[0].token_ids
        )
    if isinstance(model, Generator):
        chosen = model.options({"beam": beam, "sample": False, "max_length": NEW_TOKENS})
        return lambda: sum(len(samples[0].tokens) for samples in model.write(texts, chosen))
    raise UsageError(f"{path}: only models that translate or generate are measured", code="E_MODEL_TASK")


@app.command("train")
def train(
    config: Annotated[Path | None, typer.Argument(help="A run's TOML file.", show_default=False)] = None,
    presets: Annotated[
        list[str] | None,
        typer.Option("--preset", help="Or: a preset, on the phrasebook; repeatable."),
    ] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="Override section.field=value.")] = None,
    updates: Annotated[int, typer.Option(min=2, help="Number of timed updates.")] = 20,
    against: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast a run would train on this machine.

    Times some updates of the run on its own data; nothing is kept. The share of peak
    compares with a large matrix product in the same precision, measured now.

    [bold]Examples[/]

      regard bench train run.toml
      regard bench train --preset transformer-tiny --preset transformer-base
    """
    if against:
        raise UsageError(RACES + "python -m bench.race train --help", code="E_MOVED")
    results = {}
    for name, run in runs_of(config, presets or [], override or []).items():
        say(f"{name}: {updates} updates ...")
        results[name] = training_speed(run, updates)
    if as_json:
        print_line(json.dumps(results))
        return
    rows = [
        (
            name,
            f"{row['parameters']:,}",
            f"{row['precision']}, {row['threads']} threads",
            f"{row['tokens_per_second']:.0f} ({row['slowest']:.0f} to {row['fastest']:.0f})",
            f"{row['milliseconds']:.0f} ms",
            f"{row['share_of_peak']:.0%} of {row['peak'] / 1e9:.0f} GFLOP/s",
            f"{row['memory'] / 2**20:.0f} MiB",
        )
        for name, row in results.items()
    ]
    heads = [
        "run",
        "parameters",
        "machine",
        "target tokens per second",
        "an update",
        "share of peak",
        "memory",
    ]
    print_table(rows, heads, range(1, 7), boxed=True)


def training_speed(config: Config, updates: int) -> dict[str, Any]:
    """Time updates of a run on its own data, the reading of batches included."""
    from regard.device import peak_memory
    from regard.models.families import parameters
    from regard.training.flops import measured_peak
    from regard.training.run import open_trainer

    with tempfile.TemporaryDirectory() as folder:
        trainer = open_trainer(config, Path(folder))
        for _ in range(WARM_UP):
            trainer.update()
        before = trainer.progress.flops
        tokens: list[int] = []
        times = [timed(lambda: tokens.append(trainer.update().tokens)) for _ in range(updates)]
        memory, flops = peak_memory(), (trainer.progress.flops - before) / sum(times)
    rates = [count / seconds for count, seconds in zip(tokens, times)]
    tenths = statistics.quantiles(rates, n=10, method="inclusive")
    peak = measured_peak(trainer.machine)
    return {
        "parameters": parameters(trainer.model),
        "precision": trainer.machine.precision,
        "threads": trainer.machine.threads,
        "updates": updates,
        "tokens_per_second": statistics.median(rates),
        "slowest": tenths[0],
        "fastest": tenths[-1],
        "milliseconds": 1000 * statistics.median(times),
        "flops_per_second": flops,
        "peak": peak,
        "share_of_peak": flops / peak,
        "memory": memory,
    }


def runs_of(config: Path | None, presets: list[str], override: list[str]) -> dict[str, Config]:
    """The configs to time, by name."""
    from regard.config import load_config
    from regard.config.load import apply_override, resolve

    if (config is None) == (not presets):
        raise UsageError(
            "give either a run's TOML file, or --preset, once or several times", code="E_OPTION_MISSING"
        )
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


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sentences(seed: int = 1, count: int = TEXTS) -> list[str]:
    """Texts of one to three English phrasebook sentences each."""
    from regard.data.phrasebook import SIZES, phrases

    rng, pool = random.Random(seed), [each.english for each in phrases("test", SIZES["test"])]
    return [" ".join(rng.choices(pool, k=rng.randint(1, 3))) for _ in range(count)]


def read(file: Path) -> list[str]:
    from regard.data.files import lines

    texts = [line for line in lines(file) if line.strip()]
    if not texts:
        raise UsageError(f"{file}: the file contains no text", code="E_DATA_EMPTY")
    return texts
