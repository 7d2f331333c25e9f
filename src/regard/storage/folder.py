"""Model folders: a Hugging Face folder that Regard and transformers both open.

`config.json` and the tokenizers are written once, when a run begins, and never change; the weights are one
file that is replaced as a whole. So a folder is usable at every moment after the first weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from regard.config import Config, Decode, Model, Task, load_config, to_toml
from regard.errors import UsageError
from regard.inputs.text import Special, Tokenizer, load_tokenizer, special
from regard.models import Model as AnyModel
from regard.models import outline, parameters
from regard.storage.builtin import find_model
from regard.storage.calibration import read_calibration
from regard.storage.checkpoint import load_weights
from regard.storage.checksums import as_sealed
from regard.storage.files import Json, check_files, read_json, write_atomically, write_json, write_text
from regard.storage.generation import DECODE, decode_of, read_generation, special_of
from regard.storage.huggingface import config_json, labels_of, model_config, ours, task_of
from regard.storage.weights import WEIGHTS, check_size, load_weights_into, read_tensors

NAMES = ("tokenizer.json", "target_tokenizer.json")
FRAMES = {"bert": "both", "gpt": "start", "llama": "start"}  # what stands around a text; else its end


@dataclass(frozen=True)
class Folder:
    """An opened model folder."""

    path: Path
    task: Task
    decode: Decode
    config: Model
    model: AnyModel
    source: Tokenizer
    target: Tokenizer
    special: Special  # what its answers begin with, end with and never hold
    split_above: int  # pieces; longer lines are cut into sentences, because training hardly saw such lines
    may_refuse: bool = False  # some questions of the training had no answer
    labels: tuple[str, ...] = ()  # what a classifier or tagger answers
    reaches: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # see storage/calibration.py
    parameters: int = 0  # as it was opened: an engine packs them away

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.parameters or parameters(self.model))


@dataclass(frozen=True)
class Initial:
    """What a folder has for a run to begin with."""

    path: Path
    config: Model
    task: Task | None  # None: a body without a head
    source: Tokenizer
    target: Tokenizer
    labels: tuple[str, ...]
    weights: dict[str, Tensor]  # under our names


@dataclass(frozen=True)
class Described:
    """All that a folder says of its model but the weights."""

    path: Path  # where the weights are: the folder, or a checkpoint of its run
    home: Path
    content: Json  # of config.json
    config: Model
    run: Config | None
    task: Task | None
    labels: tuple[str, ...]
    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.shares(self.target)

    @property
    def head(self) -> str | None:
        return None if self.task is None else self.config.head or "words"

    @property
    def beside(self) -> int | None:
        """The size beside that of the vocabulary with which the model is built."""
        if self.config.family == "bert":
            return len(self.labels) or None
        return None if self.joint else len(self.target)


def write_identity(
    path: Path,
    config: Config,
    source: Tokenizer,
    target: Tokenizer | None,
    split_above: int,
    labels: Sequence[str] = (),
    may_refuse: bool = False,
) -> None:
    """Everything of a folder but weights, scores and card."""
    output, model = target or source, config.model
    files = source.identity(target, FRAMES.get(model.family, "end"), model.max_length)
    for name, content in files.items():
        write_atomically(path / name, content)
    own: Json = {"source": source.fingerprint, "target": output.fingerprint, "split_above": split_above}
    own |= {"may_refuse": True} if may_refuse else {}
    own |= {"languages": [config.task.source, config.task.target]} if config.task.name == "translate" else {}
    apart = None if target is None or source.shares(target) else target
    described = config_json(model, source, apart, config.task, labels)
    write_json(path / "config.json", described | {"regard": own})
    if model.family != "bert":
        chosen = generation_config(config, output) | {"pad_token_id": described["pad_token_id"]}
        write_json(path / "generation_config.json", chosen)
    write_text(path / "run.toml", to_toml(config))


def generation_config(config: Config, tokenizer: Tokenizer) -> Json:
    chosen = {name: getattr(config.decode, ours) for name, ours in DECODE.items()}
    return {
        **chosen,
        "max_length": config.model.max_length,
        "decoder_start_token_id": tokenizer.start,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "suppress_tokens": sorted(tokenizer.never_said),
    }


def open_folder(path: Path, device: torch.device | None = None) -> Folder:
    """Open a model folder for use; whatever is wrong with it is said with the file's name.

    A checkpoint of a run opens as well: its weights, with all else from the run's folder.
    """
    with as_read(path):
        return _open_folder(path, device)


def _open_folder(path: Path, device: torch.device | None) -> Folder:
    told = describe(path)
    if told.task is None:
        raise UsageError(
            f'{path} is a model without a head for a task (BertModel): "regard embed" gives its vectors, and '
            "as [init] from of a run it gets a head"
        )
    weights = weights_of(told, told.head)
    model = outline(told.config, len(told.source), told.beside)  # until the weights are seen to fit
    load_weights_into(model, weights, path / WEIGHTS)
    own = told.content.get("regard", {})
    decode, ids = choosing(told)
    return Folder(
        path=path,
        task=told.task,
        decode=decode,
        config=told.config,
        model=model.to(device or torch.device("cpu")).eval(),
        source=told.source,
        target=told.target,
        special=ids,
        split_above=int(own.get("split_above", told.config.max_length)),
        may_refuse=bool(own.get("may_refuse", False)),
        labels=told.labels,
        reaches=read_calibration(told.path),
    )


def read_model(path: Path, head: str | None = None) -> Initial:
    """What a folder or a checkpoint has to begin a run with, also where it has no head.

    `head` is the one that the run will have, else the folder's: another one is left out, except that the
    pooler which most BERTs have serves the head "sentence".
    """
    with as_read(path):
        return _read_model(path, head)


def _read_model(path: Path, head: str | None) -> Initial:
    told = describe(path)
    wanted = head or told.head
    if told.config.family != "bert" or wanted == told.head:
        weights = weights_of(told, wanted)
    else:
        weights = weights_of(told, "pooler" if wanted == "sentence" else None)
    return Initial(path, told.config, told.task, told.source, told.target, told.labels, weights)


def describe(path: Path) -> Described:
    path = find_model(path)
    home = run_of(path) or path
    for folder in {path, home}:
        check_files(folder)
    file = home / "config.json"
    if not file.is_file():
        raise UsageError(f"{home} is not a model folder: it has no config.json")
    content = read_json(file)
    config = model_config(content, str(file))
    check_size(path, config, content["vocab_size"])
    source, target = load_tokenizers(home, content)
    run = load_config(home / "run.toml") if (home / "run.toml").is_file() else None
    if run is not None and path != home:  # a checkpoint's channels stand in the order in which it learns
        config = config.model_copy(update={"positions": run.model.positions})
    task = run.task if run else task_of(content, str(file))
    labels = labels_of(content, task, str(file))
    return Described(path, home, content, config, run, task, labels, source, target)


def weights_of(told: Described, head: str | None) -> dict[str, Tensor]:
    """The weights under our names."""
    if told.path != told.home:
        content, tensors = {}, load_weights(told.path)  # a checkpoint has our names
    else:
        content, tensors = told.content, read_tensors(told.path)
    if head == "pooler" and not any(name.endswith("pooler.dense.weight") for name in tensors):
        head = None
    try:
        return ours(content, told.config, tensors, told.joint, head)
    except UsageError as error:
        raise UsageError(f"{told.path / WEIGHTS}: {error}") from None


def as_read(path: Path) -> AbstractContextManager[None]:
    """What is read is what was written; of a checkpoint its manifest says so."""
    folder = find_model(path)
    return as_sealed(run_of(folder) or folder, weights=run_of(folder) is None)


def run_of(path: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, None where the path is no checkpoint."""
    own = path.resolve()
    is_checkpoint = own.parent.name == "checkpoints" and (own / "manifest.json").is_file()
    return own.parent.parent if is_checkpoint else None


