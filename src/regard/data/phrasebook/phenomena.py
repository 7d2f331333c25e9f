"""The phenomena a sentence can show, as bits of one integer while it is being realised."""

from functools import cache
from typing import Final

PHENOMENA: Final[tuple[str, ...]] = (
    "gender",
    "case",
    "number",
    "verb-second",
    "verb-final",
    "separable-verb",
    "perfect",
    "modal",
    "question",
    "negation",
    "relative-clause",
    "subordinate-clause",
    "numeral",
    "clock",
)

GENDER: Final = 1 << 0
CASE: Final = 1 << 1
NUMBER: Final = 1 << 2
VERB_SECOND: Final = 1 << 3
VERB_FINAL: Final = 1 << 4
SEPARABLE_VERB: Final = 1 << 5
PERFECT: Final = 1 << 6
MODAL: Final = 1 << 7
QUESTION: Final = 1 << 8
NEGATION: Final = 1 << 9
RELATIVE_CLAUSE: Final = 1 << 10
SUBORDINATE_CLAUSE: Final = 1 << 11
NUMERAL: Final = 1 << 12
CLOCK: Final = 1 << 13


@cache
def names(bits: int) -> frozenset[str]:
    return frozenset(name for position, name in enumerate(PHENOMENA) if bits >> position & 1)
