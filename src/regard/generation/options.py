"""What is asked of a decoding run, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import Decode
from regard.inputs.text import Special

NEVER = float("-inf")  # the log-probability of what may not be said, the score of what may not be seen
EXTRA_LENGTH = 50  # the paper's limit: source length + 50


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without start and end
    log_probability: float  # of the tokens and the end, without a forced prefix
    score: float  # what ranks: log_probability / length penalty
    token_log_probabilities: tuple[float, ...]  # one for each token, and one for the end if it came
    finished: bool  # False where the length limit cut it off


def longest_output(
    options: Decode, source_length: int, prefix: int, readable: int | None, whole: int | None = None
) -> int:
    """Pieces at most for one source, its prefix included; it must not depend on the source's neighbours.

    `readable` is what the decoder can read: the start and all pieces but the last. `whole` is the length of a
    prompt and what follows it, where nothing else is wished.
    """
    usual = source_length + EXTRA_LENGTH if whole is None else max(1, whole - source_length)
    wanted = prefix + (options.max_length or usual)
    return wanted if readable is None else min(wanted, max(readable, prefix + 1))


def length_penalty(options: Decode, length: int) -> float:
    """length^alpha, or ((5 + length) / 6)^alpha  (Wu et al. 2016, equation 14)."""
    base = (5 + length) / 6 if options.penalty_form == "wu" else max(length, 1)
    return float(base**options.length_penalty)


def forced(special: Special, prefix: Sequence[int], at: int, limit: int) -> int | None:
    """The only piece that may stand at a place: of the prefix, or what every answer begins or ends with."""
    if at < len(prefix):
        return prefix[at]
    if at == 0 and special.first is not None:
        return special.first
    return special.last if at == limit - 1 else None
