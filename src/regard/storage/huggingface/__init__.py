"""Our models as Hugging Face's and back: `config.json` and weight names, a module for each architecture.

A model that one of their classes expresses is written as that class, so that `transformers` opens it. All
others (RNNs, pre-norm encoder-decoders, other head widths...) use the same files with `model_type: "regard"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from pydantic import ValidationError
from torch import Tensor

from regard.compat import current_weight_names, file_version, upgrade_model
from regard.config.model import CLASSES as FAMILIES
from regard.config.model import FIELDS, ModelConfig, parse_model
from regard.config.reading import shown
from regard.config.schema import HEADS, Task
from regard.errors import UsageError, located
from regard.inputs.text import Tokenizer
from regard.inputs.text.checks import MAX_TOKENS
from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    Architecture,
    Shape,
    Tensors,
    as_computed,
    tensors_from_hf,
    tensors_to_hf,
)

# model_type, which is also the name of a module, by our family; a module is imported when it is needed
MODEL_TYPES = {"transformer": "marian", "bert": "bert", "gpt": "gpt2", "t5": "t5", "llama": "llama"}
MULTI_LABEL = "multi_label_classification"
CONFIG, UNSUPPORTED = "E_MODEL_CONFIG", "E_MODEL_UNSUPPORTED"


def load_architecture(model_type: object) -> Architecture | None:
    if model_type not in MODEL_TYPES.values():
        return None
    module = import_module(f"regard.storage.huggingface.{model_type}")
    architecture: Architecture = getattr(module, str(model_type).upper())
    return architecture


def architecture_of(model: ModelConfig, joint: bool) -> Architecture | None:
    """The architecture that expresses a model, None if there is none.

    Its fields are written and read back: a model with anything that they do not hold has no architecture.
    """
    each = load_architecture(MODEL_TYPES.get(model.family))
    if each is None or not (joint or each.two_vocabularies):
        return None
    return each if _reads_back(model, each) else None


def _reads_back(model: ModelConfig, architecture: Architecture) -> bool:
    try:
        fields = architecture.read({"vocab_size": 1, "regard": {}, **architecture.write(model)})
        return _computation(parse_model({**fields, "head": model.head})) == _computation(model)
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
    if fields.get("head") != "sentence":
        fields.pop("pool", None)
    return fields


def opens_in_transformers(model: ModelConfig, joint: bool = True) -> bool:
    return architecture_of(model, joint) is not None


def config_json(
    model: ModelConfig,
    source: Tokenizer,
    target: Tokenizer | None,
    task: Task | None = None,
    labels: Sequence[str] = (),
) -> Json:
    output = target or source
    common: Json = {
        "is_encoder_decoder": 0 not in model.depth,
        "vocab_size": len(source),
        # theirs has one for both sides, and uses it as a row of either embedding
        "pad_token_id": source.pad if source.pad < len(output) else output.pad,
        "bos_token_id": output.start,
        "eos_token_id": output.end,
        "torch_dtype": "float32",
    }
    if common["is_encoder_decoder"]:
        common["decoder_start_token_id"] = output.start
    if target is not None:
        common |= {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    common |= _labels_json(labels, task)
    architecture = architecture_of(model, target is None)
    if architecture is None:
        fields = model.model_dump(mode="json", exclude={"preset"}, exclude_none=True)
        return {"model_type": "regard", "architectures": [model.family], **common, "model": fields}
    their_class = next(iter(architecture.tasks))
    if model.head is not None:
        from regard.storage.huggingface.bert import CLASSES

        their_class = CLASSES[model.head]
    described = {"model_type": architecture.name, "architectures": [their_class]}
    return described | common | architecture.write(model)


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


def model_config(config: Json, path: str) -> ModelConfig:
    """The model that a `config.json` describes; errors name the file."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in (*MODEL_TYPES.values(), "regard"):
        supported = ", ".join([*MODEL_TYPES.values(), "regard"])
        raise UsageError(
            f"{path}: model_type {shown(name)} is not one that Regard opens ({supported})", code=UNSUPPORTED
        )
    try:
        with located(path):
            _check_numbers(config)
            if name == "regard":
                fields = config.get("model", {})
                is_old = file_version(regard_section(config), "regard") == 1
                return parse_model(upgrade_model(fields, FIELDS) if is_old else fields)
            architecture = load_architecture(name)
            assert architecture is not None  # one of MODEL_TYPES
            head = HEADS.get(_task_name(config, architecture) or "") if name == "bert" else None
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
        if field == "decoder_vocab_size" and size is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_TOKENS:
            raise UsageError(
                f"{field} = {shown(size)} is not a number of tokens (1 to {MAX_TOKENS:,})", code=CONFIG
            )
    longest = regard_section(config).get("split_above", 0)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 0:
        raise UsageError(f"regard.split_above = {shown(longest)} is not a number of tokens", code=CONFIG)


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
    if name.endswith("Model"):  # a base model; of all but BERT the embedding is also the output layer
        return None if architecture.name == "bert" else next(iter(architecture.tasks.values()))
    supported = ", ".join(architecture.tasks)
    raise UsageError(
        f"architectures = {shown(name)} is not one that Regard opens ({supported})", code=UNSUPPORTED
    )


def task_of(config: Json, path: str) -> Task | None:
    """The task of the class in `architectures`; None for an encoder without a head."""
    architecture = load_architecture(config.get("model_type"))
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
    return Task.model_validate({"name": name, "multi_label": multi_label, **languages})


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


def to_hf(model: ModelConfig, weights: Mapping[str, Tensor]) -> Tensors:
    """Our weights under the names of the architecture that expresses the model, else under ours."""
    target = weights.get("target.tokens.weight")
    source = weights.get("source.tokens.weight")
    joint = target is None or source is None
    architecture = architecture_of(model, joint)
    if architecture is None:
        return dict(weights)
    embedding = target if target is not None else source
    shape = Shape(joint, 0 if embedding is None else len(embedding), model.head or "words")
    return tensors_to_hf(weights, architecture.table(model, shape))


def from_hf(
    config: Json, model: ModelConfig, tensors: Mapping[str, Tensor], joint: bool, head: str | None
) -> Tensors:
    """The weights of a file under our names. `head` is the one to read; "pooler": BERT's pooler alone."""
    architecture = load_architecture(config.get("model_type"))
    if architecture is not None:
        return tensors_from_hf(tensors, architecture.table(model, Shape(joint, 0, head)))
    named = {name: as_computed(tensor) for name, tensor in current_weight_names(tensors).items()}
    if head in (model.head, "words"):
        return named
    return {name: tensor for name, tensor in named.items() if not name.startswith(("head.", "output."))}
