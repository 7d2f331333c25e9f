"""The .spm files of Marian models (opus-mt): source.spm, target.spm and vocab.json.

The .spm file of a side splits its texts; vocab.json gives the ids, in an order of its own. A token without an
id is <unk>. A language code at the beginning of a text (`>>fra<<`) is one token.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from regard.config.reading import LARGE, read_bytes, shown
from regard.errors import TokenizerError
from regard.inputs.text.checks import check_sizes, model_sizes, read_object, read_settings
from regard.inputs.text.tokenizer import (
    Settings,
    Spans,
    Tokenizer,
    json_bytes,
    replace_surrogates,
    save_errors,
    token_name,
    trimmed,
)

_ROLES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
_SPACE = "\u2581"  # SentencePiece's character for a space
_LANGUAGE = re.compile(r">>(.+)<<", re.DOTALL)
_COPIED = (
    "source_lang",
    "target_lang",
    "model_max_length",
    "sp_model_kwargs",
    "add_source_eos",
)  # of tokenizer_config.json


class SentencePieceTokenizer(Tokenizer):
    """One side of a Marian model."""

    library = "sentencepiece"

    def __init__(self, model: bytes, vocabulary: Mapping[str, int], settings: Settings, path: str) -> None:
        self._model, self._vocabulary, self.settings = model, dict(vocabulary), dict(settings)
        self._processor = to_processor(model, path)
        sizes = settings["regard"]
        roles = {role: self._vocabulary[settings[role]] for role in _ROLES}
        self.end, self.pad, self.unknown = roles["eos_token"], roles["pad_token"], roles["unk_token"]
        self.start = int(sizes.get("start", self.pad))
        self.mask, self.sentinels = None, ()
        if settings.get("add_source_eos") is False:  # models of OpenNMT-py
            self._after = ()
        codes = map(_LANGUAGE.fullmatch, self._vocabulary)
        self.languages = tuple(code[1] for code in codes if code)
        self.size = max(len(self._vocabulary), int(sizes.get("pieces", 0)))
        ids = set(self._vocabulary.values())
        surplus = (number for number in range(self.size) if number not in ids)
        # <unk> may be generated, as in transformers: it stands for a word that the vocabulary lacks
        self.suppressed = (*sorted({self.pad, self.start} - {self.end}), *surplus)
        self._special = frozenset(roles.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieceTokenizer, (self._model, self._vocabulary, self.settings, "source.spm")

    def shares_vocabulary(self, other: Tokenizer) -> bool:
        """True if an id is the same token on both sides, though each side splits texts in its own way."""
        if self is other:
            return True
        if not isinstance(other, SentencePieceTokenizer) or self.settings.get("separate_vocabs"):
            return False
        return self._vocabulary == other._vocabulary

    def engine_files(self, target: Tokenizer, frame: str) -> dict[str, bytes]:
        other = target if isinstance(target, SentencePieceTokenizer) else self
        return {"source.spm": self._model, "target.spm": other._model}

    def folder_files(self, target: Tokenizer | None, frame: str, longest: int) -> dict[str, bytes]:
        other = self if target is None else target
        if not isinstance(other, SentencePieceTokenizer):
            raise TokenizerError("a model with a SentencePiece source tokenizer needs one for the target too")
        separate = not self.shares_vocabulary(other)
        config = {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": longest,
            **self.settings,
            "separate_vocabs": separate,
        }
        if separate:  # config.json has the sizes of both
            del config["regard"]
        files = {
            **self.engine_files(other, frame),
            "vocab.json": json_bytes(self._vocabulary),
            "tokenizer_config.json": json_bytes(config),
        }
        return files | ({"target_vocab.json": json_bytes(other._vocabulary)} if separate else {})

    def to_json(self, frame: str | None = None) -> str:
        raise TokenizerError("a SentencePiece tokenizer has no tokenizer.json; copy its folder instead")

    def save(self, path: Path) -> None:
        """Write the files into the folder of `path`, as the tokenizer of both sides."""
        with save_errors(path):
            files = self.folder_files(None, "end", self.settings.get("model_max_length", 512))
            for name, content in files.items():
                path.with_name(name).write_bytes(content)

    @cached_property
    def fingerprint(self) -> str:
        parts = [sorted(self._vocabulary.items()), self.start, self.end, self.size]
        return hashlib.sha256(self._model + json.dumps(parts).encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        language, rest = split_language(replace_surrogates(text))
        tokens = self._processor.encode(rest, return_type=str)
        return self._ids([language, *tokens] if language else tokens)

    def _ids(self, tokens: Sequence[str]) -> list[int]:
        """SentencePiece returns unknown text as it stands: even that gives no special token."""
        unknown = self._vocabulary[self.settings["unk_token"]]
        ids = (self._vocabulary.get(token, unknown) for token in tokens)
        return [unknown if number in self._special else number for number in ids]

    def spans(self, text: str) -> tuple[list[int], Spans]:
        language, rest = split_language(replace_surrogates(text))
        encoding = self._processor.encode(rest, return_type="offset_mapping")
        shift = len(language)
        ids = self._ids([language, *encoding["pieces"]] if language else encoding["pieces"])
        spans = [(begin + shift, end + shift) for begin, end in encoding["offsets"]]
        return ids, trimmed(text, [(0, shift), *spans] if language else spans)

    def decode(self, ids: Sequence[int]) -> str:
        names = [self._names.get(number) for number in map(int, ids) if number not in self._special]
        text = str(self._processor.decode_pieces([name for name in names if name is not None]))
        return text.replace(_SPACE, " ").strip()  # tokens that only the other side has

    @cached_property
    def _names(self) -> dict[int, str]:
        return {number: name for name, number in self._vocabulary.items()}

    @cached_property
    def _table(self) -> list[tuple[str, bytes | None]]:
        table: list[tuple[str, bytes | None]] = [("", None)] * len(self)
        for name, number in self._vocabulary.items():
            is_byte = self._processor.is_byte(self._processor.piece_to_id(name))  # "<0xE2>"
            content = bytes([int(name[3:5], 16)]) if is_byte else name.replace(_SPACE, " ").encode()
            table[number] = (name, None if number in self._special else content)
        return table


def split_language(text: str) -> tuple[str, str]:
    """The language code at the beginning of a text, `>>fra<<` or nothing, and the rest."""
    end = text.find("<<") if text.startswith(">>") else -1
    return (text[: end + 2], text[end + 2 :]) if end >= 0 else ("", text)


def to_processor(model: bytes, path: str) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor.from_proto(model)
    except RuntimeError as error:
        raise TokenizerError(f"{path}: not a SentencePiece model ({error}); copy it again") from None


def read_sentencepiece(path: Path) -> SentencePieceTokenizer:
    """One side of a model folder: source.spm or target.spm, and the files beside it."""
    folder, is_target = path.parent, path.name == "target.spm"
    if not (folder / "target.spm").is_file():
        raise TokenizerError(f"{folder}: has source.spm, but no target.spm; copy the folder again")
    config = read_settings(folder / "tokenizer_config.json")
    model = read_settings(folder / "config.json")
    key = "decoder_vocab_size" if is_target and model.get("decoder_vocab_size") else "vocab_size"
    sizes = check_sizes(
        config.get("regard") or model_sizes(model, key), str(folder / "tokenizer_config.json")
    )
    separate = bool(config.get("separate_vocabs"))
    name = "target_vocab.json" if separate and is_target else "vocab.json"
    vocabulary = read_vocabulary(folder / name, sizes.get("pieces", 0))
    settings: Settings = {key: config[key] for key in _COPIED if key in config}
    if settings.get("sp_model_kwargs"):
        raise TokenizerError(f"{folder / 'tokenizer_config.json'}: sp_model_kwargs is not supported")
    names = {**read_settings(folder / "special_tokens_map.json"), **config}
    for role, usual in _ROLES.items():
        settings[role] = token_name(names.get(role) or usual)
        if settings[role] not in vocabulary:
            raise TokenizerError(
                f"{folder / name}: not the vocabulary of a Marian model, {shown(settings[role])} is missing"
            )
    settings["separate_vocabs"] = separate or model.get("share_encoder_decoder_embeddings") is False
    settings["regard"] = sizes
    try:
        return SentencePieceTokenizer(read_bytes(path, LARGE), vocabulary, settings, str(path))
    except OSError as error:
        raise TokenizerError(f"{path}: cannot read the tokenizer: {error.strerror}") from None


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    content = read_object(path)[1]
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise TokenizerError(f"{path}: not a vocabulary, which maps each token to an id")
    if len(set(content.values())) < len(content) or max(content.values()) >= max(size, len(content)):
        raise TokenizerError(f"{path}: not a vocabulary, two tokens share an id or an id is out of range")
    return dict(content)
