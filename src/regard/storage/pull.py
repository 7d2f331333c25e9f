"""`regard models pull`: bring a model of the hub here, checked file by file, and see that it opens.

A commit is fetched aside, in a folder that a later attempt goes on with, and gets its name when every file is
as the hub lists it and Regard can open the model.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from regard.data.transport import PATIENCE, Torn, download, endpoint, hub_library
from regard.errors import RegardError, UsageError
from regard.storage import models
from regard.storage.body import is_body, open_body
from regard.storage.files import read_json, sha256, told_plainly
from regard.storage.folder import load_tokenizers, open_folder
from regard.storage.huggingface import model_config, task_of
from regard.storage.models import MAIN, Pulled, Wanted
from regard.storage.weights import INDEX, WEIGHTS

AGAIN = "run the command again to go on from there"
OFFLINE_VARIABLE = "HF_HUB_OFFLINE"
PARTS = "model-*.safetensors"  # of an index
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")
FILES = (  # what is read, besides the weights
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "target_tokenizer*.json",
    "target_vocab.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.spm",
    "spiece.model",
    "tokenizer.model",
    "run.toml",
    "README.md",
    "LICEN[CS]E*",
    "NOTICE*",
    "modules.json",  # from here on: how a text's vector is made
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Listed:
    """A file as the hub lists it."""

    name: str
    size: int | None
    sha256: str | None  # of a large one
    git: str | None  # the hash that git gives a small one


def is_offline(wished: bool) -> bool:
    """Whether the user wants no connection, here or in the variable that all of the hub's programs obey."""
    return wished or os.environ.get(OFFLINE_VARIABLE, "").upper() in ("1", "ON", "YES", "TRUE")


def pull(
    text: str,
    say: Say,
    offline: bool = False,
    update: bool = False,
    keep: bool = False,
    pickle: bool = False,
) -> tuple[Pulled, bool]:
    """The model that a name means, and whether it is new here. A revision that is here asks nobody.

    `update` asks what a branch is now; `keep` keeps what Regard cannot open; `pickle` brings weights that are
    a pickle, for `regard import`.
    """
    wanted, alone = models.parse(text), is_offline(offline)
    revision = wanted.revision or MAIN
    found = models.find(wanted if alone else Wanted(wanted.name, revision))
    damaged = [name for name, _ in models.faults(found)] if found else []
    if found and not damaged and (alone or not update or found.revision == revision):
        return (found if alone else current(found, revision)), False
    if alone:
        state = f"{damaged[0]} of {wanted} is damaged" if damaged else f"{wanted} is not here"
        raise UsageError(
            f'{state}, and nothing is fetched with --offline or {OFFLINE_VARIABLE}; "regard models pull '
            f'{wanted}" brings it once there is a connection'
        )
    commit, listed = ask(wanted.name, found.revision if damaged and found else revision)
    known = models.read(models.home(wanted.name) / commit)
    if known is not None and not any(models.faults(known)):
        return current(known, revision), False
    asked = {*([] if commit.startswith(revision) else [revision]), *(known.asked if known else ())}
    chosen = choose(listed, str(wanted), pickle)
    aside = staging(wanted.name, commit, known)
    say(f"{wanted.name} at {commit[:12]}: {len(chosen)} files, {megabytes(chosen)}")
    bring_all(wanted.name, commit, chosen, aside, keep or pickle, say)
    return settle(wanted.name, commit, tuple(sorted(asked)), chosen, aside), True


def current(found: Pulled, asked: str) -> Pulled:
    """What is here, as the one that the bare name means from now on."""
    newest = models.commits(found.path.parent)[0]
    same = newest.revision == found.revision and found.answers(asked)
    return found if same else models.mean_from_now_on(found, asked)


def ask(name: str, revision: str) -> tuple[str, list[Listed]]:
    """The commit that a revision is, and its files."""
    with_hub = hub_library()
    try:
        told = with_hub.HfApi(endpoint=endpoint()).model_info(
            name, revision=revision, files_metadata=True, timeout=PATIENCE
        )
    except Exception as error:  # its errors are those of three libraries; each means that it cannot be had
        raise explained(f"{name}@{revision}", error) from None
    if not models.is_commit(told.sha):
        raise RegardError(
            f"the hub names no commit of {name}@{revision}; is HF_ENDPOINT the address of a hub?"
        )
    return told.sha, [
        Listed(each.rfilename, each.size, each.lfs.sha256 if each.lfs else None, each.blob_id)
        for each in told.siblings or ()
    ]


def choose(listed: Iterable[Listed], wanted: str, pickle: bool) -> list[Listed]:
    """What is read of all that a repository holds, the weights last."""
    files = {each.name: each for each in listed if is_plain(each.name)}
    weights = chosen(files, (WEIGHTS,)) or (chosen(files, (INDEX, PARTS)) if INDEX in files else [])
    pickled = chosen(files, PICKLES)
    if "config.json" not in files:
        raise UsageError(f"{wanted} is not a model that Regard opens: it has no config.json")
    if not weights and not pickled:
        raise UsageError(f"{wanted} has no {WEIGHTS}, and nothing else that Regard reads weights from")
    if not weights and not pickle:
        raise UsageError(
            f'{wanted} has its weights as {pickled[0].name} alone; "regard models pull {wanted} --pickle" '
            'brings it, and "regard import" makes of it a folder that can be opened'
        )
    return sorted([*chosen(files, FILES), *(weights or pickled)], key=is_weights)


def is_weights(file: Listed) -> bool:
    return file.name.endswith((".safetensors", ".bin"))


def chosen(files: dict[str, Listed], patterns: Iterable[str]) -> list[Listed]:
    return [file for name, file in sorted(files.items()) if any(matches(name, each) for each in patterns)]


