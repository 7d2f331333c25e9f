"""Our models as Hugging Face's and back: `config.json` and weight names, a table for each architecture.

A model that one of their classes expresses is written as that class, so that `transformers` opens it. All
others (RNNs, pre-norm encoder-decoders, other head widths...) use the same files with `model_type: "regard"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from torch import Tensor

from regard.compat import current_weight_names, file_version, upgrade_model
from regard.config.input import InputConfig
from regard.config.model import CLASSES as FAMILIES
from regard.config.model import FIELDS, ModelConfig, parse_model
from regard.config.reading import shown
from regard.config.schema import FRAME_FAMILIES, HEADS, Task
from regard.errors import UsageError, located
from regard.inputs.text import Tokenizer
from regard.inputs.text.checks import MAX_TOKENS
from regard.storage.files import Json, read_json
from regard.storage.huggingface.architecture import (
    UNSUPPORTED,
    Architecture,
    Shapes,
    Tensors,
    as_computed,
    tensors_from_hf,
)
from regard.storage.huggingface.decoders import GEMMA, GPT2, GPT_NEOX, LLAMA, MISTRAL, QWEN2, QWEN3
from regard.storage.huggingface.encoder_decoders import BART, M2M_100, MARIAN, MBART, T5
from regard.storage.huggingface.encoders import BERT, DISTILBERT, MPNET, ROBERTA, XLM_ROBERTA
from regard.storage.huggingface.frames import AST, VIT, VIT_GPT, WHISPER

if TYPE_CHECKING:
    from regard.inputs.frames import FrameReader

# by model_type; of those that express a model, the first is written
ARCHITECTURES = {
    each.name: each
    for each in (
        *(MARIAN, T5, BART, MBART, M2M_100),
        *(BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, MPNET),
        *(GPT2, GPT_NEOX, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA),
        *(VIT, AST, WHISPER, VIT_GPT),
    )
}
MULTI_LABEL = "multi_label_classification"
CONFIG = "E_MODEL_CONFIG"


def architecture_of(
    model: ModelConfig, joint: bool, reader: InputConfig | None = None
) -> Architecture | None:
    """The architecture that expresses a model, None if there is none.

    Its fields are written and read back: a model with anything that they do not hold has no architecture.
    """
    for each in ARCHITECTURES.values():
        fits = each.family == model.family and (joint or each.two_vocabularies)
        if fits and (reader is None or _processor(reader) == each.processor) and _reads_back(model, each):
            return each
    return None


def _processor(reader: InputConfig) -> str:
    """Their class that reads files as this [input] does; one of ours if there is none."""
    from regard.inputs.preprocessor import to_hf as processor_json

    fields = processor_json(reader)
    return str(fields.get("image_processor_type") or fields["feature_extractor_type"])


def _reads_back(model: ModelConfig, architecture: Architecture) -> bool:
    try:
        fields = architecture.read({"vocab_size": 1, "regard": {}, **architecture.write(model)})
        head = {"head": model.head} if "head" in type(model).model_fields else {}
        return _computation(parse_model({**fields, **head})) == _computation(model)
    except (UsageError, ValidationError):
        return False


def _computation(model: ModelConfig) -> Json:
    """The fields that decide what a model computes, in one form."""
    fields = model.model_dump(exclude={"preset", "dropout", "layers", "encoder_layers", "decoder_layers"})
    fields["depth"] = model.depth
    if "heads" in fields:
        fields["head_width"] = fields["head_width"] or fields["width"] // fields["heads"]
        fields["kv_heads"] = fields.get("kv_heads") or fields["heads"]
    if fields.get("positions") == "sinusoidal":
        fields["positions"] = "sinusoidal_halves"  # the channels are permuted when the weights are written
    if fields.get("positions") != "rotary":
        fields.pop("rope_theta", None)
        fields.pop("rotary_channels", None)
    elif "rotary_channels" in fields:
        fields["rotary_channels"] = fields["rotary_channels"] or fields["head_width"]
    if fields.get("head", "sentence") != "sentence":
        fields.pop("pool", None)
        fields.pop("head_activation", None)
    return fields


def opens_in_transformers(model: ModelConfig, joint: bool = True, reader: InputConfig | None = None) -> bool:
    return architecture_of(model, joint, reader) is not None


def config_json(
    model: ModelConfig,
    source: Tokenizer | FrameReader,
    target: Tokenizer | None,
    task: Task | None = None,
    labels: Sequence[str] = (),
) -> Json:
    common: Json = {"is_encoder_decoder": 0 not in model.depth, "torch_dtype": "float32"}
    output = target or source
    if isinstance(output, Tokenizer):
        first = source if isinstance(source, Tokenizer) else output
        common |= {
            "vocab_size": len(first),
            # theirs has one for both sides, and uses it as a row of either embedding
            "pad_token_id": first.pad if first.pad < len(output) else output.pad,
            "bos_token_id": output.start,
            "eos_token_id": output.end,
        }
        if common["is_encoder_decoder"]:
            common["decoder_start_token_id"] = output.start
        if target is not None and isinstance(source, Tokenizer):
            common |= {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    common |= _labels_json(labels, task)
    reader = None if isinstance(source, Tokenizer) else source.config
    architecture = architecture_of(model, target is None or reader is not None, reader)
    if architecture is None:
        fields = model.model_dump(mode="json", exclude={"preset"}, exclude_none=True)
        return {"model_type": "regard", "architectures": [model.family], **common, "model": fields}
    if reader is not None:
        common |= architecture.write_input(reader)
    heads = HEADS if model.family == "bert" else {}
    classes = [name for name, task in architecture.tasks.items() if heads.get(task or "") == model.head]
    classes = classes or list(architecture.tasks)
    described = {"model_type": architecture.name, "architectures": classes[:1]}
    fields = architecture.write(model)
    if "pad_token_id" in fields and fields["pad_token_id"] != (padding := common["pad_token_id"]):
        raise UsageError(
            f"model.first_position = {fields['pad_token_id'] + 1} is for a vocabulary whose padding is token "
            f"{fields['pad_token_id']}; here it is {padding}: set {padding + 1}",
            code=CONFIG,
        )
    return architecture.nested(described | common | fields)


def _labels_json(labels: Sequence[str], task: Task | None) -> Json:
    if not labels:
        return {}
    fields: Json = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if task is not None and task.name == "classify":
        fields["problem_type"] = MULTI_LABEL if task.multi_label else "single_label_classification"
    return fields


def _architecture(config: Json) -> Architecture | None:
    name = config.get("model_type")
    return ARCHITECTURES.get(name) if isinstance(name, str) else None


def read_config(file: Path) -> Json:
    """The content of a `config.json`; what other types have beside its objects is not inside of them."""
    config = read_json(file)
    architecture = _architecture(config)
    return config if architecture is None else architecture.flat(config)


def model_config(config: Json, path: str) -> ModelConfig:
    """The model that a `config.json` describes; errors name the file."""
    name, architecture = config.get("model_type"), _architecture(config)
    if architecture is None and name != "regard":
        supported = ", ".join([*ARCHITECTURES, "regard"])
        raise UsageError(
            f"{path}: model_type {shown(name)} is not one that Regard opens ({supported})", code=UNSUPPORTED
        )
    try:
        with located(path):
            _check_numbers(config)
            if architecture is None:
                fields = config.get("model", {})
                is_old = file_version(regard_section(config), "regard") == 1
                return parse_model(upgrade_model(fields, FIELDS) if is_old else fields)
            is_bert = architecture.family == "bert"
            head = HEADS.get(_task_name(config, architecture) or "") if is_bert else None
            return parse_model({**architecture.read(config), "head": head})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in FAMILIES)
        reason = f"{place}: {first['msg']}"
    except KeyError as error:
        reason = f"missing {error}"
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:  # a field of another type
        reason = str(error)
    raise UsageError(f"{path}: not a config that Regard can use ({reason})", code=CONFIG)


def _check_numbers(config: Json) -> None:
    """Check what is read of a config beside the model; `auto_map` and all else is ignored."""
    for field in ("vocab_size", "decoder_vocab_size"):
        size = config.get(field)
        if size is None and (field == "decoder_vocab_size" or reads_frames(config)):
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_TOKENS:
            raise UsageError(
                f"{field} = {shown(size)} is not a number of tokens (1 to {MAX_TOKENS:,})", code=CONFIG
            )
    longest = regard_section(config).get("split_above", 0)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 0:
        raise UsageError(f"regard.split_above = {shown(longest)} is not a number of tokens", code=CONFIG)


def reads_frames(config: Json) -> bool:
    """Whether the model reads pictures or sounds."""
    architecture = _architecture(config)
    section = config.get("model")
    family = section.get("family") if isinstance(section, dict) else None
    return (architecture.family if architecture else family) in FRAME_FAMILIES


def regard_section(config: Json) -> Json:
    """The object that Regard itself has written into a config."""
    section = config.get("regard", {})
    if not isinstance(section, dict):
        raise UsageError(f"regard = {shown(section)} is not an object", code=CONFIG)
    return section


def _languages(config: Json) -> dict[str, str]:
    """Source and target language of a translator; other programs' folders do not name them."""
    match regard_section(config).get("languages", ["source", "target"]):
        case [str(source), str(target)] if source and target:
            return {"source": source, "target": target}
        case wrong:
            raise UsageError(
                f"regard.languages = {shown(wrong)} does not name a source and a target", code=CONFIG
            )


