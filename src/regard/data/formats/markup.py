"""XML of translators' tools: read without trusting it, inline elements as marks in the text, written back.

A file comes from anyone. Entities are refused where they are declared, before the document begins, and
nothing outside the file is ever opened: no DTD, no network.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast
from xml.parsers import expat

from lxml import etree

from regard.data.formats.document import read_bytes
from regard.errors import UsageError

Element: TypeAlias = Any  # an element of lxml, which comes without types
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
PORTION = 65536
NAMES = ("id", "x", "i", "rid")  # what inline elements are called by, the same on both sides


class _Begun(Exception):
    """The first element is there, so no declaration can follow."""

    def __init__(self, at: int) -> None:
        self.at = at


def check_prolog(file: BinaryIO, path: Path) -> int:
    """Read up to the first element and refuse what declares entities: bombs, and files of this machine.

    Gives the number of bytes before that element.
    """

    def entity(name: str, *rest: object) -> None:
        raise UsageError(f'{path}: declares the entity "{name}"; such files are not read, remove its DOCTYPE')

    def begun(*rest: object) -> None:
        raise _Begun(parser.CurrentByteIndex)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = entity
    parser.StartElementHandler = begun
    try:
        while portion := file.read(PORTION):
            parser.Parse(portion)
        parser.Parse(b"", True)
    except _Begun as begun_here:
        return begun_here.at
    except expat.ExpatError as error:
        raise UsageError(f"{path}, line {error.lineno}: not well-formed XML ({error})") from None
    except LookupError as error:  # its first line names an encoding that there is not
        raise UsageError(f"{path}: {error}; save it as UTF-8") from None
    raise UsageError(f"{path}: holds no element")


def open_xml(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def elements(path: Path, *names: str) -> Iterator[Element]:
    """The elements of these names, one after the other; a file may be larger than memory."""
    try:
        with open_xml(path) as file:
            check_prolog(file, path)
            file.seek(0)
            tags = [f"{{*}}{name}" for name in names]
            for _, element in etree.iterparse(file, events=("end",), tag=tags, remove_comments=True, **SAFE):
                yield element
                element.clear(keep_tail=False)
                while element.getprevious() is not None and local(element.getprevious()) in names:
                    element.getparent().remove(element.getprevious())
    except etree.XMLSyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: not well-formed XML ({error.msg})") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the gzip file is damaged or cut short ({error}); fetch it again") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error.strerror}") from None


class Tree:
    """A whole XML file, kept as it is but for what is put into it."""

    def __init__(self, path: Path, root: str) -> None:
        self.path, self.raw = path, read_bytes(path)
        self.prolog = self.raw[: check_prolog(io.BytesIO(self.raw), path)]
        try:
            parser = etree.XMLParser(strip_cdata=False, remove_blank_text=False, **SAFE)
            self.tree = etree.ElementTree(etree.fromstring(self.raw, parser))
        except etree.XMLSyntaxError as error:
            raise UsageError(f"{path}, line {error.lineno}: not well-formed XML ({error.msg})") from None
        if local(self.tree.getroot()) != root:
            raise UsageError(f"{path}: begins with <{local(self.tree.getroot())}>, not with <{root}>")

    def content(self) -> bytes:
        """The root written anew, between what stood before and behind it; newlines as the file had them."""
        root = self.tree.getroot()
        nodes = [root, *root.itersiblings()]
        text = "\n".join(etree.tostring(node, encoding="unicode", with_tail=False) for node in nodes)
        encoding = self.tree.docinfo.encoding or "UTF-8"
        if encoding.upper() == "UTF-16":  # the byte order is said once, at the start of the file
            encoding = "utf-16-be" if self.raw.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        ending = self.raw.decode(encoding)[-100:]
        text += ending[len(ending.rstrip()) :].replace("\r\n", "\n")
        if "\r\n".encode(encoding) in self.raw:
            text = text.replace("\n", "\r\n")
        return self.prolog + text.encode(encoding, errors="xmlcharrefreplace")


def local(element: Element) -> str:
    """The name without its namespace; a comment has none."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def child(element: Element, name: str) -> Element | None:
    return next((each for each in element if local(each) == name), None)


