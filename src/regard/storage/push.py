"""`regard models push`: a model folder as a repository of the hub, in one commit.

A new repository is private unless `public` is set, and a public one needs a card with a licence. One that
has other content is left alone unless `force` is set; then the commit replaces the files that Regard reads,
and the earlier ones stay in its history. A commit is made only on top of the one that was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from regard.data.hub import (
    LOGIN,
    HubFile,
    Repository,
    endpoint,
    hub_errors,
    hub_library,
    matches,
    open_repository,
)
from regard.errors import RegardError, UsageError
from regard.storage.folder import is_bare_encoder, open_encoder, open_folder, run_of
from regard.storage.models import MAIN, find_model, front_matter, parse_hub_name
from regard.storage.pull import FILES, OFFLINE_VARIABLE, SHARDS, is_offline
from regard.storage.weights import INDEX, WEIGHTS

Say = Callable[[str], None]
MODEL_FILES = (*FILES, WEIGHTS, INDEX, SHARDS)
CARD = "README.md"
AGAIN = "run the command again; what is uploaded is not sent twice"


@dataclass(frozen=True)
class PushedModel:
    """A commit on the hub that has the files of a folder."""

    name: str
    commit: str
    address: str
    private: bool
    files: tuple[str, ...]
    is_new: bool  # False if it had these files already


def push(source: Path, text: str, say: Say, public: bool = False, force: bool = False) -> PushedModel:
    """Upload a model folder; raises before anything is sent if it does not open, or may not go there."""
    name = parse_hub_name(text)
    if name.revision is not None or "/" not in name.name:
        raise UsageError(f'"{text}": write owner/name; a commit goes to the branch {MAIN}', code="E_HUB_NAME")
    if is_offline(False):
        raise UsageError(f"{OFFLINE_VARIABLE} is set: nothing is uploaded", code="E_HUB_OFFLINE")
    folder = find_model(source)
    if run_of(folder):
        raise UsageError(f"{source} is a checkpoint: push the folder of its run", code="E_MODEL_FOLDER")
    (open_encoder if is_bare_encoder(folder) else open_folder)(folder)
    check_card(folder, public, say)
    if hub_library().get_token() is None:
        raise UsageError(f"{name}: to upload, {LOGIN}", code="E_HUB_LOGIN")
    files = sorted(each for each in folder.rglob("*") if is_model_file(folder, each))
    names = tuple(each.relative_to(folder).as_posix() for each in files)
    repository = existing_repository(name.name)
    if repository is None:
        repository = create_repository(name.name, public)
    elif is_equal(repository, folder, names):
        return pushed(repository, names, is_new=False)
    else:
        check_replaceable(repository, names, public, force)
    size = sum(each.stat().st_size for each in files) / 2**20
    say(f"{name.name}: {len(files)} files, {size:,.1f} MiB: {', '.join(names)}")
    commit_files(repository, folder, names)
    after = existing_repository(name.name)
    if after is None or not is_equal(after, folder, names):
        raise RegardError(f"{name.name}: the hub lists other files than were sent", code="E_HUB_PUSH")
    return pushed(after, names, is_new=True)


def pushed(repository: Repository, names: tuple[str, ...], is_new: bool) -> PushedModel:
    address = f"{endpoint() or hub_library().constants.ENDPOINT}/{repository.name}"
    return PushedModel(repository.name, repository.commit, address, repository.private, names, is_new)


def check_card(folder: Path, public: bool, say: Say) -> None:
    """A public model needs a card that names a licence; of a private one it is a warning."""
    if not (folder / CARD).is_file():
        problem = f"{folder} has no {CARD}: write what the model is, its data and its limits"
    elif not front_matter(folder).get("license"):
        problem = f'{folder / CARD} names no licence: add a line such as "license: cc-by-4.0" to its head'
    else:
        return
    if public:
        raise UsageError(f"{problem}; without it others may not use a public model", code="E_HUB_CARD")
    say(f"warning: {problem}")


def is_model_file(folder: Path, path: Path) -> bool:
    """Whether a file belongs to the model; checkpoints, metrics, outputs and reports of a run do not."""
    return matches(path.relative_to(folder).as_posix(), MODEL_FILES) and path.is_file()


def existing_repository(name: str) -> Repository | None:
    """The current commit; None if the hub has no such repository, or this account may not read it."""
    library = hub_library()
    with hub_errors(name, AGAIN, "upload"):
        if not library.HfApi(endpoint=endpoint()).repo_exists(name):
            return None
    return open_repository(name, MAIN)


def create_repository(name: str, public: bool) -> Repository:
    with hub_errors(name, AGAIN, "upload"):
        hub_library().HfApi(endpoint=endpoint()).create_repo(name, private=not public)
    return open_repository(name, MAIN)


def is_equal(repository: Repository, folder: Path, names: Iterable[str]) -> bool:
    """Whether a commit has these files with this content, and no other file that Regard reads."""
    names, listed = set(names), model_files(repository)
    return names == set(listed) and all(listed[name].is_equal(folder / name) for name in names)


def model_files(repository: Repository) -> dict[str, HubFile]:
    return {file.name: file for file in repository.files if matches(file.name, MODEL_FILES)}


def check_replaceable(repository: Repository, names: Iterable[str], public: bool, force: bool) -> None:
    """Refuse to publish what should be private, and to replace what is there."""
    name = repository.name
    if repository.private == public:
        state, advice = ("private", "make it public on its page first, or leave out --public")
        if public is False:
            state, advice = ("public", "push with --public, or to another name")
        raise UsageError(f"{name} exists and is {state}: {advice}", code="E_HUB_VISIBILITY")
    others = [file.name for file in repository.files if file.name != ".gitattributes"]
    if others and not force:
        some = ", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else "")
        raise UsageError(
            f"{name} has other content ({some}); --force replaces the files of the model by a new commit",
            code="E_HUB_CONTENT",
        )


def commit_files(repository: Repository, folder: Path, names: Iterable[str]) -> None:
    library, names = hub_library(), set(names)
    stale = sorted(set(model_files(repository)) - names)
    operations = [library.CommitOperationAdd(name, str(folder / name)) for name in sorted(names)]
    operations += [library.CommitOperationDelete(name) for name in stale]
    with hub_errors(repository.name, AGAIN, "upload"):
        library.HfApi(endpoint=endpoint()).create_commit(
            repository.name, operations, commit_message="Model of Regard", parent_commit=repository.commit
        )
