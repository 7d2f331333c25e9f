"""`regard models pull`: download a model from the hub, verify every file, and check that Regard opens it.

A commit is downloaded to a folder `.part-COMMIT`, which a later call resumes. It gets its name when every
file has the checksum that the hub lists and the model opens. Weights that are a pickle are converted to
safetensors (`importing.py`) and not kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.checksums import SUMS, format_sums, sha256
from regard.data.hub import HubFile, Repository, matches, open_repository
from regard.errors import UsageError
from regard.storage.files import friendly_os_errors, write_text
from regard.storage.folder import describe, is_bare_encoder, open_encoder, open_folder
from regard.storage.importing import PICKLE, convert, pickles_of
from regard.storage.importing import PICKLES as PICKLE_INDEX
from regard.storage.models import (
    MAIN,
    RECORD,
    HubName,
    PulledModel,
    commits_in,
    find_pulled,
    model_root,
    now,
    parse_hub_name,
    read_record,
    release_revisions,
    write_record,
)
from regard.storage.weights import INDEX, WEIGHTS

OFFLINE_VARIABLE = "HF_HUB_OFFLINE"
SHARDS = "model-*.safetensors"  # listed in an index
PICKLES = (PICKLE, PICKLE_INDEX, "pytorch_model-*.bin")
# All other files that Regard reads; code and other formats are never downloaded or uploaded. The last two
# lines are of sentence-transformers, which describe how to compute the vector of a text.
FILES = """
    config.json generation_config.json run.toml tokenizer.json tokenizer_config.json special_tokens_map.json
    added_tokens.json target_tokenizer*.json target_vocab.json vocab.json vocab.txt merges.txt *.spm
    spiece.model tokenizer.model preprocessor_config.json calibration.json README.md LICEN[CS]E* NOTICE*
    chat_template.jinja modules.json sentence_bert_config.json config_sentence_transformers.json
    [0-9]_*/config.json [0-9]_*/model.safetensors
