"""What a corpus is to its task: rows of a number, a source and a target, read from checked lines.

| task | source | target |
|---|---|---|
| translate | a sentence | its translation |
| generate, fill | a document, or a part of it | CONTINUES if the next row goes on with it, else "" |
| classify | a text | its labels, BETWEEN_LABELS between them |
| tag | words, a space between them | as many tags, a space between them |
| answer | the question, "\\n", the context | JSON: a list of [answer, where it begins in the context] |

The number is the line, or the entry, that messages name.
"""

from __future__ import annotations

Row = tuple[int, str, str]  # number, source, target

CONTINUES = "+"
BETWEEN_LABELS = "\x1f"


class Unfit(ValueError):
    """A row that cannot be used: the kind of finding, and what is wrong with it."""

    def __init__(self, kind: str, note: str = "") -> None:
        super().__init__(note)
        self.kind, self.note = kind, note
