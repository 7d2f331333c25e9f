"""Checkpoints of a run: `checkpoints/step-N/`, complete or absent.

A checkpoint is written under another name: its files, then its manifest (the SHA-256 of each file), each
synced; then the folder is synced, renamed, and the parent folder synced. Only then are older checkpoints
deleted. A folder without a valid manifest is no checkpoint. The newest one is computed, never stored.

One process writes model.safetensors and optimizer.safetensors. Several write one file of each kind per rank
(`sharded.py`), at the same time; whoever reads a checkpoint gets full tensors, or the regions it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
KINDS = ("model", "optimizer")
STATE = "state.json"
CONTENT = (WEIGHTS, "optimizer.safetensors", STATE)  # of one process


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
    if is_saved(final):
        return final
    with new_folder(final) as folder, friendly_os_errors(final):
        manifest = {"step": step, "files": write_contents(folder, checkpoint)}
        write_new(folder / MANIFEST, to_json(manifest).encode())
    return final


def is_saved(final: Path) -> bool:
    """Whether a step need not be saved again: it is the same however often it is done.

    Removes a damaged checkpoint.
    """
    if not final.exists():
        return False
    if is_complete(final):
        return True
    with friendly_os_errors(final):
        remove_whole(final)
    return False


def finish_sharded(final: Path, folder: Path, state: Json, files: Mapping[str, Json]) -> None:
    """State and manifest of a checkpoint whose other `files` all ranks have written into `folder`."""
    for name, entry in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise RegardError(
                f"{path}: written by another rank, but not seen by rank 0; put the run folder on a file "
                "system that all machines share",
                code="E_RUN_SHARED",
            )
    content = to_json(state).encode()
    write_new(folder / STATE, content)
    entries = {**files, STATE: {"bytes": len(content), "sha256": sha256_of(content)}}
    write_new(folder / MANIFEST, to_json({"step": int(final.name.split("-")[1]), "files": entries}).encode())


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
    yield STATE, to_json(checkpoint.state).encode()


def checkpoint_steps(run: Path) -> list[int]:
    """The steps of all checkpoints of a run, oldest first, complete or not."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for path in folder.iterdir() if (m := STEP.fullmatch(path.name)))


def read_manifest(folder: Path) -> Json:
    """The entries of a checkpoint's files; raise unless the manifest is intact and lists all of them."""
    path = folder / MANIFEST
    manifest = read_json(path)
    with friendly_os_errors(path, "read"):
        is_as_written = to_json(manifest).encode() == path.read_bytes()  # a changed space is a change too
    files = manifest.get("files")
    if not is_as_written or folder.name != f"step-{manifest.get('step')}" or not isinstance(files, dict):
        raise CheckpointError(f"{path}: damaged, or of another checkpoint")
    if set(files) != set(CONTENT) and not is_sharded(files):
        raise CheckpointError(f"{path}: not a manifest of a checkpoint")
    return files


def is_sharded(names: Iterable[str]) -> bool:
    """Whether these are all files of a checkpoint that several ranks wrote."""
    from regard.storage.sharded import shard_names

    parts = shard_names([*names])
    return parts is not None and {*names} == {*parts, STATE}


def damage(folder: Path, name: str, entry: Json) -> str:
    """What is wrong with a file of a checkpoint; "" if it matches its entry."""
    try:
        with friendly_os_errors(folder / name, "read"):
            is_intact = (folder / name).is_file() and entry == file_entry(folder / name)
    except RegardError as error:
        return str(error)
    return "" if is_intact else f"{folder / name}: missing or damaged (it differs from the manifest)"


def verify(folder: Path, kinds: Sequence[str] = (*KINDS, "state")) -> list[str]:
    """Raise with the file's name unless the manifest is intact and the files of these kinds match it; the
    names of all files."""
    files = read_manifest(folder)
    for name in files:
        if name.startswith(tuple(kinds)) and (problem := damage(folder, name, files[name])):
            raise CheckpointError(problem)
    return list(files)


def is_complete(folder: Path) -> bool:
    try:
        verify(folder)
    except RegardError:
        return False
    return True


def read_checkpoint(folder: Path, names: Sequence[str]) -> Checkpoint:
    """The content of a checkpoint whose files are intact."""
    model, optimizer = (read_kind(folder, names, kind) for kind in KINDS)
    return Checkpoint(model, optimizer, read_json(folder / STATE, finite=False))


def read_kind(folder: Path, names: Sequence[str], kind: str) -> Tensors:
    whole = f"{kind}.safetensors"
    if whole in names:
        return current_weight_names(read_safetensors(folder / whole))
    from regard.storage.sharded import ShardedTensors

    return ShardedTensors([folder / name for name in names if name.startswith(kind)])


def load_checkpoint(folder: Path) -> Checkpoint:
    return read_checkpoint(folder, verify(folder))


def load_latest(
    run: Path,
    warn: Callable[[str], None],
    last: int | None = None,
    load: Callable[[Path], Checkpoint] = load_checkpoint,
    steps: Sequence[int] | None = None,
) -> Checkpoint | None:
    """The newest valid checkpoint, up to the step `last`; damaged ones are skipped with a warning.

    Ranks give the `steps` that rank 0 sees, and a way to `load` one together.
    """
    for step in reversed(checkpoint_steps(run) if steps is None else steps):
        if last is not None and step > last:
            continue
        try:
            return load(checkpoint_folder(run, step))
        except RegardError as error:
            warn(f"{error}; skipped, using the checkpoint before it")
    return None


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of one checkpoint, adapters merged; the optimizer's file is not read."""
    weights = dict(read_kind(folder, verify(folder, ("model",)), "model"))
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
