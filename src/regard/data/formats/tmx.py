"""Translation memories (.tmx 1.4): units <tu> with a <tuv> for each language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lxml import etree

from regard.config import Task
from regard.data.formats.document import UNKNOWN, Pair, TranslationUnit, nonempty, same_language
from regard.data.formats.markup import (
    LANGUAGE,
    Element,
    Flat,
    XmlDocument,
    child,
    elements,
    flatten,
    insert_after,
    local,
    nested,
    unflatten,
)
from regard.data.formats.placeholders import PLAIN
from regard.errors import UsageError

PAIRED = frozenset({"hi", "sub"})


def read_tmx(path: Path, task: Task) -> Iterator[Pair]:
    """The pairs of two languages. If there is none, the error lists the languages of the file."""
    has_pair, languages = False, set[str]()
    for unit in elements(path, "tu"):
        source, target = variant(unit, task.source), variant(unit, task.target)
        languages |= {language(each) for each in unit if local(each) == "tuv"}
        if source is not None and target is not None and source is not target:
            has_pair = True
            numbers: dict[tuple[str, str], int] = {}
            left, right = (flatten(segment(each), PAIRED, numbers).text for each in (source, target))
            yield from nonempty(iter([(unit.sourceline or 0, left, right)]))
    if not has_pair and languages:
        raise UsageError(
            f'{path}: has no pair of "{task.source}" and "{task.target}"; '
            f"its languages are {', '.join(sorted(languages))}: set task.source and task.target"
        )


def language(variant: Element) -> str:
    return str(variant.get(LANGUAGE) or variant.get("lang") or "")


def variant(unit: Element, wanted: str) -> Element | None:
    """The <tuv> of a language; an exact code is preferred to a matching one."""
    with_text = [each for each in unit if local(each) == "tuv" and child(each, "seg") is not None]
    exact = [each for each in with_text if language(each).casefold() == wanted.casefold()]
    matching = [each for each in with_text if same_language(language(each), wanted)]
    return next(iter(exact + matching), None)


def segment(variant: Element) -> Element:
    segment = child(variant, "seg")
    if segment is None:
        raise UsageError("a <tuv> without <seg>")  # `variant` never returns one
    return segment


class TmxDocument(XmlDocument):
    reviewable = False

    def __init__(self, path: Path, task: Task) -> None:
        super().__init__(path, "tmx")
        if (task.source, task.target) == (UNKNOWN.source, UNKNOWN.target):
            raise UsageError(
                f"{path}: the model names no languages; set task.source and target in its run.toml"
            )
        self.task = task
        self.all = [each for each in self.tree.getroot().iter() if local(each) == "tu"]
        self.entries = len(self.all)

    def units(self, everything: bool) -> list[TranslationUnit]:
        units = []
        for unit in self.all:
            source, target = variant(unit, self.task.source), variant(unit, self.task.target)
            if source is None or source is target:
                continue
            flat = flatten(segment(source), PAIRED)
            translated = target is not None and "".join(segment(target).itertext()).strip()
            if flat.text.strip() and (everything or not translated):
                fill = partial(self.fill, unit, target, flat)
                units.append(TranslationUnit((flat.text,), PLAIN, fill, fits=partial(nested, [flat])))
        return units

    def fill(
        self, unit: Element, target: Element | None, flat: Flat, texts: Sequence[str], review: bool
    ) -> None:
        if target is None:
            target = etree.Element(etree.QName(etree.QName(unit).namespace, "tuv"))
            target.set(LANGUAGE, self.code())
            etree.SubElement(target, etree.QName(etree.QName(unit).namespace, "seg"))
            insert_after([each for each in unit if local(each) == "tuv"][-1], target)
        target.set("creationtool", "Regard")
        unflatten(segment(target), texts[0], flat)

    def code(self) -> str:
        """The code of the target language, as elsewhere in this file."""
        codes = (language(each) for each in self.tree.getroot().iter() if local(each) == "tuv")
        return next(
            (code for code in codes if code and same_language(code, self.task.target)), self.task.target
        )