""".split()  # noqa: SIM905
Say = Callable[[str], None]


def is_offline(option: bool) -> bool:
    return option or os.environ.get(OFFLINE_VARIABLE, "").upper() in ("1", "ON", "YES", "TRUE")


def pull(
    text: str,
    say: Say,
    offline: bool = False,
    update: bool = False,
    keep: bool = False,
    pickle: bool = False,
) -> tuple[PulledModel, bool]:
    """The model of a name, and whether it is new. A revision that is on this machine needs no connection.

    `update` asks the hub for the current commit of a branch; `keep` keeps a model that Regard cannot open;
    `pickle` downloads and converts weights that are a pickle, if there are no others.
    """
    name, offline = parse_hub_name(text), is_offline(offline)
    revision = name.revision or MAIN
    model = find_pulled(name if offline else HubName(name.name, revision))
    damaged = [file for file, _ in model.damage()] if model else []
    if model and not damaged and (offline or not update or model.commit == revision):
        return (model if offline else make_current(model, revision)), False
    if offline:
        problem = f"{damaged[0]} of {name} is damaged" if damaged else f"{name} is not on this machine"
        raise UsageError(
            f'{problem}, and --offline or {OFFLINE_VARIABLE} is set; "regard models pull {name}" '
            "downloads it when there is a connection",
            code="E_HUB_OFFLINE",
        )
    repository = open_repository(name.name, model.commit if model and damaged else revision)
    existing = read_record(model_root(name.name) / repository.commit)
    if existing is not None and not any(existing.damage()):
        return make_current(existing, revision), False
    files = select_files(repository, str(name), pickle)
    part = part_folder(repository, existing)
    size = sum(file.size or 0 for file in files) / 2**20
    say(f"{name.name} at {repository.commit[:12]}: {len(files)} files, {size:,.1f} MiB")
    download_all(repository, files, part, keep, say)
    revisions = {*(existing.revisions if existing else ()), revision}
    branches = tuple(each for each in revisions if not repository.commit.startswith(each))
    return finish(repository, branches, files, part), True


def make_current(model: PulledModel, revision: str) -> PulledModel:
    """Record that a commit was pulled again, perhaps by another name: a bare name means it from now on."""
    if model.matches(revision) and commits_in(model.path.parent)[0].commit == model.commit:
        return model
    new = () if model.matches(revision) else (revision,)
    model = replace(model, revisions=(*model.revisions, *new), time=now())
    write_record(model)
    release_revisions(model.path.parent, model.commit, new)
    return model


def select_files(repository: Repository, name: str, pickle: bool) -> list[HubFile]:
    """The files that Regard reads, weights last."""

    def select(*patterns: str) -> list[HubFile]:
        files = (file for file in repository.files if matches(file.name, patterns))
        return sorted(files, key=lambda file: file.name)

    weights = select(WEIGHTS) or (select(INDEX, SHARDS) if select(INDEX) else [])
    pickles, problem = select(*PICKLES), ""
    if not select("config.json"):
        problem = "is not a model that Regard opens: it has no config.json"
    elif not weights and not pickles:
        problem = f"has no {WEIGHTS}, and no other weights that Regard reads"
    elif not weights and not pickle:
        problem = f"has its weights only as {pickles[0].name}, a pickle; "
        problem += f'"regard models pull {name} --pickle" downloads and converts it'
    if problem:
        raise UsageError(f"{name} {problem}", code="E_HUB_MODEL")
    return sorted([*select(*FILES), *(weights or pickles)], key=is_weights)


def is_weights(file: HubFile) -> bool:
    return file.name.endswith((".safetensors", ".bin"))


def part_folder(repository: Repository, existing: PulledModel | None) -> Path:
    """The folder for a download; intact files of a damaged model are reused."""
    part = model_root(repository.name) / f".part-{repository.commit}"
    with friendly_os_errors(part):
        if existing is not None:
            damaged = [file for file, _ in existing.damage()]
            shutil.rmtree(part, ignore_errors=True)
            existing.path.rename(part)
            for file in (*damaged, RECORD, SUMS):
                (part / file).unlink(missing_ok=True)
        part.mkdir(parents=True, exist_ok=True)
    return part


def download_all(repository: Repository, files: list[HubFile], folder: Path, keep: bool, say: Say) -> None:
    """Download and verify every file; check the configuration before the weights are downloaded."""
    checked = False
    for file in files:
        if is_weights(file) and not checked:
            check_opens(repository.name, folder, describe, keep, say)
            checked = True
        path = folder / file.name
        if not (path.is_file() and file.is_equal(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            repository.download(file, part)
            part.replace(path)
        say(f"  {file.name}  {path.stat().st_size:,} bytes")
    check_opens(repository.name, folder, convert_and_open, keep, say)


def convert_and_open(folder: Path) -> None:
    """Open a model; a pickle is converted first, in a process of its own, and deleted."""
    if (folder / PICKLE).is_file() or (folder / PICKLE_INDEX).is_file():
        for name in (WEIGHTS, INDEX):  # of a conversion that was interrupted
            (folder / name).unlink(missing_ok=True)
        parts = pickles_of(folder)
        convert(parts, folder)
        for path in (*parts, folder / PICKLE_INDEX):
            path.unlink(missing_ok=True)
    (open_encoder if is_bare_encoder(folder) else open_folder)(folder)


def check_opens(name: str, folder: Path, open_: Callable[[Path], object], keep: bool, say: Say) -> None:
    """Delete a model that Regard cannot open, unless `keep` is set."""
    try:
        open_(folder)
    except UsageError as error:
        reason = str(error).replace(f"{folder}{os.sep}", "").replace(str(folder), "it")
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            message = f"{name} cannot be opened: {reason}; it was deleted (--keep keeps it)"
            raise UsageError(message, code=error.code) from None
        say(f"kept, though it cannot be opened: {reason}")


def finish(
    repository: Repository, revisions: tuple[str, ...], files: list[HubFile], part: Path
) -> PulledModel:
    """Write the record and give the folder its name."""
    names = {file.name for file in files} | {path.name for path in part.glob("*.safetensors*")}
    sums = {name: sha256(part / name) for name in sorted(names) if (part / name).is_file()}
    write_text(part / SUMS, format_sums(sums))
    model = PulledModel(repository.name, repository.commit, revisions, now(), sums, part)
    write_record(model)
    path = part.with_name(repository.commit)
    with friendly_os_errors(path):
        if path.exists() and read_record(path) is None:  # without a record it is not a model
            shutil.rmtree(path)
        part.rename(path)
    release_revisions(path.parent, model.commit, revisions)
    return replace(model, path=path)
