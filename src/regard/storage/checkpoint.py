"""Checkpoints of a run: `checkpoints/step-N/`, complete or absent.

A checkpoint is written under another name: its files, then its manifest (the SHA-256 of each file), each
synced; then the folder is synced, renamed, and the parent folder synced. Only then are older checkpoints
deleted. A folder without a valid manifest is no checkpoint. The newest one is computed, never stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from regard.checksums import sha256_of
from regard.compat import current_weight_names
from regard.errors import CheckpointError, RegardError
from regard.storage.checksums import WEIGHTS, file_entry
from regard.storage.files import (
    Json,
    friendly_os_errors,
    new_folder,
    read_json,
    remove_partials,
    remove_whole,
    to_json,
    write_new,
)
from regard.storage.weights import read_safetensors

Tensors = Mapping[str, Tensor]
STEP = re.compile(r"step-(\d+)")
MANIFEST = "manifest.json"
CONTENT = (WEIGHTS, "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """What resuming needs: the weights, the optimizer's tensors, and the state of the run."""

    model: Tensors
    optimizer: Tensors
    state: Json


def checkpoint_folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step}"


def save_checkpoint(run: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Durable when this returns; a failure leaves the older checkpoints as they are."""
    final = checkpoint_folder(run, step)
    if final.exists():
        if is_complete(final):
            return final  # a step of a run is the same however often it is done
        with friendly_os_errors(final):
            remove_whole(final)
    with new_folder(final) as folder, friendly_os_errors(final):
        manifest = {"step": step, "files": write_contents(folder, checkpoint)}
        write_new(folder / MANIFEST, to_json(manifest).encode())
    return final


def write_contents(folder: Path, checkpoint: Checkpoint) -> Json:
    """Write the files; returns their manifest entries. A thread hashes while the disk writes."""
    written = {}
    with ThreadPoolExecutor(1) as hashing:
        for name, content in contents(checkpoint):
            written[name] = len(content), hashing.submit(sha256_of, content)
            write_new(folder / name, content)
    return {name: {"bytes": written[name][0], "sha256": written[name][1].result()} for name in CONTENT}


def contents(checkpoint: Checkpoint) -> Iterable[tuple[str, bytes]]:
    """The files one after another, to hold few of them in memory twice; the largest first, so that its hash
    is computed while the others are written."""
    for name, tensors in (("optimizer", checkpoint.optimizer), ("model", checkpoint.model)):
        plain = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
        yield f"{name}.safetensors", save(plain)
    yield "state.json", to_json(checkpoint.state).encode()


def checkpoint_steps(run: Path) -> list[int]:
    """The steps of all checkpoints of a run, oldest first, complete or not."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for path in folder.iterdir() if (m := STEP.fullmatch(path.name)))


def verify(folder: Path, names: Iterable[str] = CONTENT) -> None:
    """Raise with the file's name unless the manifest is intact and each named file matches it."""
    path = folder / MANIFEST
    manifest = read_json(path)
    with friendly_os_errors(path, "read"):
        is_as_written = to_json(manifest).encode() == path.read_bytes()  # a changed space is a change too
    files = manifest.get("files")
    if not is_as_written or folder.name != f"step-{manifest.get('step')}" or not isinstance(files, dict):
        raise CheckpointError(f"{path}: damaged, or of another checkpoint")
    if set(files) != set(CONTENT):
        raise CheckpointError(f"{path}: not a manifest of a checkpoint")
    for name in names:
        with friendly_os_errors(folder / name, "read"):
            is_intact = (folder / name).is_file() and files[name] == file_entry(folder / name)
        if not is_intact:
            raise CheckpointError(f"{folder / name}: missing or damaged (it differs from the manifest)")


def is_complete(folder: Path) -> bool:
    try:
        verify(folder)
    except RegardError:
        return False
    return True


def load_checkpoint(folder: Path) -> Checkpoint:
    verify(folder)
    return Checkpoint(
        model=current_weight_names(read_safetensors(folder / WEIGHTS)),
        optimizer=current_weight_names(read_safetensors(folder / "optimizer.safetensors")),
        state=read_json(folder / "state.json", finite=False),
    )


def load_latest(run: Path, warn: Callable[[str], None], last: int | None = None) -> Checkpoint | None:
    """The newest valid checkpoint, up to the step `last`; damaged ones are skipped with a warning."""
    for step in reversed(checkpoint_steps(run)):
        if last is not None and step > last:
            continue
        try:
            return load_checkpoint(checkpoint_folder(run, step))
        except RegardError as error:
            warn(f"{error}; skipped, using the checkpoint before it")
    return None


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of one checkpoint, adapters merged; the optimizer's file is not read."""
    verify(folder, (WEIGHTS,))
    weights = current_weight_names(read_safetensors(folder / WEIGHTS))
    if not any(name.endswith(".lora_a") for name in weights):
        return weights
    from regard.models.lora import merged

    return merged(weights)


def prune(run: Path, keep: set[int]) -> None:
    """Delete all checkpoints but those in `keep`, and what an interrupted save left."""
    with friendly_os_errors(run / "checkpoints"):
        for step in checkpoint_steps(run):
            if step not in keep:
                remove_whole(checkpoint_folder(run, step))
    remove_partials(run / "checkpoints")


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in float64."""
    if not folders:
        raise CheckpointError("there is no checkpoint to average")
    first = load_weights(folders[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for folder in folders[1:]:
        other = load_weights(folder)
        if {n: t.shape for n, t in other.items()} != {n: t.shape for n, t in first.items()}:
            raise CheckpointError(f"{folder}: its weights have other names or shapes than {folders[0]}")
        for name, tensor in other.items():
            total[name] += tensor.double()
    return {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}
