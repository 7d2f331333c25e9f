"""Why attention (Vaswani et al. 2017, section 4): the time of one layer of each kind over length and width.

    python -m bench.layers [--widths 64 256] [--lengths 32 512] [--rounds 3] [--quick] [--json] [--chart F]

A self-attention layer, a recurrent one (our LSTM, and torch.nn.LSTM), and a convolution over three words, all
from width d to width d; forward, and forward with backward; with batches of a fixed number of tokens, and
with one sentence. Times are processor time of one thread, so that what else the machine does hardly enters:
medians of rounds in which all layers take turns in an order drawn anew. Nothing is fitted: where two curves
cross is read off between the two lengths it lies between.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.rounds import arguments, show
from regard.device import choose_machine
from regard.models.attention import MultiHeadAttention, attend, visible
from regard.models.recurrent import LSTM, run_cell

CHANNELS = 64  # of a head, as in the paper
TABLE_1 = [  # n words, d width, k words under the kernel, r neighbours
    ("self-attention", "O(n^2 d)", "O(1)", "O(1)"),
    ("recurrent", "O(n d^2)", "O(n)", "O(n)"),
    ("convolutional", "O(k n d^2)", "O(1)", "O(log_k(n))"),
    ("self-attention, restricted", "O(r n d)", "O(1)", "O(n/r)"),
]
ATTENTION, PRODUCTS, OWN, TORCH, CONVOLUTION = (
    "self-attention",
    "its n^2 part",
    "our LSTM",
    "torch LSTM",
    "convolution",
)
LAYERS = (ATTENTION, PRODUCTS, OWN, TORCH, CONVOLUTION)
OTHERS = ((ATTENTION, TORCH), (ATTENTION, OWN), (ATTENTION, CONVOLUTION), (PRODUCTS, TORCH))
ENOUGH = 0.02  # seconds; what is faster is repeated within a measurement

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Time:
    """Milliseconds of one layer."""

    layer: str
    batch: str  # "tokens": rows of a fixed number of tokens; "one": one sentence
    backward: bool
    width: int
    length: int
    rows: int
    milliseconds: float
    low: float
    high: float


class Attention(nn.Module):
    """softmax(QK^T / sqrt(d_k)) V between four maps from d to d."""

    def __init__(self, width: int, rows: int, length: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, max(1, width // CHANNELS), min(width, CHANNELS))
        positions = torch.arange(length).expand(rows, -1)
        self.mask = visible(positions, positions, causal=False)  # made once for all layers of a model

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(*self.attention.queries_keys_values(x), self.mask)


class Products(Attention):
    """The part that the paper counts, n^2 d: without the four maps, which cost n d^2."""

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = x.view(rows, length, self.attention.heads, -1).transpose(1, 2)  # [B,H,T,C]
        return attend(heads, heads, heads, self.mask).transpose(1, 2).reshape(rows, length, width)


class OwnLSTM(nn.Module):
    def __init__(self, width: int, rows: int, length: int) -> None:
        super().__init__()
        self.cell = LSTM(width, width)
        self.valid = torch.ones(rows, length, dtype=torch.bool)

    def forward(self, x: Tensor) -> Tensor:
        return run_cell(self.cell, x, self.valid)[0]


class TorchLSTM(nn.Module):
    def __init__(self, width: int, rows: int, length: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Convolution(nn.Module):
    def __init__(self, width: int, rows: int, length: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


MAKERS = dict(zip(LAYERS, (Attention, Products, OwnLSTM, TorchLSTM, Convolution)))


def once(layer: nn.Module, x: Tensor, backward: bool) -> None:
    if backward:
        layer(x).sum().backward()
    else:
        with torch.inference_mode():
            layer(x)


def seconds(layer: nn.Module, x: Tensor, backward: bool, repeats: int) -> float:
    began = time.process_time()
    for _ in range(repeats):
        once(layer, x, backward)
    return max(time.process_time() - began, 1e-6) / repeats


def measure(width: int, length: int, rows: int, batch: str, backward: bool, rounds: int) -> list[Time]:
    """All layers on the same input, in turns."""
    x = torch.randn(rows, length, width, requires_grad=backward)
    layers = {name: maker(width, rows, length) for name, maker in MAKERS.items()}
    repeats = {}
    for name, layer in layers.items():
        once(layer, x, backward)  # warm up
        repeats[name] = min(50, max(1, int(ENOUGH / seconds(layer, x, backward, 1))))
    chance, found = random.Random(0), {name: [] for name in layers}
    for _ in range(rounds):
        for name in chance.sample(LAYERS, len(LAYERS)):
            found[name].append(1000 * seconds(layers[name], x, backward, repeats[name]))
    return [
        Time(name, batch, backward, width, length, rows, statistics.median(own), min(own), max(own))
        for name, own in found.items()
    ]


def table(times: list[Time], batch: str, backward: bool, tokens: int) -> list[str]:
    """Markdown: milliseconds of a layer, a row for each width and length."""
    told = f"{tokens:,} tokens" if batch == "tokens" else "one sentence"
    done = "forward and backward" if backward else "forward"
    lines = [f"**{told}, {done}, milliseconds**", "", "| d | n | " + " | ".join(LAYERS) + " |"]
    lines.append("|---:" * (2 + len(LAYERS)) + "|")
    own = [each for each in times if (each.batch, each.backward) == (batch, backward)]
    for width, length in sorted({(each.width, each.length) for each in own}):
        row = {t.layer: t.milliseconds for t in own if (t.width, t.length) == (width, length)}
        best = min(value for name, value in row.items() if name != PRODUCTS)
        cells = [f"**{short(row[name])}**" if row[name] == best else short(row[name]) for name in LAYERS]
        lines.append(f"| {width} | {length:,} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def short(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def crossing(times: list[Time], one: str, other: str) -> str:
    """Where `one` becomes slower than `other` for good, between two measured lengths, in words."""
    curves = [{t.length: t.milliseconds for t in times if t.layer == name} for name in (one, other)]
    lengths = sorted(curves[0])
    ratios = [math.log(curves[0][n] / curves[1][n]) for n in lengths]  # above 0: `one` is slower
    if max(ratios) <= 0:
        return f"faster up to {lengths[-1]:,}, the longest"
    if ratios[-1] <= 0:
        return f"faster at {lengths[-1]:,}, the longest, and not everywhere before"
    if min(ratios) > 0:
        return "slower at every length"
    before = max(place for place, ratio in enumerate(ratios) if ratio <= 0)
    share = -ratios[before] / (ratios[before + 1] - ratios[before])  # straight in both logarithms
    n = math.exp((1 - share) * math.log(lengths[before]) + share * math.log(lengths[before + 1]))
    return f"faster up to n = {n:,.0f}"


def crossings(times: list[Time], batch: str, backward: bool) -> list[str]:
    lines = ["| d | " + " | ".join(f"{one} against {other}" for one, other in OTHERS) + " |"]
    lines.append("|---:" + "|---" * len(OTHERS) + "|")
    for width in sorted({each.width for each in times}):
        own = [t for t in times if (t.width, t.batch, t.backward) == (width, batch, backward)]
        lines.append(f"| {width} | " + " | ".join(crossing(own, *pair) for pair in OTHERS) + " |")
    return [*lines, ""]


def paper() -> list[str]:
    lines = ["| layer | complexity per layer | sequential operations | maximum path length |"]
    return [*lines, "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in TABLE_1), ""]


def chart(times: list[Time], path: Path) -> None:
    """A picture for each batch, forward and backward; a panel for each width."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    widths = sorted({each.width for each in times})
    figure, panels = plt.subplots(
        2, len(widths), figsize=(3.2 * len(widths), 6), sharey="row", squeeze=False, layout="constrained"
    )
    for row, batch in zip(panels, ("tokens", "one")):
        for axes, width in zip(row, widths):
            for name, sign in zip(LAYERS, "ox^sD"):
                wanted = (name, batch, width, True)
                own = [t for t in times if (t.layer, t.batch, t.width, t.backward) == wanted]
                points = [(t.length, t.milliseconds) for t in own]
                axes.plot(*zip(*points), label=name, marker=sign, markersize=4)
            axes.axvline(width, color="grey", linewidth=0.8, linestyle=":")  # n = d
            axes.set(xscale="log", yscale="log", title=f"d = {width}", xlabel="n")
            axes.grid(alpha=0.3)
        row[0].set_ylabel("ms, fixed tokens" if batch == "tokens" else "ms, one sentence")
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle("One layer, forward and backward (dotted: n = d)")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = arguments(__doc__, rounds=3, model=False)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**power for power in range(5, 13)])
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch, if no sentence is longer")
    parser.add_argument("--quick", action="store_true", help="two widths, four lengths")
    parser.add_argument("--chart", type=Path, help="draw the curves there (.png, .svg)")
    options = parser.parse_args()
    if options.quick:
        options.widths, options.lengths, options.tokens = [64, 256], [32, 128, 512, 1024], 1024
    choose_machine(precision="float32", threads=1).use()
    torch.manual_seed(0)
    times: list[Time] = []
    for width in options.widths:
        for length in options.lengths:
            for batch in ("tokens", "one"):
                rows = max(1, options.tokens // length) if batch == "tokens" else 1
                for backward in (False, True):
                    times += measure(width, length, rows, batch, backward, options.rounds)
            print(f"d = {width}, n = {length} done", file=sys.stderr, flush=True)
    lines = paper()
    for batch in ("tokens", "one"):
        for backward in (False, True):
            lines += table(times, batch, backward, options.tokens) + crossings(times, batch, backward)
    if options.json:
        for each in times:
            show(asdict(each), True)
    else:
        print("\n".join(lines))
    if options.chart is not None:
        chart(times, options.chart)


if __name__ == "__main__":
    main()