def matches(name: str, pattern: str) -> bool:
    """A pattern's star does not reach into folders."""
    return name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern)


def is_plain(name: str) -> bool:
    """A name leads nowhere else."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def staging(name: str, commit: str, known: Pulled | None) -> Path:
    """Where the files are put together; those of a damaged folder that are sound serve again."""
    aside = models.home(name) / f".part-{commit}"
    with told_plainly(aside):
        if known is not None:
            wrong = [file for file, _ in models.faults(known)]
            shutil.rmtree(aside, ignore_errors=True)
            known.path.rename(aside)
            for file in (*wrong, models.RECORD):
                (aside / file).unlink(missing_ok=True)
        aside.mkdir(parents=True, exist_ok=True)
    return aside


def bring_all(name: str, commit: str, files: list[Listed], aside: Path, keep: bool, say: Say) -> None:
    """Every file, and the model opened; what cannot be opened is found out before its weights are fetched."""
    seen = False
    for file in files:
        if is_weights(file) and not seen:
            judge(name, aside, lambda: look_at(aside), keep, say)
            seen = True
        bring(name, commit, file, aside)
        say(f"  {file.name}  {(aside / file.name).stat().st_size:,} bytes")
    judge(name, aside, lambda: (open_body if is_body(aside) else open_folder)(aside), keep, say)


def look_at(folder: Path) -> None:
    """Whether Regard knows such a model and such a tokenizer."""
    file = folder / "config.json"
    content = read_json(file)
    model_config(content, str(file))
    task_of(content, str(file))
    load_tokenizers(folder, content)


def bring(name: str, commit: str, file: Listed, aside: Path) -> None:
    """One file; it gets its name when its bytes are those that the hub lists."""
    path = aside / file.name
    if path.is_file() and is_as_listed(path, file):
        return
    part = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (part.is_file() and is_as_listed(part, file)):
        fetch(*locate(name, commit, file.name), part)
    if not is_as_listed(part, file):
        part.unlink()
        raise RegardError(
            f"{name}/{file.name}: its bytes are not those that the hub lists, and it was not kept; "
            "run the command again, and if that does not help, ask whoever runs the connection"
        )
    part.replace(path)


def fetch(address: str, login: str | None, part: Path) -> None:
    """Go on where a connection breaks, as long as each attempt brings something."""
    part.touch()
    while True:
        before = part.stat().st_size
        try:
            return download(address, part, login, AGAIN)
        except Torn:
            if part.stat().st_size <= before:
                raise


def locate(name: str, commit: str, file: str) -> tuple[str, str | None]:
    """Where a file lies, and what to tell there of who asks: a store elsewhere is not told the login."""
    with_hub = hub_library()
    address = with_hub.hf_hub_url(name, file, revision=commit, endpoint=endpoint())
    try:
        told = with_hub.get_hf_file_metadata(address, timeout=PATIENCE, endpoint=endpoint())
    except Exception as error:
        raise explained(f"{name}/{file}", error) from None
    login = with_hub.utils.build_hf_headers().get("authorization")
    same = urlsplit(told.location).netloc == urlsplit(address).netloc
    return told.location, login if same else None


def is_as_listed(path: Path, file: Listed) -> bool:
    if file.size is not None and path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return sha256(path) == file.sha256
    return file.git is None or git_hash(path) == file.git


def git_hash(path: Path) -> str:
    """What git calls a file: SHA-1 of "blob", its size and its bytes."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def judge(name: str, aside: Path, look: Callable[[], object], keep: bool, say: Say) -> None:
    """Whether Regard takes the folder; one that it does not take is kept only where that was wished."""
    try:
        look()
    except UsageError as error:
        reason = str(error).replace(f"{aside}{os.sep}", "").replace(str(aside), "it")
        if not keep:
            shutil.rmtree(aside, ignore_errors=True)
            raise UsageError(f"{name} cannot be opened: {reason}; it was not kept (--keep does)") from None
        say(f"kept, though it cannot be opened: {reason}")


def settle(name: str, commit: str, asked: tuple[str, ...], files: list[Listed], aside: Path) -> Pulled:
    """Give the folder its name."""
    made = models.record(aside, name, commit, asked, {file.name: sha256(aside / file.name) for file in files})
    final = models.home(name) / commit
    with told_plainly(final):
        if final.exists() and models.read(final) is None:  # a folder that somebody left without its record
            shutil.rmtree(final)
        aside.rename(final)
    models.take_names(final.parent, commit, asked)
    return replace(made, path=final)


def megabytes(files: Iterable[Listed]) -> str:
    return f"{sum(file.size or 0 for file in files) / 2**20:,.1f} MiB"


def explained(what: str, error: Exception) -> RegardError:
    """What keeps the hub from giving something, and what to do."""
    with_hub = hub_library()
    errors, name = with_hub.errors, what.split("@")[0]
    owner = "/".join(name.split("/")[:2])
    status = getattr(getattr(error, "response", None), "status_code", None)
    log_in = 'log in with "hf auth login", or set HF_TOKEN'
    if isinstance(error, errors.GatedRepoError):
        address = endpoint() or with_hub.constants.ENDPOINT
        return RegardError(
            f"{owner} is gated: accept its terms at {address}/{owner}, {log_in}, and pull again"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return RegardError(f"{what}: the model has no such revision; give a branch, a tag or a commit")
    if isinstance(error, errors.RepositoryNotFoundError):
        return RegardError(
            f"the hub shows no model {owner}: look at the spelling; if it is private, {log_in}"
        )
    if status in (401, 403):
        return RegardError(
            f"the hub refuses {what} to this login ({status}): {log_in} of one who may read it"
        )
    reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    return RegardError(f"the hub's {what} cannot be had: {reason}; {AGAIN}")
