"""XML of translation tools: elements with their places in the file, so that only what is filled in changes.

Files are untrusted. Entity declarations are refused, nothing outside the file is opened (no DTD, no network),
and nesting is limited.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from regard.data.files import open_binary, read_bytes
from regard.data.formats import decode
from regard.errors import UsageError

PORTION = 1 << 16
DEEPEST = 200
NAMES = ("id", "x", "i", "rid")  # attributes that identify an inline element on both sides
_ENCODING = re.compile(rb"""^\s*<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)""")
_START_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_MARK = re.compile(r"(</?\d+/?>)")


@dataclass(eq=False)
class XmlElement:
    """An element; an entity whose declaration is not known is a node with the tag "&name;"."""

    tag: str
    attributes: Mapping[str, str]
    parent: XmlElement | None
    line: int
    start: int  # the byte of its start tag, in UTF-8
    stop: int = 0  # the byte of its end tag; of an empty element, the byte behind it
    content: list[XmlElement | str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name without its namespace."""
        return self.tag.rpartition(":")[2]

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.content)

    @property
    def children(self) -> list[XmlElement]:
        return [each for each in self.content if isinstance(each, XmlElement)]

    def child(self, name: str) -> XmlElement | None:
        return next((each for each in self.children if each.name == name), None)

    def find(self, *names: str) -> Iterator[XmlElement]:
        """The element itself and all inside it that have one of these names, in the order of the file."""
        if self.name in names:
            yield self
        for each in self.children:
            yield from each.find(*names)

    def attribute(self, *names: str) -> str | None:
        """The attribute of the element or of its nearest ancestor that has one."""
        values = (self.attributes[name] for name in names if name in self.attributes)
        inherited = self.parent.attribute(*names) if self.parent is not None else None
        return next(values, inherited)


class _TreeBuilder:
    """The handlers of expat. Outside elements of these names, nothing is kept."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, names
        self.stack: list[XmlElement] = []
        self.open = 0  # elements of these names
        self.complete: list[XmlElement] = []
        self.root = ""
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self.start, self.end
        parser.CharacterDataHandler, parser.SkippedEntityHandler = self.text, self.entity
        parser.EntityDeclHandler = self.declaration

    def feed(self, text: str, is_last: bool = False) -> list[XmlElement]:
        """The elements of these names that end in this part of the file."""
        try:
            self.parser.Parse(text, is_last)
        except expat.ExpatError as error:
            raise _not_xml(self.path, f", line {error.lineno}: not well-formed XML ({error})") from None
        complete, self.complete = self.complete, []
        return complete

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        parent, parser = self.stack[-1] if self.stack else None, self.parser
        if len(self.stack) == DEEPEST:
            raise _not_xml(
                self.path, f", line {parser.CurrentLineNumber}: more than {DEEPEST} nested elements"
            )
        node = XmlElement(tag, attributes, parent, parser.CurrentLineNumber, parser.CurrentByteIndex)
        self.root = self.root or node.name
        if parent is not None and self.open:
            parent.content.append(node)
        self.stack.append(node)
        self.open += node.name in self.names

    def end(self, tag: str) -> None:
        node = self.stack.pop()
        node.stop = self.parser.CurrentByteIndex
        if node.name in self.names:
            self.open -= 1
            self.complete.append(node)

    def text(self, text: str) -> None:
        if self.open:
            self.stack[-1].content.append(text)

    def entity(self, name: str, is_parameter: bool) -> None:
        if self.open:
            self.stack[-1].content.append(XmlElement(f"&{name};", {}, self.stack[-1], 0, 0))

    def declaration(self, name: str, *rest: object) -> None:
        """Entities can expand to any size ("billion laughs") or read local files."""
        raise _not_xml(self.path, f': declares the entity "{name}"; this is not allowed, remove its DOCTYPE')


def _not_xml(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}{reason}", code="E_DATA_FORMAT")


def xml_encoding(beginning: bytes) -> str:
    for bom, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if beginning.startswith(bom):
            return name
    declared = _ENCODING.match(beginning.removeprefix(codecs.BOM_UTF8))
    return declared[1].decode("ascii") if declared else "utf-8"


def elements(path: Path, *names: str) -> Iterator[XmlElement]:
    """Iterate over the elements of these names; a file may be larger than the memory."""
    builder = _TreeBuilder(path, names)
    with open_binary(path) as file:
        encoding = xml_encoding(file.read(PORTION))
        file.seek(0)
        try:
            reader = io.TextIOWrapper(file, encoding, newline="")
            while text := reader.read(PORTION):
                yield from builder.feed(text)
        except LookupError:
            raise _not_xml(path, f': its header names the unknown charset "{encoding}"') from None
        except UnicodeDecodeError as error:
            raise _not_xml(path, f": not {encoding} ({error.reason}); convert the file") from None
        yield from builder.feed("", is_last=True)


class XmlDocument:
    """A whole XML file. Edits replace ranges of its bytes; all others stay as they are."""

    def __init__(self, path: Path, root: str) -> None:
        self.path, raw = path, read_bytes(path)
        self.encoding = xml_encoding(raw)
        text = decode(raw, self.encoding, path)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.raw = text.encode()  # expat counts bytes of UTF-8
        self.edits: dict[tuple[int, int], str] = {}
        builder = _TreeBuilder(path, (root,))
        units = builder.feed(text, is_last=True)
        if builder.root != root:
            raise _not_xml(path, f": its root is <{builder.root}>, not <{root}>")
        self.root = units[-1]

    def content(self) -> bytes:
        pieces, place = [], 0
        for (start, end), text in sorted(self.edits.items()):
            pieces += [self.raw[place:start].decode(), text]
            place = end
        text = "".join([*pieces, self.raw[place:].decode()])
        return text.encode(self.encoding, errors="xmlcharrefreplace")

    def span(self, node: XmlElement) -> tuple[int, int, int, int]:
        """The bytes of the start tag, of the content, of the end tag, and behind it."""
        tag = _START_TAG.match(self.raw, node.start)
        if tag is None or not self.raw.startswith(b"</", node.stop):
            return node.start, node.stop, node.stop, node.stop
        return node.start, tag.end(), node.stop, self.raw.index(b">", node.stop) + 1

    def start_tag(self, node: XmlElement, attributes: Mapping[str, str]) -> str:
        """The start tag with other attributes, not closed if the element is empty."""
        start, inner, _, _ = self.span(node)
        tag = self.raw[start:inner].decode().removesuffix(">").removesuffix("/").rstrip()
        for name, value in attributes.items():
            before, *after = re.split(rf"""\s{name}\s*=\s*(?:"[^"]*"|'[^']*')""", tag, maxsplit=1)
            tag = f"{before} {name}={quoteattr(value)}{''.join(after)}"
        return f"{tag}>"

    def set_attributes(self, node: XmlElement, attributes: Mapping[str, str]) -> None:
        start, inner, close, _ = self.span(node)
        end = "/>" if inner == close and self.raw.startswith(b"/>", inner - 2) else ">"
        self.edits[start, inner] = self.start_tag(node, attributes).removesuffix(">") + end

    def element(self, node: XmlElement, content: str, attributes: Mapping[str, str]) -> str:
        return f"{self.start_tag(node, attributes)}{content}</{node.tag}>"

    def replace(self, node: XmlElement, content: str, attributes: Mapping[str, str]) -> None:
        start, _, _, end = self.span(node)
        self.edits[start, end] = self.element(node, content, attributes)

    def insert_after(self, node: XmlElement, text: str) -> None:
        """Insert an element after another, with the same indentation."""
        start, _, _, end = self.span(node)
        before = self.raw[max(0, start - 1000) : start].decode("utf-8", "ignore")
        self.edits[end, end] = before[len(before.rstrip()) :] + text

    def unflatten(self, text: str, flat: Flat) -> str:
        """A translation as XML, with the inline elements in place of their marks."""
        return "".join(
            self.marked(part, flat.marks[part]) if part in flat.marks else self.escaped(part)
            for part in _MARK.split(text)
        )

    def escaped(self, text: str) -> str:
        return escape(text).replace("\n", self.newline)

    def marked(self, mark: str, node: XmlElement) -> str:
        """The part of the source that a mark stands for."""
        if node.tag.startswith("&"):
            return node.tag
        start, inner, close, end = self.span(node)
        first, last = (start, end) if mark.endswith("/>") else (close, end) if "/" in mark else (start, inner)
        return self.raw[first:last].decode()