def choosing(told: Described) -> tuple[Decode, Special]:
    """How the model chooses its words: as its run was told, or as the folder of another program says."""
    if told.run is not None:
        return told.run.decode, special(told.target)
    if told.config.family == "bert":  # which writes nothing
        return Decode(), special(told.target)
    file, said = read_generation(told.home, told.content)
    prompts = told.config.family in ("gpt", "llama")
    return decode_of(said, file, prompts), special_of(said, file, told.target, prompts)


def load_tokenizers(path: Path, content: Json) -> tuple[Tokenizer, Tokenizer]:
    """The folder's tokenizers, after a check that they belong to its weights."""
    source = load_tokenizer(path)
    places = [path / name for name in ("target.spm", "target_tokenizer.json") if (path / name).is_file()]
    target = load_tokenizer(places[0]) if places else source
    first, second = ("vocab.json", "target_vocab.json") if places and places[0].suffix == ".spm" else NAMES
    own = content.get("regard", {})
    checks = (
        (first, source, own.get("source"), content.get("vocab_size")),
        (
            first if source.shares(target) else second,
            target,
            own.get("target"),
            content.get("decoder_vocab_size") or content.get("vocab_size"),
        ),
    )
    for name, tokenizer, fingerprint, size in checks:
        if (fingerprint or tokenizer.fingerprint) != tokenizer.fingerprint or size != len(tokenizer):
            raise UsageError(
                f"{path / name} is the tokenizer of another model: it has {len(tokenizer)} pieces, "
                f"the model was trained with another set of {size}; put the original file back"
            )
    if target.start >= len(target):
        raise UsageError(f"{path}: a text begins with piece {target.start}, but there are {len(target)}")
    return source, target
