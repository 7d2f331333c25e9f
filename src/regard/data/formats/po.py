"""gettext catalogues (.po, .pot), parsed by polib. Only the lines of filled entries are rewritten.

polib's writer would wrap every string again; here an entry that is not filled keeps its bytes.
"""

from __future__ import annotations

import gettext
import io
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import polib

from regard.config import Task
from regard.data.files import read_bytes
from regard.data.formats import Pair, TranslationUnit, check_language, decode, encode, of_flags, survived
from regard.errors import UsageError
from regard.resources import read_data

NOTE = "# Machine translated by Regard."
WRAPPED = re.compile(r".{1,74}(?:\s|$)|\S+\s?")  # a line ends with its space, as in gettext
PLURAL = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;\n]+)")
OFTEN = 5  # a form for more numbers than this must contain the number (msgfmt -c)
NUMBERS = 1001  # a plural formula is evaluated for 0, 1, ... 1000
MAX_FORMS = 20  # of a plural; languages have at most six


def plural_rules() -> dict[str, str]:
    """Plural-Forms by language, for templates, which have none."""
    rules = read_data("plurals")["rule"]
    return {code: rule["forms"] for rule in rules for code in rule["languages"].split()}


class PoDocument:
    """A parsed .po file and its lines: blocks[0] precedes the first entry, then one block for each entry."""

    reviewable = True

    def __init__(self, path: Path, task: Task) -> None:
        self.path = path
        raw = read_bytes(path)
        header = re.search(rb"charset=([\w:.-]+)", raw[:10_000])
        charset = header[1].decode("ascii") if header else "CHARSET"
        self.encoding = "utf-8" if charset == "CHARSET" else charset  # CHARSET: the default of templates
        text = decode(raw, self.encoding, path)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        parsed = parse(text, path)
        self.all = sorted(parsed, key=lambda entry: int(entry.linenum))
        self.entries = sum(not entry.obsolete for entry in self.all)
        lines = list(io.StringIO(text, newline=""))  # with their ends
        edges = [0, *(max(entry.linenum, 1) - 1 for entry in self.all), len(lines)]
        self.blocks = [lines[left:right] for left, right in pairwise(edges)]
        self.plural_forms = parsed.metadata.get("Plural-Forms", "")
        check_language(path, "target", parsed.metadata.get("Language"), task.target)
        self.complete_header(task.target)

    def complete_header(self, target: str) -> None:
        """Fill in the fields of a template's header."""
        code = target.casefold().replace("-", "_")
        rules = plural_rules()
        plural = rules.get(code) or rules.get(code.split("_")[0])
        header = "".join(self.blocks[0]).replace("charset=CHARSET", "charset=UTF-8")
        header = header.replace('"Language: \\n"', f'"Language: {target}\\n"')
        if "nplurals=INTEGER" in header and plural:
            header = header.replace("nplurals=INTEGER; plural=EXPRESSION;", plural)
            self.plural_forms = plural
        self.blocks[0] = [header]

    @classmethod
    def read(cls, path: Path, task: Task) -> Iterator[Pair]:
        document = cls(path, task)
        for entry in document.all:
            if entry.obsolete or entry.fuzzy:
                continue
            if not entry.msgid_plural:
                yield entry.linenum, entry.msgid, entry.msgstr
                continue
            _, form = document.plural(entry)
            sides = {form(5): entry.msgid_plural}  # a single form is the plural
            sides = {form(1): entry.msgid} | sides
            for number, source in sides.items():
                yield entry.linenum, source, entry.msgstr_plural.get(number, "")

    def plural(self, entry: polib.POEntry) -> tuple[int, Callable[[int], int]]:
        """The number of forms, and the form of a number."""
        rule = PLURAL.search(self.plural_forms)
        if rule is None:
            return max(len(entry.msgstr_plural), 1), lambda n: int(n != 1)
        try:
            count, form = int(rule[1]), gettext.c2py(rule[2].strip())
            forms = {form(n) for n in range(NUMBERS)}  # 5 / (n - 1) fails for 1
            if not 1 <= count <= MAX_FORMS or not forms <= set(range(count)):
                raise ValueError("a form out of range")
            return count, form
        except (ValueError, RecursionError, ZeroDivisionError, OverflowError):
            raise UsageError(
                f'{self.path}: the header\'s Plural-Forms cannot be read: "{rule[0]}"', code="E_DATA_FORMAT"
            ) from None

    def sources(self, entry: polib.POEntry) -> tuple[str, ...]:
        """The source of each form: msgid for the form of n = 1, msgid_plural for the others.

        If a language uses that form for 21 too, "One file" would be wrong, and msgid_plural is used.
        """
        if not entry.msgid_plural:
            return (entry.msgid,)
        count, form = self.plural(entry)
        one = form(1) if count > 1 else -1
        often = sum(form(n) == one for n in range(NUMBERS)) > OFTEN
        if often and not survived(entry.msgid, entry.msgid_plural, of_flags(entry.flags)):
            one = -1
        return tuple(entry.msgid if number == one else entry.msgid_plural for number in range(count))

    def units(self, everything: bool) -> list[TranslationUnit]:
        return [
            TranslationUnit(
                self.sources(entry),
                of_flags(entry.flags),
                partial(self.fill, number),
                partial(self.leave, number),
            )
            for number, entry in enumerate(self.all, start=1)
            if not entry.obsolete and (everything or not is_translated(entry))
        ]

    def fill(self, number: int, texts: Sequence[str], review: bool) -> None:
        """Replace the msgstr lines of an entry, and add a note."""
        block, plural = self.blocks[number], bool(self.all[number - 1].msgid_plural)
        first = next((at for at, line in enumerate(block) if line.lstrip().startswith("msgstr")), None)
        if first is None:
            line = self.all[number - 1].linenum
            raise UsageError(
                f"{self.path}, line {line}: an entry without msgstr; msgfmt -c tells more",
                code="E_DATA_FORMAT",
            )
        last = first + 1
        while last < len(block) and block[last].lstrip().startswith(("msgstr", '"')):
            last += 1
        strings = [
            line
            for form, text in enumerate(texts)
            for line in quoted(f"msgstr[{form}]" if plural else "msgstr", text)
        ]
        head = [line for line in block[:first] if not line.startswith("#|")]
        note = [] if any(line.startswith(NOTE) for line in head) else [NOTE + self.newline]
        end = block[last - 1][len(block[last - 1].rstrip("\r\n")) :]  # the file may end without a newline
        lines = [line + self.newline for line in strings[:-1]] + [strings[-1] + end]
        self.blocks[number] = note + self.flagged(head, review) + lines + block[last:]

    def leave(self, number: int) -> None:
        """Mark an entry that could not be translated as fuzzy."""
        self.blocks[number] = self.flagged(self.blocks[number], True)

    def flagged(self, lines: list[str], fuzzy: bool) -> list[str]:
        """The lines of an entry with or without the flag "fuzzy"."""
        flags = [flag.strip() for line in lines if line.startswith("#,") for flag in line[2:].split(",")]
        if ("fuzzy" in flags) == fuzzy:
            return lines
        wanted = (["fuzzy"] if fuzzy else []) + [flag for flag in flags if flag and flag != "fuzzy"]
        rest = [line for line in lines if not line.startswith("#,")]
        at = next(at for at, line in enumerate(rest) if line.lstrip().startswith(("#|", "msg")))
        return rest[:at] + ([f"#, {', '.join(wanted)}{self.newline}"] if wanted else []) + rest[at:]

    def content(self) -> bytes:
        return encode("".join(line for block in self.blocks for line in block), self.encoding, self.path)


