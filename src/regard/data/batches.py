"""Which examples stand together and when: a pure function of (seed, epoch), so that resuming is exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
POOL = 1 << 17  # examples sorted by length together; an epoch of a large corpus has many pools


def plan(lengths: Indices, tokens_per_batch: int, seed: int, epoch: int) -> list[Indices]:
    """The batches of one epoch.

    `lengths` is [examples, sides]. A batch never has more than `tokens_per_batch` padded tokens on a side,
    except where a single example is longer than that. Examples of like length stand together; which of them,
    and the order of the batches, is drawn anew for each epoch.
    """
    random = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)))
    order = random.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        longest = lengths[pool].max(axis=1)
        by_length = np.lexsort((lengths[pool, 0], longest))  # ties keep the drawn order
        batches += cut(pool[by_length], longest[by_length], tokens_per_batch)
    return [batches[number] for number in random.permutation(len(batches))]


def cut(order: Indices, lengths: Indices, tokens: int) -> list[Indices]:
    """Cut examples, shortest first, into batches of at most `tokens` padded tokens."""
    batches = []
    start = 0
    while start < len(order):
        # the largest count such that count * (length of its longest) fits; found by halving, lengths ascend
        low, high = start + 1, min(len(order), start + max(1, tokens // max(1, int(lengths[start]))))
        while low < high:
            middle = (low + high + 1) // 2
            if (middle - start) * int(lengths[middle - 1]) <= tokens:
                low = middle
            else:
                high = middle - 1
        batches.append(order[start:low])
        start = low
    return batches
