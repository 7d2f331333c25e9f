"""Lines into what a model can read at once, and back: spacing and blank lines survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from regard.inputs.text import cut_words, split_sentences

Split = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Segment:
    """A part of a line with the spacing around it; `text` is empty where there is nothing to translate."""

    before: str
    text: str
    after: str
    broken: bool = False  # one of the parts of a sentence that was too long


def segments(
    line: str, pieces: Callable[[str], int], split: Split, above: int, longest: int
) -> list[Segment]:
    """Cut a line at sentence ends if it is long (or always), and over-long sentences between words.

    `above` is what counts as long and `longest` what the model can read at all, both in pieces.
    """
    whole = segment(line, "")
    if not whole.text:
        return [whole]
    parts = [(line, "")]
    if split == "always" or (split == "auto" and pieces(whole.text) > above):
        parts = split_sentences(line)
    found = []
    for text, gap in parts:
        if pieces(text.strip()) > longest:
            found += [
                replace(segment(part, after), broken=True)
                for part, after in cut_words(text, lambda t: pieces(t.strip()) <= longest)
            ]
            found[-1] = replace(found[-1], after=found[-1].after + gap)
        else:
            found.append(segment(text, gap))
    return found


def segment(text: str, gap: str = "") -> Segment:
    """A text as one segment."""
    core = text.strip()
    if not core:
        return Segment("", "", text + gap)
    start = text.index(core)
    return Segment(text[:start], core, text[start + len(core) :] + gap)
