"""What longer texts and larger batches cost: time and memory of translating, over both.

python -m bench.growth -m FOLDER [--beams 4] [--precision int8] [--chart growth.svg] [--json growth.jsonl]

FOLDER is a translation model of ours. Each cell writes exactly 32 pieces for drawn sources of one length; the
second of two runs counts. Memory is what the process had at most during a cell (VmHWM, which Linux lets a
process set back) above what it held before. If memory grew with the square of the length, twice the length
would take four times as much: the last column says how much it takes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.device import choose_machine, release_memory
from regard.generation import Request, generate
from regard.tasks import Translator, load_as

TARGET = 32
LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2000]
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]
USUAL = 25  # pieces of a source where the batch is what grows


@dataclass(frozen=True)
class Cell:
    over: str  # "length" or "batch"
    length: int
    sentences: int
    seconds: float
    memory: float  # MiB above what was held before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--chart", type=Path, help="draw the curves there (.png, .svg)")
    parser.add_argument("--json", type=Path, help="write every cell there")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    translator = load_as(Translator, given.model, precision=given.precision)
    asked = [("length", length, 1) for length in given.lengths]
    asked += [("batch", USUAL, sentences) for sentences in given.batches]
    measure(translator, "warm", USUAL, 4, given.beams)
    cells = [measure(translator, *each, given.beams) for each in asked]
    print("\n".join([*table(cells, "length"), "", *table(cells, "batch")]), flush=True)
    if given.json is not None:
        given.json.write_text("".join(json.dumps(asdict(each)) + "\n" for each in cells), encoding="utf-8")
    if given.chart is not None:
        chart(cells, given.chart)


def measure(translator: Translator, over: str, length: int, sentences: int, beams: int) -> Cell:
    """The second run of two: the first has bought what is kept between runs."""
    dice, words = random.Random(length * 1000 + sentences), len(translator.folder.source)
    lengths = {"beam": beams, "min_length": TARGET, "max_length": TARGET}
    options = translator.folder.decode.model_copy(update=lengths)
    ids = [[dice.randrange(8, words) for _ in range(length)] for _ in range(sentences)]
    seconds = memory = 0.0
    for _ in range(2):
        release_memory()
        Path("/proc/self/clear_refs").write_text("5")  # the most that was held counts from here
        before, began = held("VmRSS"), time.perf_counter()
        requests = [Request(row, options) for row in ids]
        generate(translator.model_for, requests, translator.special, translator.device, 1_000_000)
        seconds, memory = time.perf_counter() - began, held("VmHWM") - before
    return Cell(over, length, sentences, seconds, memory)


def held(what: str) -> float:
    """MiB."""
    found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


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
    named = {"length": f"pieces of one source (beam, {TARGET} pieces written)",
             "batch": f"sources of {USUAL} pieces"}  # fmt: skip
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
