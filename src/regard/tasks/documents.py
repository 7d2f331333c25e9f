"""Fill in a translator's file; an entry without a valid translation stays untranslated."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.data.formats import (
    Document,
    TranslationUnit,
    has_words,
    put_accelerator,
    survived,
    take_accelerator,
)

Translate = Callable[[list[str]], Sequence[str | None]]  # None: the model cannot translate it
LAYOUT = re.compile(r"[\n\r\t]+")  # lines and columns of a text are translated one by one
LEADING_PUNCTUATION = re.compile(r"^\W+(?=\w)")
UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML or a line of a .po


@dataclass(frozen=True)
class FilledCounts:
    filled: int
    left: int  # placeholders were lost, or the model could not translate it
    kept: int  # translated before


@dataclass(frozen=True)
class UnitText:
    """One text of a unit, without the mark of its accelerator key."""

    unit: TranslationUnit
    number: int  # among the unit's sources
    source: str


def fill_document(document: Document, translate: Translate, everything: bool, review: bool) -> FilledCounts:
    """Translate what has no translation yet (or everything), all texts in one call."""
    units = document.units(everything)
    answers = iter(
        translate_texts(
            [UnitText(unit, number, source) for unit in units for number, source in enumerate(unit.sources)],
            translate,
        )
    )
    filled = 0
    for unit in units:
        filled_texts = [next(answers) for _ in unit.sources]
        texts = [text for text in filled_texts if text is not None]
        if len(texts) == len(filled_texts):
            unit.fill(texts, review)
            filled += 1
        else:
            unit.leave()
    return FilledCounts(filled, len(units) - filled, document.entries - len(units))


def translate_texts(texts: Sequence[UnitText], translate: Translate) -> list[str | None]:
    """Translate each text as a whole; if a placeholder is lost, the parts between placeholders; else None."""
    taken = [take_accelerator(text.source, text.unit.placeholders) for text in texts]
    bare = [UnitText(text.unit, text.number, source) for text, (source, _) in zip(texts, taken)]
    first = translate_parts(bare, [split(text.source, LAYOUT) for text in bare], translate)
    lost = [number for number, result in enumerate(first) if result is None]
    again = [bare[number] for number in lost]
    retried = dict(zip(lost, translate_parts(again, [split_placeholders(text) for text in again], translate)))
    best = [retried.get(number, result) for number, result in enumerate(first)]
    return [
        put_accelerator(result, sign, text.unit.placeholders)
        if result is not None and sign is not None
        else result
        for text, result, (_, sign) in zip(texts, best, taken)
    ]


def translate_parts(
    texts: Sequence[UnitText], pieces: Sequence[list[str]], translate: Translate
) -> list[str | None]:
    """Translate the parts that have words and join them; None for a result that is not valid."""
    wanted = list(
        dict.fromkeys(
            piece
            for text, parts in zip(texts, pieces)
            for piece in parts
            if has_words(piece, text.unit.placeholders)
        )
    )
    answers = translate(wanted) if wanted else []
    translated = {
        piece: answer if answer is None else UNWRITABLE.sub(" ", answer)
        for piece, answer in zip(wanted, answers, strict=True)
    }
    joined = [[translated.get(piece, piece) for piece in parts] for parts in pieces]
    return [
        answer if None not in parts and is_valid(text, answer) else None
        for text, parts, answer in zip(texts, joined, ("".join(filter(None, each)) for each in joined))
    ]


def is_valid(text: UnitText, answer: str) -> bool:
    """Whether a translation fits into the file: not empty, with every placeholder."""
    return (
        bool(answer.strip()) >= bool(text.source.strip())
        and survived(text.source, answer, text.unit.placeholders)
        and text.unit.fits(text.number, answer)
    )


def split_placeholders(text: UnitText) -> list[str]:
    """The parts between placeholders, and these; leading punctuation is not translated."""
    placeholders = text.unit.placeholders
    cut = re.compile(f"{LAYOUT.pattern}|{placeholders.pattern}", placeholders.flags)
    return [
        part
        for piece in split(text.source, cut)
        for part in (split(piece, LEADING_PUNCTUATION) if has_words(piece, placeholders) else [piece])
    ]


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The text, split before and after each separator."""
    parts, at = [], 0
    for match in separator.finditer(text):
        parts += [text[at : match.start()], match[0]]
        at = match.end()
    return [piece for piece in [*parts, text[at:]] if piece]
