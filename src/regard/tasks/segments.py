"""Split lines into segments that a model can read; spacing and blank lines survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from regard.inputs.text import split_sentences, split_words

Split = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Segment:
    """A part of a line with the spacing around it; `text` is empty where there is nothing to translate."""

    before: str
    text: str
    after: str
    broken: bool = False  # a part of a sentence that was too long


def segments(
    line: str, count_tokens: Callable[[str], int], split: Split, above: int, longest: int
) -> list[Segment]:
    """Split a line at sentence ends if it is long (or always), and too long sentences between words.

    A line of more than `above` tokens is long; the model reads at most `longest` tokens.
    """
    whole = segment(line, "")
    if not whole.text:
        return [whole]
    parts = [(line, "")]
    if split == "always" or (split == "auto" and count_tokens(whole.text) > above):
        parts = split_sentences(line)
    result: list[Segment] = []
    for text, gap in parts:
        if count_tokens(text.strip()) > longest:
            result += [
                replace(segment(part, after), broken=True)
                for part, after in split_words(text, lambda t: count_tokens(t.strip()) <= longest)
            ]
            result[-1] = replace(result[-1], after=result[-1].after + gap)
        else:
            result.append(segment(text, gap))
    return result


def segment(text: str, gap: str = "") -> Segment:
    """A text as one segment."""
    core = text.strip()
    if not core:
        return Segment("", "", text + gap)
    start = text.index(core)
    return Segment(text[:start], core, text[start + len(core) :] + gap)
