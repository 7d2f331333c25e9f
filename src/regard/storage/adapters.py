"""Adapters on disk, as `peft` writes them: adapter_config.json and adapter_model.safetensors.

A model is named as BASE+ADAPTER, or by the folder of an adapter, which names its base. The weights of both
are merged while the model is opened: W + (alpha / r) B A.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from safetensors.torch import save
from torch import Tensor

from regard.config.reading import shown
from regard.config.schema import HEADS, LABELLING, Config
from regard.errors import UsageError
from regard.models.lora import is_trained
from regard.storage.files import Json, check_files, read_json, write_atomically, write_json
from regard.storage.huggingface import ARCHITECTURES, architecture_of
from regard.storage.models import find_model
from regard.storage.weights import open_safetensors, read_safetensors

CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
WRONG = "E_ADAPTER"
ADAPTER_FOLDER = "adapter"  # of a run
LABELS = "labels"  # in the metadata of the weights: names of what a trained head tells apart
TASK_TYPES = {
    "generate": "CAUSAL_LM",
    "translate": "SEQ_2_SEQ_LM",
    "classify": "SEQ_CLS",
    "tag": "TOKEN_CLS",
    "answer": "QUESTION_ANS",
}
PREFIX = "base_model.model."
NAME = re.compile(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])(?:\.default)?\.weight")
MAX_RANK = 4096
# fields with another kind of adapter behind them, and the values that mean none
OFF: dict[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "bias": ("none", None),
    "use_qalora": (False, None),
    "use_bdlora": (None, False),
    **dict.fromkeys(("layer_replication", "trainable_token_indices"), (None, [], {})),
    **dict.fromkeys(("target_parameters", "alora_invocation_tokens", "arrow_config"), (None, [], {})),
    **dict.fromkeys(("alpha_pattern", "megatron_config", "kasa_config"), (None, {})),
}


@dataclass(frozen=True)
class Adapter:
    """The differences of an adapter that was read."""

    path: Path
    scale: Mapping[str, float]  # by transformers' name of the module
    down: Mapping[str, Tensor]  # A [r,K]
    up: Mapping[str, Tensor]  # B [N,r]
    saved: Mapping[str, Tensor]  # of modules that were trained as a whole, by their name there
    is_transposed: bool  # the weights of GPT-2 are [in, out]

    def merge(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the base, by transformers' names, with the differences added."""
        whole = {**tensors, **self.saved}
        for module, down in self.down.items():
            # a file that was saved without a head has no prefix of the base model
            names = [f"{module}.weight", f"{module.partition('.')[2]}.weight"]
            name = next((each for each in names if each in whole), None)
            if name is None:
                raise self.wrong(f"the base has no {shown(module)}")
            difference = self.up[module].float() @ down.float() * self.scale[module]
            difference = difference.mT if self.is_transposed else difference
            if whole[name].shape != difference.shape:
                shapes = f"{list(difference.shape)}, and {list(whole[name].shape)} in the base"
                raise self.wrong(f"{shown(module)} has the shape {shapes}")
            whole[name] = whole[name].float() + difference
        return whole

    def wrong(self, reason: str) -> UsageError:
        return UsageError(f"{self.path}: not an adapter for this base ({reason})", code=WRONG)


# --- names ------------------------------------------------------------------------------------------------


def find_adapted(path: Path) -> tuple[Path, Path | None]:
    """The folder of a model and that of its adapter: BASE+ADAPTER, the folder of an adapter, or a model."""
    if path.is_dir():
        is_adapter = (path / CONFIG).is_file() and not (path / "config.json").is_file()
        return (base_of(path), path) if is_adapter else (path, None)
    text = str(path)
    for place in (number for number, sign in enumerate(text) if sign == "+"):
        base, adapter = text[:place], text[place + 1 :]
        if base and adapter:
            folder = find_model(Path(adapter))
            if not (folder / CONFIG).is_file():
                raise UsageError(f"{adapter} has no {CONFIG}: it is not an adapter", code=WRONG)
            return find_model(Path(base)), folder
    return find_model(path), None


