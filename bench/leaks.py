"""Hide copies of test lines among training pairs, look for them, and count what is found and what is not.

    python bench/leaks.py --pairs 1000000 --plants 1000 --seed 1
    python bench/leaks.py --train data:tatoeba/train.en-de.tsv.gz --test data:tatoeba/valid.en-de.tsv.gz

Prints one JSON line: the share of the copies found, by how they were made; the share of the other pairs that
are called near though neither side is a line of the test (false alarms), and of those that hold such a line;
pairs that repeat an earlier one; seconds of looking (not of making the text); peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from regard.data.duplicates import duplicates, pair_hashes
from regard.data.files import find, lines
from regard.data.leaks import NORMALISED, HeldOut, compare
from regard.data.phrasebook import phrases

Pair = tuple[str, str]
Copy = Callable[
    [Pair, Pair, random.Random], Pair
]  # of a training pair and a test pair, what stands there instead
PORTION = 50_000


def reworded(line: str, chance: random.Random) -> str:
    """One word substituted, added or removed."""
    parts = line.split()
    place, new = chance.randrange(len(parts)), "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6))
    change = chance.choice(["substitute", "add", "remove"] if len(parts) > 1 else ["add"])
    return " ".join(parts[:place] + [new] * (change != "remove") + parts[place + (change != "add") :])


def redressed(line: str, chance: random.Random) -> str:
    """Other case, spaces and punctuation; the letters stay."""
    case = chance.choice([str.upper, str.lower, str.title, str.swapcase])
    space = chance.choice([" ", "  ", "\u00a0", "\t", " - "])
    signs = chance.choice([r"\1", "", r" \1 ", r"\1\1"])
    return re.sub(r"([^\w\s])", signs, case(line)).replace(" ", space) + chance.choice([" ", "!", " .", "”"])


def near(own: Pair, held: Pair, chance: random.Random) -> Pair:
    """A word of the source, of the target, or one of each."""
    first, second = chance.choice([(True, False), (False, True), (True, True)])
    return reworded(held[0], chance) if first else held[0], reworded(held[1], chance) if second else held[1]


def near_alone(own: Pair, held: Pair, chance: random.Random) -> Pair:
    if chance.random() < 0.5:
        return reworded(held[0], chance), own[1]
    return own[0], reworded(held[1], chance)


COPIES: dict[str, Copy] = {
    "exact": lambda own, held, chance: held,
    "normalised": lambda own, held, chance: (redressed(held[0], chance), redressed(held[1], chance)),
    "near": near,
    "near_each_side": lambda own, held, chance: (reworded(held[0], chance), reworded(held[1], chance)),
    "near_one_side_other_unrelated": near_alone,
}


def holds_a_line(pair: Pair, held: Pair) -> bool:
    return min(compare(own, other) for own, other in zip(pair, held)) <= NORMALISED


def portions(train: Iterator[Pair]) -> Iterator[list[Pair]]:
    while portion := list(islice(train, PORTION)):
        yield portion


def trial(
    train: Iterator[Pair], count: int, test: Sequence[Pair], plants: int, seed: int
) -> dict[str, object]:
    """Look at `count` training pairs, of which `plants` of each kind are replaced by copies."""
    chance, names = random.Random(seed), list(COPIES)
    places = chance.sample(range(count), plants * len(names))
    copies = {
        place: (names[order % len(names)], chance.randrange(len(test))) for order, place in enumerate(places)
    }
    found, called, hashes, size = Counter[str](), Counter[str](), [], 0
    began = time.monotonic()
    held, looking = HeldOut.of({"test": test}), time.monotonic() - began
    for pairs in portions(train):
        for place in copies.keys() & set(range(size, size + len(pairs))):
            name, line = copies[place]
            pairs[place - size] = COPIES[name](pairs[place - size], test[line], chance)
        began = time.monotonic()
        leaks = held.find(pairs)
        hashes.append(pair_hashes(pairs))
        looking += time.monotonic() - began
        for leak in leaks:
            if size + leak.pair in copies:
                found[copies[size + leak.pair][0]] += 1
            else:
                same = holds_a_line(pairs[leak.pair], test[leak.line])
                called["line_of_test" if same else "false_alarms"] += 1
        size += len(pairs)
    began = time.monotonic()
    repeated = int(duplicates(np.concatenate(hashes)).sum())
    looking += time.monotonic() - began
    return {
        "name": "leaks",
        "pairs": size,
        "test": len(test),
        "plants": plants,
        "found": {name: round(found[name] / plants, 4) for name in names},
        **{name: round(called[name] / (size - len(copies)), 6) for name in ("false_alarms", "line_of_test")},
        "repeated": repeated,
        "seconds": round(looking, 1),
        "microseconds_per_pair": round(looking / size * 1e6, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "seed": seed,
    }


def phrasebook(split: str, count: int) -> Iterator[Pair]:
    return ((phrase.english, phrase.german) for phrase in phrases(split, count))


def table(name: str) -> Iterator[Pair]:
    for line in lines(find(name)):
        source, target = line.split("\t")[:2]
        yield source, target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--plants", type=int, default=1000)
    parser.add_argument("--train", help="tab-separated pairs; without it the phrasebook's")
    parser.add_argument("--test", help="tab-separated pairs; without it the phrasebook's")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    test = list(table(options.test) if options.test else phrasebook("test", 2 * options.plants))
    train, count = phrasebook("train", options.pairs), options.pairs
    if options.train:
        count = min(options.pairs, sum(1 for _ in table(options.train)))
        train = islice(table(options.train), count)
    result = trial(train, count, test, options.plants, options.seed)
    print(json.dumps(result))
    share, bars = result["found"], {"exact": 1.0, "normalised": 0.99, "near": 0.9}
    sys.exit(any(share[name] < bar for name, bar in bars.items()) or result["false_alarms"] > 0.001)


if __name__ == "__main__":
    main()
