"""Memory of decoding: against CTranslate2, and over the length of a text and the size of a batch.

    python -m bench.memory -m FOLDER [--sentences 32] [--beams 4] [--source 25]
    python -m bench.memory -m FOLDER --growth [--precision int8] [--chart growth.svg]

FOLDER is a translation model of ours, measured by `regard calibrate`. Against CTranslate2 each has a process
of its own, with the same weights: the most memory that it had (VmHWM), what it holds after the work (VmRSS),
and what of that is not pages of a file (RssAnon), in MiB.

With --growth each cell writes exactly 32 tokens for random sources of one length; the second of two runs
counts. Memory is what the process had at most during a cell (VmHWM, which Linux lets a process set back)
above what it held before. If memory grew with the square of the length, twice the length would take four
times as much: the last column says how much it takes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.rounds import arguments, held, show

ROOT = Path(__file__).parent.parent
TARGET = 32
WAYS = ("regard int8", "regard float32", "ctranslate2 int8", "ctranslate2 float32")
LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2000]
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]
USUAL = 25  # tokens of a source where the batch is what grows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--source", type=int, default=25, help="tokens of a source")
    parser.add_argument("--growth", action="store_true", help="over length and batch, Regard alone")
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8", help="of --growth")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--chart", type=Path, help="draw the curves of --growth there (.png, .svg)")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # in the process that is measured
    parser.add_argument("--twin", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        show({"way": given.way, **work(given)}, given.json)
    elif given.growth:
        growth(given)
    else:
        with tempfile.TemporaryDirectory() as place:
            write_twin(given.model, Path(place))
            for way in WAYS:
                command = [sys.executable, "-m", "bench.memory", *sys.argv[1:], "--way", way, "--twin", place]
                subprocess.run(command, check=True)


def write_twin(model: Path, place: Path) -> None:
    from regard.export.check import token_names as names
    from regard.export.to_ctranslate2 import write
    from regard.storage import open_folder

    folder = open_folder(model)
    write(folder, place, "float32")
    (place / "names.json").write_text(json.dumps(list(names(folder.source))))


def work(given: argparse.Namespace) -> dict[str, float]:
    """The same ids for both, exactly TARGET tokens each; twice, since the first time may hold less."""
    program, precision = given.way.split()
    numbers = [
        [8 + (17 * row + 5 * place) % 900 for place in range(given.source)] for row in range(given.sentences)
    ]
    run = (ours if program == "regard" else theirs)(given, precision, numbers)
    for _ in range(2):
        run()
    return {name: round(held(name)) for name in ("VmHWM", "VmRSS", "RssAnon")}


def ours(given: argparse.Namespace, precision: str, numbers: list[list[int]]) -> Callable[[], object]:
    from regard.generation import Request, generate
    from regard.tasks import Translator, load_as

    translator = load_as(Translator, given.model, precision=precision)
    lengths = {"beam": given.beams, "min_length": TARGET, "max_length": TARGET}
    options = translator.folder.decode.model_copy(update=lengths)
    requests = [Request(row, options) for row in numbers]
    special, device = translator.special, translator.device
    return lambda: generate(translator.model_for, requests, special, device, 1_000_000)


def theirs(given: argparse.Namespace, precision: str, numbers: list[list[int]]) -> Callable[[], object]:
    import ctranslate2

    known = json.loads((given.twin / "names.json").read_text())
    model = ctranslate2.Translator(str(given.twin), compute_type=precision, inter_threads=1, intra_threads=2)
    words = [[known[number] for number in row] for row in numbers]
    lengths = {"min_decoding_length": TARGET, "max_decoding_length": TARGET}
    return lambda: model.translate_batch(words, beam_size=given.beams, max_batch_size=len(words), **lengths)


# growth


@dataclass(frozen=True)
class Cell:
    over: str  # "length" or "batch"
    length: int
    sentences: int
    seconds: float
    memory: float  # MiB above what was held before


def growth(given: argparse.Namespace) -> None:
    from regard.device import choose_machine
    from regard.tasks import Translator, load_as

    choose_machine("cpu", precision="float32").use()
    translator = load_as(Translator, given.model, precision=given.precision)
    wanted = [("length", length, 1) for length in given.lengths]
    wanted += [("batch", USUAL, sentences) for sentences in given.batches]
    measure(translator, "warm", USUAL, 4, given.beams)
    cells = [measure(translator, *each, given.beams) for each in wanted]
    if given.json:
        for cell in cells:
            show(asdict(cell), True)
    else:
        print("\n".join([*table(cells, "length"), "", *table(cells, "batch")]), flush=True)
    if given.chart is not None:
        chart(cells, given.chart)


def measure(translator: Any, over: str, length: int, sentences: int, beams: int) -> Cell:
    """The second run of two: the first has bought what is kept between runs."""
    from regard.device import release_memory
    from regard.generation import Request, generate

    dice, words = random.Random(length * 1000 + sentences), len(translator.folder.source)
    lengths = {"beam": beams, "min_length": TARGET, "max_length": TARGET}
    options = translator.folder.decode.model_copy(update=lengths)
    ids = [[dice.randrange(8, words) for _ in range(length)] for _ in range(sentences)]
    seconds = memory = 0.0
    for _ in range(2):
        release_memory()
        Path("/proc/self/clear_refs").write_text("5")  # the most that was held counts from here
        before, start = held("VmRSS"), time.perf_counter()
        requests = [Request(row, options) for row in ids]
        generate(translator.model_for, requests, translator.special, translator.device, 1_000_000)
        seconds, memory = time.perf_counter() - start, held("VmHWM") - before
    return Cell(over, length, sentences, seconds, memory)


def table(cells: Sequence[Cell], over: str) -> list[str]:
    lines = [f"| {over} | seconds | MiB more | times the memory of the row above |", "|---|---|---|---|"]
    before: Cell | None = None
    for cell in (each for each in cells if each.over == over):
        times = f"{cell.memory / before.memory:.2f}" if before is not None and before.memory > 1 else ""
        lines.append(f"| {grown(cell)} | {cell.seconds:.2f} | {cell.memory:.0f} | {times} |")
        before = cell
    return lines


def grown(cell: Cell) -> int:
    return cell.length if cell.over == "length" else cell.sentences


def chart(cells: Sequence[Cell], path: Path) -> None:
    """Time and memory over the length of one source, and over the number of sources."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(7, 5), sharex="col", layout="constrained")
    named = {"length": f"tokens of one source (beam, {TARGET} tokens written)",
             "batch": f"sources of {USUAL} tokens"}  # fmt: skip
    for column, (over, name) in enumerate(named.items()):
        own = [each for each in cells if each.over == over]
        draw(panels[0][column], own, [each.seconds for each in own], "seconds")
        draw(panels[1][column], own, [each.memory for each in own], "MiB more")
        panels[1][column].set_xlabel(name)
    figure.savefig(path, dpi=110)


def draw(axes: Any, cells: Sequence[Cell], values: Sequence[float], unit: str) -> None:
    """Measured, and beside it what growing in step would be."""
    places = [grown(each) for each in cells]
    axes.plot(places, values, marker="o", markersize=4)
    last, most = places[-1], values[-1]
    axes.plot(places, [most * place / last for place in places], color="grey", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", ylabel=unit)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
