"""`regard data get`: bring a public set here, check it, and say whose it is.

A file gets its name when it is whole and its checksum right, never before. Checksums of the files as they
lie here stand in SHA256SUMS beside them, so `sha256sum -c` checks them too.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from regard.data.catalogue import SETS, File, PublicSet
from regard.data.files import DATA_VARIABLE
from regard.data.transport import copy, download, download_hub, list_hub
from regard.errors import RegardError, UsageError

MIRROR_VARIABLE = "REGARD_DATA_MIRROR"
SUMS, LICENCE = "SHA256SUMS", "LICENCE.txt"
Bring = Callable[[Path], Path]  # puts a file aside, at the given path or where it says
Say = Callable[[str], None]


def data_root(given: Path | None) -> Path:
    """Where sets are kept."""
    root = given or os.environ.get(DATA_VARIABLE)
    if not root:
        raise UsageError(f"where to? Set {DATA_VARIABLE} to the folder of your corpora, or give --to FOLDER")
    return Path(root)


def get(wanted: PublicSet, root: Path, mirror: Path | None, say: Say) -> int:
    """Bring what is not here yet; gives the number of new files."""
    say(f"{wanted.name}: licence {wanted.licence}")
    folder = root / wanted.place
    if is_here(wanted, folder):
        return 0
    mirror = mirror or (Path(os.environ[MIRROR_VARIABLE]) if os.environ.get(MIRROR_VARIABLE) else None)
    if mirror is not None and not mirror.is_dir():
        raise UsageError(f"{mirror}: no such folder to copy from")
    files = list(from_folder(wanted, mirror) if mirror is not None else from_net(wanted, folder))
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / LICENCE, licence_text(wanted.place))
    new = 0
    for name, expected, bring in files:
        if not sound(folder, name, expected):
            place(folder, name, expected, bring)
            new += 1
            say(f"  data:{wanted.place}/{name}  {(folder / name).stat().st_size:,} bytes")
    shutil.rmtree(folder / ".hub", ignore_errors=True)
    return new


def from_folder(wanted: PublicSet, mirror: Path) -> Iterator[tuple[str, str | None, Bring]]:
    """The files of a set in a copy of it: all that are known by name, or all that the hub would give."""
    places = [mirror / wanted.place, mirror / wanted.name, mirror]
    known = [
        (file, next((at / file.name for at in places if (at / file.name).is_file()), None))
        for file in wanted.files
    ]
    missing = [file.name for file, at in known if at is None]
    if known and not missing:
        for file, at in known:
            yield file.name, file.sha256, copier(cast(Path, at))
        return
    for at in places:
        found = sorted(path for path in at.rglob("*") if path.is_file()) if wanted.patterns else []
        names = {path.relative_to(at).as_posix(): path for path in found}
        chosen = [name for name in names if matches(name, wanted.patterns)]
        if chosen:
            for name in chosen:
                yield name, None, copier(names[name])
            return
    lacks = missing[0] if missing else " or ".join(wanted.patterns)
    raise UsageError(f"{mirror} does not hold {wanted.name}: it has no {wanted.place}/{lacks}")


def from_net(wanted: PublicSet, folder: Path) -> Iterator[tuple[str, str | None, Bring]]:
    """The files of a set at their addresses, or at the hub."""
    if wanted.downloadable:
        for file in wanted.files:
            yield file.name, file.sha256, downloader(file)
    elif wanted.hub is not None:
        for name in list_hub(wanted.hub, wanted.patterns):
            yield name, None, hub_downloader(wanted.hub, name, folder / ".hub")
    else:
        raise UsageError(f"{wanted.name} has no address to fetch it from; copy it with --from FOLDER")


def copier(source: Path) -> Bring:
    def bring(part: Path) -> Path:
        copy(source, part)
        return part

    return bring


def downloader(file: File) -> Bring:
    """A plain text whose name ends in .gz is packed when it is whole."""

    def bring(part: Path) -> Path:
        address = str(file.address)
        if address.endswith(".gz") or not file.name.endswith(".gz"):
            download(address, part)
            return part
        plain = part.with_name(part.name.replace(".gz.part", ".part"))
        download(address, plain)
        with (
            plain.open("rb") as text,
            part.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(text, packed)
        plain.unlink()
        return part

    return bring


def hub_downloader(name: str, file: str, staging: Path) -> Bring:
    return lambda part: download_hub(name, file, staging)


def place(folder: Path, name: str, expected: str | None, bring: Bring) -> None:
    """Bring a file aside, check it, give it its name, and note its checksum."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    brought = bring(target.with_name(f".{target.name}.part"))
    try:
        found = text_sum(brought)
        if expected is not None and found != expected:
            raise RegardError(
                f"{name}: its text has the checksum {found[:12]}..., the catalogue says {expected[:12]}...; "
                "it was not kept: the copy is damaged, or the source has changed"
            )
    except RegardError:
        brought.unlink()
        raise
    noted = read_sums(folder) | {name: file_sum(brought)}
    os.replace(brought, target)  # noqa: PTH105
    write(folder / SUMS, "".join(f"{value}  {key}\n" for key, value in sorted(noted.items())))


