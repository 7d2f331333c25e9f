"""The words of raw text with their positions, split as in corpora of tagged words (CoNLL).

- Letters, digits, "_" and their marks form words; white space separates them.
- An apostrophe or a hyphen between two of them stays inside (O'Brien, German-born, 2-1), and so does a full
  stop, comma or colon between digits (1,000.50, 10:30).
- English endings are separate words: John 's, they 're, do n't.
- Single letters with full stops are one word, the last full stop included (U.S., e.g.).
- A Chinese character is a word, as in the Chinese corpora.
- So is every other character, with the marks and joiners after it (an emoji of several parts); only "..."
  and "--" stay together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

Place = tuple[int, int]  # characters start .. end - 1 of a text

_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SAME = {"-": "-", "\u2010": "-", "\u2011": "-", "'": "'", "\u2019": "'", ".": ".", ",": ",", ":": ":"}
_SKIN = range(0x1F3FB, 0x1F400)  # skin colours of the emoji before them
_ENDING = re.compile(r"(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\Z", re.IGNORECASE)
# A pattern over the kinds of characters, see `kind`. Possessive repeats keep it linear.
_WORD = re.compile(
    r"(?<!\.)(?:w[mj]*+\.){2,}+(?![wd])"  # U.S.
    r"|[wd](?:[wdmj]|['-](?=[wd])|(?<=d)[.,:](?=d))*+"
    r"|c[mj]*+"
    r"|\.\.+|--+"
    r"|[s'.,:-][mj]*+(?:(?<=j)s[mj]*+)*+"
    r"|[mj]++"
)


@lru_cache(1 << 16)
def kind(character: str) -> str:
    """w letter, d digit, c Chinese, m mark, j joiner, white space, ' - . , : themselves, s any other."""
    if character.isspace():
        return " "
    if character in _SAME:
        return _SAME[character]
    if _HAN.match(character):
        return "c"
    category = unicodedata.category(character)
    if character == "\u200d":
        return "j"
    if category[0] == "M" or category == "Cf" or ord(character) in _SKIN:
        return "m"
    return "d" if category == "Nd" else "w" if category[0] in "LN" or category == "Pc" else "s"


def find_words(text: str) -> Iterator[Place]:
    """The positions of the words of a text, in order: all of it but white space."""
    for match in _WORD.finditer("".join(map(kind, text))):
        start, end = match.span()
        ending = _ENDING.search(text, start, end)
        if ending and ending.start() > start:
            yield start, ending.start()
            start = ending.start()
        yield start, end
