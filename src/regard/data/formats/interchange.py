"""Files that translators exchange: memories (.tmx 1.4) and XLIFF 1.2 and 2.x."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from regard.config import Task
from regard.data.formats import PLAIN, UNKNOWN, Pair, TranslationUnit, check_language, same_language
from regard.data.formats.markup import Flat, XmlDocument, XmlElement, elements, flat_texts, flatten, nested
from regard.errors import UsageError

# --- .tmx: units <tu> with a <tuv> for each language

PAIRED_TMX = frozenset({"hi", "sub"})


def language(variant: XmlElement) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang") or ""


def segment(unit: XmlElement, wanted: str) -> XmlElement | None:
    """The <seg> of a language; an exact code is preferred to a matching one."""
    variants = [each for each in unit.children if each.name == "tuv" and each.child("seg") is not None]
    exact = [each for each in variants if language(each).casefold() == wanted.casefold()]
    matching = [each for each in variants if same_language(language(each), wanted)]
    return next((each.child("seg") for each in exact + matching), None)


class TmxDocument(XmlDocument):
    reviewable = False

    def __init__(self, path: Path, task: Task) -> None:
        super().__init__(path, "tmx")
        if (task.source, task.target) == (UNKNOWN.source, UNKNOWN.target):
            raise UsageError(
                f"{path}: the model names no languages; set task.source and target in its run.toml",
                code="E_DATA_LANGUAGE",
            )
        self.task = task
        self.all = list(self.root.find("tu"))
        self.entries = len(self.all)

    @staticmethod
    def read(path: Path, task: Task) -> Iterator[Pair]:
        """The pairs of two languages. If there is none, the error lists the languages of the file."""
        has_pair, languages = False, set[str]()
        for unit in elements(path, "tu"):
            source, target = segment(unit, task.source), segment(unit, task.target)
            languages |= {language(each) for each in unit.children if each.name == "tuv"}
            if source is not None and target is not None and source is not target:
                has_pair = True
                yield unit.line, *flat_texts(source, target, PAIRED_TMX)
        if not has_pair and languages:
            raise UsageError(
                f'{path}: has no pair of "{task.source}" and "{task.target}"; '
                f"its languages are {', '.join(sorted(languages))}: set task.source and task.target",
                code="E_DATA_LANGUAGE",
            )

    def units(self, everything: bool) -> list[TranslationUnit]:
        units = []
        for unit in self.all:
            source, target = segment(unit, self.task.source), segment(unit, self.task.target)
            if source is None or source is target:
                continue
            flat = flatten(source, PAIRED_TMX)
            if flat.text.strip() and (everything or target is None or not target.text.strip()):
                fill = partial(self.fill, unit, target, flat)
                units.append(TranslationUnit((flat.text,), PLAIN, fill, fits=partial(nested, [flat])))
        return units

    def fill(
        self, unit: XmlElement, target: XmlElement | None, flat: Flat, texts: Sequence[str], review: bool
    ) -> None:
        content = self.unflatten(texts[0], flat)
        if target is not None and target.parent is not None:
            self.set_attributes(target.parent, {"creationtool": "Regard"})
            self.replace(target, content, {})
            return
        variants = [each for each in unit.children if each.name == "tuv"]
        prefix = unit.tag.removesuffix("tu")
        tag = f'<{prefix}tuv xml:lang="{self.code()}" creationtool="Regard">'
        self.insert_after(variants[-1], f"{tag}<{prefix}seg>{content}</{prefix}seg></{prefix}tuv>")

    def code(self) -> str:
        """The code of the target language, as elsewhere in this file."""
        codes = (language(each) for each in self.root.find("tuv"))
        return next(
            (code for code in codes if code and same_language(code, self.task.target)), self.task.target
        )


# --- XLIFF 1.2 (<trans-unit>) and 2.x (<unit><segment>): a source, a target and a state

PAIRED_XLIFF = frozenset({"g", "mrk", "pc"})
UNTRANSLATED = ("new", "initial", "needs-translation")  # states in which a target is a copy of its source
SOURCE_LANGUAGE, TARGET_LANGUAGE = ("source-language", "srcLang"), ("target-language", "trgLang")


def check_languages(unit: XmlElement, path: Path, task: Task) -> None:
    check_language(path, "source", unit.attribute(*SOURCE_LANGUAGE), task.source)
    check_language(path, "target", unit.attribute(*TARGET_LANGUAGE), task.target)


def translatable(unit: XmlElement) -> bool:
    return unit.attribute("translate") != "no"


def state(unit: XmlElement, target: XmlElement) -> str:
    """The state of a translation: an attribute of <target> in 1.2, of <segment> in 2.x."""
    return (target if unit.name == "trans-unit" else unit).attributes.get("state", "")


def source_parts(unit: XmlElement, source: XmlElement) -> dict[str, XmlElement]:
    """What is translated separately: the sentences of <seg-source>, or the source."""
    segmented = unit.child("seg-source")
    return (sentences(segmented) if segmented is not None else {}) or {"": source}


def sentences(element: XmlElement) -> dict[str, XmlElement]:
    """The <mrk mtype="seg"> of an element."""
    marks = (each for each in element.find("mrk") if each.attributes.get("mtype") == "seg")
    return {each.attributes.get("mid", "None"): each for each in marks}


class XliffDocument(XmlDocument):
    reviewable = True

    def __init__(self, path: Path, task: Task) -> None:
        super().__init__(path, "xliff")
        self.all = [each for each in self.root.find("trans-unit", "segment") if translatable(each)]
        self.entries = len(self.all)
        files = list(self.root.find("file"))
        for each in (self.root, *files):
            check_languages(each, path, task)
        modern = self.root.attributes.get("version", "").startswith("2")
        for each in [self.root] if modern else files:
            name = TARGET_LANGUAGE[modern]
            if not each.attributes.get(name) and task.target != UNKNOWN.target:
                self.set_attributes(each, {name: task.target})

    @staticmethod
    def read(path: Path, task: Task) -> Iterator[Pair]:
        """Translated segments whose state is final."""
        for unit in elements(path, "trans-unit", "segment"):
            check_languages(unit, path, task)
            source, target = unit.child("source"), unit.child("target")
            if source is None or target is None or not translatable(unit):
                continue
            if state(unit, target) in UNTRANSLATED or state(unit, target).startswith("needs-"):
                continue
            translations, parts = sentences(target), source_parts(unit, source)
            sides = [(left, translations[key]) for key, left in parts.items() if key in translations]
            for left, right in sides or [(source, target)]:
                yield unit.line, *flat_texts(left, right, PAIRED_XLIFF)

    def units(self, everything: bool) -> list[TranslationUnit]:
        units: list[TranslationUnit] = []
        for unit in self.all:
            source, target = unit.child("source"), unit.child("target")
            if source is None:
                raise UsageError(
                    f"{self.path}, line {unit.line}: a <{unit.name}> without <source>", code="E_DATA_FORMAT"
                )
            filled = target is not None and (target.children or target.text.strip())
            if filled and target is not None and state(unit, target) not in UNTRANSLATED and not everything:
                continue
            flats = {
                part: flatten(element, PAIRED_XLIFF) for part, element in source_parts(unit, source).items()
            }
            if any(flat.text.strip() for flat in flats.values()):
                texts = tuple(flat.text for flat in flats.values())
                fill, leave = partial(self.fill, unit, flats), partial(self.leave, unit)
                fits = partial(nested, list(flats.values()))
                units.append(TranslationUnit(texts, PLAIN, fill, leave, fits))
        return units

    def fill(self, unit: XmlElement, flats: dict[str, Flat], texts: Sequence[str], review: bool) -> None:
        parts = {key: self.unflatten(text, flats[key]) for key, text in zip(flats, texts, strict=True)}
        if unit.name == "trans-unit":
            states = {"state": "needs-review-translation" if review else "translated"}
            self.set_target(unit, parts, states)
            return
        review_state = {"subState": "regard:needs-review"} if review else {}
        self.set_attributes(unit, {"state": "translated", **review_state})
        self.set_target(unit, parts, {})

    def set_target(self, unit: XmlElement, parts: Mapping[str, str], states: Mapping[str, str]) -> None:
        """Replace the target; a new one is inserted after the source, as the format requires."""
        source, target = unit.child("seg-source") or unit.child("source"), unit.child("target")
        content = parts[""] if "" in parts else self.sentences_of(source, target, parts)
        if target is not None:
            self.replace(target, content, states)
        elif source is not None:
            tag = source.tag.removesuffix(source.name) + "target"
            attributes = "".join(f' {name}="{value}"' for name, value in states.items())
            self.insert_after(source, f"<{tag}{attributes}>{content}</{tag}>")

    def sentences_of(
        self, source: XmlElement | None, target: XmlElement | None, parts: Mapping[str, str]
    ) -> str:
        """The target with other sentences; it is split in the same way as its source."""
        base = target if target is not None and set(sentences(target)) == set(parts) else source
        if base is None:
            return ""
        pieces, (_, place, close, _) = [], self.span(base)
        for key, each in sentences(base).items():
            start, _, _, end = self.span(each)
            pieces += [self.raw[place:start].decode(), self.element(each, parts[key], {})]
            place = end
        return "".join([*pieces, self.raw[place:close].decode()])

    def leave(self, unit: XmlElement) -> None:
        """Mark a unit that could not be translated: "needs-translation" in 1.2, "initial" in 2.x."""
        target = unit.child("target")
        if unit.name != "trans-unit":
            self.set_attributes(unit, {"state": "initial"})
        elif target is not None:
            self.set_attributes(target, {"state": "needs-translation"})
        else:
            self.set_target(unit, {"": ""}, {"state": "needs-translation"})