def is_here(wanted: PublicSet, folder: Path) -> bool:
    """Whether a set is here whole, without asking anyone."""
    if wanted.files and all(sound(folder, file.name, file.sha256) for file in wanted.files):
        return True
    noted = [name for name in read_sums(folder) if matches(name, wanted.patterns)]
    complete = (folder / LICENCE).is_file() and not (folder / ".hub").exists()
    return bool(noted) and complete and all(sound(folder, name, None) for name in noted)


def sound(folder: Path, name: str, expected: str | None) -> bool:
    """Whether a file is here as it was when it came, or as the catalogue knows it."""
    path, noted = folder / name, read_sums(folder).get(name)
    if not path.is_file():
        return False
    if noted is not None:
        return file_sum(path) == noted
    try:
        return expected is not None and text_sum(path) == expected
    except RegardError:
        return False


def present(wanted: PublicSet, root: Path) -> bool:
    """Whether the files of a set are here, by name alone: `verify` reads them."""
    folder = root / wanted.place
    noted = [name for name in read_sums(folder) if matches(name, wanted.patterns)]
    names = [file.name for file in wanted.files]
    return any(chosen and all((folder / name).is_file() for name in chosen) for chosen in (names, noted))


def verify(wanted: PublicSet, root: Path) -> int:
    """Check every file that is here; gives their number."""
    folder = root / wanted.place
    sums = read_sums(folder)
    known = {file.name: file.sha256 for file in wanted.files}
    names = sorted(
        {name for name in sums if name in known or matches(name, wanted.patterns)}
        | {name for name in known if (folder / name).is_file()}
    )
    if not names:
        raise UsageError(f'{wanted.name} is not in {folder}; "regard data get {wanted.name}" brings it')
    for name in names:
        if not (folder / name).is_file():
            raise RegardError(f'{folder / name} is missing; "regard data get {wanted.name}" brings it again')
        if not sound(folder, name, known.get(name)):
            raise RegardError(
                f"{folder / name} is not what it was: its checksum has changed; "
                f'"regard data get {wanted.name}" brings it again'
            )
    return len(names)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def read_sums(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


def licence_text(folder: str) -> str:
    """What every set that lies in this folder may be used for."""
    own = [each for each in SETS if each.place == folder]
    return "".join(
        f"{each.name}: {each.about}.\nLicence: {each.licence}.\nFrom: {each.origin}\n\n" for each in own
    )


def write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def file_sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sum(path: Path) -> str:
    """The checksum of what a file says, unpacked if it is packed."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with cast(BinaryIO, gzip.open(path)) if packed else path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RegardError(f"{path.name}: the gzip file is damaged or cut short ({error})") from None
