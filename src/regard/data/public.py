"""Public data sets by name (`builtin/datasets.toml`): download or copy, verify, state the licence.

A file gets its name when it is complete and its checksum is right. SHA256SUMS beside the files has the format
of `sha256sum -c`; it is written when all files of a set are there.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.checksums import SUMS, format_sums, parse_sums, sha256
from regard.data.files import DATA_VARIABLE
from regard.data.hub import DownloadError, HubFile, download, hub_errors, matches, open_repository
from regard.errors import UsageError, near_miss
from regard.resources import read_data

MIRROR_VARIABLE = "REGARD_DATA_MIRROR"
LICENCE = "LICENCE.txt"
COPY = "or copy it from a folder with --from FOLDER"
Say = Callable[[str], None]


class DatasetError(UsageError):
    """A data set that does not exist, or cannot be had in this way."""

    default_code = "E_DATASET"


@dataclass(frozen=True)
class DataFile:
    name: str  # as in data:FOLDER/NAME
    sha256: str  # of the uncompressed text
    address: str | None = None


@dataclass(frozen=True)
class PublicDataset:
    """Files with addresses, or a data set of the hub, or both: the same text in two formats."""

    name: str
    about: str
    licence: str
    files: tuple[DataFile, ...] = ()
    folder: str = ""  # of data:FOLDER/NAME; defaults to the name
    hub: str | None = None  # owner/name
    patterns: tuple[str, ...] = ()  # of the hub's files

    @property
    def place(self) -> str:
        return self.folder or self.name

    @property
    def has_addresses(self) -> bool:
        return bool(self.files) and all(file.address for file in self.files)

    @property
    def origin(self) -> str:
        if self.has_addresses:
            return str(self.files[0].address).rsplit("/", 1)[0]
        return f"huggingface.co/datasets/{self.hub}" if self.hub else "a folder of yours"


@dataclass(frozen=True)
class Source:
    """Where one file of a set comes from."""

    name: str
    fetch: Callable[[Path], None]  # writes the file to a part file
    text_sha256: str | None = None
    hub_file: HubFile | None = None

    def is_here(self, path: Path, checksum: str | None) -> bool:
        """True if the file was fetched before, with `checksum` if SHA256SUMS lists it."""
        if checksum is None and self.hub_file is not None:
            return path.is_file() and self.hub_file.is_equal(path)
        return is_sound(path, checksum, self.text_sha256)


@cache
def public_datasets() -> tuple[PublicDataset, ...]:
    def parse(files: tuple[Any, ...] = (), patterns: tuple[str, ...] = (), **fields: Any) -> PublicDataset:
        return PublicDataset(
            files=tuple(DataFile(**file) for file in files), patterns=tuple(patterns), **fields
        )

    return tuple(parse(**each) for each in read_data("datasets")["dataset"])


def find_dataset(name: str) -> PublicDataset:
    by_name = {each.name: each for each in public_datasets()}
    if name not in by_name:
        raise DatasetError(f'no data set "{name}"{near_miss(name, by_name)}; "regard data list" shows all')
    return by_name[name]


def data_root(folder: Path | None) -> Path:
    """The folder of all data sets."""
    root = folder or os.environ.get(DATA_VARIABLE)
    if not root:
        raise DatasetError(f"no folder for data sets: set {DATA_VARIABLE}, or give --to FOLDER")
    return Path(root)


def get(dataset: PublicDataset, root: Path, mirror: Path | None, say: Say) -> int:
    """Download or copy the files that are missing or damaged; returns their number."""
    say(f"{dataset.name}: licence {dataset.licence}")
    folder = root / dataset.place
    if is_complete(dataset, folder):
        return 0
    mirror = mirror or (Path(os.environ[MIRROR_VARIABLE]) if os.environ.get(MIRROR_VARIABLE) else None)
    if mirror is not None and not mirror.is_dir():
        raise DatasetError(f"{mirror}: no such folder to copy from")
    sources = list(sources_in_folder(dataset, mirror) if mirror is not None else sources_online(dataset))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / LICENCE, licence_text(dataset.place))
    sums = read_sums(folder)
    new = 0
    for source in sources:
        path = folder / source.name
        if source.is_here(path, sums.get(source.name)):
            continue
        fetch(source, path)
        new += 1
        say(f"  data:{dataset.place}/{source.name}  {path.stat().st_size:,} bytes")
    sums |= {source.name: sha256(folder / source.name) for source in sources}
    write_text(folder / SUMS, format_sums(dict(sorted(sums.items()))))
    return new


def fetch(source: Source, path: Path) -> None:
    """Fetch a file aside, verify it, and give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    source.fetch(part)
    try:
        checksum = text_sha256(part)
        if source.text_sha256 not in (None, checksum):
            raise DownloadError(
                f"{source.name}: checksum {checksum[:12]} instead of {str(source.text_sha256)[:12]}; "
                "the file was deleted: the copy is damaged, or its source has changed"
            )
    except DownloadError:
        part.unlink()
        raise
    part.replace(path)