def _task_name(config: Json, architecture: Architecture) -> str | None:
    """The task of the class in `architectures`; None for an encoder without a head."""
    classes = config.get("architectures") or ["Model"]
    if not isinstance(classes, list):
        raise UsageError(f"architectures = {shown(classes)} is not a list of classes", code=CONFIG)
    name = str(classes[0])
    if name in architecture.tasks:
        return architecture.tasks[name]
    if name.endswith("Model"):  # a base model; of all but encoders the embedding is also the output layer
        return None if None in architecture.tasks.values() else next(iter(architecture.tasks.values()))
    supported = ", ".join(architecture.tasks)
    raise UsageError(
        f"architectures = {shown(name)} is not one that Regard opens ({supported})", code=UNSUPPORTED
    )


def task_of(config: Json, path: str) -> Task | None:
    """The task of the class in `architectures`; None for an encoder without a head."""
    architecture = _architecture(config)
    problem = config.get("problem_type")
    with located(path):
        languages = _languages(config)
        if architecture is None:
            return Task.model_validate(languages)
        name = _task_name(config, architecture)
        is_single = name == "classify" and problem != MULTI_LABEL
        if is_single and (problem == "regression" or len(_labels(config)) < 2):
            raise UsageError("a class with one number as its output (regression)", code=UNSUPPORTED)
    if name is None:
        return None
    multi_label = name == "classify" and problem == MULTI_LABEL
    reads = {"input": architecture.input}
    return Task.model_validate({"name": name, "multi_label": multi_label, **reads, **languages})


