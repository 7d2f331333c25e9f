"""SubRip subtitles (.srt): numbers and times stay, each subtitle is translated and wrapped as it was."""

from __future__ import annotations

import codecs
import re
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import srt

from regard.data.formats.document import Unit, decode, encode, read_bytes
from regard.data.formats.placeholders import PLAIN
from regard.errors import UsageError

MARKS = re.compile(rf"{PLAIN.pattern}|\{{\\[^}}]*\}}", re.DOTALL)  # and {\an8}, which players understand
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Subtitles:
    reviewable = False

    def __init__(self, path: Path) -> None:
        raw = read_bytes(path)
        self.path = path
        self.encoding = next((name for bom, name in BYTE_ORDER_MARKS.items() if raw.startswith(bom)), "utf-8")
        text = decode(raw, self.encoding, path)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        try:
            self.all = list(srt.parse(text.replace("\r\n", "\n")))
        except (srt.SRTParseError, ValueError, OverflowError) as error:
            found = re.search(r"char (\d+)", str(error))
            line = f", line {text.count(chr(10), 0, int(found[1])) + 1}" if found else ""
            raise UsageError(f"{path}{line}: not a subtitle: a number, a line of times, then text") from None
        if not self.all and text.strip():
            raise UsageError(f"{path}: holds no subtitle: a number, a line of times, then text")
        self.entries = len(self.all)

    def units(self, everything: bool) -> list[Unit]:
        """Every subtitle: a file of subtitles has one language, so none is translated yet."""
        return [
            Unit((joined(subtitle.content),), MARKS, partial(self.fill, number))
            for number, subtitle in enumerate(self.all)
            if subtitle.content.strip()
        ]

    def fill(self, number: int, texts: Sequence[str], review: bool) -> None:
        subtitle = self.all[number]
        lines = len(subtitle.content.strip().split("\n"))
        subtitle.content = texts[0] if "\n" in texts[0] else wrap(texts[0], lines)

    def content(self) -> bytes:
        text = srt.compose(self.all, reindex=False, strict=False)
        return encode(text.replace("\n", self.newline), self.encoding, self.path)


def joined(content: str) -> str:
    """The lines of one sentence as one; where two people speak, each with a dash, they stay apart."""
    lines = [line.strip() for line in content.strip().split("\n")]
    return (
        "\n".join(lines) if any(re.match(r"(<[^>]*>)*[-–—]", line) for line in lines[1:]) else " ".join(lines)
    )


def wrap(text: str, lines: int) -> str:
    """The text in at most so many lines, the longest as short as can be; no line ends inside a tag."""
    text = MARKS.sub(lambda match: match[0].replace(" ", "\0"), text)
    width = max(1, len(text) // max(1, lines))
    while True:
        found = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        if len(found) <= lines or width > len(text):
            return "\n".join(found).replace("\0", " ")
        width += 1
