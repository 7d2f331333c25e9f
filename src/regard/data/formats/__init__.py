"""Files of translation tools: .po, .tmx and .xliff to train on, these and .srt to translate.

A format is a class with `units` to translate and `content` to write; its `read` iterates over pairs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from regard.config import Task
from regard.data.files import format_suffix
from regard.errors import UsageError, extra
from regard.inputs.text.spans import ADDRESS, BRACES, CONVERSION, ENTITY, PRINTF, TAG, VARIABLE

CLASSES = {  # by suffix: the module, and the class in it
    ".po": ("po", "PoDocument"),
    ".pot": ("po", "PoDocument"),
    ".tmx": ("interchange", "TmxDocument"),
    ".xliff": ("interchange", "XliffDocument"),
    ".xlf": ("interchange", "XliffDocument"),
    ".srt": ("subtitles", "SrtDocument"),
}
SUFFIXES = tuple(CLASSES)
FORMATS: tuple[str, ...] = SUFFIXES + tuple(f"{suffix}.gz" for suffix in SUFFIXES)
Pair = tuple[int, str, str]  # line in the file, source, target
UNKNOWN = Task()  # the default names, if the config does not set languages


@dataclass(frozen=True)
class TranslationUnit:
    """Something to translate as a whole: one text, or the forms of a plural.

    `fill` takes a translation for each source and whether a person should review it; `leave` marks a unit
    that could not be translated. `fits(number, text)` is true if the text can be the translation of that
    source (its tags are well nested).
    """

    sources: tuple[str, ...]
    placeholders: re.Pattern[str]  # what a translation must preserve
    fill: Callable[[Sequence[str], bool], None]
    leave: Callable[[], None] = lambda: None
    fits: Callable[[int, str], bool] = lambda number, text: True


class Document(Protocol):
    """A file that preserves its layout; units that are not filled do not change."""

    entries: int  # units in all, translated or not
    reviewable: bool  # whether the format can mark a translation for review

    def units(self, everything: bool) -> list[TranslationUnit]: ...

    def content(self) -> bytes: ...


def decode(raw: bytes, encoding: str, path: Path) -> str:
    """Decode bytes without changing newlines."""
    try:
        return raw.decode(encoding)
    except LookupError:
        message = f'{path}: its header names the unknown charset "{encoding}"'
        raise UsageError(message, code="E_DATA_ENCODING") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not {encoding}; "
            "convert the file (for example with iconv)",
            code="E_DATA_ENCODING",
        ) from None


def encode(text: str, encoding: str, path: Path) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise UsageError(
            f'{path}: its charset {encoding} has no "{text[error.start]}"; convert it to UTF-8 first '
            "(a .po with msgconv -t UTF-8)",
            code="E_DATA_ENCODING",
        ) from None


@lru_cache(maxsize=1024)
def same_language(one: str, other: str) -> bool:
    """True if one code equals the other or its beginning: "en" and "en-US", but not "en-GB" and "en-US"."""
    left, right = (re.split(r"[-_@.]", code.casefold()) for code in (one, other))
    length = min(len(left), len(right))
    return left[:length] == right[:length]


def check_language(path: Path, role: str, language: str | None, expected: str) -> None:
    """Refuse a file of another language, if both the file and the model name theirs."""
    unknown = getattr(UNKNOWN, role)
    if language and expected != unknown and not same_language(language, expected):
        message = f'{path}: its {role} language is "{language}", not "{expected}"'
        raise UsageError(message, code="E_DATA_LANGUAGE")


@extra("documents")
def document_class(path: Path, suffix: str = "") -> Any:
    """The class of a format; its module is imported when a file has this format."""
    suffix = suffix or format_suffix(path)
    if suffix not in CLASSES:
        raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}", code="E_DATA_TYPE")
    module, name = CLASSES[suffix]
    return getattr(import_module(f"regard.data.formats.{module}"), name)


def read_pairs(path: Path, task: Task, suffix: str = "") -> Iterator[Pair]:
    """(line, source, target) of every translated entry that is not marked fuzzy.

    The source of a .po entry is its msgid; .tmx and .xliff name their languages, and "en" matches "en-US".
    """
    pairs = document_class(path, suffix).read(path, task)
    return (pair for pair in pairs if pair[1].strip() and pair[2].strip())


def open_document(path: Path, task: Task) -> Document:
    """Open a file to translate with a model of these languages."""
    document: Document = document_class(path)(path, task)
    return document


# --- what a translation must preserve; in running text: `regard.inputs.text.spans`

SPACED = rf"%(?:\([^()]*\))?(?:\d+\$)?[-+#0' ]*{CONVERSION}"  # "% d" only if the entry is a format
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
