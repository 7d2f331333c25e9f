"""Model folders: Hugging Face folders that Regard and transformers both open.

`config.json` and the tokenizers are written once, when a run begins, and never change; the weights are one
file that is replaced atomically. So a folder is usable at any time after the first weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from regard.compat import VERSION, file_version
from regard.config.load import RunSettings, load_run_settings, to_toml
from regard.config.model import GPTConfig, LlamaConfig, ModelConfig, TransformerConfig
from regard.config.schema import Config, Decode, Task
from regard.errors import UsageError, located
from regard.inputs.text import SpecialTokens, Tokenizer, special_tokens
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
    read_config,
    regard_section,
    task_of,
)
from regard.storage.inputs import Input, TextSides, input_size, load_inputs, output_size
from regard.storage.weights import WEIGHTS, check_size, load_weights_into, read_calibration, read_tensors

if TYPE_CHECKING:
    from regard.models.encoder import EncoderOnly
    from regard.storage.confidence import ConfidenceModel
    from regard.storage.speech import SpeechTokens

FRAMES = {"bert": "both", "gpt": "start", "llama": "start"}  # special tokens around a text; else its end


@dataclass(frozen=True)
class Folder(TextSides):
    """An opened model folder."""

    path: Path
    task: Task
    decode: Decode
    config: ModelConfig
    model: AnyModel
    input: Input
    output: Input
    special: SpecialTokens  # start, end and forced or suppressed tokens of the output
    split_above: int  # tokens; longer lines are split into sentences, because training hardly had such lines
    may_refuse: bool = False  # some questions of the training data have no answer
    labels: tuple[str, ...] = ()  # of a classifier or tagger
    calibration: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by layer
    confidence: ConfidenceModel | None = None  # of a translator
    prefixes: tuple[str, ...] = ()  # of the tasks of a T5: what their texts begin with
    parameters: int = 0  # when it was opened: an engine packs the weights
    version: int = VERSION  # of the format, see regard.compat; 1 for folders of other programs
    engine: str = "auto"  # a name of regard.generation.engine.ENGINES
    speech: SpeechTokens | None = None  # of another program's model that transcribes
    shared: Any = None  # regard.generation.packing.Shared: what models with the same parameters share

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.parameters or parameters(self.model))


@dataclass(frozen=True)
class BareEncoder(TextSides):
    """An opened encoder without a head: its output is hidden states [B,S,D], of frames pooled: [B,1,D]."""

    path: Path
    home: Path  # folder of the files beside the weights
    config: ModelConfig
    input: Input
    model: EncoderOnly
    engine: str = "auto"
    shared: Any = None


@dataclass(frozen=True)
class Initial(TextSides):
    """A pretrained model for a run to start from."""

    path: Path
    config: ModelConfig
    task: Task | None  # None: an encoder without a head
    input: Input
    output: Input
    labels: tuple[str, ...]
    weights: dict[str, Tensor]  # under our names


@dataclass(frozen=True)
class FolderSpec(TextSides):
    """Everything in a folder but the weights."""

    path: Path  # of the weights: the folder, or a checkpoint of its run
    home: Path
    content: Json  # of config.json
    config: ModelConfig
    run: RunSettings | None
    task: Task | None
    labels: tuple[str, ...]
    input: Input
    output: Input
    adapter: Path | None = None  # whose differences are added to the weights

    @property
    def version(self) -> int:
        return file_version(regard_section(self.content), "regard")

    @property
    def output_size(self) -> int | None:
        """The number of labels, or the size of a separate target vocabulary."""
        return output_size(self.input, self.output, self.labels)

    def build_meta(self) -> AnyModel:
        """The model without its weights: no memory is allocated until they fit."""
        check_size(self.path, self.config, self.content.get("vocab_size", 1))
        return build_meta(self.config, input_size(self.input), self.output_size)


def write_identity(
    path: Path,
    config: Config,
    source: Input,
    target: Tokenizer | None,
    split_above: int,
    labels: Sequence[str] = (),
    may_refuse: bool = False,
) -> None:
    """Everything of a folder but weights, scores and card."""
    output, model = target or source, config.model
    frame = FRAMES.get(model.family, "end")
    if isinstance(source, Tokenizer):
        files = source.folder_files(target, frame, model.max_length)
    else:
        text = {} if target is None else target.folder_files(None, frame, model.max_length)
        files = {**text, **source.folder_files()}
    for name, content in files.items():
        write_atomically(path / name, content)
    section: Json = {"version": config.version, "source": source.fingerprint, "target": output.fingerprint}
    section |= {"split_above": split_above} | ({"may_refuse": True} if may_refuse else {})
    if config.task.name == "translate":
        section |= {"languages": [config.task.source, config.task.target]}
    separate = target if output_size(source, target, ()) is not None else None
    described = config_json(model, source, separate, config.task, labels)
    write_json(path / "config.json", described | {"regard": section})
    if isinstance(output, Tokenizer) and model.family != "bert":
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
        **({} if tokenizer.first is None else {"forced_bos_token_id": tokenizer.first}),
    }


def open_folder(path: Path, device: torch.device | None = None) -> Folder:
    """Open a model folder for inference; errors name the file that is wrong.

    A checkpoint of a run opens as well: its weights, and everything else from the run's folder.
    """
    with verified_folder(path) as spec:
        if spec.task is None:
            raise UsageError(
                f'{path} is an encoder without a head for a task (as BertModel): "regard embed" gives its '
                "vectors, and as [init] from of a run it gets a head",
                code="E_MODEL_HEAD",
            )
        model = spec.build_meta()
        load_weights_into(model, weights_of(spec, model, spec.config.head), path / WEIGHTS)
        section = regard_section(spec.content)
        decode, special_tokens = generation_settings(spec)
        return Folder(
            path=path,
            task=spec.task,
            decode=decode,
            config=spec.config,
            model=model.to(device or torch.device("cpu")).eval(),
            input=spec.input,
            output=spec.output,
            special=special_tokens,
            split_above=int(section.get("split_above", spec.config.max_length)),
            may_refuse=bool(section.get("may_refuse", False)),
            labels=spec.labels,
            calibration={} if spec.adapter else read_calibration(spec.path),
            confidence=confidence_of(spec),
            prefixes=task_prefixes(spec.content),
            version=spec.version,
            speech=speech_of(spec),
        )


def speech_of(spec: FolderSpec) -> SpeechTokens | None:
    if spec.run is not None or spec.task is None or spec.task.name != "transcribe":
        return None
    from regard.storage.speech import speech_tokens  # which training does not need

    shape = spec.config.depth[1], getattr(spec.config, "heads", 0)
    return speech_tokens(spec.home, spec.content, spec.target, shape)


def confidence_of(spec: FolderSpec) -> ConfidenceModel | None:
    if spec.task is None or spec.task.name != "translate" or spec.adapter is not None:
        return None
    from regard.storage.confidence import read_confidence  # which training does not need

    return read_confidence(spec.path)


def task_prefixes(content: Json) -> tuple[str, ...]:
    """The prefixes of transformers' `task_specific_params`."""
    tasks = content.get("task_specific_params")
    fields = tasks.values() if isinstance(tasks, dict) else ()
    prefixes = (task.get("prefix") for task in fields if isinstance(task, dict))
    return tuple(prefix for prefix in prefixes if isinstance(prefix, str) and prefix)