@dataclass(frozen=True)
class Flat:
    """Text with marks for inline elements: <1> and </1> around text to translate, <2/> for code."""

    text: str
    marks: dict[str, XmlElement]


def flatten(
    element: XmlElement, paired: frozenset[str], numbers: dict[tuple[str, str], int] | None = None
) -> Flat:
    """The text of a segment; `numbers` (shared by source and target) maps elements to numbers."""
    numbers = {} if numbers is None else numbers
    taken = [int(number) for number in re.findall(r"</?(\d{1,9})/?>", element.text)]  # looks like a mark
    first = max(taken, default=0) + 1
    marks: dict[str, XmlElement] = {}
    unnamed = Counter[str]()

    def walk(node: XmlElement) -> str:
        return "".join(each if isinstance(each, str) else mark(each) for each in node.content)

    def mark(inner: XmlElement) -> str:
        name = next((inner.attributes[key] for key in NAMES if inner.attributes.get(key)), None)
        if name is None:  # numbered by its order among elements of this kind, on both sides
            unnamed[inner.name] += 1
            name = f"number {unnamed[inner.name]}"
        number = first + numbers.setdefault((inner.name, name), len(numbers))
        is_protected = inner.attributes.get("mtype") == "protected"
        if inner.name in paired and not is_protected and inner.attributes.get("translate") != "no":
            marks[f"<{number}>"] = marks[f"</{number}>"] = inner
            return f"<{number}>{walk(inner)}</{number}>"
        marks[f"<{number}/>"] = inner
        return f"<{number}/>"

    text = walk(element)
    if "\n" in text and element.attribute("xml:space") != "preserve":
        text = re.sub(r"\s+", " ", text)  # newlines are only layout
    return Flat(text, marks)


def flat_texts(source: XmlElement, target: XmlElement, paired: frozenset[str]) -> tuple[str, str]:
    """The texts of a pair, with equal marks for equal inline elements."""
    numbers: dict[tuple[str, str], int] = {}
    return flatten(source, paired, numbers).text, flatten(target, paired, numbers).text


def nested(flats: Sequence[Flat], number: int, text: str) -> bool:
    """True if the marks in a translation open and close in order."""
    stack: list[str] = []
    for mark in _MARK.findall(text):
        if mark not in flats[number].marks:
            continue
        if mark.startswith("</"):
            if not stack or stack.pop() != mark.replace("/", ""):
                return False
        elif not mark.endswith("/>"):
            stack.append(mark)
    return not stack
