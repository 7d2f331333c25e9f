"""What ranks send and how long an update takes, computed from the shape of a model.

python -m bench.communication prints the tables of docs/scaling.md. A rank and update, N ranks, P parameters
of 4 bytes, ring algorithms:

    ddp     2 (N-1)/N 4P    all-reduce of the gradients; half in bfloat16
    fsdp    3 (N-1)/N 4P    all-gather of the weights for forward and backward pass, reduce-scatter of the
                            gradients; with A accumulated batches 2A + 1 instead of 3

`python qa cluster` counts the bytes that four hosts really send, and compares them with `bytes_of_update`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regard.config import load_config
from regard.models.families import build_meta, parameters
from regard.training.flops import forward_flops

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
VOCABULARY = 37_000
SENTENCE = 30  # tokens
BYTES = 4  # of a number in float32

# Assumptions: A100, the share of its peak that a model reaches, networks inside and between machines.
PEAK = 312e12  # operations a second in bfloat16
REACHED = {"base": 0.3, "big": 0.4}
MACHINE, INSIDE, BETWEEN = 8, 200e9, 20e9  # GPUs; bytes a second for each GPU
SHORTEST = 0.02  # seconds of an update
EVALUATION = 1.05  # validation and saving


@dataclass(frozen=True)
class Shape:
    parameters: int
    operations: float  # of training, for one target token


@cache
def shape(name: str) -> Shape:
    """Of the paper's base or big model."""
    model = build_meta(load_config(RECIPES / f"wmt14-{name}.toml").model, VOCABULARY)
    forward = forward_flops(model, 1, SENTENCE, SENTENCE, SENTENCE)
    return Shape(parameters(model), 3 * forward / SENTENCE)


def bytes_of_update(
    size: int, ranks: int, parallel: str, gradients: str = "auto", accumulate: int = 1
) -> float:
    """That each rank sends; `size` parameters."""
    gradient = BYTES / 2 if gradients == "bfloat16" else BYTES
    once = (ranks - 1) / ranks * size
    if parallel == "ddp":
        return 2 * once * gradient
    return once * (2 * accumulate * BYTES + gradient)


@dataclass(frozen=True)
class Job:
    title: str
    model: str
    updates: int
    tokens: int  # of an update
    ranks: int


JOBS = [
    Job("base, 100,000 x 25,000 tokens", "base", 100_000, 25_000, 8),
    Job("", "base", 100_000, 25_000, 64),
    Job("big, 300,000 x 25,000 tokens", "big", 300_000, 25_000, 8),
    Job("", "big", 300_000, 25_000, 64),
    Job("big, 18,750 x 400,000 tokens (another recipe)", "big", 18_750, 400_000, 64),
    Job("a billion pairs once, big, 75,000 x 400,000", "big", 75_000, 400_000, 8),
    Job("", "big", 75_000, 400_000, 64),
]


def seconds(job: Job, gradients: str = "auto") -> tuple[float, float, float]:
    """(computing, sending by ddp, an update): sending overlaps with the backward pass."""
    model = shape(job.model)
    computing = model.operations * job.tokens / (job.ranks * PEAK * REACHED[job.model])
    rate = INSIDE if job.ranks <= MACHINE else BETWEEN
    sending = bytes_of_update(model.parameters, job.ranks, "ddp", gradients) / rate
    return computing, sending, max(computing, sending, SHORTEST)


def models() -> list[str]:
    base, big = shape("base"), shape("big")

    def row(title: str, *cells: str) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    def span(parallel: str, gradients: str, each: Shape) -> str:
        low, high = (bytes_of_update(each.parameters, n, parallel, gradients) / 1e9 for n in (8, 64))
        return f"{low:.2f} to {high:.2f} GB"

    lines = ["| | base | big |", "|---|---|---|"]
    lines.append(row("parameters P", *(f"{each.parameters / 1e6:.1f} M" for each in (base, big))))
    lines.append(
        row(
            "operations a target token, training", *(f"{each.operations / 1e9:.2f} G" for each in (base, big))
        )
    )
    names = {"ddp": "2 (N-1)/N 4P", "fsdp": "3 (N-1)/N 4P"}
    for parallel, formula in names.items():
        cells = [span(parallel, "auto", each) for each in (base, big)]
        lines.append(row(f"sent by each of 8 to 64 ranks an update, {parallel}: {formula}", *cells))
        cells = [span(parallel, "bfloat16", each) for each in (base, big)]
        lines.append(row(f'{parallel}, `train.gradients = "bfloat16"`', *cells))
    memory = [f"{16 * each.parameters / 1e9:.1f} GB" for each in (base, big)]
    lines.append(row("weights, gradients and Adam of a rank, ddp: 16 P (fsdp: 16 P / N)", *memory))
    return lines


def jobs() -> list[str]:
    lines = [
        "| run | GPUs | computing | sending (ddp) | in bfloat16 | an update | whole run | in bfloat16 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for job in JOBS:
        computing, sending, update = seconds(job)
        _, half, shorter = seconds(job, "bfloat16")
        hours = [f"{each * job.updates * EVALUATION / 3600:.1f} h" for each in (update, shorter)]
        times = [f"{1e3 * each:.1f} ms" for each in (computing, sending, half, update)]
        lines.append(f"| {job.title} | {job.ranks} | {' | '.join([*times, *hours])} |")
    return lines


def slow() -> list[str]:
    """Four machines, 1 Gbit/s and 20 ms apart: an all-reduce is 2 (N-1) transfers, one after the other."""
    ranks, rate, delay = 4, 1e9 / 8, 0.02
    lines = ["| 4 machines, 1 Gbit/s, 20 ms | sent | seconds | in bfloat16 |", "|---|---|---|---|"]
    for name in ("base", "big"):
        pairs = [bytes_of_update(shape(name).parameters, ranks, "ddp", kind) for kind in ("auto", "bfloat16")]
        times = [f"{sent / rate + 2 * (ranks - 1) * delay:.1f}" for sent in pairs]
        lines.append(f"| {name}, an update | {pairs[0] / 1e9:.2f} GB | {times[0]} | {times[1]} |")
    return lines


def main() -> None:
    for table in (models(), jobs(), slow()):
        print("\n".join(table), end="\n\n")


if __name__ == "__main__":
    main()
