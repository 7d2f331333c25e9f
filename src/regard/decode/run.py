"""Many sources through a search: like lengths together, the order restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import Decode
from regard.data import Sample, collate
from regard.data.batches import cut
from regard.decode.constrained import beams_for, constrained_search
from regard.decode.memory import in_memory
from regard.decode.options import Hypothesis, Prefixes
from regard.decode.sample import sample
from regard.decode.search import Constraints, S, Steppable, beam_search
from regard.errors import UsageError
from regard.model.state import BLOCK, round_up
from regard.text import Special


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Numbers of the samples in batches of like length, the longest first: memory runs out soon or never."""
    sizes = np.array([-(-max(length, 1) // BLOCK) * BLOCK for length in lengths], dtype=np.int64)
    order = np.argsort(np.array(lengths), kind="stable")
    return [batch.tolist() for batch in reversed(cut(order, sizes[order], tokens_per_batch))]


def decode(
    model: Steppable[S],
    samples: Sequence[Sample],
    options: Decode,
    special: Special,
    device: torch.device,
    prefixes: Prefixes = None,
    done: Callable[[int], None] = lambda count: None,
    constraints: Constraints = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sample, in order. `done` is told how many samples each batch finished.

    Where memory runs out, batches are halved and `say` is told.
    """
    found: list[list[Hypothesis]] = [[] for _ in samples]

    def search(numbers: Sequence[int]) -> list[list[Hypothesis]]:
        batch = collate([samples[number] for number in numbers], BLOCK).to(device)
        own = [begun(prefixes[number], special) for number in numbers] if prefixes else None
        rules = [constraints[number] for number in numbers] if constraints else None
        if options.sample:
            return sample(model, batch, options, special, own, rules)
        if rules and rules[0].require:
            return constrained_search(model, batch, options, special, own, rules)
        return beam_search(model, batch, options, special, own, rules)

    for numbers, beams in groups(len(samples), options, constraints):
        lengths = [len(samples[number].source) for number in numbers]
        batches = by_length(lengths, max(1, options.tokens_per_batch // beams))
        own = [[numbers[place] for place in batch] for batch in batches]
        cost = lambda batch: beams * len(batch) * max(padded(samples[n]) for n in batch)  # noqa: E731, B023
        for batch, hypotheses in in_memory(own, search, cost, say):
            for number, each in zip(batch, hypotheses):
                found[number] = each
            done(len(batch))
    return found


def begun(prefix: Sequence[int], special: Special) -> Sequence[int]:
    """A prefix behind what every answer begins with."""
    return [special.first, *prefix] if prefix and special.first is not None else prefix


def padded(sample: Sample) -> int:
    return round_up(len(sample.source), BLOCK)


def groups(count: int, options: Decode, constraints: Constraints) -> list[tuple[list[int], int]]:
    """Which samples go together, and with how many beams: those with required phrases need more."""
    if not constraints or not any(each.require for each in constraints):
        return [(list(range(count)), options.beam)]
    if options.sample:
        raise UsageError("required phrases need a search: decode.sample cannot be on with them")
    kinds: dict[tuple[bool, int], list[int]] = {}
    for number, each in enumerate(constraints):
        kinds.setdefault((bool(each.require), beams_for(options, each)), []).append(number)
    return [(numbers, beams) for (_, beams), numbers in sorted(kinds.items())]
