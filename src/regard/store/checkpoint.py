"""Generations of a run: `checkpoints/step-N/`, complete or not there.

A generation is written aside, its files synced, its manifest (a SHA-256 of each file) last, then renamed into
place. One without a valid manifest does not exist. Which is the newest is computed, never stored.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from regard.errors import RegardError, UsageError
from regard.store.files import (
    Json,
    read_json,
    read_safetensors,
    sha256,
    sync_file,
    sync_folder,
    to_json,
    told_plainly,
    write_json,
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
    final = folder_of(run, step)
    aside = final.with_name(f".step-{step}.partial")
    with told_plainly(final):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, tensors in (("model", checkpoint.model), ("optimizer", checkpoint.optimizer)):
            save_tensors(aside / f"{name}.safetensors", tensors)
        write_json(aside / "state.json", checkpoint.state)
        files = {name: facts(aside / name) for name in CONTENT}
        write_json(aside / "manifest.json", {"step": step, "files": files})
        shutil.rmtree(final, ignore_errors=True)  # only a broken one can be here: valid ones are resumed from
        aside.rename(final)
        sync_folder(final.parent)
    return final


def save_tensors(path: Path, tensors: Tensors) -> None:
    path.write_bytes(save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))
    sync_file(path)


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
    as_written = (to_json(manifest)).encode() == path.read_bytes()  # a changed space is a change too
    files = manifest.get("files")
    if not as_written or folder.name != f"step-{manifest.get('step')}" or not isinstance(files, dict):
        raise UsageError(f"{path}: damaged, or of another checkpoint")
    if set(files) != set(CONTENT):
        raise UsageError(f"{path}: not a manifest of a checkpoint")
    for name in CONTENT:
        if not (folder / name).is_file() or files[name] != facts(folder / name):
            raise UsageError(f"{folder / name}: missing or damaged (it is not what the manifest says)")


def facts(path: Path) -> Json:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def load_checkpoint(folder: Path) -> Checkpoint:
    verify(folder)
    return Checkpoint(
        model=read_safetensors(folder / "model.safetensors"),
        optimizer=read_safetensors(folder / "optimizer.safetensors"),
        state=read_json(folder / "state.json", finite=False),
    )


def load_latest(run: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest valid generation; damaged ones are named aloud and passed over."""
    for step in reversed(steps(run)):
        try:
            return load_checkpoint(folder_of(run, step))
        except UsageError as error:
            warn(f"{error}; using the checkpoint before")
    return None


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of one checkpoint, for averaging."""
    verify(folder)
    return read_safetensors(folder / "model.safetensors")


def prune(run: Path, keep: set[int]) -> None:
    """Delete generations that are no longer wanted, and what an interrupted save left behind."""
    folder = run / "checkpoints"
    for step in steps(run):
        if step not in keep:
            shutil.rmtree(folder_of(run, step))
    for partial in folder.glob(".step-*.partial"):
        shutil.rmtree(partial)


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
