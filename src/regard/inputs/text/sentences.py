"""Split text into sentences by rules, and over-long sentences at spaces; nothing is lost on the way."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from regard.resources import word_lists


def _words(name: str) -> frozenset[str]:
    return frozenset(word_lists()["sentences"][name].split())


_TITLES = _words("titles")
_BEFORE_NUMBERS = _words("before_numbers")
_ABBREVIATIONS = _words("abbreviations")
_MONTHS = _words("months")
_BEFORE_ORDINALS = _words("before_ordinals")
_OPENERS = _words("openers")
_WIDE = frozenset("。！？｡।॥؟۔።")
_CLOSING = "\"'”’“»›«‹)\\]}）】」』〉》"
# French sets a space before its closing guillemet. Possessive repeats keep the search linear.
_END = re.compile(
    rf"([.!?…‽{''.join(sorted(_WIDE))}]++)(?:[{_CLOSING}]|[ \xa0\u202f]»(?=\s|\Z))*+|[\n\r\x85\u2028\u2029]"
)
_LINES = frozenset("\n\r\x85\u2028\u2029")
_SPACE = re.compile(r"\s*")
_LEAD = re.compile(r"[\"'“„‘‚«»‹›(\[{¿¡—–\-*•（【「『〈《\s]{0,4}")
_NOT_FIRST = frozenset(",;:)]}%&/=+.!?…")
# Particles that carry on after a Japanese quotation.
_AFTER_QUOTATION = frozenset("とっのはがをに、，")
_LETTER = r"[^\W\d_]"
_DOTTED = re.compile(rf"(?:{_LETTER}{{1,2}}\.)+{_LETTER}{{1,2}}")
_SPACED = re.compile(rf"(?<!\w){_LETTER}\.\s(?:{_LETTER}|ex)\Z")
_WORDS_BEFORE = re.compile(r"(?:(\w+)\s+)?[\"'“„‘‚«»‹›(\[{]*([^\s\"'“„‘‚«»‹›(\[{]*)\Z")
_NEXT_WORD = re.compile(rf"{_LETTER}{{0,24}}")
_NEAR = 32  # how far back a rule looks, so that a long word costs no time


def split_sentences(text: str) -> list[tuple[str, str]]:
    """Pairs of a sentence and the whitespace after it; joined, they are the text again.

    Whitespace at the start comes as a first pair with an empty sentence.
    """
    start = _skip_space(text, 0)
    pairs = [("", text[:start])] if start else []
    for end, following in _boundaries(text, start):
        pairs.append((text[start:end], text[end:following]))
        start = following
    if start < len(text):
        body = text[start:].rstrip()
        pairs.append((body, text[start + len(body) :]))
    return pairs


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _boundaries(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where each sentence ends and the next one starts, the end of the text left out."""
    position = start
    while match := _END.search(text, position):
        end = position = match.end()
        following = _skip_space(text, end)
        if following == len(text):
            return
        if match[1] is None:
            end = match.start()
            while text[end - 1].isspace():
                end -= 1
        elif not _ends_sentence(text, start, match, following):
            continue
        yield end, following
        start = position = following


def _ends_sentence(text: str, start: int, match: re.Match[str], following: int) -> bool:
    """Whether the marks in `match` close the sentence that begins at `start`."""
    marks, end = match[1], match.end()
    if not _WIDE.isdisjoint(marks):
        return end == match.end(1) or text[end] not in _AFTER_QUOTATION
    if following == end:
        return False
    if not _LINES.isdisjoint(text[end:following]):
        return True
    lead = _LEAD.match(text, following)
    opening = lead.end() if lead else following
    first = text[opening : opening + 1]
    if first.islower() or first in _NOT_FIRST:
        # The sentence goes on: '"Oh!" said he', "etc. and so on".
        return False
    return marks != "." or not _is_short(text, start, match.start(), opening)


def _is_short(text: str, start: int, stop: int, opening: int) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, an initial or an ordinal."""
    before = text[max(start, stop - _NEAR) : stop]
    match = _WORDS_BEFORE.search(before)
    previous, word = (match[1] or "", match[2]) if match else ("", "")
    following = _NEXT_WORD.match(text, opening)
    next_word = following[0].lower() if following else ""
    opens = next_word in _OPENERS
    lower = word.lower()
    if word.isdigit():
        marker = len(before) == len(word) and stop - len(word) == start
        ordinal = next_word in _MONTHS or (previous.lower() in _BEFORE_ORDINALS and not opens)
        return len(word) <= 2 and (marker or ordinal)
    if _SPACED.search(before):  # "z. B.", "p. ex."
        return True
    if len(word) == 1 and word.isalpha():
        return word == "M" or not opens
    if word in _TITLES or lower in _ABBREVIATIONS:
        return word not in ("Jr", "Sr") or not opens
    if lower in _BEFORE_NUMBERS:
        return text[opening : opening + 1].isdigit()
    return bool(_DOTTED.fullmatch(word)) and not opens


def split_words(text: str, fits: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Cut at whitespace into the fewest parts that fit: pairs of a part and the whitespace after it.

    A word that does not fit alone is cut between characters; a character that does not fit stays whole.
    A part of something that fits must fit as well.
    """
    start = _skip_space(text, 0)
    pairs = [("", text[:start])] if start else []
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    while start < len(text):
        end = _farthest(text, start, ends, fits)
        following = _skip_space(text, end)
        pairs.append((text[start:end], text[end:following]))
        start = following
    return pairs


def _farthest(text: str, start: int, ends: list[int], fits: Callable[[str], bool]) -> int:
    """Where the longest part that begins at `start` and fits ends."""
    first = bisect_right(ends, start)
    words = _most(len(ends) - first, lambda count: fits(text[start : ends[first + count - 1]]))
    if words:
        return ends[first + words - 1]
    return start + max(1, _most(ends[first] - start, lambda count: fits(text[start : start + count])))


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `limit` that holds, by doubling and then halving; 0 when none does."""
    high = 1
    while high <= limit and holds(high):
        high *= 2
    counts = range(high // 2 + 1, min(limit + 1, high))
    return high // 2 + bisect_left(counts, True, key=lambda count: not holds(count))
