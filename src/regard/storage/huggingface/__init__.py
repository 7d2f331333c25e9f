"""Our models as Hugging Face's, and back: `config.json` and the names of weights, a file for each kind.

What one of their classes can express is written as such, so that `transformers` opens it. Other shapes (RNNs,
pre-norm encoder-decoders, free head widths...) use the same files with `model_type: "regard"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from torch import Tensor

from regard.config import Model, Task
from regard.config.reading import shown
from regard.config.schema import HEADS
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.inputs.text.checks import MAX_TOKENS
from regard.storage.files import Json
from regard.storage.huggingface.bert import BERT, CLASSES
from regard.storage.huggingface.gpt2 import GPT2
from regard.storage.huggingface.kind import Kind, Shape
from regard.storage.huggingface.llama import LLAMA
from regard.storage.huggingface.marian import MARIAN
from regard.storage.huggingface.t5 import T5
from regard.storage.huggingface.table import Tensors, as_computed, to_ours, to_theirs

KINDS = {kind.name: kind for kind in (MARIAN, BERT, GPT2, T5, LLAMA)}
MANY = "multi_label_classification"


def kind_of(model: Model, joint: bool) -> Kind | None:
    """Their kind that can express a model, None where there is none."""
    return next((kind for kind in KINDS.values() if kind.fits(model, joint)), None)


def opens_in_transformers(model: Model, joint: bool = True) -> bool:
    return kind_of(model, joint) is not None


def config_json(
    model: Model,
    source: Tokenizer,
    target: Tokenizer | None,
    task: Task | None = None,
    labels: Sequence[str] = (),
) -> Json:
    output = target or source
    common: Json = {
        "is_encoder_decoder": model.family not in ("bert", "gpt", "llama"),
        "vocab_size": len(source),
        # theirs has one for both sides, and takes it for a row of either embedding
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
    kind = kind_of(model, target is None)
    if kind is None:
        fields = model.model_dump(mode="json", exclude={"preset"})
        return {"model_type": "regard", "architectures": [model.family], **common, "model": fields}
    their_class = CLASSES[model.head or "words"] if kind is BERT else next(iter(kind.tasks))
    return {"model_type": kind.name, "architectures": [their_class], **common, **kind.write(model)}


def _labels_json(labels: Sequence[str], task: Task | None) -> Json:
    if not labels:
        return {}
    told: Json = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if task is not None and task.name == "classify":
        told["problem_type"] = MANY if task.many else "single_label_classification"
    return told


def model_config(config: Json, path: str) -> Model:
    """The model that a `config.json` describes; an impossible one is an error that names the file."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in (*KINDS, "regard"):
        known = ", ".join([*KINDS, "regard"])
        raise UsageError(f"{path}: model_type {shown(name)} is not one that Regard opens ({known})")
    try:
        _check_own_numbers(config)
        if name == "regard":
            return Model.model_validate(config.get("model", {}))
        kind = KINDS[name]
        head = HEADS.get(_task_name(config, kind) or "") if kind is BERT else None
        return Model.model_validate({**kind.read(config), **({"head": head} if head else {})})
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"{path}: not a config that Regard can use ({reason})") from None
    except KeyError as error:
        raise UsageError(f"{path}: not a config that Regard can use (missing {error})") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:  # a field of another kind
        raise UsageError(f"{path}: not a config that Regard can use ({error})") from None


def _check_own_numbers(config: Json) -> None:
    """What is read of a config beside the shape of its model; `auto_map` and all else is passed over."""
    for field in ("vocab_size", "decoder_vocab_size"):
        size = config.get(field)
        if field == "decoder_vocab_size" and size is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_TOKENS:
            raise UsageError(f"{field} = {shown(size)} is no number of pieces (1 to {MAX_TOKENS:,})")
    longest = _own(config).get("split_above", 0)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 0:
        raise UsageError(f"regard.split_above = {shown(longest)} is no number of pieces")


def _own(config: Json) -> Json:
    """What Regard itself has written into a config."""
    own = config.get("regard", {})
    if not isinstance(own, dict):
        raise UsageError(f"regard = {shown(own)} is no object")
    return own


def _languages(config: Json) -> dict[str, str]:
    """What a translator reads and writes; another program's folder does not say."""
    match _own(config).get("languages", ["source", "target"]):
        case [str(source), str(target)] if source and target:
            return {"source": source, "target": target}
        case wrong:
            raise UsageError(f"regard.languages = {shown(wrong)} does not name a source and a target")


def _task_name(config: Json, kind: Kind) -> str | None:
    """What the class in `architectures` is for; None for a body without a head."""
    classes = config.get("architectures") or ["Model"]
    if not isinstance(classes, list):
        raise UsageError(f"architectures = {shown(classes)} is no list of classes")
    name = str(classes[0])
    if name in kind.tasks:
        return kind.tasks[name]
    if name.endswith("Model"):  # a body; of all but BERT its words are also the output layer
        return None if kind is BERT else next(iter(kind.tasks.values()))
    raise UsageError(f"architectures = {shown(name)} is none that Regard opens ({', '.join(kind.tasks)})")


def task_of(config: Json, path: str) -> Task | None:
    """The task that follows from the class in `architectures`; None for a body without a head."""
    kind = KINDS.get(str(config.get("model_type")))
    kept = config.get("problem_type")
    try:
        languages = _languages(config)
        if kind is None:
            return Task.model_validate(languages)
        name = _task_name(config, kind)
        if name == "classify" and kept != MANY and (kept == "regression" or len(_labels(config)) < 2):
            raise UsageError("a class with one number as its answer (regression), which is no label")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    many = kept == MANY
    if name is None:
        return None
    return Task.model_validate({"name": name, "many": many and name == "classify", **languages})


def labels_of(config: Json, task: Task | None, path: str) -> tuple[str, ...]:
    """The names of what a classifier or tagger answers, in their order."""
    if task is None or task.name not in ("classify", "tag"):
        return ()
    try:
        return _labels(config)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _labels(config: Json) -> tuple[str, ...]:
    named = config.get("id2label") or {str(number): f"LABEL_{number}" for number in (0, 1)}
    if not isinstance(named, dict) or set(named) != {str(number) for number in range(len(named))}:
        raise UsageError(f"id2label = {shown(named)} does not name the labels 0, 1, 2...")
    if wrong := [label for label in named.values() if not isinstance(label, str)]:
        raise UsageError(f"id2label has {shown(wrong[0])}, which is no name of a label")
    return tuple(named[str(number)] for number in range(len(named)))


def theirs(model: Model, weights: Mapping[str, Tensor]) -> Tensors:
    """Our weights under the names of the kind that expresses the model, or as they are."""
    target = weights.get("target.tokens.weight")
    reading = weights.get("source.tokens.weight")
    joint = target is None or reading is None
    kind = kind_of(model, joint)
    if kind is None:
        return dict(weights)
    words = target if target is not None else reading
    shape = Shape(joint, 0 if words is None else len(words), model.head or "words")
    return to_theirs(weights, kind.table(model, shape))


def ours(config: Json, model: Model, tensors: Mapping[str, Tensor], joint: bool, head: str | None) -> Tensors:
    """The weights of a file under our names. `head` is the one to read; "pooler": BERT's body with its."""
    kind = KINDS.get(str(config.get("model_type")))
    if kind is None:  # our names already
        own = (
            tensors
            if head in (model.head, "words")
            else {
                name: tensor for name, tensor in tensors.items() if not name.startswith(("head.", "output."))
            }
        )
        return {name: as_computed(tensor) for name, tensor in own.items()}
    return to_ours(tensors, kind.table(model, Shape(joint, 0, head)))
