"""Model folders: a Hugging Face folder that Regard and transformers both open.

`config.json` and the tokenizers are written once, when a run begins, and never change; the weights are one
file that is replaced as a whole. So a folder is usable at every moment after the first weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from regard.config import Config, Decode, Model, Task, load_config, to_toml
from regard.errors import UsageError
from regard.model import Model as AnyModel
from regard.model import build
from regard.store.checkpoint import load_weights
from regard.store.files import Json, read_json, write_atomically, write_json, write_text
from regard.store.huggingface import config_json, is_marian, model_config
from regard.store.names import marian, to_ours, to_theirs
from regard.text import Tokenizer, huggingface_config

WEIGHTS = "model.safetensors"


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


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """The learned tensors by name; one that is shared stands there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write_identity(
    path: Path, config: Config, source: Tokenizer, target: Tokenizer | None, split_above: int
) -> None:
    """Everything of a folder but weights, scores and card."""
    output = target or source
    write_text(path / "tokenizer.json", source.to_json())
    write_json(path / "tokenizer_config.json", huggingface_config(source, config.model.max_length))
    if target is not None:
        write_text(path / "target_tokenizer.json", target.to_json())
    own: Json = {"source": source.fingerprint, "target": output.fingerprint, "split_above": split_above}
    write_json(path / "config.json", config_json(config.model, source, target) | {"regard": own})
    write_json(path / "generation_config.json", generation_config(config, output))
    write_text(path / "run.toml", to_toml(config))


def generation_config(config: Config, tokenizer: Tokenizer) -> Json:
    return {
        "num_beams": config.decode.beam,
        "length_penalty": config.decode.length_penalty,
        "early_stopping": config.decode.early_stopping,
        "no_repeat_ngram_size": config.decode.no_repeat_ngram,
        "repetition_penalty": config.decode.repetition_penalty,
        "max_length": config.model.max_length,
        "decoder_start_token_id": tokenizer.start,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
        "suppress_tokens": sorted(tokenizer.never_said),
    }


def write_weights(path: Path, config: Model, weights: Mapping[str, Tensor]) -> None:
    """Replace the folder's weights, under Hugging Face's names where its Marian class fits."""
    tensors = dict(weights)
    if is_marian(config):
        vocabulary = tensors.get("target.tokens.weight", tensors["source.tokens.weight"]).shape[0]
        tensors = to_theirs(tensors, marian("target.tokens.weight" not in tensors), config.width)
        tensors["final_logits_bias"] = torch.zeros(1, vocabulary)  # Marian has one, the paper has none
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": "pt"})
    write_atomically(path / WEIGHTS, content)


def open_folder(path: Path, device: torch.device | None = None) -> Folder:
    """Open a model folder for use; whatever is wrong with it is said with the file's name.

    A checkpoint of a run opens as well: its weights, with all else from the run's folder.
    """
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder" if not path.exists() else f"{path} is not a folder")
    home = run_of(path) or path
    if not (home / "config.json").is_file():
        raise UsageError(f"{home} is not a model folder: it has no config.json")
    content = read_json(home / "config.json")
    config = model_config(content, str(home / "config.json"))
    source, target = load_tokenizers(home, content)
    if not (path / WEIGHTS).is_file():
        raise UsageError(
            f"{path} has no {WEIGHTS} yet; if its training was cut off, go on with "
            f'"regard train --resume --out {path}"'
        )
    model = build(config, len(source), None if target is source else len(target))
    weights = read_weights(path, config, target is source) if home is path else load_weights(path)
    load_weights_into(model, weights, path / WEIGHTS)
    run = load_config(home / "run.toml") if (home / "run.toml").is_file() else None
    own = content.get("regard", {})
    return Folder(
        path=path,
        task=run.task if run else Task(),
        decode=run.decode if run else Decode(),
        config=config,
        model=model.to(device or torch.device("cpu")).eval(),
        source=source,
        target=target,
        split_above=int(own.get("split_above", config.max_length)),
    )


def run_of(path: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, None where the path is no checkpoint."""
    own = path.resolve()
    is_checkpoint = own.parent.name == "checkpoints" and (own / "manifest.json").is_file()
    return own.parent.parent if is_checkpoint else None


def load_tokenizers(path: Path, content: Json) -> tuple[Tokenizer, Tokenizer]:
    """The folder's tokenizers, after a check that they belong to its weights."""
    source = Tokenizer.load(path / "tokenizer.json")
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


def read_weights(path: Path, config: Model, joint: bool) -> dict[str, Tensor]:
    """The weights of a folder under our names."""
    try:
        tensors = load_file(path / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path / WEIGHTS}: not a readable safetensors file ({error})") from None
    if not is_marian(config):
        return tensors
    bias = tensors.pop("final_logits_bias", None)
    if bias is not None and bool(bias.any()):
        raise UsageError(f"{path / WEIGHTS}: final_logits_bias is not zero, which Regard cannot use yet")
    try:
        return to_ours(tensors, marian(joint), config.width)
    except UsageError as error:
        raise UsageError(f"{path / WEIGHTS}: {error}") from None


def load_weights_into(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a model; a missing, unknown or misshapen tensor is an error that names it."""
    own = dict(model.named_parameters())
    if missing := sorted(own.keys() - weights.keys()):
        raise UsageError(f'{path}: the tensor "{missing[0]}" is missing ({len(missing)} in all)')
    if unknown := sorted(weights.keys() - own.keys()):
        raise UsageError(f'{path}: the tensor "{unknown[0]}" is unknown ({len(unknown)} in all)')
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != weights[name].shape:
                shapes = f"{list(weights[name].shape)}, the model needs {list(parameter.shape)}"
                raise UsageError(f'{path}: the tensor "{name}" has shape {shapes}')
            parameter.copy_(weights[name])
