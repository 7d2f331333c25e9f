"""Model folders: Hugging Face folders that Regard and transformers both open.

`config.json` and the tokenizers are written once, when a run begins, and never change; the weights are one
file that is replaced atomically. So a folder is usable at any time after the first weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from regard.compat import VERSION, file_version
from regard.config.load import RunSettings, load_run_settings, to_toml
from regard.config.model import GPTConfig, LlamaConfig, ModelConfig, TransformerConfig
from regard.config.schema import Config, Decode, Task
from regard.errors import UsageError, located
from regard.inputs.text import SpecialTokens, Tokenizer, load_tokenizer, special_tokens
from regard.models.families import Model as AnyModel
from regard.models.families import build_meta, parameters
from regard.models.layers import Linear
from regard.storage.checkpoint import load_weights
from regard.storage.checksums import verified
from regard.storage.files import Json, check_files, read_json, write_atomically, write_json, write_text
from regard.storage.generation import DECODE, decode_of, read_generation, special_of
from regard.storage.huggingface import (
    config_json,
    from_hf,
    labels_of,
    model_config,
    regard_section,
    task_of,
)
from regard.storage.weights import WEIGHTS, check_size, load_weights_into, read_calibration, read_tensors

if TYPE_CHECKING:
    from regard.models.encoder import EncoderOnly

NAMES = ("tokenizer.json", "target_tokenizer.json")
FRAMES = {"bert": "both", "gpt": "start", "llama": "start"}  # special tokens around a text; else its end


@dataclass(frozen=True)
class Folder:
    """An opened model folder."""

    path: Path
    task: Task
    decode: Decode
    config: ModelConfig
    model: AnyModel
    source: Tokenizer
    target: Tokenizer
    special: SpecialTokens  # start, end and forced or suppressed tokens of the output
    split_above: int  # tokens; longer lines are split into sentences, because training hardly had such lines
    may_refuse: bool = False  # some questions of the training data have no answer
    labels: tuple[str, ...] = ()  # of a classifier or tagger
    calibration: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by layer
    parameters: int = 0  # when it was opened: an engine packs the weights
    version: int = VERSION  # of the format, see regard.compat; 1 for folders of other programs

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.parameters or parameters(self.model))


@dataclass(frozen=True)
class BareEncoder:
    """An opened encoder without a head: its output is the hidden states, [B,S,D]."""

    path: Path
    home: Path  # folder of the files beside the weights
    config: ModelConfig
    tokenizer: Tokenizer
    model: EncoderOnly


@dataclass(frozen=True)
class Initial:
    """A pretrained model for a run to start from."""

    path: Path
    config: ModelConfig
    task: Task | None  # None: an encoder without a head
    source: Tokenizer
    target: Tokenizer
    labels: tuple[str, ...]
    weights: dict[str, Tensor]  # under our names


@dataclass(frozen=True)
class FolderSpec:
    """Everything in a folder but the weights."""

    path: Path  # of the weights: the folder, or a checkpoint of its run
    home: Path
    content: Json  # of config.json
    config: ModelConfig
    run: RunSettings | None
    task: Task | None
    labels: tuple[str, ...]
    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source.shares_vocabulary(self.target)

    @property
    def head(self) -> str | None:
        return None if self.task is None else self.config.head or "words"

    @property
    def version(self) -> int:
        return file_version(regard_section(self.content), "regard")

    @property
    def output_size(self) -> int | None:
        """The number of labels, or the size of a separate target vocabulary."""
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
    files = source.folder_files(target, FRAMES.get(model.family, "end"), model.max_length)
    for name, content in files.items():
        write_atomically(path / name, content)
    section: Json = {"version": config.version, "source": source.fingerprint, "target": output.fingerprint}
    section |= {"split_above": split_above} | ({"may_refuse": True} if may_refuse else {})
    if config.task.name == "translate":
        section |= {"languages": [config.task.source, config.task.target]}
    separate = None if target is None or source.shares_vocabulary(target) else target
    described = config_json(model, source, separate, config.task, labels)
    write_json(path / "config.json", described | {"regard": section})
    if model.family != "bert":
        generation = generation_config(config, output) | {"pad_token_id": described["pad_token_id"]}
        write_json(path / "generation_config.json", generation)
    write_text(path / "run.toml", to_toml(config))


def generation_config(config: Config, tokenizer: Tokenizer) -> Json:
    return {
        **{name: getattr(config.decode, field) for name, field in DECODE.items()},
        "max_length": config.model.max_length,
        "decoder_start_token_id": tokenizer.start,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "suppress_tokens": sorted(tokenizer.suppressed),
    }


def open_folder(path: Path, device: torch.device | None = None) -> Folder:
    """Open a model folder for inference; errors name the file that is wrong.

    A checkpoint of a run opens as well: its weights, and everything else from the run's folder.
    """
    with verified_folder(path):
        spec = describe(path)
        if spec.task is None:
            raise UsageError(
                f'{path} is an encoder without a head for a task (BertModel): "regard embed" gives its '
                "vectors, and as [init] from of a run it gets a head",
                code="E_MODEL_HEAD",
            )
        weights = weights_of(spec, spec.head)
        model = build_meta(spec.config, len(spec.source), spec.output_size)  # no memory until the weights fit
        load_weights_into(model, weights, path / WEIGHTS)
        section = regard_section(spec.content)
        decode, special_tokens = generation_settings(spec)
        return Folder(
            path=path,
            task=spec.task,
            decode=decode,
            config=spec.config,
            model=model.to(device or torch.device("cpu")).eval(),
            source=spec.source,
            target=spec.target,
            special=special_tokens,
            split_above=int(section.get("split_above", spec.config.max_length)),
            may_refuse=bool(section.get("may_refuse", False)),
            labels=spec.labels,
            calibration=read_calibration(spec.path),
            version=spec.version,
        )


def is_bare_encoder(path: Path) -> bool:
    """Whether a folder has an encoder without a head, which `open_folder` refuses."""
    from regard.storage.models import find_model

    folder = find_model(path)
    file = folder / "config.json"
    if run_of(folder) or (folder / "run.toml").is_file() or not file.is_file():
        return False
    return task_of(read_json(file), str(file)) is None


def open_encoder(path: Path, device: torch.device | None = None) -> BareEncoder:
    """Open the encoder of a BERT: a folder of another program, a run, or a checkpoint."""
    from regard.models.encoder import EncoderOnly

    with verified_folder(path):
        spec = describe(path)
        whole = build_meta(spec.config, len(spec.source), spec.output_size)  # no memory until the weights fit
        if not isinstance(whole, EncoderOnly):
            raise UsageError(
                f"{path}: embeddings need an encoder (bert), and this model is a {spec.config.family}",
                code="E_MODEL_FAMILY",
            )
        model = EncoderOnly(whole.source, whole.encoder, nn.Identity(), cast(Linear, nn.Identity()))
        load_weights_into(model, weights_of(spec, None), spec.path / WEIGHTS)
        model = model.to(device or torch.device("cpu")).eval()
        return BareEncoder(path, spec.home, spec.config, spec.source, model)


def read_model(path: Path, head: str | None = None) -> Initial:
    """Read a folder or a checkpoint to start a run from; it may have no head.

    `head` is the head of the run, by default the folder's. The weights of another head are left out, except
    that the pooler which most BERTs have is used for the head "sentence".
    """
    with verified_folder(path):
        spec = describe(path)
        head = head or spec.head
        if spec.config.family == "bert" and head != spec.head:
            head = "pooler" if head == "sentence" else None
        weights = weights_of(spec, head)
        return Initial(path, spec.config, spec.task, spec.source, spec.target, spec.labels, weights)


def describe(path: Path) -> FolderSpec:
    """Read everything in a folder but the weights. Of run.toml only what inference needs."""
    from regard.storage.models import find_model

    path = find_model(path)
    home = run_of(path) or path
    for folder in {path, home}:
        check_files(folder)
    file = home / "config.json"
    if not file.is_file():
        raise UsageError(f"{home} is not a model folder: it has no config.json", code="E_MODEL_FOLDER")
    content = read_json(file)
    config = model_config(content, str(file))
    check_size(path, config, content["vocab_size"])
    source, target = load_tokenizers(home, content)
    run = load_run_settings(home / "run.toml") if (home / "run.toml").is_file() else None
    if run is not None and path != home:
        config = in_training_order(config, run)
    task = run.task if run else task_of(content, str(file))
    labels = labels_of(content, task, str(file))
    return FolderSpec(path, home, content, config, run, task, labels, source, target)


def in_training_order(config: ModelConfig, run: RunSettings) -> ModelConfig:
    """The config of a checkpoint, whose channels are in the order of training, not permuted."""
    positions = run.model.get("positions")
    if isinstance(config, TransformerConfig) and positions in ("sinusoidal", "sinusoidal_halves"):
        return config.model_copy(update={"positions": positions})
    return config


def weights_of(spec: FolderSpec, head: str | None) -> dict[str, Tensor]:
    """The weights under our names."""
    if spec.path != spec.home:
        content, tensors = {}, load_weights(spec.path)  # a checkpoint has our names
    else:
        content, tensors = spec.content, read_tensors(spec.path)
    if head == "pooler" and not any(name.endswith("pooler.dense.weight") for name in tensors):
        head = None
    with located(spec.path / WEIGHTS):
        return from_hf(content, spec.config, tensors, spec.joint, head)


def verified_folder(path: Path) -> AbstractContextManager[None]:
    """Verify checksums after the block: the folder's, or those of a checkpoint's run."""
    from regard.storage.models import find_model

    folder = find_model(path)
    return verified(run_of(folder) or folder, weights=run_of(folder) is None)


def run_of(path: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, None if the path is no checkpoint."""
    path = path.resolve()
    is_checkpoint = path.parent.name == "checkpoints" and (path / "manifest.json").is_file()
    return path.parent.parent if is_checkpoint else None


