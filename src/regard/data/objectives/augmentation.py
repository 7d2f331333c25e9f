"""Text that is modified at random in training: `data.modifiers`.

A row of a column holds the number of its ids, the ids, and its text as UTF-8 bytes. When a pool is laid out,
some of its texts are modified and tokenized again; the others keep their ids. So batches are planned with the
lengths that samples really have, and they are a pure function of (seed, epoch, pool).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.config.input import Modifier
from regard.config.schema import TaskName
from regard.data.batches import generator
from regard.data.dataset import (
    BatchLayout,
    Encoded,
    Encodings,
    Ids,
    Lengths,
    Loss,
    Numbers,
    Objective,
    Rng,
    RowPool,
    ShardColumn,
    TokenColumn,
    narrowest,
    offsets,
)
from regard.data.objectives.language import CausalLM, Denoising
from regard.data.objectives.supervised import UNLIMITED
from regard.data.readers import RawRow
from regard.inputs.text.modifiers import modify_example
from regard.sample import Example

Pair = tuple[str, str]


@dataclass(frozen=True)
class Augmentation(Objective):
    """Another objective whose training texts are modified."""

    inner: Objective
    task: TaskName
    modifiers: Sequence[Modifier]

    @property
    def plain(self) -> Objective:
        return self.inner

    @property
    def loss(self) -> Loss:
        return self.inner.loss

    @property
    def longest(self) -> int:
        return UNLIMITED  # of ids and bytes together

    def left_out(self, rows: Sequence[RawRow]) -> dict[int, str]:
        return self.inner.left_out(rows)

    def token_counts(self, column: ShardColumn) -> Lengths:
        counts: Lengths = column.ids[offsets(column.lengths)[:-1]]
        return counts

    def encode(self, rows: Sequence[RawRow]) -> Encodings:
        sources: list[Encoded] = []
        targets: list[Encoded] = []
        too_long: list[tuple[int, str]] = []
        for encodings, kept in self.portions(rows):
            count = len(encodings.source[1])
            # what becomes several rows, as a long document, has no text: it is never modified
            texts = [row[1:] for row in kept] if count == len(kept) else [("", "")] * count
            sources.append(with_texts(encodings.source, [source for source, _ in texts]))
            targets.append(with_texts(encodings.target, [target for _, target in texts]))
            too_long += encodings.too_long
        return Encodings(joined(sources), joined(targets), too_long)

    def portions(self, rows: Sequence[RawRow]) -> Iterator[tuple[Encodings, list[RawRow]]]:
        """Encodings of rows, and the rows that were not left out; language models may split each."""
        splits = isinstance(self.inner, CausalLM | Denoising)
        for portion in [[row] for row in rows] if splits else [list(rows)]:
            encodings = self.inner.encode(portion)
            left_out = {number for number, *_ in encodings.left_out}
            yield encodings, [row for number, row in enumerate(portion) if number not in left_out]

    def layout(self, pool: RowPool, rng: Rng) -> BatchLayout:
        def texts(number: int) -> Pair:
            return text_of(pool.source[number]), text_of(pool.target[number])

        changed = modify_texts(len(pool), texts, self.task, self.modifiers, rng)
        sides = [[ids_of(column[n]) for n in range(len(pool))] for column in (pool.source, pool.target)]
        for encodings, kept in self.portions([(number, *pair) for number, pair in changed.items()]):
            columns = [TokenColumn(*each) for each in map(with_offsets, (encodings.source, encodings.target))]
            if len(columns[0]) == len(kept):  # else it is split now, and stays as it was
                for place, (number, _, _) in enumerate(kept):
                    sides[0][number], sides[1][number] = (column[place] for column in columns)
        return self.inner.layout(RowPool(*map(to_column, sides)), rng)


def modify_texts(
    count: int, texts: Callable[[int], Pair], task: TaskName, modifiers: Sequence[Modifier], rng: Rng
) -> dict[int, Pair]:
    """The texts that some modifier changes, by number; each has random numbers of its own."""
    seed = int(rng.integers(1 << 62))
    chosen = rng.random((count, len(modifiers))) < [each.probability for each in modifiers]
    changed = {}
    for number in np.flatnonzero(chosen.any(axis=1)).tolist():
        example = Example(*texts(number))
        used = [modifier for modifier, is_used in zip(modifiers, chosen[number]) if is_used]
        result = modify_example(example, task, used, generator(seed, 0, number))
        if example.source and result != example:
            changed[number] = result.source, result.target
    return changed


def modify_sample(sample: Sequence[Pair], task: TaskName, modifiers: Sequence[Modifier]) -> list[Pair]:
    """The texts that a tokenizer is trained on: words in capitals occur in them as often as in training."""
    changed = modify_texts(len(sample), sample.__getitem__, task, modifiers, generator(0, 0, 0))
    return [changed.get(number, pair) for number, pair in enumerate(sample)]


def modify_examples(examples: Sequence[Example], task: TaskName, modifier: Modifier) -> list[Example]:
    """A test set with a modifier, the same at every call."""
    return [
        modify_example(example, task, [modifier], example_generator(number))
        for number, example in enumerate(examples)
    ]


def example_generator(number: int) -> Rng:
    """The random numbers of an example of a test set."""
    return generator(0, 0, number)


# --- columns of ids and texts


def with_texts(encoded: Encoded, texts: Sequence[str]) -> Encoded:
    """Put the number of ids before each row and the bytes of its text behind it."""
    ids, lengths = encoded
    contents = [text.encode() for text in texts]
    sizes = np.fromiter(map(len, contents), dtype=np.int64, count=len(contents))
    longest = int(lengths.max(initial=0))
    rows = np.empty(
        len(ids) + int(sizes.sum()) + len(sizes), np.result_type(ids.dtype, narrowest(longest + 1))
    )
    starts = offsets(1 + lengths + sizes)[:-1]
    rows[starts] = lengths
    rows[positions(starts + 1, lengths)] = ids
    rows[positions(starts + 1 + lengths, sizes)] = np.frombuffer(b"".join(contents), dtype=np.uint8)
    return rows, 1 + lengths + sizes


def positions(starts: Numbers, lengths: Numbers) -> Numbers:
    """starts[0], starts[0] + 1, ... of each range, one after another."""
    total = int(lengths.sum())
    ranges: Numbers = np.repeat(starts - offsets(lengths)[:-1], lengths) + np.arange(total)
    return ranges


def ids_of(row: Ids) -> Ids:
    return row[1 : 1 + int(row[0])]


def text_of(row: Ids) -> str:
    return row[1 + int(row[0]) :].astype(np.uint8).tobytes().decode()


def with_offsets(encoded: Encoded) -> tuple[Ids, Numbers]:
    return encoded[0], offsets(encoded[1])


def to_column(rows: Sequence[Ids]) -> TokenColumn:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return TokenColumn(np.concatenate(rows), offsets(lengths))


def joined(parts: Sequence[Encoded]) -> Encoded:
    ids, lengths = zip(*parts)
    return np.concatenate(ids), np.concatenate(lengths)
