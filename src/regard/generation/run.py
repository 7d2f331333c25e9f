"""Many sources through a pool: like lengths together, the longest first, the order restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from regard.config import Decode
from regard.data.batches import cut
from regard.device import give_back_memory
from regard.generation.lanes import Lanes, cost_of
from regard.generation.options import Hypothesis
from regard.generation.phrases import Constraint
from regard.generation.pool import Handle, Pool, TooLarge, manner_of, rows_of
from regard.generation.sources import Manner, S, Steppable, Wish
from regard.inputs.text import Special
from regard.models.state import BLOCK, round_up
from regard.sample import Sample

MANY = 32  # sentences, beside which the time of giving memory back is nothing


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Numbers of the samples in batches of like length, the longest first: memory runs out soon or never."""
    sizes = np.array([round_up(max(1, length), BLOCK) for length in lengths], dtype=np.int64)
    order = np.argsort(np.array(lengths), kind="stable")
    return [batch.tolist() for batch in reversed(cut(order, sizes[order], tokens_per_batch))]


def decode(
    model: Steppable[S],
    samples: Sequence[Sample],
    options: Decode,
    special: Special,
    device: torch.device,
    prefixes: Sequence[Sequence[int]] | None = None,
    done: Callable[[int], None] = lambda count: None,
    constraints: Sequence[Constraint] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sample, in order. `done` is told how many samples each step finished.

    Where memory runs out, fewer are decoded at once and `say` is told.
    """
    wishes = [
        Wish(
            sample.source,
            options,
            prefixes[number] if prefixes else (),
            constraints[number] if constraints else None,
        )
        for number, sample in enumerate(samples)
    ]
    lanes = Lanes.over(lambda wish: model, special, device, options.tokens_per_batch, say=say)
    return decode_all(lanes, wishes, done)


def decode_all(
    pool: Pool | Lanes, wishes: Sequence[Wish], done: Callable[[int], None] = lambda count: None
) -> list[list[Hypothesis]]:
    """The hypotheses of each wish, in order.

    All are known beforehand, so like lengths run together and nobody enters a batch under way: rows of other
    ages make everybody's cache as wide as the oldest's, which costs more than full batches save.
    """
    lanes = pool if isinstance(pool, Lanes) else Lanes([pool])
    found: list[list[Hypothesis]] = [[] for _ in wishes]
    again: list[int] = []  # for which there was no memory beside the other lanes

    def one_batch(own: Pool, numbers: Sequence[int]) -> Iterator[list[tuple[int, Handle]]]:
        own.in_batches = True
        handles = {own.add(wishes[number]): number for number in numbers}
        while own.busy:
            yield [(handles[handle], handle) for handle in own.step()]

    portions = list(batches(wishes, lanes.portion(sum(map(cost_of, wishes)))))
    for number, handle in lanes.share(one_batch, portions):
        if isinstance(handle.error, TooLarge) and len(lanes.pools) > 1:
            again.append(number)
            continue
        found[number] = handle.result()
        done(1)
    if again:
        for number, hypotheses in zip(
            again, decode_all(lanes.pools[0], [wishes[each] for each in again], done)
        ):
            found[number] = hypotheses
    if len(wishes) >= MANY:
        give_back_memory()  # of the caches: who asked for much may ask for nothing more
    return found


def batches(wishes: Sequence[Wish], tokens: int) -> Iterator[list[int]]:
    """Numbers of wishes of one manner and like length."""
    alike: dict[tuple[Manner, int], list[int]] = {}
    for number, wish in enumerate(wishes):
        alike.setdefault((manner_of(wish), rows_of(wish)), []).append(number)
    for (_, rows), numbers in alike.items():
        for batch in by_length([len(wishes[number].ids) for number in numbers], max(1, tokens // rows)):
            yield [numbers[place] for place in batch]