def attribute(element: Element, *names: str) -> str | None:
    """The nearest such attribute, here or further out."""
    for each in (element, *element.iterancestors()):
        for name in names:
            if name in each.attrib:
                return str(each.attrib[name])
    return None


@dataclass(frozen=True)
class Flat:
    """Text in which inline elements are marks: <1> and </1> around what is translated, <2/> for code."""

    text: str
    marks: dict[str, Element]


def flatten(
    element: Element, paired: frozenset[str], numbers: dict[tuple[str, str], int] | None = None
) -> Flat:
    """The text of a segment; `numbers` (shared by source and target) gives an element its number."""
    numbers = {} if numbers is None else numbers
    plain = "".join(element.itertext())
    taken = [int(number) for number in re.findall(r"</?(\d{1,9})/?>", plain)]  # such text stays text
    first = max(taken, default=0) + 1
    marks: dict[str, Element] = {}
    unnamed = Counter[str]()

    def walk(node: Element) -> str:
        text = node.text or ""
        for inner in node:
            if isinstance(inner.tag, str) or inner.tag is etree.Entity:
                text += mark(inner)
            text += inner.tail or ""
        return text

    def mark(inner: Element) -> str:
        name = next((inner.get(key) for key in NAMES if inner.get(key)), None)
        if name is None:  # then it is the first or second of its kind, on both sides
            unnamed[local(inner)] += 1
            name = f"number {unnamed[local(inner)]}"
        number = first + numbers.setdefault((local(inner), name), len(numbers))
        if local(inner) in paired and not protected(inner):
            marks[f"<{number}>"] = marks[f"</{number}>"] = inner
            return f"<{number}>{walk(inner)}</{number}>"
        marks[f"<{number}/>"] = inner
        return f"<{number}/>"

    text = walk(element)
    if "\n" in text and attribute(element, SPACE) != "preserve":
        text = re.sub(r"\s+", " ", text)  # newlines of the file's own layout
    return Flat(text, marks)


def protected(element: Element) -> bool:
    return bool(element.get("mtype") == "protected" or element.get("translate") == "no")


def nested(flats: Sequence[Flat], number: int, text: str) -> bool:
    """Whether the marks in a translation open and close in order."""
    flat = flats[number]
    stack: list[str] = []
    for mark in marks_in(text, flat):
        if mark.startswith("</"):
            if not stack or stack.pop() != mark.replace("/", ""):
                return False
        elif not mark.endswith("/>"):
            stack.append(mark)
    return not stack


def marks_in(text: str, flat: Flat) -> list[str]:
    return [mark for mark in re.findall(r"</?\d+/?>", text) if mark in flat.marks]


def unflatten(element: Element, text: str, flat: Flat) -> None:
    """Put a translation into an element, the inline elements where their marks are."""
    for inner in list(element):
        element.remove(inner)
    element.text = None
    stack, last = [element], cast("Element | None", None)  # last: what the next text follows
    for part in re.split(r"(</?\d+/?>)", text):
        if part not in flat.marks:
            if last is None:
                stack[-1].text = (stack[-1].text or "") + part
            else:
                last.tail = (last.tail or "") + part
        elif part.startswith("</"):
            last = stack.pop()
        else:
            copy = deepcopy(flat.marks[part])
            copy.tail = None
            stack[-1].append(copy)
            last = copy
            if not part.endswith("/>"):
                for inner in list(copy):
                    copy.remove(inner)
                copy.text = None
                stack.append(copy)
                last = None


def insert_after(element: Element, new: Element) -> None:
    """Put a new element behind another, indented alike."""
    parent = element.getparent()
    new.tail = element.tail
    if element.getnext() is None:  # the last one: behind it comes the indentation of the closing tag
        element.tail = parent.text if parent[0] is element else parent[-2].tail
    parent.insert(parent.index(element) + 1, new)