def labels_of(config: Json, task: Task | None, path: str) -> tuple[str, ...]:
    """The labels of a classifier or tagger, in their order."""
    if task is None or task.name not in ("classify", "tag"):
        return ()
    with located(path):
        return _labels(config)


def _labels(config: Json) -> tuple[str, ...]:
    names = config.get("id2label") or {str(number): f"LABEL_{number}" for number in (0, 1)}
    if not isinstance(names, dict) or set(names) != {str(number) for number in range(len(names))}:
        raise UsageError(f"id2label = {shown(names)} does not name the labels 0, 1, 2...", code=CONFIG)
    if wrong := [label for label in names.values() if not isinstance(label, str)]:
        raise UsageError(f"id2label has {shown(wrong[0])}, which is not the name of a label", code=CONFIG)
    return tuple(names[str(number)] for number in range(len(names)))


def to_hf(model: ModelConfig, weights: Mapping[str, Tensor], reader: InputConfig | None = None) -> Tensors:
    """Our weights under the names of the architecture that expresses the model, else under ours."""
    is_joint = "target.tokens.weight" not in weights or "source.tokens.weight" not in weights
    architecture = architecture_of(model, is_joint, reader)
    return dict(weights) if architecture is None else architecture.to_hf(model, weights, reader)


def from_hf(config: Json, tensors: Mapping[str, Tensor], shapes: Shapes, head: str | None) -> Tensors:
    """The weights of a file under our names, for a model with parameters of these names and shapes.

    `head` is the one to read; None: none, "pooler": BERT's pooler alone.
    """
    architecture = _architecture(config)
    if architecture is not None:
        return tensors_from_hf(tensors, architecture.table_of(shapes, head, config), shapes)
    return {
        name: as_computed(tensor)
        for name, tensor in current_weight_names(tensors).items()
        if name in shapes or not name.startswith(("head.", "output."))
    }
