"""Model folders: a Hugging Face folder that Regard and transformers both open.

`config.json` and the tokenizers are written once, when a run begins, and never change; the weights are one
file that is replaced as a whole. So a folder is usable at every moment after the first weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from regard.config import Config, Decode, Model, Task, load_config, to_toml
from regard.errors import UsageError
from regard.model import Model as AnyModel
from regard.model import build
from regard.store.builtin import find_model
from regard.store.checkpoint import load_weights
from regard.store.files import Json, read_json, write_json, write_text
from regard.store.huggingface import config_json, labels_of, model_config, ours, task_of
from regard.store.weights import WEIGHTS, load_weights_into, read_tensors
from regard.text import Tokenizer, huggingface_config

FRAMES = {"bert": "both", "gpt": "start", "llama": "start"}  # what stands around a text; else its end
DECODE = {  # their names of how words are chosen
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
}


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
    split_above: int  # pieces; longer lines are cut into sentences, because training hardly saw such lines
    may_refuse: bool = False  # some questions of the training had no answer
    labels: tuple[str, ...] = ()  # what a classifier or tagger answers


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
        return self.target is self.source

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
    write_text(path / "tokenizer.json", source.to_json(FRAMES.get(model.family, "end")))
    told = huggingface_config(source, model.max_length)
    if model.family == "bert":
        told["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    write_json(path / "tokenizer_config.json", told)
    for ending, content in target.files().items() if target is not None else ():
        write_text(path / f"target_tokenizer{ending}", content)
    own: Json = {"source": source.fingerprint, "target": output.fingerprint, "split_above": split_above}
    own |= {"may_refuse": True} if may_refuse else {}
    described = config_json(model, source, target, config.task, labels)
    write_json(path / "config.json", described | {"regard": own})
    if model.family != "bert":
        write_json(path / "generation_config.json", generation_config(config, output))
    write_text(path / "run.toml", to_toml(config))


def generation_config(config: Config, tokenizer: Tokenizer) -> Json:
    chosen = {name: getattr(config.decode, ours) for name, ours in DECODE.items()}
    return {
        **chosen,
        "max_length": config.model.max_length,
        "decoder_start_token_id": tokenizer.start,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
        "suppress_tokens": sorted(tokenizer.never_said),
    }


def open_folder(path: Path, device: torch.device | None = None) -> Folder:
    """Open a model folder for use; whatever is wrong with it is said with the file's name.

    A checkpoint of a run opens as well: its weights, with all else from the run's folder.
    """
    told = describe(path)
    if told.task is None:
        raise UsageError(
            f"{path} is a model without a head for a task (BertModel): give it as [init] from of a run that "
            "trains one"
        )
    weights = weights_of(told, told.head)
    model = build(told.config, len(told.source), told.beside)
    load_weights_into(model, weights, path / WEIGHTS)
    own = told.content.get("regard", {})
    return Folder(
        path=path,
        task=told.task,
        decode=told.run.decode if told.run else decode_of(told.home, told.content),
        config=told.config,
        model=model.to(device or torch.device("cpu")).eval(),
        source=told.source,
        target=told.target,
        split_above=int(own.get("split_above", told.config.max_length)),
        may_refuse=bool(own.get("may_refuse", False)),
        labels=told.labels,
    )


def read_model(path: Path, head: str | None = None) -> Initial:
    """What a folder or a checkpoint has to begin a run with, also where it has no head.

    `head` is the one that the run will have, else the folder's: another one is left out, except that the
    pooler which most BERTs have serves the head "sentence".
    """
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
    file = home / "config.json"
    if not file.is_file():
        raise UsageError(f"{home} is not a model folder: it has no config.json")
    content = read_json(file)
    config = model_config(content, str(file))
    source, target = load_tokenizers(home, content)
    run = load_config(home / "run.toml") if (home / "run.toml").is_file() else None
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


def run_of(path: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, None where the path is no checkpoint."""
    own = path.resolve()
    is_checkpoint = own.parent.name == "checkpoints" and (own / "manifest.json").is_file()
    return own.parent.parent if is_checkpoint else None


def decode_of(home: Path, content: Json) -> Decode:
    """How a model of another program chooses its words: greedily, unless its folder says otherwise."""
    file = home / "generation_config.json"
    said = {**content, **(read_json(file) if file.is_file() else {})}
    chosen = {our: said[name] for name, our in DECODE.items() if said.get(name) is not None}
    try:
        return Decode.model_validate({"beam": 1, **chosen})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def load_tokenizers(path: Path, content: Json) -> tuple[Tokenizer, Tokenizer]:
    """The folder's tokenizers, after a check that they belong to its weights."""
    source = Tokenizer.load(path)
    separate = path / "target_tokenizer.json"
    target = Tokenizer.load(separate) if separate.is_file() else source
    own = content.get("regard", {})
    checks = (
        ("tokenizer.json", source, own.get("source"), content.get("vocab_size")),
        (
            "target_tokenizer.json" if target is not source else "tokenizer.json",
            target,
            own.get("target"),
            content.get("decoder_vocab_size", content.get("vocab_size")),
        ),
    )
    for name, tokenizer, fingerprint, size in checks:
        if (fingerprint or tokenizer.fingerprint) != tokenizer.fingerprint or size != len(tokenizer):
            raise UsageError(
                f"{path / name} is the tokenizer of another model: it has {len(tokenizer)} pieces, "
                f"the model was trained with another set of {size}; put the original file back"
            )
    return source, target
