"""Pictures and sounds as tasks get them: a path, or the bytes in a data URL."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from regard.errors import UsageError

_DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,")


def open_source(source: str) -> str | bytes:
    """What `FrameReader.read` takes: a path, or the content of a data URL."""
    match = _DATA_URL.match(source)
    if match is None:
        return source
    try:
        return base64.b64decode(source[match.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("the data URL is not valid base64", code="E_MEDIA_URL") from None


def source_name(source: str) -> str:
    return "data" if _DATA_URL.match(source) else Path(source).name


def refuse_path(source: str) -> None:
    """A server opens no files for its clients."""
    if _DATA_URL.match(source) is None:
        raise UsageError(
            "this model reads files: send the file as a data URL (data:image/png;base64,...)",
            code="E_MEDIA_URL",
        )
