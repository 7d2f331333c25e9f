"""Translation memories (.tmx 1.4): units <tu> with a <tuv> for each language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from regard.config import Task
from regard.data.formats import UNKNOWN, Pair, TranslationUnit, nonempty, same_language
from regard.data.formats.markup import Flat, Node, XmlDocument, elements, flatten, nested
from regard.data.formats.placeholders import PLAIN
from regard.errors import UsageError

PAIRED = frozenset({"hi", "sub"})


def read_tmx(path: Path, task: Task) -> Iterator[Pair]:
    """The pairs of two languages. If there is none, the error lists the languages of the file."""
    has_pair, languages = False, set[str]()
    for unit in elements(path, "tu"):
        source, target = segment(unit, task.source), segment(unit, task.target)
        languages |= {language(each) for each in unit.children if each.name == "tuv"}
        if source is not None and target is not None and source is not target:
            has_pair = True
            numbers: dict[tuple[str, str], int] = {}
            left, right = (flatten(each, PAIRED, numbers).text for each in (source, target))
            yield from nonempty(iter([(unit.line, left, right)]))
    if not has_pair and languages:
        raise UsageError(
            f'{path}: has no pair of "{task.source}" and "{task.target}"; '
            f"its languages are {', '.join(sorted(languages))}: set task.source and task.target",
            code="E_DATA_LANGUAGE",
        )


def language(variant: Node) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang") or ""


def segment(unit: Node, wanted: str) -> Node | None:
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

    def units(self, everything: bool) -> list[TranslationUnit]:
        units = []
        for unit in self.all:
            source, target = segment(unit, self.task.source), segment(unit, self.task.target)
            if source is None or source is target:
                continue
            flat = flatten(source, PAIRED)
            if flat.text.strip() and (everything or target is None or not target.text.strip()):
                fill = partial(self.fill, unit, target, flat)
                units.append(TranslationUnit((flat.text,), PLAIN, fill, fits=partial(nested, [flat])))
        return units

    def fill(self, unit: Node, target: Node | None, flat: Flat, texts: Sequence[str], review: bool) -> None:
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