def sources_in_folder(dataset: PublicDataset, mirror: Path) -> Iterator[Source]:
    """All files of the catalogue, else those that match the patterns of the hub."""
    places = [mirror / dataset.place, mirror / dataset.name, mirror]
    paths = {
        file: next((at / file.name for at in places if (at / file.name).is_file()), None)
        for file in dataset.files
    }
    missing = [file.name for file, path in paths.items() if path is None]
    if paths and not missing:
        for file, path in paths.items():
            yield Source(file.name, partial(copy, cast(Path, path)), file.sha256)
        return
    for at in places:
        names = {path.relative_to(at).as_posix(): path for path in sorted(at.rglob("*")) if path.is_file()}
        if chosen := [name for name in names if matches(name, dataset.patterns)]:
            for name in chosen:
                yield Source(name, partial(copy, names[name]))
            return
    lacks = missing[0] if missing else " or ".join(dataset.patterns)
    raise DatasetError(f"{mirror} does not contain {dataset.name}: {dataset.place}/{lacks} is missing")


def sources_online(dataset: PublicDataset) -> Iterator[Source]:
    """All files at their addresses, else those of the hub."""
    if dataset.has_addresses:
        for file in dataset.files:
            yield Source(file.name, partial(download_text, file), file.sha256)
        return
    if dataset.hub is None:
        raise DatasetError(f"{dataset.name} cannot be downloaded; copy it from a folder with --from FOLDER")
    repository = open_repository(dataset.hub, "main", "dataset")
    listed = [each for each in repository.files if matches(each.name, dataset.patterns)]
    if not listed:
        raise DownloadError(f"{dataset.hub} has no file {' or '.join(dataset.patterns)} on the hub")
    for each in listed:
        yield Source(each.name, partial(repository.download, each), hub_file=each)


def copy(source: Path, part: Path) -> None:
    try:
        shutil.copyfile(source, part)
    except OSError as error:
        raise DownloadError(f"{error.filename or source}: cannot copy: {error.strerror}") from None


def download_text(file: DataFile, part: Path) -> None:
    """Download a file; a plain text whose name ends in .gz is compressed afterwards."""
    address = str(file.address)
    plain = part.with_name(part.name.replace(".gz.part", ".part"))
    if address.endswith(".gz"):
        plain = part
    with hub_errors(address, f"run the command again to resume, {COPY}"):
        download(address, plain)
    if plain == part:
        return
    with (
        plain.open("rb") as text,
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
    ):
        shutil.copyfileobj(text, packed)
    plain.unlink()


def names_of(dataset: PublicDataset, folder: Path) -> list[list[str]]:
    """The files of a set, as the catalogue names them, and as SHA256SUMS lists those of the hub."""
    listed = [name for name in read_sums(folder) if matches(name, dataset.patterns)]
    return [names for names in ([file.name for file in dataset.files], listed) if names]


def is_complete(dataset: PublicDataset, folder: Path) -> bool:
    """True if all files are here, with the right checksums."""
    sums, texts = read_sums(folder), {file.name: file.sha256 for file in dataset.files}
    return any(
        all(is_sound(folder / name, sums.get(name), texts.get(name)) for name in names)
        for names in names_of(dataset, folder)
    )


def is_sound(path: Path, checksum: str | None, text_checksum: str | None = None) -> bool:
    """True if a file has the checksum of SHA256SUMS or, if it is not listed there, of the catalogue."""
    if not path.is_file():
        return False
    if checksum is not None:
        return sha256(path) == checksum
    try:
        return text_checksum is not None and text_sha256(path) == text_checksum
    except DownloadError:
        return False


def is_present(dataset: PublicDataset, root: Path) -> bool:
    """True if all files are here, by name alone; `verify` reads them."""
    folder = root / dataset.place
    return any(all((folder / name).is_file() for name in names) for names in names_of(dataset, folder))


def verify(dataset: PublicDataset, root: Path) -> int:
    """Check every file that is here; returns their number."""
    folder, again = root / dataset.place, f'"regard data get {dataset.name}" downloads it'
    sums, texts = read_sums(folder), {file.name: file.sha256 for file in dataset.files}
    expected = {name for names in names_of(dataset, folder) for name in names}
    names = sorted(name for name in expected if name in sums or (folder / name).is_file())
    if not names:
        raise DatasetError(f"{dataset.name} is not in {folder}; {again}")
    for name in names:
        if not is_sound(folder / name, sums.get(name), texts.get(name)):
            problem = "checksum mismatch" if (folder / name).is_file() else "missing"
            raise DownloadError(f"{folder / name}: {problem}; {again}")
    return len(names)


def read_sums(folder: Path) -> dict[str, str]:
    try:
        return parse_sums((folder / SUMS).read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}


def write_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def licence_text(folder: str) -> str:
    """The licences of all sets in this folder."""
    return "".join(
        f"{each.name}: {each.about}.\nLicence: {each.licence}.\nFrom: {each.origin}\n\n"
        for each in public_datasets()
        if each.place == folder
    )


def text_sha256(path: Path) -> str:
    """SHA-256 of a text, uncompressed if it is a .gz file."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with cast(BinaryIO, gzip.open(path)) if packed else path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DownloadError(f"{path.name}: the gzip file is damaged or truncated ({error})") from None
