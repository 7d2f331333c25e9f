"""Pairs of the training data that repeat an earlier one, found by 64-bit hashes of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from regard.data.fingerprints import Hashes, digest

SORTED_AT_ONCE = 1 << 22
SCANNED_AT_ONCE = 1 << 20


def pair_hashes(pairs: Sequence[tuple[str, str]]) -> Hashes:
    """64 bits of BLAKE2b of each pair, the same in every process.

    Among n different pairs two share a hash with probability n^2 / 2^65: 0.0003 among 100 million.
    """
    return np.frombuffer(b"".join([digest(pair) for pair in pairs]), dtype="<u8")


def duplicates(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """True where a hash was there before.

    Hashes are spread evenly, so those that begin with the same bits are a bucket of known size, and one
    bucket is sorted at a time: memory beyond the hashes and the answer does not grow with them.
    """
    repeats = np.zeros(len(hashes), dtype=np.bool_)
    bits = max(0, (len(hashes) // SORTED_AT_ONCE).bit_length())
    for bucket in range(1 << bits):
        places = _bucket(hashes, bucket, bits)
        repeats[places[_repeats(hashes[places])]] = True
    return repeats


def _bucket(hashes: Hashes, bucket: int, bits: int) -> npt.NDArray[np.int64]:
    """The places of the hashes whose first bits are the bucket's number."""
    if not bits:
        return np.arange(len(hashes))
    starts = range(0, len(hashes), SCANNED_AT_ONCE)
    return np.concatenate(
        [
            start + np.flatnonzero(hashes[start : start + SCANNED_AT_ONCE] >> np.uint64(64 - bits) == bucket)
            for start in starts
        ]
    )


def _repeats(hashes: Hashes) -> npt.NDArray[np.int64]:
    """The places of all but the first of equal hashes."""
    ordered = np.sort(hashes)
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(several):
        return np.zeros(0, dtype=np.int64)
    places = np.flatnonzero(several[np.minimum(np.searchsorted(several, hashes), len(several) - 1)] == hashes)
    _, first = np.unique(hashes[places], return_index=True)
    return np.delete(places, first)
