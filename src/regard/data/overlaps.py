"""Rows that occur twice: training rows in the held-out data, and repeated training rows.

Two texts match *exactly* if the strings are equal, and *normalised* if they are equal after NFKC and case
folding, without spaces and punctuation. Only digests of texts are stored.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

MatchKind = Literal["exact", "normalised"]
MatchSide = Literal["both", "source", "target"]
Hashes = npt.NDArray[np.uint64]

SORTED_AT_ONCE = 1 << 22  # hashes


class Match(NamedTuple):
    kind: MatchKind
    side: MatchSide
    number: int  # of the held-out row, from 0


class HeldOutIndex:
    """The first held-out row of each digest. A text of white space matches nothing."""

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self.texts: set[bytes] = set()  # normalised, of both sides
        self.rows: dict[tuple[MatchKind, MatchSide, bytes], int] = {}
        for number, row in enumerate(rows):
            normal = normalise(row[0]), normalise(row[1])
            self.texts.update(digest(text) for text in normal if text)
            for key in _keys(row, normal):
                self.rows.setdefault(key, number)

    def find(self, source: str, target: str) -> Match | None:
        """The closest match: both sides before one, exact before normalised, source before target."""
        normal = normalise(source), normalise(target)
        if not any(text and digest(text) in self.texts for text in normal):
            return None
        for key in _keys((source, target), normal):
            if key in self.rows:
                return Match(key[0], key[1], self.rows[key])
        return None


def _keys(row: tuple[str, str], normal: tuple[str, str]) -> Iterator[tuple[MatchKind, MatchSide, bytes]]:
    """What a row can match by, the closest first."""
    texts: list[tuple[MatchKind, tuple[str, str]]] = [("exact", row), ("normalised", normal)]
    if all(normal):
        yield from ((kind, "both", digest(*sides)) for kind, sides in texts)
    for kind, (source, target) in texts:
        if normal[0]:
            yield kind, "source", digest(source)
        if normal[1]:
            yield kind, "target", digest(target)


class _Letters(dict[int, int | None]):
    """A table for `str.translate` that keeps letters, digits and combining marks."""

    def __missing__(self, code: int) -> int | None:
        letter = chr(code)
        is_variation = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF  # marks without a meaning
        is_mark = unicodedata.category(letter)[0] == "M" and not is_variation
        is_ideograph = 0x20000 <= code < 0x40000  # also those that are newer than this Python
        is_braille = 0x2800 <= code <= 0x28FF  # letters, and the pixels of regard.inputs.pixels
        self[code] = code if letter.isalnum() or is_mark or is_ideograph or is_braille else None
        return self[code]


_LETTERS = _Letters({ord("\N{MODIFIER LETTER APOSTROPHE}"): None})  # don't = dont


def normalise(text: str) -> str:
    """The letters of a text, folded; the text itself if it has none; "" for white space."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_LETTERS) or (text if text.strip() else "")


def digest(*texts: str, size: int = 16) -> bytes:
    """BLAKE2b, the same in every process. 0xFF, which UTF-8 never contains, separates the texts."""
    content = b"\xff".join([text.encode("utf-8", "surrogatepass") for text in texts])
    return blake2b(content, digest_size=size).digest()


def row_hashes(rows: Sequence[tuple[str, str]]) -> Hashes:
    """64 bits of each row. Among n rows two collide with probability n^2 / 2^65: 0.0003 for 10^8."""
    return np.frombuffer(b"".join([digest(*row, size=8) for row in rows]), dtype="<u8")


def repeated(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """True where a hash occurred before.

    Hashes are uniform, so their highest bits split them into buckets of equal size. One bucket is sorted at a
    time: memory beyond the hashes is a few bytes for each.
    """
    repeats = np.zeros(len(hashes), dtype=np.bool_)
    bits = (len(hashes) // SORTED_AT_ONCE).bit_length()
    for bucket in range(1 << bits):
        low, high = np.uint64(bucket << 64 - bits), np.uint64((bucket + 1 << 64 - bits) - 1)
        places = np.flatnonzero((hashes >= low) & (hashes <= high))
        order = places[np.argsort(hashes[places], kind="stable")]  # equal hashes stay in their order
        repeats[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
    return repeats