def find_folder(path: Path) -> tuple[Path, Path | None]:
    """The folder of a model by its path or name, and that of its adapter if it has one."""
    from regard.storage.adapters import find_adapted  # not at the top: a training run opens no model by name

    return find_adapted(path)


def is_bare_encoder(path: Path) -> bool:
    """Whether a folder has an encoder without a head, which `open_folder` refuses."""
    folder, adapter = find_folder(path)
    file = folder / "config.json"
    if run_of(folder) or (folder / "run.toml").is_file() or not file.is_file():
        return False
    content = read_json(file)
    if adapter is not None:
        from regard.storage.adapters import with_head

        content = with_head(content, adapter)
    return task_of(content, str(file)) is None


def open_encoder(path: Path, device: torch.device | None = None) -> BareEncoder:
    """Open the encoder of a BERT, ViT or AST: a folder of another program, a run, or a checkpoint."""
    from regard.models.encoder import EncoderOnly

    with verified_folder(path) as spec:
        whole = spec.build_meta()
        if not isinstance(whole, EncoderOnly):
            raise UsageError(
                f"{path}: embeddings need an encoder (bert, vit, ast), and this model is a "
                f"{spec.config.family}",
                code="E_MODEL_FAMILY",
            )
        pool = None if isinstance(spec.input, Tokenizer) else whole.pool
        model = EncoderOnly(whole.source, whole.encoder, nn.Identity(), cast(Linear, nn.Identity()), pool)
        load_weights_into(model, weights_of(spec, model, None), spec.path / WEIGHTS)
        model = model.to(device or torch.device("cpu")).eval()
        return BareEncoder(path, spec.home, spec.config, spec.input, model)


def read_model(path: Path, head: str | None = None) -> Initial:
    """Read a folder or a checkpoint to start a run from; it may have no head.

    `head` is the head of the run, by default the folder's. The weights of another head are left out, except
    that the pooler which most BERTs have is used for the head "sentence".
    """
    with verified_folder(path) as spec:
        folder_head: str | None = spec.config.head if spec.task else None
        if spec.config.family == "bert" and head not in (None, folder_head):
            folder_head = "pooler" if head == "sentence" else None
        weights = weights_of(spec, spec.build_meta(), folder_head)
        return Initial(path, spec.config, spec.task, spec.input, spec.output, spec.labels, weights)


