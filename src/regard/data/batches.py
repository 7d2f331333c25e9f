"""The order of examples and batches: a pure function of (seed, epoch, pool), so that resuming is exact.

An epoch is a list of blocks in random order. Some consecutive blocks are a pool, which is in memory. The rows
of a pool are shuffled, sorted by length and split into batches, and the batches are shuffled. So rows meet
others of the whole corpus, the rows of a batch have similar lengths, and only one pool is read at a time.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from regard.data.dataset import BLOCK, Dataset, Numbers

POOL = 128  # blocks in memory at once,
POOL_IDS = 1 << 24  # fewer if they have more ids than this

ORDER, LAYOUT, MASKS, ROW_MASKS = range(4)  # purposes of generators


def generator(
    seed: int, epoch: int, stream: int, purpose: int = ORDER, place: int = 0
) -> np.random.Generator:
    """Independent random numbers for each (seed, epoch, stream, purpose, place)."""
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, place, purpose, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def row_generator(seed: int, epoch: int, pool: int, row: int) -> np.random.Generator:
    """Random numbers for one row of a pool, independent of its batch, of the rank and of other rows."""
    return generator(seed, epoch, pool + 1, ROW_MASKS, row)


def epoch_pools(dataset: Dataset, seed: int, epoch: int, block: int = BLOCK) -> list[Numbers]:
    """The blocks [blocks, 4] of each pool of one epoch; every row occurs `weight` times.

    Pictures and sounds have smaller blocks, since few of their rows fit into a pool: of a corpus in the order
    of its classes, a pool would else hold one or two of them.
    """
    rng = generator(seed, epoch, 0)
    parts = enumerate(dataset.parts)
    drawn = [weighted(part.blocks(number, block), part.weight, rng) for number, part in parts]
    blocks = np.concatenate(drawn)
    blocks = blocks[rng.permutation(len(blocks))]
    pool = max(1, min(POOL, POOL_IDS * len(blocks) // max(1, dataset.ids)))
    return [blocks[start : start + pool] for start in range(0, len(blocks), pool)]


def weighted(blocks: Numbers, weight: float, rng: np.random.Generator) -> Numbers:
    """Each block as often as the integer part of the weight; for the rest a random share of the rows."""
    whole = np.tile(blocks, (int(weight), 1))
    rows = int(sizes(blocks).sum())
    left = round((weight - int(weight)) * rows) or int(weight < 1 and rows > 0)  # at least one row
    share = []
    for part, shard, first, last in blocks[rng.permutation(len(blocks))].tolist():
        if left <= 0:
            break
        take = min(left, last - first)
        begin = int(rng.integers(first, last)) if take < last - first else first
        share.append((part, shard, begin, min(last, begin + take)))
        if begin + take > last:  # wrap around to the beginning of the block
            share.append((part, shard, first, first + begin + take - last))
        left -= take
    return np.concatenate([whole, np.array(share, dtype=np.int64).reshape(-1, 4)])


def sizes(blocks: Numbers) -> Numbers:
    rows: Numbers = blocks[:, 3] - blocks[:, 2]
    return rows


def plan(lengths: Numbers, tokens_per_batch: int, rng: np.random.Generator) -> list[Numbers]:
    """The batches of one pool, as numbers of rows.

    `lengths` is [rows, sides]. A batch has at most `tokens_per_batch` padded tokens on a side, unless one row
    is longer.
    """
    order = rng.permutation(len(lengths))
    longest = lengths[order].max(axis=1)
    by_length = np.lexsort((lengths[order, 0], longest))  # ties keep their random order
    batches = cut(order[by_length], longest[by_length], tokens_per_batch)
    return [batches[number] for number in rng.permutation(len(batches))]


def cut(order: Numbers, lengths: Numbers, tokens: int) -> list[Numbers]:
    """Split rows, shortest first, into batches of at most `tokens` padded tokens."""
    batches = []
    start = 0
    while start < len(order):
        # the largest count with count * (length of its longest) <= tokens; lengths ascend
        counts = range(1, min(len(order) - start, tokens // max(1, int(lengths[start]))) + 1)
        count = bisect_right(counts, tokens, key=lambda n: n * int(lengths[start + n - 1]))
        batches.append(order[start : start + max(1, count)])
        start += max(1, count)
    return batches
