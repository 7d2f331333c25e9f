"""Averaged checkpoints as a model folder of their own."""

from __future__ import annotations

from pathlib import Path

from regard.config import load_config
from regard.errors import UsageError
from regard.storage.checkpoint import average_weights, folder_of, steps
from regard.storage.files import PARTIAL, make_folders, remove_tree, sync_folder, told_plainly, write_new
from regard.storage.sums import IDENTITY, seal
from regard.storage.weights import write_weights


def _own(run: Path) -> bytes:
    path = run / "config.json"
    return path.read_bytes() if path.is_file() else b""


def average_into(given: list[Path], out: Path, last: int) -> list[Path]:
    """Average checkpoints, or the `last` newest of one run, into the folder `out`; returns what was used."""
    if out.exists():
        raise UsageError(f"{out} already exists; choose another folder with --out")
    folders = given
    if len(given) == 1 and (given[0] / "checkpoints").is_dir():
        folders = [folder_of(given[0], step) for step in steps(given[0])[-last:]]
        if len(folders) < last:
            raise UsageError(f"{given[0]} has {len(folders)} checkpoints, not {last}; lower --last")
    for folder in folders:
        if not (folder / "manifest.json").is_file():
            raise UsageError(f"{folder} is no checkpoint; give step-N folders or a run with checkpoints")
    runs = [folder.resolve().parent.parent for folder in folders]
    run = runs[0]
    for other in runs[1:]:
        if _own(other) != _own(run):
            raise UsageError(
                f"{other} is a run with another config.json than {run}: their weights do not mix"
            )
    weights = average_weights(folders)
    if not (run / "config.json").is_file():
        raise UsageError(f"{run} has no config.json: checkpoints are averaged inside their run's folder")
    aside = out.with_name(f".{out.name}{PARTIAL}")
    with told_plainly(out):
        remove_tree(aside)
        make_folders(aside)
        for name in IDENTITY:
            if (run / name).is_file():
                write_new(aside / name, (run / name).read_bytes())
        write_weights(aside, load_config(run / "run.toml").model, weights)
        seal(aside)
        aside.rename(out)
        sync_folder(out.parent)
    return folders
