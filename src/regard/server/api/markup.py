"""Splits HTML into markup, kept byte for byte, and texts to translate."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate

SILENT = frozenset({"script", "style", "code", "kbd", "samp", "var", "textarea", "template", "noscript"})
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class MarkupPart:
    raw: str
    text: str | None = None  # to translate; None for markup

    def written(self, translation: str | None) -> str:
        """The part with its translation and its original surrounding space."""
        if self.text is None or translation is None:
            return self.raw
        before = self.raw[: len(self.raw) - len(self.raw.lstrip())]
        after = self.raw[len(self.raw.rstrip()) :]
        return f"{before}{html.escape(translation, quote=False)}{after}"


class MarkupReader(HTMLParser):
    """Records the offset of each parser event; an event spans up to the next one."""

    def __init__(self, raw: str) -> None:
        super().__init__(convert_charrefs=False)
        self.lines = [0, *accumulate(len(line) + 1 for line in raw.split("\n"))]
        self.begins: list[tuple[int, bool]] = []  # (offset, whether it is text)
        self.silent: list[str] = []  # open elements within an untranslated one
        self.feed(raw)
        self.close()

    def note(self, text: bool) -> None:
        line, column = self.getpos()
        self.begins.append((self.lines[line - 1] + column, text and not self.silent))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(False)
        kept = tag in SILENT or dict(attrs).get("translate") == "no"
        if tag not in VOID and (self.silent or kept):
            self.silent.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(False)

    def handle_endtag(self, tag: str) -> None:
        self.note(False)
        if tag in self.silent:
            while self.silent.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.note(True)

    def handle_entityref(self, name: str) -> None:
        self.note(True)

    def handle_charref(self, name: str) -> None:
        self.note(True)

    def handle_comment(self, data: str) -> None:
        self.note(False)

    def handle_decl(self, decl: str) -> None:
        self.note(False)

    def handle_pi(self, data: str) -> None:
        self.note(False)

    def unknown_decl(self, data: str) -> None:
        self.note(False)


def parts_of(raw: str) -> list[MarkupPart]:
    """The parts of a document in order; adjacent texts are merged."""
    begins = MarkupReader(raw).begins or [(0, False)]
    merged = [(0, begins[0][1])]
    for place, text in begins[1:]:
        if not (text and merged[-1][1]) and place > merged[-1][0]:
            merged.append((place, text))
        elif place == merged[-1][0]:
            merged[-1] = (place, text)
    ends = [place for place, _ in merged[1:]] + [len(raw)]
    return [part_of(raw[place:end], text) for (place, text), end in zip(merged, ends)]


def part_of(raw: str, text: bool) -> MarkupPart:
    """White space within a text is one space in HTML."""
    inside = _SPACE.sub(" ", html.unescape(raw)).strip() if text else ""
    return MarkupPart(raw, inside or None)