def generation_settings(spec: FolderSpec) -> tuple[Decode, SpecialTokens]:
    """Decoding options and special tokens: of the run, or of another program's generation_config.json."""
    if spec.run is not None:
        return spec.run.decode, special_tokens(spec.target)
    if spec.config.family == "bert":  # generates nothing
        return Decode(), special_tokens(spec.target)
    file, settings = read_generation(spec.home, spec.content)
    has_prompt = isinstance(spec.config, GPTConfig | LlamaConfig)
    return decode_of(settings, file, has_prompt), special_of(settings, file, spec.target, has_prompt)


def load_tokenizers(path: Path, content: Json) -> tuple[Tokenizer, Tokenizer]:
    """The folder's tokenizers, checked to belong to its weights."""
    source = load_tokenizer(path)
    files = [path / name for name in ("target.spm", "target_tokenizer.json") if (path / name).is_file()]
    target = load_tokenizer(files[0]) if files else source
    first, second = ("vocab.json", "target_vocab.json") if files and files[0].suffix == ".spm" else NAMES
    section = content.get("regard", {})
    checks = (
        (first, source, section.get("source"), content.get("vocab_size")),
        (
            first if source.shares_vocabulary(target) else second,
            target,
            section.get("target"),
            content.get("decoder_vocab_size") or content.get("vocab_size"),
        ),
    )
    for name, tokenizer, fingerprint, size in checks:
        if (fingerprint or tokenizer.fingerprint) != tokenizer.fingerprint or size != len(tokenizer):
            raise UsageError(
                f"{path / name} is the tokenizer of another model: it has {len(tokenizer)} tokens, "
                f"the model was trained with another set of {size}; put the original file back",
                code="E_MODEL_TOKENIZER",
            )
    if target.start >= len(target):
        raise UsageError(
            f"{path}: the start token is {target.start}, but the vocabulary has {len(target)} tokens",
            code="E_MODEL_TOKENIZER",
        )
    return source, target