def describe(path: Path) -> FolderSpec:
    """Read everything in a folder but the weights. Of run.toml only what inference needs."""
    path, adapter = find_folder(path)
    home = run_of(path) or path
    for folder in {path, home}:
        check_files(folder)
    file = home / "config.json"
    if not file.is_file():
        raise UsageError(f"{home} is not a model folder: it has no config.json", code="E_MODEL_FOLDER")
    content = read_config(file)
    run = load_run_settings(home / "run.toml") if (home / "run.toml").is_file() else None
    if adapter is not None:
        from regard.storage.adapters import with_head

        whole = with_head(content, adapter)
        run = run if whole is content else None  # the head of another task
        content = whole
    config = model_config(content, str(file))
    source, target = load_inputs(home, content)
    if run is not None and path != home:
        config = in_training_order(config, run)
    task = run.task if run else task_of(content, str(file))
    labels = labels_of(content, task, str(file))
    if run is not None and isinstance(source, Tokenizer) and isinstance(target, Tokenizer):
        with located(home / "run.toml"):
            source, target = for_languages(source, target, run.task)
    return FolderSpec(path, home, content, config, run, task, labels, source, target, adapter)


def for_languages(source: Tokenizer, target: Tokenizer, task: Task) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a run, which name its languages if they have tokens for them."""
    if task.name != "translate" or not target.language_tokens:
        return source, target
    from regard.inputs.text.languages import both_between  # which few models need

    return both_between((source, target), task.source, task.target)


def in_training_order(config: ModelConfig, run: RunSettings) -> ModelConfig:
    """The config of a checkpoint, whose channels are in the order of training, not permuted."""
    positions = run.model.get("positions")
    if isinstance(config, TransformerConfig) and positions in ("sinusoidal", "sinusoidal_halves"):
        return config.model_copy(update={"positions": positions})
    return config


def weights_of(spec: FolderSpec, model: nn.Module, head: str | None) -> dict[str, Tensor]:
    """The weights of a model under our names; of a BERT with this head, None for none."""
    if spec.path != spec.home:
        content, tensors = {}, load_weights(spec.path)  # a checkpoint has our names
    else:
        content, tensors = spec.content, read_tensors(spec.path)
    if spec.adapter is not None:
        from regard.storage.adapters import read_adapter, without_other_heads

        if spec.path != spec.home or content.get("model_type") == "regard":
            message = f"{spec.path}: adapters have names of transformers, which this model lacks"
            raise UsageError(message, code="E_ADAPTER")
        adapter = read_adapter(spec.adapter)
        tensors = adapter.merge(without_other_heads(tensors, content, head) if adapter.saved else tensors)
    shapes: dict[str, Sequence[int]] = {name: each.shape for name, each in model.named_parameters()}
    if head != spec.config.head:
        shapes = {name: each for name, each in shapes.items() if not name.startswith(("head.", "output."))}
        if head == "pooler" and any(name.endswith("pooler.dense.weight") for name in tensors):
            width = spec.config.width
            shapes |= {"head.dense.weight": (width, width), "head.dense.bias": (width,)}
    with located(spec.path / WEIGHTS):
        return from_hf(content, tensors, shapes, head)


@contextmanager
def verified_folder(path: Path) -> Iterator[FolderSpec]:
    """Describe a folder; after the block verify its checksums, or those of a checkpoint's run."""
    folder, _ = find_folder(path)
    run = run_of(folder)
    with verified(run or folder, weights=run is None):
        yield describe(path)


def run_of(path: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, None if the path is no checkpoint."""
    path = path.resolve()
    is_checkpoint = path.parent.name == "checkpoints" and (path / "manifest.json").is_file()
    return path.parent.parent if is_checkpoint else None


def generation_settings(spec: FolderSpec) -> tuple[Decode, SpecialTokens]:
    """Decoding options and special tokens: of the run, or of another program's generation_config.json."""
    if not isinstance(spec.output, Tokenizer):  # writes no text
        return spec.run.decode if spec.run else Decode(), SpecialTokens(0, 0)
    if spec.run is not None:
        return spec.run.decode, special_tokens(spec.target)
    if spec.config.family == "bert":  # generates nothing
        return Decode(), special_tokens(spec.target)
    file, settings = read_generation(spec.home, spec.content)
    has_prompt = isinstance(spec.config, GPTConfig | LlamaConfig)
    return decode_of(settings, file, has_prompt), special_of(settings, file, spec.target, has_prompt)
