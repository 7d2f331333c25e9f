"""Packages of Argos Translate (.argosmodel), which LibreTranslate uses: a zip with a model of CTranslate2.

    translate-zh_en-1_9/metadata.json  sentencepiece.model  README.md  model/  stanza/

A package may come from anywhere: the list of its files is checked before one is unpacked, and none is written
under a name of the package. Sentences are split by Regard, so that stanza/ is left alone.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from regard.config.reading import SMALL, shown
from regard.errors import UsageError
from regard.storage.archive import open_zip
from regard.storage.ctranslate2.file import MODEL, read_variables
from regard.storage.ctranslate2.transformer import convert_transformer
from regard.storage.files import free_bytes, friendly_os_errors, read_json
from regard.storage.translator import About

SUFFIX, METADATA, SPLITTER, CARD = ".argosmodel", "metadata.json", "sentencepiece.model", "README.md"
REFUSED = "E_ARGOS"
TABLES = tuple(
    f"{side}_vocabulary{end}" for side in ("shared", "source", "target") for end in (".json", ".txt")
)
# what is unpacked, by its place in the package
UNPACKED = {
    METADATA,
    SPLITTER,
    CARD,
    "bpe.model",
    *(f"model/{name}" for name in (MODEL, "config.json", *TABLES)),
}


def convert_argos(source: Path, out: Path) -> None:
    """Write the folder that has the model of a package."""
    with unpacked(source) as package:
        package.check()
        try:
            _, variables = read_variables(package.folder / MODEL, ("TransformerSpec",))
            about = About(source.name, package.languages, package.card)
            convert_transformer(variables, package.folder, out, about)
        except UsageError as error:
            message = str(error).replace(str(package.folder), str(source))
            raise UsageError(message, code=error.code) from None


@dataclass(frozen=True)
class Package:
    """The files of a package, all in one folder."""

    path: Path
    folder: Path
    metadata: Mapping[str, Any]

    def check(self) -> None:
        if self.metadata.get("type", "translate") != "translate":
            raise self.refused(f"a package of type {shown(self.metadata['type'])}")
        if self.metadata.get("target_prefix"):
            raise self.refused(f"target_prefix = {shown(self.metadata['target_prefix'])} is not supported")
        if not (self.folder / MODEL).is_file():
            raise self.refused(f"it has no model/{MODEL}")

    @property
    def languages(self) -> tuple[str, str]:
        codes = self.metadata.get("from_code"), self.metadata.get("to_code")
        if not all(isinstance(code, str) and 0 < len(code) <= 40 for code in codes):
            raise self.refused(f"from_code, to_code = {shown(codes)} are no languages")
        return str(codes[0]), str(codes[1])

    @property
    def card(self) -> str:
        file = self.folder / CARD
        return file.read_text(errors="replace") if file.is_file() and file.stat().st_size <= SMALL else ""

    def refused(self, reason: str) -> UsageError:
        return refused(self.path, reason)


def refused(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: not a package of Argos Translate that Regard reads ({reason})", code=REFUSED)


@contextmanager
def unpacked(path: Path) -> Iterator[Package]:
    """The files of a package in a temporary folder."""
    with TemporaryDirectory(prefix="regard-") as temporary, friendly_os_errors(path, "read"):
        folder = Path(temporary)
        with open_zip(path, lambda reason: refused(path, reason)) as (archive, entries):
            files = used_files(path, entries)
            free = free_bytes(folder)
            if free is not None and free < 2 * sum(each.file_size for each in files.values()):
                raise UsageError(f"{folder}: too little space to unpack {path.name}", code="E_DISK_FULL")
            for name, info in files.items():
                unpack(archive, info, folder / PurePosixPath(name).name)
        yield Package(path, folder, read_json(folder / METADATA))


def used_files(path: Path, entries: Mapping[str, zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The files that are unpacked, by their place in the package."""
    roots = [PurePosixPath(name).parent for name in entries if PurePosixPath(name).name == METADATA]
    if len(roots) != 1 or len(roots[0].parts) > 1:
        raise refused(path, f"it has no {METADATA}, or several")
    places = {name: str(roots[0] / name) for name in UNPACKED}
    return {name: entries[place] for name, place in places.items() if place in entries}


def unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: Path) -> None:
    with archive.open(info) as packed, place.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
