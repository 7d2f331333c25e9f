"""What `regard models pull`, `regard models push` and `regard data get` do on the hub, on `huggingface_hub`.

A file is downloaded to a part file, which a later call resumes; the caller renames it when it is complete.
HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE work as in all programs of the hub.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal

from regard.checksums import sha256
from regard.errors import RegardError, extra

TIMEOUT = 60  # seconds
RESUME = "run the command again to resume"
LOGIN = 'log in with "hf auth login", or set HF_TOKEN'
Kind = Literal["model", "dataset"]
_COMMIT = re.compile("[0-9a-f]{40}")


class DownloadError(RegardError):
    """A file could not be fetched, or is not what its source says."""

    default_code = "E_DOWNLOAD"


@dataclass(frozen=True)
class HubFile:
    """A file as the hub lists it."""

    name: str
    size: int | None
    sha256: str | None  # of a large file (LFS)
    git_hash: str | None  # of a small file

    def is_equal(self, path: Path) -> bool:
        """True if a local file has the size and checksum that the hub lists."""
        if self.size is not None and path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return sha256(path) == self.sha256
        return self.git_hash is None or git_hash(path) == self.git_hash


@dataclass(frozen=True)
class Repository:
    """One commit of a repository of the hub."""

    name: str  # owner/name
    kind: Kind
    commit: str
    files: tuple[HubFile, ...]
    private: bool = False

    def download(self, file: HubFile, part: Path) -> None:
        """Download a file to `part`, which is deleted if its checksum is wrong."""
        with hub_errors(f"{self.name}/{file.name}"):
            library = hub_library()
            address = library.hf_hub_url(
                self.name, file.name, repo_type=self.kind, revision=self.commit, endpoint=endpoint()
            )
            download(address, part, file.size, login=True)
        if not file.is_equal(part):
            part.unlink()
            raise DownloadError(
                f"{self.name}/{file.name}: checksum mismatch, the download was deleted; run the command again"
            )


def open_repository(name: str, revision: str, kind: Kind = "model") -> Repository:
    """The commit of a revision, and its files. Names that lead out of a folder are ignored."""
    with hub_errors(f"{name}@{revision}"):
        api = hub_library().HfApi(endpoint=endpoint())
        info = api.repo_info(name, revision=revision, repo_type=kind, files_metadata=True, timeout=TIMEOUT)
    if not _COMMIT.fullmatch(str(info.sha)):
        raise DownloadError(
            f"{name}@{revision}: the server names no commit; is HF_ENDPOINT the address of a hub?"
        )
    files = (
        HubFile(each.rfilename, each.size, each.lfs.sha256 if each.lfs else None, each.blob_id)
        for each in info.siblings or ()
        if is_plain(each.rfilename)
    )
    return Repository(name, kind, str(info.sha), tuple(files), bool(info.private))


def download(address: str, part: Path, size: int | None = None, login: bool = False) -> None:
    """Download to `part`, starting where an earlier attempt stopped.

    `login` sends the user's token to this host; huggingface_hub drops it when the host redirects elsewhere.
    """
    library = hub_library()
    headers = library.utils.build_hf_headers(token=None if login else False, library_name="regard")
    if size is not None and part.is_file() and part.stat().st_size >= size:
        part.unlink()
    part.touch()
    start = part.stat().st_size
    try:
        with part.open("r+b") as file:
            file.seek(start)
            import_module("huggingface_hub.file_download").http_get(
                address,
                file,
                resume_size=start,
                headers={**headers, "Accept-Encoding": "identity"},  # a range counts bytes of the file itself
                expected_size=size,
            )
    except Exception as error:
        range_error = start and status_of(error) == 416  # the part is as long as the file, or longer
        if range_error or not part.stat().st_size:
            part.unlink()
        if not range_error:
            raise
        download(address, part, size, login)


def hub_library() -> ModuleType:
    with extra("hub"):
        library = import_module("huggingface_hub")
        for name in ("constants", "errors", "utils", "utils.logging"):
            import_module(f"huggingface_hub.{name}")  # not all versions import them
    library.utils.disable_progress_bars()
    library.utils.logging.set_verbosity_error()  # errors are reported once, by `hub_errors`
    return library


def endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


@contextmanager
def hub_errors(what: str, advice: str = RESUME, doing: str = "download") -> Iterator[None]:
    """Report what huggingface_hub and its HTTP library raise as one sentence."""
    try:
        yield
    except RegardError:
        raise
    except Exception as error:
        raise DownloadError(explain(what, error, advice, doing)) from None


def explain(what: str, error: Exception, advice: str, doing: str = "download") -> str:
    """`what` is an address, owner/name@revision, or owner/name/file."""
    library = hub_library()
    errors, repository = library.errors, "/".join(what.split("@")[0].split("/")[:2])
    status = status_of(error)
    if isinstance(error, errors.GatedRepoError):
        address = endpoint() or library.constants.ENDPOINT
        return f"{repository} is gated: accept its terms at {address}/{repository}, {LOGIN}, and try again"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what}: the repository has no such revision; give a branch, a tag or a commit"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no repository {repository}: check the spelling; if it is private, {LOGIN}"
    if status in (401, 403):
        may = "read it" if doing == "download" else "write there, with a token that may write"
        return f"{what}: access denied ({status}); {LOGIN} of an account that may {may}"
    reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    reason = f"the server answered {status}" if status and "://" in what else reason
    return f"{what}: {doing} failed ({reason}); {advice}"


def status_of(error: Exception) -> int | None:
    response: Any = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """A star in a pattern does not match "/"."""
    return any(name.count("/") == each.count("/") and fnmatch.fnmatchcase(name, each) for each in patterns)


def is_plain(name: str) -> bool:
    """True for a relative path that stays inside its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def git_hash(path: Path) -> str:
    """SHA-1 as git computes it: of "blob", the size and the bytes."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
