"""Lines as 64-bit numbers, a portion at a time and without a Python loop over words.

A line is compared by its *letters* (all of it but case, spaces and punctuation) and by its *words*. Both are
hashed by polynomials modulo 2^64; those of all parts come from one running sum S. B is odd, so B^-1 exists:

    S[k] = sum of x[j] B^j for j < k        hash of x[a:b] = (S[b] - S[a]) B^-a

The numbers depend on the text alone: they are the same in every process and on every machine.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

# What a character is to the words of a line. A word is a run of letters and marks; in scripts written without
# spaces every letter begins a word of its own.
SPACE, LETTER, ALONE, MARK, DROPPED = range(5)
JOINERS = "'`´‘’ʼ.,:·-‐‑"  # inside a word they are nothing: don't, 3.5, well-known are one word each
UNSPACED = [
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai
    (0x1A20, 0x1AAF),
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),
    (0x3040, 0x312F),  # kana, bopomofo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAADF),
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
]
WORD = re.compile(rb"%c(?:%c[%c%c]*)?|[%c%c]+" % (ALONE, MARK, LETTER, MARK, LETTER, MARK))

CODES = 0x110000
LETTER_BASE, WORD_BASE = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95  # odd, and otherwise of no meaning
MODULUS = 1 << 64


@dataclass(frozen=True)
class Fingerprints:
    """Of a sequence of lines."""

    letters: Hashes  # one for each line; of the line itself where it has no letters
    words: Hashes  # of all lines, one after the other
    weights: npt.NDArray[np.float64]  # of each word: 1, or a half where a single letter counts as a word
    offsets: Places  # where the words of each line begin; one more than there are lines

    @property
    def counts(self) -> Places:
        return np.diff(self.offsets)


def fold(text: str) -> str:
    """The same for "Ｆｏｏ", "FOO" and "foo": NFKC, case folding, and NFKC of what came of it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(line: str) -> list[str]:
    """The words of one line, folded and without punctuation: what `fingerprints` hashes, letter by letter."""
    kinds = _kinds()
    text = "".join([letter for letter in fold(line) if kinds[ord(letter)] != DROPPED])
    pattern = bytes([kinds[ord(letter)] for letter in text])
    return [text[found.start() : found.end()] for found in WORD.finditer(pattern)]


def fingerprints(lines: Sequence[str]) -> Fingerprints:
    text = "\n".join(lines)
    if text.count("\n") >= max(len(lines), 1):  # a line that holds a line's end: as good as a space
        text = "\n".join(line.replace("\n", " ") for line in lines)
    codes = np.frombuffer(fold(text).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    kinds = np.frombuffer(_kinds(), dtype=np.uint8)[codes]
    kept = np.flatnonzero(kinds != DROPPED)
    codes, kinds = codes[kept], kinds[kept]
    solid = kinds != SPACE
    letters_before = np.cumsum(solid, dtype=np.int64)
    letters = codes[solid].astype(np.uint64)
    line_ends = letters_before[codes == ord("\n")]
    line_bounds = np.concatenate([[0], line_ends, [len(letters)]])[: len(lines) + 1]
    begins = _begins_word(kinds)
    word_starts = letters_before[begins] - 1
    weights = np.where(kinds[begins] == ALONE, 0.5, 1.0)
    word_bounds = np.append(word_starts, len(letters))
    sums = running_sum(letters, LETTER_BASE)
    whole = mixed(spans(sums, line_bounds[:-1], line_bounds[1:], LETTER_BASE))
    parts = mixed(spans(sums, word_bounds[:-1], word_bounds[1:], LETTER_BASE))
    for silent in np.flatnonzero(line_bounds[:-1] == line_bounds[1:]).tolist():
        whole[silent] = text_hash(lines[silent])
    return Fingerprints(whole, parts, weights, np.searchsorted(word_starts, line_bounds))


def _begins_word(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    before = np.concatenate([np.array([SPACE], dtype=np.uint8), kinds[:-1]])
    letter = kinds == LETTER
    after_space = (before == SPACE) & (letter | (kinds == MARK))
    return np.asarray((kinds == ALONE) | after_space | (letter & (before == ALONE)))


def without_each_word(found: Fingerprints) -> tuple[Hashes, Hashes]:
    """The hash of each line's words, and of its words without the first, without the second...

    Of words x[a:b] without x[i] the first i - a keep their powers and the others move up by one:
    (S[i] - S[a]) B^-a + (S[b] - S[i+1]) B^-(a+1)
    """
    sums = running_sum(found.words, WORD_BASE)
    starts, ends = found.offsets[:-1], found.offsets[1:]
    place = np.arange(len(found.words))
    start, end = np.repeat(starts, found.counts), np.repeat(ends, found.counts)
    left = spans(sums, start, place, WORD_BASE)
    right = (sums[end] - sums[place + 1]) * powers(len(sums) + 1, _inverse(WORD_BASE))[start + 1]
    return spans(sums, starts, ends, WORD_BASE), left + right


def running_sum(values: Hashes, base: int) -> Hashes:
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * powers(len(values), base), out=sums[1:])
    return sums


def spans(sums: Hashes, starts: Places, ends: Places, base: int) -> Hashes:
    """The hashes of x[start:end], from the running sum of x."""
    return (sums[ends] - sums[starts]) * powers(len(sums), _inverse(base))[starts]


def powers(count: int, base: int) -> Hashes:
    """1, B, B^2, ... modulo 2^64; kept, so that portions of like size do not compute them again."""
    return _powers(1 << max(20, count.bit_length()), base)[:count]


def mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def text_hash(*parts: str) -> int:
    """64 bits of BLAKE2b; parts are told apart by a byte that UTF-8 never has."""
    return int.from_bytes(digest(parts), "little")


def digest(parts: Sequence[str]) -> bytes:
    return blake2b(
        b"\xff".join([part.encode("utf-8", "surrogatepass") for part in parts]), digest_size=8
    ).digest()


def _inverse(base: int) -> int:
    return pow(base, -1, MODULUS)


@cache
def _powers(count: int, base: int) -> Hashes:
    found = np.full(count, base, dtype=np.uint64)
    found[0] = 1
    return np.cumprod(found, dtype=np.uint64)


@cache
def _kinds() -> bytes:
    """What every character is, by its code."""
    kinds = np.full(CODES, SPACE, dtype=np.uint8)
    for code in range(0x20000):
        kinds[code] = _kind(chr(code))
    for first, last in UNSPACED:
        block = kinds[first : last + 1]
        block[block == LETTER] = ALONE
    kinds[0x20000:0x40000] = ALONE
    kinds[0xE0000:0xE0200] = DROPPED  # tags and variation selectors
    kinds[[ord(letter) for letter in JOINERS]] = DROPPED
    return kinds.tobytes()


def _kind(letter: str) -> int:
    category = unicodedata.category(letter)
    if category == "Cf" or 0xFE00 <= ord(letter) <= 0xFE0F:  # soft hyphens, joiners, variation selectors
        return DROPPED
    if category[0] == "M":
        return MARK
    return LETTER if letter.isalnum() else SPACE
