"""Many sources through a search: like lengths together, the order restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import Decode
from regard.data import Sample, collate
from regard.data.batches import cut
from regard.decode.options import Hypothesis, Prefixes, Special
from regard.decode.sample import sample
from regard.decode.search import Steppable, beam_search
from regard.model.state import BLOCK


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Numbers of the samples in batches of like length, the longest first: memory runs out soon or never."""
    sizes = np.array([-(-max(length, 1) // BLOCK) * BLOCK for length in lengths], dtype=np.int64)
    order = np.argsort(np.array(lengths), kind="stable")
    return [batch.tolist() for batch in reversed(cut(order, sizes[order], tokens_per_batch))]


def decode(
    model: Steppable,
    samples: Sequence[Sample],
    options: Decode,
    special: Special,
    device: torch.device,
    prefixes: Prefixes = None,
    done: Callable[[int], None] = lambda count: None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sample, in order. `done` is told how many samples each batch finished."""
    search = sample if options.sample else beam_search
    found: list[list[Hypothesis]] = [[] for _ in samples]
    budget = max(1, options.tokens_per_batch // options.beam)
    for numbers in by_length([len(each.source) for each in samples], budget):
        batch = collate([samples[number] for number in numbers], BLOCK).to(device)
        own = [prefixes[number] for number in numbers] if prefixes else None
        for number, hypotheses in zip(numbers, search(model, batch, options, special, own)):
            found[number] = hypotheses
        done(len(numbers))
    return found
