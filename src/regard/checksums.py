"""SHA-256 checksums: of files and bytes, and of a folder in SHA256SUMS, which `sha256sum -c` reads too.

Model folders, pulled models and public data sets have a SHA256SUMS file. Manifests of checkpoints and of
prepared data hold the same hashes beside what else they list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SUMS = "SHA256SUMS"
TRAILER = "# of the lines above: "  # and their hash: a damaged list is told from a damaged file
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def format_sums(sums: Mapping[str, str]) -> str:
    """The content of SHA256SUMS."""
    lines = "".join(f"{value}  {name}\n" for name, value in sums.items())
    return f"{lines}{TRAILER}{sha256_of(lines.encode())}\n"


def parse_sums(text: str, strict: bool = False) -> dict[str, str] | None:
    """SHA-256 by name; None if a line is of another form or the trailer is wrong.

    Files of public data sets had no trailer in version 0.1; `strict` requires one.
    """
    lines, trailer, end = text.rpartition(TRAILER)
    if not trailer and not strict:
        lines = text
    elif not trailer or end != f"{sha256_of(lines.encode())}\n":
        return None
    matches = [_LINE.fullmatch(line) for line in lines.split("\n")[:-1]]
    return {match[2]: match[1] for match in matches if match} if all(matches) else None


def damaged_files(folder: Path, sums: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Files that differ from their checksums: the name, and what is wrong."""
    for name, checksum in sorted(sums.items()):
        if not (folder / name).is_file():
            yield name, "missing"
        elif sha256(folder / name) != checksum:
            yield name, "checksum mismatch"
