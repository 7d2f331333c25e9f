"""XML of translation tools: safe parsing, inline elements as marks in the text, and writing back.

Files are untrusted. Entity declarations are refused before the first element, and nothing outside the file is
opened: no DTD, no network.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast
from xml.parsers import expat

from lxml import etree

from regard.data.files import open_binary, read_bytes
from regard.errors import UsageError

Element: TypeAlias = Any  # an lxml element; lxml has no type stubs
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
PORTION = 65536
NAMES = ("id", "x", "i", "rid")  # attributes that identify an inline element on both sides


class _FirstElement(Exception):
    """Raised at the first element, after which no declaration can follow."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


def check_prolog(file: BinaryIO, path: Path) -> int:
    """Read up to the first element, return its offset, and refuse entity declarations.

    Entities can expand to any size ("billion laughs") or read local files.
    """

    def entity(name: str, *rest: object) -> None:
        raise UsageError(f'{path}: declares the entity "{name}"; this is not allowed, remove its DOCTYPE')

    def element(*rest: object) -> None:
        raise _FirstElement(parser.CurrentByteIndex)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = entity
    parser.StartElementHandler = element
    try:
        while portion := file.read(PORTION):
            parser.Parse(portion)
        parser.Parse(b"", True)
    except _FirstElement as first:
        return first.offset
    except expat.ExpatError as error:
        raise UsageError(f"{path}, line {error.lineno}: not well-formed XML ({error})") from None
    except LookupError as error:  # its first line names an unknown encoding
        raise UsageError(f"{path}: {error}; save it as UTF-8") from None
    raise UsageError(f"{path}: has no XML element")


def elements(path: Path, *names: str) -> Iterator[Element]:
    """Iterate over the elements of these names; a file may be larger than the memory."""
    try:
        with open_binary(path) as file:
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


class XmlDocument:
    """A whole XML file; only what is filled in changes."""

    def __init__(self, path: Path, root: str) -> None:
        self.path, self.raw = path, read_bytes(path)
        self.prolog = self.raw[: check_prolog(io.BytesIO(self.raw), path)]
        try:
            parser = etree.XMLParser(strip_cdata=False, remove_blank_text=False, **SAFE)
            self.tree = etree.ElementTree(etree.fromstring(self.raw, parser))
        except etree.XMLSyntaxError as error:
            raise UsageError(f"{path}, line {error.lineno}: not well-formed XML ({error.msg})") from None
        if local(self.tree.getroot()) != root:
            raise UsageError(f"{path}: its root is <{local(self.tree.getroot())}>, not <{root}>")

    def content(self) -> bytes:
        """Serialise the root and what follows, after the original prolog, with the newlines of the file."""
        root = self.tree.getroot()
        nodes = [root, *root.itersiblings()]
        text = "\n".join(etree.tostring(node, encoding="unicode", with_tail=False) for node in nodes)
        encoding = self.tree.docinfo.encoding or "UTF-8"
        if encoding.upper() == "UTF-16":  # the byte order mark is in the prolog
            encoding = "utf-16-be" if self.raw.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        ending = self.raw.decode(encoding)[-100:]
        text += ending[len(ending.rstrip()) :].replace("\r\n", "\n")
        if "\r\n".encode(encoding) in self.raw:
            text = text.replace("\n", "\r\n")
        return self.prolog + text.encode(encoding, errors="xmlcharrefreplace")


def local(element: Element) -> str:
    """The name without its namespace; "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def child(element: Element, name: str) -> Element | None:
    return next((each for each in element if local(each) == name), None)


def attribute(element: Element, *names: str) -> str | None:
    """The attribute of the element or of its nearest ancestor that has one."""
    for each in (element, *element.iterancestors()):
        for name in names:
            if name in each.attrib:
                return str(each.attrib[name])
    return None


@dataclass(frozen=True)
class Flat:
    """Text with marks for inline elements: <1> and </1> around text to translate, <2/> for code."""

    text: str
    marks: dict[str, Element]


def flatten(
    element: Element, paired: frozenset[str], numbers: dict[tuple[str, str], int] | None = None
) -> Flat:
    """The text of a segment; `numbers` (shared by source and target) maps elements to numbers."""
    numbers = {} if numbers is None else numbers
    plain = "".join(element.itertext())
    taken = [int(number) for number in re.findall(r"</?(\d{1,9})/?>", plain)]  # looks like a mark
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
        if name is None:  # numbered by its order among elements of this kind, on both sides
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
        text = re.sub(r"\s+", " ", text)  # newlines are only layout
    return Flat(text, marks)


def protected(element: Element) -> bool:
    return bool(element.get("mtype") == "protected" or element.get("translate") == "no")


def nested(flats: Sequence[Flat], number: int, text: str) -> bool:
    """True if the marks in a translation open and close in order."""
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
    """Write a translation into an element, with the inline elements in place of their marks."""
    for inner in list(element):
        element.remove(inner)
    element.text = None
    stack, last = [element], cast("Element | None", None)  # last: the element before the next text
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
    """Insert a new element after another, with the same indentation."""
    parent = element.getparent()
    new.tail = element.tail
    if element.getnext() is None:  # the last one: its tail is the indentation of the closing tag
        element.tail = parent.text if parent[0] is element else parent[-2].tail
    parent.insert(parent.index(element) + 1, new)
