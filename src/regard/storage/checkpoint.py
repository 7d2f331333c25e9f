"""Generations of a run: `checkpoints/step-N/`, complete or not there.

A generation is written aside: its files, its manifest (a SHA-256 of each file) last, each synced; then the
folder is synced, renamed into place, and the folder above synced. Only then older ones are deleted. One
without a valid manifest does not exist. Which is the newest is computed, never stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from regard.errors import RegardError, UsageError
from regard.storage.disk import again, disk
from regard.storage.files import (
    PARTIAL,
    Json,
    make_folders,
    read_json,
    read_safetensors,
    remove,
    remove_tree,
    sha256,
    sweep,
    sync_folder,
    to_json,
    told_plainly,
    write_new,
)

Tensors = Mapping[str, Tensor]
STEP = re.compile(r"step-(\d+)")
CONTENT = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """What is needed to go on: weights, the optimiser's tensors, and a few numbers."""

    model: Tensors
    optimizer: Tensors
    state: Json


def folder_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step}"


def save_checkpoint(run: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Durable when this returns; whatever breaks before leaves the older generations as they were."""
    final = folder_of(run, step)
    if final.exists() and is_whole(final):
        return final  # a step of a run is the same however often it is done
    aside, broken = (final.with_name(f".{final.name}{kind}{PARTIAL}") for kind in ("", ".broken"))
    with told_plainly(final):
        try:
            remove_tree(aside)
            remove_tree(broken)
            make_folders(aside)
            manifest = {"step": step, "files": write_contents(aside, checkpoint)}
            write_new(aside / "manifest.json", to_json(manifest).encode())
            sync_folder(aside)
            if final.exists():
                again(lambda: disk().rename(final, broken))
            again(lambda: disk().rename(aside, final))
            sync_folder(final.parent)
        except BaseException:
            remove(aside)  # a full disk needs the room
            raise
    remove(broken)
    return final


def write_contents(folder: Path, checkpoint: Checkpoint) -> Json:
    """Write the files; what the manifest says of each. Sums are made beside, while the disk is at work."""
    written = {}
    with ThreadPoolExecutor(1) as beside:
        for name, content in contents(checkpoint):
            written[name] = len(content), beside.submit(sum_of, content)
            write_new(folder / name, content)
    return {name: {"bytes": written[name][0], "sha256": written[name][1].result()} for name in CONTENT}


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def contents(checkpoint: Checkpoint) -> Iterable[tuple[str, bytes]]:
    """The files one after another, so that few of them are in memory twice; the largest first: there is most
    to do beside its sum."""
    for name, tensors in (("optimizer", checkpoint.optimizer), ("model", checkpoint.model)):
        plain = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
        yield f"{name}.safetensors", save(plain)
    yield "state.json", to_json(checkpoint.state).encode()


def steps(run: Path) -> list[int]:
    """The steps of the generations in a run's folder, oldest first, complete or not."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for path in folder.iterdir() if (m := STEP.fullmatch(path.name)))


def verify(folder: Path) -> None:
    """Raise with the file's name unless every file is as its manifest says."""
    path = folder / "manifest.json"
    manifest = read_json(path)
    with told_plainly(path, "read"):
        as_written = (to_json(manifest)).encode() == path.read_bytes()  # a changed space is a change too
    files = manifest.get("files")
    if not as_written or folder.name != f"step-{manifest.get('step')}" or not isinstance(files, dict):
        raise UsageError(f"{path}: damaged, or of another checkpoint")
    if set(files) != set(CONTENT):
        raise UsageError(f"{path}: not a manifest of a checkpoint")
    for name in CONTENT:
        with told_plainly(folder / name, "read"):
            whole = (folder / name).is_file() and files[name] == facts(folder / name)
        if not whole:
            raise UsageError(f"{folder / name}: missing or damaged (it is not what the manifest says)")


def is_whole(folder: Path) -> bool:
    try:
        verify(folder)
    except RegardError:
        return False
    return True


def facts(path: Path) -> Json:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def load_checkpoint(folder: Path) -> Checkpoint:
    verify(folder)
    return Checkpoint(
        model=read_safetensors(folder / "model.safetensors"),
        optimizer=read_safetensors(folder / "optimizer.safetensors"),
        state=read_json(folder / "state.json", finite=False),
    )


def load_latest(run: Path, warn: Callable[[str], None], last: int | None = None) -> Checkpoint | None:
    """The newest valid generation, up to the step `last`; damaged ones are named aloud and passed over."""
    for step in reversed(steps(run)):
        if last is not None and step > last:
            continue
        try:
            return load_checkpoint(folder_of(run, step))
        except RegardError as error:
            warn(f"{error}; passed over for the checkpoint before")
    return None


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of one checkpoint, for averaging."""
    verify(folder)
    return read_safetensors(folder / "model.safetensors")


def prune(run: Path, keep: set[int]) -> None:
    """Delete generations that are no longer wanted, and what an interrupted save left behind.

    First under their names, so that none is ever seen without some of its files.
    """
    with told_plainly(run / "checkpoints"):
        for step in steps(run):
            if step not in keep:
                old = folder_of(run, step)
                gone = old.with_name(f".{old.name}.old{PARTIAL}")
                remove_tree(gone)
                again(lambda: disk().rename(old, gone))  # noqa: B023 - called at once
                remove_tree(gone)
    sweep(run / "checkpoints")


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64."""
    if not folders:
        raise RegardError("there is no checkpoint to average")
    first = load_weights(folders[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for folder in folders[1:]:
        other = load_weights(folder)
        if {n: t.shape for n, t in other.items()} != {n: t.shape for n, t in first.items()}:
            raise UsageError(f"{folder}: its weights have other names or shapes than {folders[0]}")
        for name, tensor in other.items():
            total[name] += tensor.double()
    return {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}
