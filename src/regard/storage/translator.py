"""Write a translator of another program as a folder: config, weights, and its SentencePiece tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import save
from torch import Tensor

from regard.compat import VERSION
from regard.config.model import TransformerConfig
from regard.config.reading import shown
from regard.config.schema import Task
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.inputs.text.checks import MAX_TOKENS
from regard.inputs.text.sentencepiece import SentencePieceTokenizer
from regard.models.families import build_meta
from regard.storage.checksums import WEIGHTS
from regard.storage.files import Json, write_atomically, write_json, write_text
from regard.storage.huggingface import config_json, to_hf

REFUSED = "E_IMPORT"
NEVER = -100.0  # logit of a token that the other program's vocabulary does not have
BEAM = 4
ROLES = ("eos_token", "unk_token", "pad_token")


@dataclass(frozen=True)
class About:
    """What a package says about its model."""

    name: str = "another program"
    languages: Sequence[str] = ()
    card: str = ""


@dataclass(frozen=True)
class TranslatorFolder:
    """A translator with its weights under our names; `origin` names them in messages as its file does."""

    path: Path
    config: TransformerConfig
    weights: Mapping[str, Tensor]
    source: Tokenizer
    target: Tokenizer
    origin: Mapping[str, str] = field(default_factory=dict)
    about: About = field(default_factory=About)
    generation: Json = field(default_factory=dict)

    def check(self) -> None:
        """Every parameter is there with its shape, and nothing else."""
        joint = self.source.shares_vocabulary(self.target)
        model = build_meta(self.config, len(self.source), None if joint else len(self.target))
        shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
        for name in sorted(shapes.keys() | self.weights.keys()):
            theirs, tensor = shown(self.origin.get(name, name)), self.weights.get(name)
            if tensor is None:
                raise UsageError(f"{self.path}: the tensor {theirs} is missing", code=REFUSED)
            if shapes.get(name) != tuple(tensor.shape):
                expected = f"not {list(shapes[name])}" if name in shapes else "and has no place in this model"
                message = f"{self.path}: the tensor {theirs} has the shape {list(tensor.shape)}, {expected}"
                raise UsageError(message, code=REFUSED)

    def write(self, out: Path) -> None:
        self.check()
        source, target, longest = self.source, self.target, self.config.max_length
        separate = None if source.shares_vocabulary(target) else target
        other = None if target is source else target
        for name, content in source.folder_files(other, "end", longest).items():
            write_atomically(out / name, content)
        section: Json = {"version": VERSION, "split_above": longest}
        section |= {"languages": list(self.about.languages)} if self.about.languages else {}
        described = config_json(self.config, source, separate, Task())
        write_json(out / "config.json", described | {"regard": section})
        ids = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        generation = {name: described[name] for name in ids} | {"num_beams": BEAM, "max_length": longest}
        generation |= self.generation
        write_json(out / "generation_config.json", generation)
        weights = {name: tensor.float() for name, tensor in self.weights.items()}
        tensors = {name: each.contiguous() for name, each in to_hf(self.config, weights).items()}
        write_atomically(out / WEIGHTS, save(tensors, {"format": "pt"}))
        name, card = self.about.name, self.about.card.strip()
        text = f"{card or f'# {name}'}\n\nImported from {name} by `regard models import`.\n"
        write_text(out / "README.md", text)


def transformer_config(path: Path, **fields: Any) -> TransformerConfig:
    """The config of a translator; what it cannot be names the file."""
    try:
        return TransformerConfig(dropout=0.1, **fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {place}: {first['msg']}", code=REFUSED) from None


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a side by id, and the names of those with a role."""

    names: Sequence[str]
    roles: Mapping[str, str]  # eos_token, unk_token, pad_token
    start: str
    size: int  # without those that were added

    @classmethod
    def of(cls, names: Sequence[object], roles: Mapping[str, str], start: str, path: Path) -> Vocabulary:
        """With the tokens of roles behind the others where the vocabulary lacks them."""
        tokens = [name for name in names if isinstance(name, str)]
        if len(tokens) < len(names) or len(set(tokens)) < len(tokens):
            raise UsageError(f"{path}: two tokens have one name, or one is no text", code=REFUSED)
        if not 0 < len(tokens) < MAX_TOKENS:
            raise UsageError(f"{path}: a vocabulary of {len(tokens):,} tokens", code=REFUSED)
        missing = [name for name in dict.fromkeys((*roles.values(), start)) if name not in tokens]
        return cls([*tokens, *missing], roles, start, len(tokens))

    def rows(self, table: Tensor, value: float = 0.0) -> Tensor:
        """An embedding or a bias with rows for the tokens that were added."""
        missing = len(self.names) - len(table)
        if missing <= 0:
            return table
        return torch.cat([table.float(), torch.full((missing, *table.shape[1:]), value)])

    def tokenizer(self, model: bytes, path: Path, **settings: Any) -> SentencePieceTokenizer:
        ids = {name: number for number, name in enumerate(self.names)}
        sizes = {"pieces": len(ids), "start": ids[self.start]}
        return SentencePieceTokenizer(model, ids, {**self.roles, **settings, "regard": sizes}, str(path))
