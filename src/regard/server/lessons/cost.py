"""What a layer costs: the paper's Table 1 for sizes of one's choice, and our own layers with a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from regard.models.attention import MultiHeadAttention
from regard.models.recurrent import GRU, run_cell
from regard.server.lessons.content import formula, lines, table
from regard.server.lessons.given import Given, Ledger, all_visible, race, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

KERNEL = 3  # words that a convolution sees
NEAR = 16  # r: words that a restricted self-attention sees
MEASURED = (16, 64, 256, 512)
MEASURED_WIDTH = 256  # at most
SEED = 10


@dataclass(frozen=True)
class Cost:
    layer: str
    operations: int
    sequential: int
    path: int


def layer_costs(n: int, d: int, kernel: int = KERNEL, near: int = NEAR) -> list[Cost]:
    """Table 1 of the paper: n words of width d; `near` words are seen by a restricted attention.

    self-attention  n^2 d    1   1         recurrent   n d^2   n   n
    convolution     k n d^2  1   log_k(n)  restricted  r n d   1   n / r
    """
    near = min(near, n)
    return [
        Cost("self-attention", n * n * d, 1, 1),
        Cost("recurrent", n * d * d, n, n),
        Cost(
            f"convolution, k = {kernel}", kernel * n * d * d, 1, max(1, math.ceil(math.log(n, kernel) - 1e-9))
        ),
        Cost(f"self-attention over r = {near} words", near * n * d, 1, math.ceil(n / near)),
    ]


def paper(caption: str, costs: list[Cost]) -> dict[str, object]:
    rows = [[each.layer, each.operations, each.sequential, each.path] for each in costs]
    return table(caption, ["layer", "operations", "sequential steps", "longest path"], rows, 0)


def operations(given: Given, ledger: Ledger) -> LessonStep:
    n, d = given.words, given.width
    costs = ledger(layer_costs, n, d)
    return LessonStep(
        "Operations",
        f"A text of n = {n} words, vectors of d = {d} numbers (you can choose both above). In "
        "self-attention each word is compared with each word, and a comparison multiplies d pairs of "
        "numbers.",
        NumberQuestion(
            "How many multiplications is n² · d?", costs[0].operations, 0.05 * costs[0].operations, 0
        ),
        f"{n} · {n} · {d} = {costs[0].operations:,}.",
        before=formula("self-attention: n² · d      recurrent: n · d²      convolution: k · n · d²"),
        after=paper(f"The paper's Table 1 for n = {n}, d = {d}", costs),
    )


def cheapest(given: Given, ledger: Ledger) -> LessonStep:
    n, d = given.words, given.width
    costs = ledger(layer_costs, n, d)[:3]
    best = min(range(3), key=lambda place: costs[place].operations)
    return LessonStep(
        "Which is cheapest?",
        f"Self-attention needs n² · d operations, a recurrent layer n · d². With n = {n} and d = {d}:",
        ChoiceQuestion("Which layer needs the fewest operations?", [each.layer for each in costs], best),
        f"Compare n with d: {n} is {'less than' if n < d else 'the same as' if n == d else 'more than'} {d}. "
        "Attention is cheaper as long as the text has fewer words than a vector has numbers.",
        after=paper("Operations", costs),
    )


def crossing(d: int) -> int:
    """The n for which n^2 d = n d^2."""
    return d


def long_texts(given: Given, ledger: Ledger) -> LessonStep:
    d = given.width
    places = [max(1, round(d * factor)) for factor in (0.125, 0.25, 0.5, 1, 2, 4)]
    costs = [ledger(layer_costs, n, d) for n in places]
    return LessonStep(
        "When texts grow",
        "Double the text, and attention costs four times as much, a recurrent layer only twice. With d = "
        f"{d}:",
        NumberQuestion("At how many words do both cost the same?", ledger(crossing, d), 0.05 * d, 0),
        f"n² · d = n · d² means n = d = {d}. Beyond that attention is the dearer one, and people restrict it "
        "to near words.",
        after=lines(
            "Operations",
            "n",
            places,
            {each.layer: [row[i].operations for row in costs] for i, each in enumerate(costs[0][:3])},
            even=True,
            log=True,
            digits=0,
        ),
    )


def sequential(given: Given, ledger: Ledger) -> LessonStep:
    n, d = given.words, given.width
    costs = ledger(layer_costs, n, d)
    return LessonStep(
        "What must wait",
        "A recurrent layer needs the state of the word before. Attention needs only the layer below, so all "
        "words can be computed at once: that is what makes training parallel. The longest path is how many "
        "steps a signal takes from the first word to the last.",
        NumberQuestion(
            f"How many steps, one after the other, does a recurrent layer need for {n} words?", n, 0.5, 0
        ),
        "One for each word. Self-attention needs one step, and every word is one step away from every other.",
        after=paper("The whole table", costs),
    )


@torch.no_grad()
def seconds(n: int, d: int) -> dict[str, float]:
    """Our own layers on n random words: the shortest time of a few runs, each."""
    x = torch.randn(1, n, d, generator=seeded(SEED))
    attention = MultiHeadAttention(d, max(1, d // 64), d // max(1, d // 64))
    cell, convolution = GRU(d, d), nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    mask, valid = all_visible(n, n)[None, None], torch.ones(1, n, dtype=torch.bool)
    return race(
        {
            "self-attention": lambda: attention(*attention.queries_keys_values(x), mask),
            "recurrent": lambda: run_cell(cell, x, valid),
            f"convolution, k = {KERNEL}": lambda: convolution(x.transpose(1, 2)),
        },
        0.1,
        rounds=5,
    )


def clock(given: Given, ledger: Ledger) -> LessonStep:
    d = max(8, min(given.width, MEASURED_WIDTH) // 8 * 8)
    timings = [ledger(seconds, n, d) for n in MEASURED]
    for each in (MultiHeadAttention.forward, run_cell, nn.Conv1d.forward):
        ledger.note(each)
    names = list(timings[0])
    last = timings[-1]
    slowest = names.index(max(last, key=last.__getitem__))
    growth = {name: last[name] / timings[0][name] for name in names}
    return LessonStep(
        "With a clock",
        "Operations are not seconds: a machine does many at once, if they need not wait for each other. We "
        f"time our own layers on this machine, now, for n = {', '.join(map(str, MEASURED))} and d = {d}. "
        "The recurrent layer is a GRU, written as a loop over the words.",
        ChoiceQuestion(f"Which layer takes longest for {MEASURED[-1]} words?", names, slowest),
        f"{names[slowest].capitalize()}: {1000 * last[names[slowest]]:.1f} ms. The text grew "
        f"{MEASURED[-1] // MEASURED[0]} times; the times grew "
        + ", ".join(f"{growth[name]:.0f} times ({name})" for name in names)
        + ".",
        after=lines(
            "Milliseconds",
            "n",
            list(MEASURED),
            {name: [1000 * each[name] for each in timings] for name in names},
            even=True,
            log=True,
        ),
        then="Times differ from machine to machine and from moment to moment; the table's steps do not.",
    )


LESSONS = [
    Lesson(
        "cost",
        "What a layer costs",
        "Operations, sequential steps and path length for sizes that you choose; then seconds.",
        (operations, cheapest, long_texts, sequential, clock),
        ("sizes",),
    )
]
