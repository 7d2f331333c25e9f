"""Checkpoints of a run, saved and loaded by all of its ranks together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import storage
from regard.config import Config
from regard.errors import CheckpointError, RegardError, UsageError
from regard.storage.files import friendly_os_errors, new_folder
from regard.storage.sharded import KINDS, TensorShard, shard_name, write_shard
from regard.training.distributed import SingleProcess
from regard.training.sharding import local_shards


def save_checkpoint(dist: SingleProcess, run: Path, step: int, checkpoint: storage.Checkpoint) -> None:
    """All ranks write at the same time, each its part; rank 0 writes the manifest when all parts are durable.

    A rank that cannot write ends the save on all ranks, and leaves the older checkpoints as they are.
    """
    if dist.world_size == 1:
        refuse_non_finite(checkpoint.model, step)
        refuse_non_finite(checkpoint.optimizer, step)
        storage.save_checkpoint(run, step, checkpoint)
        return
    final, files = storage.checkpoint_folder(run, step), dict[str, Any]()
    if dist.on_rank0(lambda: storage.is_saved(final)):
        return
    with ExitStack() as stack:
        name = dist.on_rank0(lambda: stack.enter_context(new_folder(final)).name)
        place = final.with_name(name)

        def write() -> dict[str, Any]:
            entries = {}
            with friendly_os_errors(place):
                for kind, tensors in zip(KINDS, (checkpoint.model, checkpoint.optimizer)):
                    shards: Mapping[str, TensorShard] = local_shards(tensors, dist.rank, dist.world_size)
                    refuse_non_finite({name: each.tensor for name, each in shards.items()}, step)
                    file = shard_name(kind, dist.rank, dist.world_size)
                    entries[file] = write_shard(place / file, shards)
            return entries

        for entries in dist.gather(write):
            files |= entries

        def finish() -> None:
            with friendly_os_errors(place):
                storage.finish_sharded(final, place, checkpoint.state, files)
            stack.close()  # syncs and renames

        dist.on_rank0(finish)


def latest_checkpoint(
    folder: Path,
    log: Callable[[str], None],
    dist: SingleProcess | None = None,
    last: int | None = None,
) -> storage.Checkpoint | None:
    """The newest intact checkpoint, up to the step `last`.

    A run with only damaged ones does not silently begin anew.
    """
    ranks = dist or SingleProcess()
    steps = ranks.on_rank0(lambda: storage.checkpoint_steps(folder))
    checkpoint = storage.load_latest(folder, log, last, lambda path: load_checkpoint(ranks, path), steps)
    if checkpoint is None and steps and last is None:
        raise RegardError(
            f"{folder / 'checkpoints'}: none of {len(steps)} checkpoints is intact; restore one from a "
            "copy, or delete them all to begin again from the first step",
            code="E_CHECKPOINT_DAMAGED",
        )
    return checkpoint


def load_checkpoint(dist: SingleProcess, folder: Path) -> storage.Checkpoint:
    """Each rank verifies its share of the files; a damaged one is an error on all ranks."""
    files = dist.on_rank0(lambda: storage.read_manifest(folder))
    problems = dist.map_sharded(
        list(files), lambda names: [storage.damage(folder, name, files[name]) for name in names]
    )
    if wrong := [problem for problem in problems if problem]:
        raise CheckpointError(wrong[0])
    checkpoints: list[storage.Checkpoint] = []
    dist.gather(lambda: checkpoints.append(storage.read_checkpoint(folder, list(files))))
    return checkpoints[0]


def refuse_non_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """A learning rate that is far too high can overflow weights although every gradient was finite."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RegardError(
                f'"{name}" is not finite after step {step}, so that it was not saved; lower train.lr, or set '
                "train.clip, in a new run: the last checkpoint of this one is intact",
                code="E_RUN_DIVERGED",
            )


def check_folder(folder: Path, config: Config | None, resume: bool) -> None:
    """Refuse to write over another run or into a folder of something else."""
    if (folder / "run.toml").is_file():
        if not resume:
            raise UsageError(
                f"{folder} already holds a run; resume it, or choose another folder", code="E_RUN_EXISTS"
            )
        return
    if config is None:
        raise UsageError(
            f"{folder} holds no run to resume; give its TOML file to begin one", code="E_RUN_MISSING"
        )
    if folder.is_file() or (
        folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
    ):
        raise UsageError(
            f"{folder} is not empty and holds no run; choose another folder", code="E_RUN_FOLDER"
        )
