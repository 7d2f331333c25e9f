"""Ways to bring a file here: from a folder, an address, the hub. What breaks off can be gone on with."""

from __future__ import annotations

import fnmatch
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType

from regard.errors import RegardError, UsageError

PATIENCE = 60  # seconds without a byte
PORTION = 1 << 20
ELSEWHERE = "with a copy on this machine give its folder: --from FOLDER"


def copy(source: Path, part: Path) -> None:
    """Copy a file aside."""
    try:
        shutil.copyfile(source, part)
    except OSError as error:
        raise RegardError(f"{error.filename or source}: cannot copy it: {error.strerror}") from None


class Torn(RegardError):
    """A connection broke; what came until then is kept."""


def download(address: str, part: Path, login: str | None = None, otherwise: str = ELSEWHERE) -> None:
    """Fetch a file aside, from where an earlier attempt stopped. `login` is told to this address alone."""
    have = part.stat().st_size if part.exists() else 0
    wanted = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(address, headers={"User-Agent": "regard", **wanted})
    if login is not None:
        request.add_unredirected_header("Authorization", login)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            going_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            length = answer.headers.get("Content-Length")
            expected = int(length) + (have if going_on else 0) if length else None
            with part.open("ab" if going_on else "wb") as file:
                shutil.copyfileobj(answer, file, PORTION)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            part.unlink()  # what is here is as long as the file, or longer: it is fetched anew
            download(address, part, login, otherwise)
            return
        raise RegardError(f"{address}: the server says {error.code} {error.reason}; {otherwise}") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise torn(address, part, str(error) or type(error).__name__) from None
    except urllib.error.URLError as error:
        raise RegardError(f"{address}: cannot be reached ({error.reason}); {otherwise}") from None
    if expected is not None and part.stat().st_size < expected:
        raise torn(address, part, f"{part.stat().st_size:,} of {expected:,} bytes")


def torn(address: str, part: Path, reason: str) -> Torn:
    return Torn(f"{address}: the connection broke ({reason}); run the command again to go on from there")


def list_hub(name: str, patterns: Sequence[str]) -> list[str]:
    """The files of a dataset of the hub that match."""
    with_hub = hub_library()
    try:
        found = with_hub.HfApi(endpoint=endpoint()).list_repo_files(name, repo_type="dataset")
    except Exception as error:  # its errors are those of three libraries; each means that it cannot be had
        raise hub_error(name, error) from None
    files = [
        each
        for each in found
        if any(fnmatch.fnmatchcase(each, pattern) for pattern in patterns)
        and ".." not in PurePosixPath(each).parts  # a name leads nowhere else
    ]
    if not files:
        raise RegardError(f"the hub's {name} has no file {' or '.join(patterns)} (any more); {ELSEWHERE}")
    return files


def download_hub(name: str, file: str, staging: Path) -> Path:
    """Fetch a file of a dataset; the hub's library goes on where a connection broke."""
    with_hub = hub_library()
    try:
        return Path(
            with_hub.hf_hub_download(
                name, file, repo_type="dataset", local_dir=staging, endpoint=endpoint(), etag_timeout=PATIENCE
            )
        )
    except Exception as error:
        raise hub_error(f"{name}/{file}", error) from None


def hub_library() -> ModuleType:
    try:
        import_module("huggingface_hub.utils").disable_progress_bars()
        import_module("huggingface_hub.utils.logging").set_verbosity_error()  # each error is told once, by us
    except ImportError:
        raise UsageError('what comes from the hub needs its library: pip install "regard[hub]"') from None
    return import_module("huggingface_hub")


def endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def hub_error(what: str, error: Exception) -> RegardError:
    reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    return RegardError(f"the hub's {what} cannot be had: {reason}; run the command again, or {ELSEWHERE}")
