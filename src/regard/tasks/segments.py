"""Lines into what a model can read at once, and back: spacing and blank lines survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from regard.text import cut_words, split_sentences

Split = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Segment:
    """A part of a line with the spacing around it; `text` is empty where there is nothing to translate."""

    before: str
    text: str
    after: str


def segments(
    line: str, pieces: Callable[[str], int], split: Split, above: int, longest: int
) -> list[Segment]:
    """Cut a line at sentence ends if it is long (or always), and over-long sentences between words.

    `above` is what counts as long and `longest` what the model can read at all, both in pieces.
    """
    whole = _segment(line, "")
    if not whole.text:
        return [whole]
    parts = [(line, "")]
    if split == "always" or (split == "auto" and pieces(whole.text) > above):
        parts = split_sentences(line)
    found = []
    for text, gap in parts:
        if pieces(text.strip()) > longest:
            found += [
                _segment(part, after)
                for part, after in cut_words(text, lambda t: pieces(t.strip()) <= longest)
            ]
            found[-1] = Segment(found[-1].before, found[-1].text, found[-1].after + gap)
        else:
            found.append(_segment(text, gap))
    return found


def _segment(text: str, gap: str) -> Segment:
    core = text.strip()
    if not core:
        return Segment("", "", text + gap)
    start = text.index(core)
    return Segment(text[:start], core, text[start + len(core) :] + gap)
