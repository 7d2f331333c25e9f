"""Open a model folder as the class of its task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.device import choose_machine
from regard.errors import UsageError
from regard.storage import Folder, open_folder
from regard.storage.folder import is_bare_encoder, open_encoder
from regard.tasks.answerer import Answerer
from regard.tasks.classifier import Classifier
from regard.tasks.embedder import Embedder
from regard.tasks.filler import Filler
from regard.tasks.generator import Generator
from regard.tasks.tagger import Tagger
from regard.tasks.translator import Translator

Paths = str | Path | Sequence[str | Path]
Kind = TypeVar("Kind")

CLASSES: dict[str, type[Any]] = {
    "translate": Translator,
    "generate": Generator,
    "fill": Filler,
    "classify": Classifier,
    "tag": Tagger,
    "answer": Answerer,
}


def load(path: Paths, device: str = "auto", threads: int = 0, precision: str = "auto") -> Any:
    """Open a model folder: `regard.load("runs/demo").translate("...")`; several translate as an ensemble.

    The class of the result follows from the folder's task; see `load_as`. A BERT without a head embeds.
    `threads` sets torch's number of threads for the whole process; 0 leaves it as it is. `precision` is for
    models that write: float32, bfloat16, int8, or auto, which is int8 for calibrated models.
    """
    if isinstance(path, str | Path) and is_bare_encoder(Path(path)):
        return load_as(Embedder, path, device, threads)
    folders = open_folders(path, device, threads)
    return make(CLASSES[folders[0].task.name], folders, precision)


def load_as(
    kind: type[Kind], path: Paths, device: str = "auto", threads: int = 0, precision: str = "auto"
) -> Kind:
    """Open a model folder of a given task; one of another task is an error that names its command.

    An `Embedder` opens any BERT.
    """
    if issubclass(kind, Embedder):
        return kind(open_encoder(one_of(path), use_machine(device, threads)))
    return make(kind, open_folders(path, device, threads), precision)


def open_folders(path: Paths, device: str, threads: int) -> list[Folder]:
    chosen = use_machine(device, threads)
    return [open_folder(each, chosen) for each in listed(path)]


def listed(path: Paths) -> list[Path]:
    return [Path(each) for each in ([path] if isinstance(path, str | Path) else path)]


def one_of(path: Paths) -> Path:
    first, *others = listed(path)
    if others:
        raise UsageError(f"{others[0]}: ensembles are supported for translation only; give a single folder")
    return first


def use_machine(device: str, threads: int) -> torch.device:
    """The device; only an explicit number of threads changes the process."""
    machine = choose_machine(device, precision="float32", threads=threads)
    if threads:
        machine.use()
    return machine.device


def make(kind: type[Kind], folders: Sequence[Folder], precision: str = "auto") -> Kind:
    for folder in folders:
        if (
            CLASSES[folder.task.name] is not kind and folder.config.family != "t5"
        ):  # whose tasks are all text to text
            raise UsageError(
                f'{folder.path}: this is a {folder.task.name} model; use "regard {folder.task.name}"'
            )
    if len(folders) > 1 and kind is not Translator:
        raise UsageError(
            f"{folders[1].path}: ensembles are supported for translation only; give a single folder"
        )
    if issubclass(kind, Translator):
        return kind(*folders, precision=precision)
    if issubclass(kind, Generator):
        return kind(folders[0], precision=precision)
    if precision not in ("auto", "float32"):
        raise UsageError(f"{folders[0].path}: precision {precision} is for generative models; use float32")
    return kind(*folders)