def is_translated(entry: polib.POEntry) -> bool:
    """True if an entry has a translation, fuzzy or not."""
    forms = entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]
    return bool(forms) and all(forms)


def parse(text: str, path: Path) -> polib.POFile:
    """Parse with polib, through a file: in a string it would split lines at U+2028 and the like."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy.po")
        copy.write_text(text, encoding="utf-8", newline="")
        try:
            return polib.pofile(str(copy), encoding="utf-8")
        except OSError as error:
            line = re.search(r"\(line (\d+)\)", str(error))
            where = f", line {line[1]}" if line else ""
            reason = "a quote inside a string" if "quote" in str(error) else "not valid in gettext's format"
            raise UsageError(f"{path}{where}: {reason}; msgfmt -c tells more", code="E_DATA_FORMAT") from None


def quoted(name: str, text: str) -> list[str]:
    """A string in gettext's style: on one line if it is short, else "" and several lines."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    parts = [part for line in lines for part in (WRAPPED.findall(line) if len(line) > 75 else [line])]
    if "".join(parts) != text:  # if wrapping would change it
        parts = [text]
    if len(parts) < 2 and len(text) + len(name) < 77:
        return [f'{name} "{polib.escape(text)}"']
    return [f'{name} ""', *(f'"{polib.escape(part)}"' for part in parts)]
