"""SubRip subtitles (.srt): each is translated and wrapped to its number of lines; times do not change."""

from __future__ import annotations

import codecs
import re
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import srt

from regard.config import Task
from regard.data.files import read_bytes
from regard.data.formats import PLAIN, TranslationUnit, decode, encode
from regard.errors import UsageError

MARKS = re.compile(rf"{PLAIN.pattern}|\{{\\[^}}]*\}}", re.DOTALL)  # and {\an8}, a position
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class SrtDocument:
    reviewable = False

    def __init__(self, path: Path, task: Task) -> None:
        raw = read_bytes(path)
        self.path = path
        self.encoding = next((name for bom, name in BYTE_ORDER_MARKS.items() if raw.startswith(bom)), "utf-8")
        text = decode(raw, self.encoding, path)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        try:
            self.all = list(srt.parse(text.replace("\r\n", "\n")))
        except (srt.SRTParseError, ValueError, OverflowError) as error:
            offset = re.search(r"char (\d+)", str(error))
            line = f", line {text.count(chr(10), 0, int(offset[1])) + 1}" if offset else ""
            raise UsageError(
                f"{path}{line}: not a subtitle: a number, a line of times, then text", code="E_DATA_FORMAT"
            ) from None
        if not self.all and text.strip():
            raise UsageError(
                f"{path}: has no subtitle: a number, a line of times, then text", code="E_DATA_FORMAT"
            )
        self.entries = len(self.all)

    @staticmethod
    def read(path: Path, task: Task) -> NoReturn:
        message = f"{path}: subtitles have one language; to train on two of them make a .tsv"
        raise UsageError(message, code="E_DATA_TYPE")

    def units(self, everything: bool) -> list[TranslationUnit]:
        """Every subtitle: a file has one language, so none is translated yet."""
        return [
            TranslationUnit((joined(subtitle.content),), MARKS, partial(self.fill, number))
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
    """The lines of a sentence as one line; the dashed lines of a dialogue stay separate."""
    lines = [line.strip() for line in content.strip().split("\n")]
    return (
        "\n".join(lines) if any(re.match(r"(<[^>]*>)*[-–—]", line) for line in lines[1:]) else " ".join(lines)
    )


def wrap(text: str, lines: int) -> str:
    """Wrap to at most `lines` lines, with the longest as short as possible and no break inside a tag."""
    text = MARKS.sub(lambda match: match[0].replace(" ", "\0"), text)
    width = max(1, len(text) // max(1, lines))
    while True:
        wrapped = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        if len(wrapped) <= lines or width > len(text):
            return "\n".join(wrapped).replace("\0", " ")
        width += 1
