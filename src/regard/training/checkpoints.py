"""Checkpoints of a run, saved by several ranks and loaded by any number of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from regard import storage
from regard.errors import CheckpointError, RegardError
from regard.storage.checkpoint import KINDS
from regard.storage.files import friendly_os_errors, new_folder
from regard.storage.sharded import TensorShard, shard_name, write_shard
from regard.training.distributed import SingleProcess
from regard.training.sharding import local_shards
from regard.training.trainer import refuse_non_finite


def save_together(dist: SingleProcess, run: Path, step: int, checkpoint: storage.Checkpoint) -> None:
    """All ranks write at the same time, each its part; rank 0 writes the manifest when all parts are durable.

    A rank that cannot write ends the save on all ranks, and leaves the older checkpoints as they are.
    """
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
