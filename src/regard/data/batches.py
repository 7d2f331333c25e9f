"""Which examples stand together and when: a pure function of (seed, epoch, pool), so that resuming is exact.

An epoch is a list of blocks in drawn order. Some of them make a pool, which is in memory; its pairs are drawn
anew, sorted by length, and cut into batches, whose order is drawn. So pairs meet others of the whole corpus,
batches are of like lengths, and only a pool is read at a time.
"""

from __future__ import annotations

import numpy as np

from regard.data.dataset import Dataset, Numbers

POOL = 128  # blocks in memory at once,
POOL_IDS = 1 << 24  # unless their rows are so long that there are more ids than this

ORDER, LAYOUT, MASKS = range(3)  # what dice are thrown for


def generator(
    seed: int, epoch: int, stream: int, purpose: int = ORDER, place: int = 0
) -> np.random.Generator:
    """Independent dice for each (seed, epoch, stream, purpose, place)."""
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, place, purpose, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def epoch_pools(dataset: Dataset, seed: int, epoch: int) -> list[Numbers]:
    """The blocks [blocks, 4] of each pool of one epoch; every pair comes `weight` times."""
    random = generator(seed, epoch, 0)
    drawn = [weighted(part.blocks(number), part.weight, random) for number, part in enumerate(dataset.parts)]
    blocks = np.concatenate(drawn)
    blocks = blocks[random.permutation(len(blocks))]
    pool = max(1, min(POOL, POOL_IDS * len(blocks) // max(1, dataset.ids)))
    return [blocks[start : start + pool] for start in range(0, len(blocks), pool)]


def weighted(blocks: Numbers, weight: float, random: np.random.Generator) -> Numbers:
    """Each block as often as the whole part of the weight says; for its rest a drawn share of the pairs."""
    whole = np.tile(blocks, (int(weight), 1))
    pairs = int(sizes(blocks).sum())
    left = round((weight - int(weight)) * pairs) or int(weight < 1 and pairs > 0)  # one at least, not none
    share = []
    for part, shard, first, last in blocks[random.permutation(len(blocks))].tolist():
        if left <= 0:
            break
        take = min(left, last - first)
        begin = int(random.integers(first, last)) if take < last - first else first
        share.append((part, shard, begin, min(last, begin + take)))
        if begin + take > last:  # round to the block's beginning
            share.append((part, shard, first, first + begin + take - last))
        left -= take
    return np.concatenate([whole, np.array(share, dtype=np.int64).reshape(-1, 4)])


def sizes(blocks: Numbers) -> Numbers:
    found: Numbers = blocks[:, 3] - blocks[:, 2]
    return found


def plan(lengths: Numbers, tokens_per_batch: int, random: np.random.Generator) -> list[Numbers]:
    """The batches of one pool.

    `lengths` is [examples, sides]. A batch never has more than `tokens_per_batch` padded tokens on a side,
    except where a single example is longer than that.
    """
    order = random.permutation(len(lengths))
    longest = lengths[order].max(axis=1)
    by_length = np.lexsort((lengths[order, 0], longest))  # ties keep the drawn order
    batches = cut(order[by_length], longest[by_length], tokens_per_batch)
    return [batches[number] for number in random.permutation(len(batches))]


def cut(order: Numbers, lengths: Numbers, tokens: int) -> list[Numbers]:
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
