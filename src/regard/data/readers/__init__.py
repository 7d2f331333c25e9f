"""Corpora as raw rows: (number, source, target), read from checked lines or from objects.

| task | source | target |
|---|---|---|
| translate | a sentence | its translation |
| generate, fill | a document, or a part of it | CONTINUED if it continues the row before; MORE and the beginning of the next row if that continues it |
| classify | a text | its labels, joined by LABEL_SEPARATOR |
| tag | words, joined by spaces | as many tags, joined by spaces |
| answer | the question, "\\n", the context | JSON: a list of [answer, its offset in the context] |

The number is that of the line or the entry, for messages.
"""  # noqa: E501  (a table)

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regard.inputs.text.tokenizer import replace_surrogates

RawRow = tuple[int, str, str]  # number, source, target

CONTINUED, MORE = "-", "+"
LABEL_SEPARATOR = "\x1f"
PROMPT_SEPARATOR = "\x1e"  # between a question about a picture and its answer


class InvalidRow(ValueError):
    """A row that cannot be used: the kind of issue, and a note about it."""

    def __init__(self, kind: str, note: str = "") -> None:
        super().__init__(note)
        self.kind, self.note = kind, note


def string_field(record: Mapping[str, Any], name: str) -> str:
    if not isinstance(text := record.get(name), str):
        raise InvalidRow("malformed", f'needs the string "{name}"')
    return replace_surrogates(text)  # JSON can contain half a character ("\ud800"), UTF-8 cannot


def list_field(record: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(items := record.get(name), list):
        raise InvalidRow("malformed", f'needs the list "{name}"')
    return items


def label_name(value: object) -> str | None:
    """A label as a string: 1, 1.0 and "1" are equal, and so are true and "true"; else None."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value) if math.isfinite(value) else None
    return replace_surrogates(str(value)).strip() if isinstance(value, int | str) else None
