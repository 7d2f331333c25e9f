"""XLIFF 1.2 (<trans-unit>) and 2.x (<unit><segment>): a source, a target and a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path

from lxml import etree

from regard.config import Task
from regard.data.formats.document import UNKNOWN, Pair, TranslationUnit, check_language, nonempty
from regard.data.formats.markup import (
    Element,
    Flat,
    XmlDocument,
    attribute,
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

PAIRED = frozenset({"g", "mrk", "pc"})
UNTRANSLATED = ("new", "initial", "needs-translation")  # states in which a target is a copy of its source
SOURCE_LANGUAGE, TARGET_LANGUAGE = ("source-language", "srcLang"), ("target-language", "trgLang")


def read_xliff(path: Path, task: Task) -> Iterator[Pair]:
    """Translated segments whose state is final."""
    for unit in elements(path, "trans-unit", "segment"):
        check_languages(unit, path, task)
        source, target = child(unit, "source"), child(unit, "target")
        if source is None or target is None or not translatable(unit) or not finished(unit, target):
            continue
        for left, right in sides(parts(unit, source), source, target):
            numbers: dict[tuple[str, str], int] = {}
            texts = [flatten(each, PAIRED, numbers).text for each in (left, right)]
            yield from nonempty(iter([(unit.sourceline or 0, texts[0], texts[1])]))


def check_languages(unit: Element, path: Path, task: Task) -> None:
    check_language(path, "source", attribute(unit, *SOURCE_LANGUAGE), task.source)
    check_language(path, "target", attribute(unit, *TARGET_LANGUAGE), task.target)


def translatable(unit: Element) -> bool:
    return attribute(unit, "translate") != "no"


def finished(unit: Element, target: Element) -> bool:
    """True if a target needs no further work."""
    value = state(unit, target)
    return value not in UNTRANSLATED and not value.startswith("needs-")


def state(unit: Element, target: Element) -> str:
    """The state of a translation: an attribute of <target> in 1.2, of <segment> in 2.x."""
    return str((target if local(unit) == "trans-unit" else unit).get("state") or "")


def parts(unit: Element, source: Element) -> dict[str, Element]:
    """What is translated separately: the sentences of <seg-source>, or the source."""
    segmented = child(unit, "seg-source")
    return (sentences(segmented) if segmented is not None else {}) or {"": source}


def sides(segments: dict[str, Element], source: Element, target: Element) -> list[tuple[Element, Element]]:
    """Source and target, or their sentences if both are split into <mrk mtype="seg">."""
    right = sentences(target)
    return [(left, right[key]) for key, left in segments.items() if key in right] or [(source, target)]


def sentences(element: Element) -> dict[str, Element]:
    return {
        str(each.get("mid")): each
        for each in element.iter()
        if local(each) == "mrk" and each.get("mtype") == "seg"
    }


class XliffDocument(XmlDocument):
    reviewable = True

    def __init__(self, path: Path, task: Task) -> None:
        super().__init__(path, "xliff")
        root = self.tree.getroot()
        self.all = [
            each for each in root.iter() if local(each) in ("trans-unit", "segment") and translatable(each)
        ]
        self.entries, self.task = len(self.all), task
        for each in [each for each in root.iter() if local(each) in ("file", "xliff")]:
            check_languages(each, path, task)
        self.code(root)

    def code(self, root: Element) -> None:
        """Set the target language to the model's if the file has none."""
        if self.task.target == UNKNOWN.target:
            return
        modern = str(root.get("version") or "").startswith("2")
        for each in [root] if modern else [each for each in root if local(each) == "file"]:
            name = TARGET_LANGUAGE[modern]
            if not each.get(name):
                each.set(name, self.task.target)

    def units(self, everything: bool) -> list[TranslationUnit]:
        units: list[TranslationUnit] = []
        for unit in self.all:
            source, target = child(unit, "source"), child(unit, "target")
            if source is None:
                raise UsageError(f"{self.path}, line {unit.sourceline}: a <{local(unit)}> without <source>")
            filled = target is not None and (len(target) or (target.text or "").strip())
            if filled and target is not None and state(unit, target) not in UNTRANSLATED and not everything:
                continue
            flats = {part: flatten(element, PAIRED) for part, element in parts(unit, source).items()}
            if any(flat.text.strip() for flat in flats.values()):
                texts = tuple(flat.text for flat in flats.values())
                fill, leave = partial(self.fill, unit, flats), partial(self.leave, unit)
                fits = partial(nested, list(flats.values()))
                units.append(TranslationUnit(texts, PLAIN, fill, leave, fits))
        return units

    def fill(self, unit: Element, flats: dict[str, Flat], texts: Sequence[str], review: bool) -> None:
        target = self.target(unit)
        places = {"": target} if "" in flats else self.skeleton(unit, target)
        for (part, flat), text in zip(flats.items(), texts, strict=True):
            unflatten(places[part], text, flat)
        if local(unit) == "trans-unit":
            target.set("state", "needs-review-translation" if review else "translated")
        else:
            unit.set("state", "translated")
            if review:
                unit.set("subState", "regard:needs-review")

    def target(self, unit: Element) -> Element:
        """The unit's target; a new one is inserted after the source, as the format requires."""
        target = child(unit, "target")
        if target is None:
            source = child(unit, "seg-source")
            source = source if source is not None else child(unit, "source")
            target = etree.Element(etree.QName(etree.QName(unit).namespace, "target"))
            insert_after(source, target)
        return target

    def skeleton(self, unit: Element, target: Element) -> dict[str, Element]:
        """The sentences of the target, which is split in the same way as its source."""
        segmented = child(unit, "seg-source")
        if segmented is not None and set(sentences(target)) != set(sentences(segmented)):
            for inner in list(target):
                target.remove(inner)
            target.text = segmented.text
            for inner in segmented:
                target.append(deepcopy(inner))
        return sentences(target)

    def leave(self, unit: Element) -> None:
        """Mark a unit that could not be translated: "needs-translation" in 1.2, "initial" in 2.x."""
        if local(unit) == "trans-unit":
            self.target(unit).set("state", "needs-translation")
        else:
            unit.set("state", "initial")
