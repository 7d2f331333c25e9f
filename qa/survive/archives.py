"""Archives: none can choose where something is written. Read off the source, and tried."""

from __future__ import annotations

import ast
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import regard
from qa.result import Result
from regard.config import Task
from regard.data.corpora import CorpusSpec, read_rows
from regard.data.report import DataReport
from regard.errors import RegardError
from regard.storage import open_folder

UNPACKERS = {"extract", "extractall", "unpack_archive", "_extract_member"}
MODULES = {"tarfile", "zipfile", "zipimport", "lzma", "bz2", "py7zr", "rarfile"}
# `zipfile.is_zipfile` alone, in the process that reads tensors aside; and the sizes in an .xlsx, whose cells
# openpyxl reads in memory; a file of the package; members of a plain .tar, read in place; members of an .npz.
# Only of a package of Argos are files copied: those of known names, after the sizes of all were checked, into
# a temporary folder, under names that the package does not choose.
KNOWN = {
    ("storage/unpickle.py", "zipfile"),
    ("data/readers/tables.py", "zipfile"),
    ("data/phrasebook.py", "zipfile"),
    ("storage/archive.py", "zipfile"),
    ("storage/argos.py", "zipfile"),
    ("export/to_argos.py", "zipfile"),
    ("inputs/media.py", "tarfile"),
}
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
NAMES = (
    *("../out", "/tmp/regard-out", "a/../../out", "link/out", "C:\\out", "a\\..\\..\\out"),
    *("a\0b", "x" * 300, "config.json", "CONFIG.json"),
)


def unpacking() -> list[str]:
    """Where the source could unpack something."""
    found, root = list[str](), Path(regard.__file__).parent
    for path in sorted(root.rglob("*.py")):
        short = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
                found += [f"{short} imports {name}" for name in named & MODULES if (short, name) not in KNOWN]
            if isinstance(node, ast.Attribute) and node.attr in UNPACKERS:
                found.append(f"{short}, line {node.lineno}: {node.attr}")
    return found


def harmful_archives() -> list[tuple[str, bytes]]:
    """Harmful ones, under the names of files that are read."""
    made = []
    for name in NAMES:
        box = io.BytesIO()
        with zipfile.ZipFile(box, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name.replace("\0", "_")), b"harm")
        made.append((f"zip {name[:20]!r}", box.getvalue()))
        for kind in (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            box, info = io.BytesIO(), tarfile.TarInfo(name.replace("\0", "_"))
            info.type, info.linkname = kind, "../../out"
            with tarfile.open(fileobj=box, mode="w:gz") as packed:
                packed.addfile(info)
            made.append((f"tar {kind!r} {name[:20]!r}", box.getvalue()))
    return made


def rows_of(path: Path) -> list[object]:
    return [*read_rows(CorpusSpec(str(path)), Task(), "train", DataReport())]


def archives(count: int, seed: int) -> Result:
    """Neither a folder nor a corpus that is an archive writes anything."""
    wrong, listed = unpacking(), harmful_archives()
    with tempfile.TemporaryDirectory() as name:
        for number, (kind, content) in enumerate(listed):
            place = Path(name) / str(number)
            folder = place / "in" / "model"
            folder.mkdir(parents=True)
            for own in (
                "config.json",
                "model.safetensors",
                "tokenizer.json",
                "data.tsv.gz",
                "data.xlsx",
                "data.zip",
            ):
                (folder / own).write_bytes(content)
            before = sorted(place.rglob("*"))
            for read in (
                lambda folder=folder: open_folder(folder),
                lambda folder=folder: open_folder(folder / "data.zip"),
                lambda folder=folder: rows_of(folder / "data.tsv.gz"),
                lambda folder=folder: rows_of(folder / "data.xlsx"),
            ):
                try:
                    read()
                except RegardError:
                    pass
                except Exception as error:
                    wrong.append(f"{kind}: {type(error).__name__} {error}")
            if sorted(place.rglob("*")) != before:
                wrong.append(f"{kind}: something was written")
    figure = f"no code unpacks an archive; {len(listed)} harmful ones wrote 0 bytes"
    return Result("archives", len(listed), len(wrong), figure, seed, {}, wrong)