def base_of(folder: Path) -> Path:
    """The model that an adapter names. It may come from anywhere: a path may not lead out of the folder."""
    name = read_json(folder / CONFIG).get("base_model_name_or_path")
    if not isinstance(name, str) or not name or "\0" in name or len(name) > 1000:
        raise UsageError(f"{folder / CONFIG}: base_model_name_or_path = {shown(name)} is no name", code=WRONG)
    paths = PurePosixPath(name), PureWindowsPath(name)
    if any(
        each.is_absolute() or each.drive or ".." in each.parts or each.parts[:1] == ("~",) for each in paths
    ):
        raise UsageError(
            f"{folder / CONFIG}: its base is the path {shown(name)}, which leads out of the folder; name the "
            "base yourself: -m BASE+ADAPTER",
            code=WRONG,
        )
    return folder / name if (folder / name / "config.json").is_file() else find_model(Path(name))


# --- from peft --------------------------------------------------------------------------------------------


def read_adapter(folder: Path) -> Adapter:
    check_files(folder)
    config = read_json(folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise UsageError(
            f"{folder / CONFIG}: peft_type = {shown(config.get('peft_type'))}; LORA is read", code=WRONG
        )
    for field, off in OFF.items():
        if config.get(field) not in off:
            raise UsageError(
                f"{folder / CONFIG}: {field} = {shown(config[field])} is not supported", code=WRONG
            )
    alpha: Any = config.get("lora_alpha")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise UsageError(f"{folder / CONFIG}: lora_alpha = {shown(alpha)} is not a number", code=WRONG)
    down, up, scale, saved = dict[str, Tensor](), dict[str, Tensor](), dict[str, float](), dict[str, Tensor]()
    for name, tensor in read_safetensors(folder / ADAPTER_WEIGHTS).items():
        match = NAME.fullmatch(name)
        if not match and is_saved(name, config):
            saved[name.removeprefix(PREFIX)] = tensor
            continue
        if not match or tensor.dim() != 2 or not tensor.is_floating_point():
            raise UsageError(f"{folder / ADAPTER_WEIGHTS}: {shown(name)} is no part of LoRA", code=WRONG)
        (down if match[2] == "A" else up)[match[1]] = tensor
    if not down or down.keys() != up.keys():
        raise UsageError(f"{folder / ADAPTER_WEIGHTS}: A and B do not belong together", code=WRONG)
    if bool(config.get("modules_to_save")) != bool(saved):
        modules = shown(config["modules_to_save"])
        raise UsageError(
            f"{folder / ADAPTER_WEIGHTS}: has nothing of modules_to_save = {modules}", code=WRONG
        )
    for module, each in down.items():
        rank = len(each)
        if not 1 <= rank <= MAX_RANK or up[module].shape[1] != rank:
            raise UsageError(f"{folder / ADAPTER_WEIGHTS}: {shown(module)} has the rank {rank}", code=WRONG)
        scale[module] = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Adapter(folder, scale, down, up, saved, bool(config.get("fan_in_fan_out")))


def is_saved(name: str, config: Json) -> bool:
    """Whether a tensor belongs to a module that was trained as a whole."""
    modules = config.get("modules_to_save")
    path = name.removeprefix(PREFIX).split(".")
    return isinstance(modules, list) and any(
        ".".join(path[:end]).endswith(str(module)) for module in modules for end in range(1, len(path))
    )


def with_head(content: Json, folder: Path) -> Json:
    """The config.json of a base with the head that an adapter was trained for: its class and labels."""
    config = read_json(folder / CONFIG)
    kinds = {kind: task for task, kind in TASK_TYPES.items()}
    task, kind = kinds.get(str(config.get("task_type"))), ARCHITECTURES.get(str(content.get("model_type")))
    if kind is None or kind.family != "bert" or task not in LABELLING:
        return content
    name = next(each for each, other in kind.tasks.items() if other == task)
    output = kind.table_of({}, HEADS[task]).names["output"]
    with open_safetensors(folder / ADAPTER_WEIGHTS) as file:
        head = f"{PREFIX}{output}.weight"
        rows = file.get_slice(head).get_shape()[0] if head in file.keys() else 0  # noqa: SIM118
        labels = json.loads((file.metadata() or {}).get(LABELS, "[]"))
    is_valid = isinstance(labels, list) and all(isinstance(each, str) for each in labels)
    if not is_valid or (labels and len(labels) != rows):
        raise UsageError(f"{folder / ADAPTER_WEIGHTS}: its labels are not those of its head", code=WRONG)
    if not labels and rows and len(content.get("id2label") or ()) != rows:
        labels = [f"LABEL_{number}" for number in range(rows)]
    named = {"id2label": dict(zip(map(str, range(rows)), labels))} if labels and task != "answer" else {}
    return {**content, "architectures": [name], **named}


def without_other_heads(tensors: Mapping[str, Tensor], content: Json, head: str | None) -> dict[str, Tensor]:
    """The tensors of a base that was saved with the head of another task, without it."""
    kind = ARCHITECTURES[str(content["model_type"])]
    body, used = kind.table_of({}, None), kind.table_of({}, head).names.values()

    def is_other(name: str) -> bool:
        bare = name.removeprefix(body.prefix)
        is_used = any(each.endswith(bare.rpartition(".")[0]) for each in used)
        return not is_used and any(re.fullmatch(each, bare) for each in body.unused)

    return {name: each for name, each in tensors.items() if not is_other(name)}


# --- to peft ----------------------------------------------------------------------------------------------


def write_adapter(
    out: Path, config: Config, weights: Mapping[str, Tensor], labels: Sequence[str] = ()
) -> None:
    """The adapters among the weights of a model, by our names, as `peft` reads them; with a trained head."""
    model, lora = config.model, config.init.lora
    assert lora is not None
    is_joint = not {"source.tokens.weight", "target.tokens.weight"} <= weights.keys()
    architecture = architecture_of(model, is_joint)
    if architecture is None:
        raise UsageError("this model has no form in transformers, nor has its adapter in peft", code=WRONG)
    shapes = {name: each.shape for name, each in weights.items() if "lora_" not in name}
    table = architecture.table_of(shapes, model.head, architecture.write(model))
    tensors, modules, saved = dict[str, Tensor](), set[str](), set[str]()
    for theirs, ours in table.rows(shapes).items():
        for name in ours:
            module = name.removesuffix(".weight")
            if is_trained(name, config.task.name in LABELLING):
                tensors[f"{PREFIX}{theirs}"] = weights[name].contiguous()
                in_body = theirs.startswith(table.prefix or "\0")
                saved.add(theirs.rpartition(".")[0] if in_body else theirs.partition(".")[0])
            if f"{module}.lora_a" not in weights:
                continue
            if len(ours) > 1:
                raise UsageError(
                    f"init.lora: {architecture.name} has {len(ours)} projections in one matrix, which peft "
                    "adapts together",
                    code="E_INIT_LORA",
                )
            there = theirs.removesuffix(".weight")
            modules.add(there.rpartition(".")[2])
            tensors[f"{PREFIX}{there}.lora_A.weight"] = weights[f"{module}.lora_a"].contiguous()
            tensors[f"{PREFIX}{there}.lora_B.weight"] = weights[f"{module}.lora_b"].contiguous()
    settings: Json = {
        "peft_type": "LORA",
        "task_type": TASK_TYPES.get(config.task.name),
        "base_model_name_or_path": config.init.model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": sorted(modules),
        "modules_to_save": sorted(saved) or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    out.mkdir(exist_ok=True)
    write_json(out / CONFIG, settings)
    names = {LABELS: json.dumps(list(labels))} if labels else {}  # peft has no field for them
    write_atomically(out / ADAPTER_WEIGHTS, save(tensors, {"format": "pt", **names}))
