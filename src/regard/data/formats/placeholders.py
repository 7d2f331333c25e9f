"""What a translation must preserve: %s, %(name)s, {0}, <b>, &amp;, ${home}, URLs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

TAG = r"<!--(?:(?!<!--|-->).)*+-->|</?[A-Za-z][^<>]*>|</?\d+/?>"
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]*|#\d+|#[xX][0-9A-Fa-f]+);"
BRACES = r"[%$#]?\{(?:[^{}]|\{[^{}]*\})*+\}"  # {name}, {{ name }}, ${name}, and ICU's {n, plural, one {..}}
CONVERSION = r"(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSpnr@]"
PRINTF = rf"%%|%(?:\([^()\s]*\))?(?:\d+\$)?[-+#0']*{CONVERSION}|%L?\d+"  # C, Python, PHP, Objective-C, Qt
SPACED = rf"%(?:\([^()]*\))?(?:\d+\$)?[-+#0' ]*{CONVERSION}"  # "% d" only if the entry is a format
VARIABLE = r"\$[A-Za-z_]\w*"
ADDRESS = r"\bhttps?://[^\s<>\"']*[\w/]"

PLAIN = re.compile("|".join((TAG, ADDRESS, ENTITY, BRACES, PRINTF, VARIABLE)), re.DOTALL)
PERCENT = re.compile("|".join((TAG, ADDRESS, ENTITY, "%%", SPACED, PRINTF, "%", BRACES, VARIABLE)), re.DOTALL)
BRACED = re.compile("|".join((TAG, ADDRESS, ENTITY, BRACES, PRINTF, VARIABLE, "[{}]")), re.DOTALL)
BRACE_FORMATS = {"python-brace-format", "csharp-format", "java-format", "java-printf-format", "rust-format"}

# The keyboard shortcut of a menu entry: &File, E&xit, _File. Not an entity, R&D or snake_case.
ACCELERATOR = re.compile(r"&(?=[^\W\d_])(?!\w+;)(?<![A-Z0-9]&(?=[A-Z]))|(?<![\w_])_(?=[^\W\d_])")


def of_flags(flags: Iterable[str]) -> re.Pattern[str]:
    """The placeholders of a gettext entry; a stray % (or brace) would break a format string."""
    formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
    if formats & BRACE_FORMATS:
        return BRACED
    return PERCENT if formats else PLAIN


def survived(source: str, target: str, placeholders: re.Pattern[str]) -> bool:
    """True if both have the same placeholders, equally often."""
    return Counter(placeholders.findall(source)) == Counter(placeholders.findall(target))


def has_words(text: str, placeholders: re.Pattern[str]) -> bool:
    """True if there are letters outside placeholders."""
    return any(character.isalpha() for character in placeholders.sub("", text))


class Accelerator(NamedTuple):
    sign: str  # & or _
    letter: str


def take_accelerator(text: str, placeholders: re.Pattern[str]) -> tuple[str, Accelerator | None]:
    """The text without the sign of its accelerator, and the accelerator."""
    places = [match.start() for match in ACCELERATOR.finditer(hide(text, placeholders))]
    if len(places) != 1 or "\n" in text:
        return text, None
    at = places[0]
    return text[:at] + text[at + 1 :], Accelerator(text[at], text[at + 1])


def put_accelerator(text: str, accelerator: Accelerator, placeholders: re.Pattern[str]) -> str:
    """Insert the sign before the same letter if the translation has it, else before its first letter.

    In scripts without capitals, "(&F)" follows the text, as is usual there.
    """
    hidden = hide(text, placeholders)
    letters = [at for at, character in enumerate(hidden) if character.isalpha()]
    if not letters:
        return text
    if hidden[letters[0]].upper() == hidden[letters[0]].lower():
        return f"{text}({accelerator.sign}{accelerator.letter.upper()})"
    at = best_place(hidden, letters, accelerator.letter)
    return text[:at] + accelerator.sign + text[at:]


def hide(text: str, placeholders: re.Pattern[str]) -> str:
    """The text with NUL characters in place of placeholders."""
    return placeholders.sub(lambda match: "\0" * len(match[0]), text)


def best_place(text: str, letters: Sequence[int], wanted: str) -> int:
    same = [at for at in letters if text[at].casefold() == wanted.casefold()]
    first_of_word = [at for at in same if at == 0 or not text[at - 1].isalnum()]
    return (first_of_word or same or letters)[0]
