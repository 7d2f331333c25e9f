"""Average checkpoints into a model folder."""

from __future__ import annotations

from pathlib import Path

from regard.config import load_config
from regard.errors import CheckpointError
from regard.storage.checkpoint import MANIFEST, average_weights, checkpoint_folder, checkpoint_steps
from regard.storage.checksums import FOLDER_FILES, write_checksums
from regard.storage.files import friendly_os_errors, new_folder, write_new
from regard.storage.folder import open_folder
from regard.storage.weights import write_weights


def average_into(paths: list[Path], out: Path, last: int) -> list[Path]:
    """Average checkpoints, or the `last` newest of one run, into the folder `out`; returns the checkpoints.

    The folder is opened before it gets its name: `out` is a model that works, or does not exist.
    """
    with new_folder(out) as folder, friendly_os_errors(out):
        folders = checkpoints_of(paths, last)
        run = common_run(folders)
        for name in FOLDER_FILES:
            if (run / name).is_file():
                write_new(folder / name, (run / name).read_bytes())
        config = load_config(run / "run.toml")
        write_weights(folder, config.model, average_weights(folders), config.input)
        write_checksums(folder)
        open_folder(folder)
    return folders


def checkpoints_of(paths: list[Path], last: int) -> list[Path]:
    """The given checkpoints, or the newest ones of the given run."""
    folders = paths
    if len(paths) == 1 and (paths[0] / "checkpoints").is_dir():
        folders = [checkpoint_folder(paths[0], step) for step in checkpoint_steps(paths[0])[-last:]]
        if len(folders) < last:
            raise CheckpointError(f"{paths[0]} has {len(folders)} checkpoints, not {last}; lower --last")
    for folder in folders:
        if not (folder / MANIFEST).is_file():
            raise CheckpointError(
                f"{folder} is not a checkpoint; give step-N folders or a run with checkpoints"
            )
    return folders


def common_run(folders: list[Path]) -> Path:
    """The run of the first checkpoint; those of other runs must have the same config.json."""
    runs = [folder.resolve().parent.parent for folder in folders]
    configs = [path.read_bytes() if (path := run / "config.json").is_file() else b"" for run in runs]
    for run, config in zip(runs, configs):
        if config != configs[0]:
            raise CheckpointError(f"{run} has another config.json than {runs[0]}: their weights do not mix")
    if not configs[0]:
        raise CheckpointError(
            f"{runs[0]} has no config.json: checkpoints are averaged inside their run's folder"
        )
    return runs[0]
