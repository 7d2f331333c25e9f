"""Open a model folder as the class of its task. Device, precision and threads are decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.device import choose_machine
from regard.errors import UsageError
from regard.generation.packing import Shared, is_packed, share_equal
from regard.models.families import Model, parameters
from regard.storage import Folder, open_folder
from regard.storage.folder import is_bare_encoder, open_encoder
from regard.tasks.captioner import Captioner
from regard.tasks.embedder import Embedder
from regard.tasks.encoder import Answerer, Classifier
from regard.tasks.filler import Filler
from regard.tasks.generator import Generator
from regard.tasks.tagger import Tagger
from regard.tasks.task_model import TaskModel
from regard.tasks.transcriber import Transcriber
from regard.tasks.translator import Translator

Paths = str | Path | Sequence[str | Path]
Kind = TypeVar("Kind", bound=TaskModel)
AnyTask = (
    Translator | Generator | Filler | Classifier | Tagger | Answerer | Embedder | Captioner | Transcriber
)

CLASSES: dict[str, type[Any]] = {
    "translate": Translator,
    "generate": Generator,
    "fill": Filler,
    "classify": Classifier,
    "tag": Tagger,
    "answer": Answerer,
    "caption": Captioner,
    "transcribe": Transcriber,
}


def load(
    path: Paths, device: str = "auto", threads: int = 0, precision: str = "auto", engine: str = "auto"
) -> Any:
    """Open a model folder: `regard.load("runs/demo").translate("...")`; several translate as an ensemble.

    The class of the result follows from the folder's task; `Translator.load` and the like name it. A BERT
    without a head embeds. `threads` sets torch's number of threads for the whole process; 0 leaves it as it
    is. `precision` is float32, bfloat16, int8, or auto: int8 for decoders that are calibrated or wide (256
    channels), bfloat16 for wide encoders, else float32. Scores and traces are computed in float32, unless a
    precision is named. `engine` is a name of `regard.generation.engine.ENGINES`: auto, packed, or plain, the
    model as it was trained.
    """
    if isinstance(path, str | Path) and is_bare_encoder(Path(path)):
        return load_as(Embedder, path, device, threads, precision, engine)
    folders = open_folders(path, device, threads, engine)
    return make(CLASSES[folders[0].task.name], folders, precision)


def load_as(
    kind: type[Kind],
    path: Paths,
    device: str = "auto",
    threads: int = 0,
    precision: str = "auto",
    engine: str = "auto",
) -> Kind:
    """Open a model folder of a given task; one of another task is an error that names its command.

    An `Embedder` opens any BERT.
    """
    if issubclass(kind, Embedder):
        body = replace(open_encoder(one_of(path), use_machine(device, threads)), engine=engine)
        size = parameters(body.model)
        embedder = kind(body, precision)
        embedder.parameters = size
        return embedder
    return make(kind, open_folders(path, device, threads, engine), precision)


def load_adapters(
    base: str | Path,
    adapters: Mapping[str, str | Path],
    device: str = "auto",
    threads: int = 0,
    precision: str = "auto",
    engine: str = "auto",
) -> dict[str, Any]:
    """A base, by the last part of its name, and what each adapter makes of it, by the adapters' names.

    Weights that an adapter leaves as they are exist once in memory. A base without a head embeds.
    """
    name, chosen = Path(base).name, use_machine(device, threads)
    if name in adapters:
        raise UsageError(f'the adapter "{name}" has the name of its base; give it another', code="E_ADAPTER")
    opened: dict[str, Any] = {
        name: open_encoder(Path(base), chosen)
        if is_bare_encoder(Path(base))
        else open_folder(Path(base), chosen)
    }
    shared: Shared = {}
    for each, path in adapters.items():
        opened[each] = open_folder(Path(f"{base}+{path}"), chosen)
        share_equal(opened[each].model, opened[name].model)
    # until all are packed: packed weights are found by the parameters that they were made of
    parameters_of_all = [list(each.model.parameters()) for each in opened.values()]
    tasks = {}
    for each, folder in opened.items():
        folder = replace(folder, engine=engine, shared=shared)
        kind = CLASSES[folder.task.name] if isinstance(folder, Folder) else Embedder
        size = parameters(folder.model)
        tasks[each] = kind(folder, precision=precision)
        tasks[each].parameters = size
    shared.clear()
    parameters_of_all.clear()
    return tasks


def open_folders(path: Paths, device: str, threads: int, engine: str = "auto") -> list[Folder]:
    chosen = use_machine(device, threads)
    return [replace(open_folder(each, chosen), engine=engine) for each in listed(path)]


def listed(path: Paths) -> list[Path]:
    return [Path(each) for each in ([path] if isinstance(path, str | Path) else path)]


def one_of(path: Paths) -> Path:
    first, *others = listed(path)
    if others:
        raise UsageError(
            f"{others[0]}: ensembles are supported for translation only; give a single folder",
            code="E_ENSEMBLE",
        )
    return first


def use_machine(device: str, threads: int) -> torch.device:
    """The device; only an explicit number of threads changes the process."""
    machine = choose_machine(device, precision="float32", threads=threads)
    if threads:
        machine.use()
    return machine.device


def make(kind: type[Kind], folders: Sequence[Folder], precision: str = "auto") -> Kind:
    for folder in folders:
        if CLASSES[folder.task.name] is not kind and folder.config.family != "t5":  # all text to text
            raise UsageError(
                f'{folder.path}: this is a {folder.task.name} model; use "regard {folder.task.name}"',
                code="E_MODEL_TASK",
            )
    if kind is not Translator:
        one_of([folder.path for folder in folders])
    size = sum(parameters(folder.model) for folder in folders)  # before the model is packed
    task: Kind = kind(*folders, precision=precision)  # type: ignore[call-arg]
    task.parameters = size
    return task


def reopen(task: Kind, opened: dict[str, Any]) -> Kind:
    """The model of a task once more, in float32: its weights are mapped from the same file."""
    if "float32" not in opened:
        folders = getattr(task, "folders", None) or (task.folder,)
        again = [open_folder(each.path, task.device) for each in folders]
        opened["float32"] = make(type(task), again, "float32")
    exact: Kind = opened["float32"]
    if not isinstance(exact, Translator) or not isinstance(task, Translator):
        return exact
    return exact.into(*task.languages) if any(task.languages) else exact  # type: ignore[return-value]


def unpacked(task: Any) -> Model:
    """The model of a task with plain weights, mapped from the same file, for gradients."""
    folder: Folder = task.folder
    if not is_packed(folder.model):
        return folder.model
    opened: dict[str, Any] = task._reopened
    if "plain" not in opened:
        opened["plain"] = open_folder(folder.path, task.device).model.eval()
    plain: Model = opened["plain"]
    return plain


def describe(task: Any) -> str:
    """One line about an opened model: task, family, size, languages or labels, precision, device."""
    if isinstance(task, Embedder):
        facts = ["embed", task.config.family, f"vectors of {task.width} numbers"]
    else:
        folder: Folder = task.folder
        facts = [folder.task.name, folder.config.family]
        if isinstance(task, Translator):
            count = len(task.folders)
            facts += [
                f"{folder.task.source}-{folder.task.target}",
                *([f"{count} models"] if count > 1 else []),
            ]
        if labels := folder.labels:
            facts.append(", ".join(labels[:5]) + (f" ... ({len(labels)} labels)" if len(labels) > 5 else ""))
    if task.parameters:
        facts.append(f"{task.parameters / 1e6:.1f} M parameters")
    return f"{', '.join(facts)}; {task.precision} on {task.device}"
