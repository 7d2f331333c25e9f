"""The ids that whoever writes a text must know."""

from __future__ import annotations

from dataclasses import dataclass

from regard.inputs.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Special:
    """Where to start, where to end, and what is never an answer or always a part of it."""

    start: int
    end: int
    forbidden: tuple[int, ...] = ()
    runs: tuple[tuple[int, ...], ...] = ()  # pieces that never follow one another in this way
    not_first: tuple[int, ...] = ()  # pieces that no answer begins with
    first: int | None = None  # the piece that every answer begins with
    last: int | None = None  # the piece at the limit of the length
    longest: int | None = None  # of a language model, its prompt included; [decode] may say otherwise
    shortest: int = 0  # in the same way
    ends: tuple[int, ...] = ()  # further end tokens: a text stops at any of {end, *ends}


def special(target: Tokenizer) -> Special:
    return Special(start=target.start, end=target.end, forbidden=target.never_said)
