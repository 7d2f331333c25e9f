"""SentencePiece's own files as Marian's models (opus-mt) have them: source.spm, target.spm and vocab.json.

A text is cut by the .spm of its side; the ids are those of vocab.json, which has an order of its own.
What has no id is <unk>. A language that begins a text (`>>fra<<`) is one piece and is never cut.
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
from regard.errors import RegardError, UsageError
from regard.inputs.text.foreign import checked, encode_behind, of_sentencepiece, read_settings
from regard.inputs.text.guard import read_object
from regard.inputs.text.tokenizer import Spans, Tokenizer, replace_surrogates, trimmed

SIDES = ("source", "target")
_ROLES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
_SPACE = "\u2581"  # SentencePiece's sign for a space
_LANGUAGE = re.compile(r">>(.+)<<", re.DOTALL)
# What of tokenizer_config.json says something of the texts; all else is about other programs.
_KEPT = ("source_lang", "target_lang", "model_max_length", "sp_model_kwargs")

Vocabulary = Mapping[str, int]


class SentencePiece(Tokenizer):
    """One side of a Marian model."""

    def __init__(self, model: bytes, vocabulary: Vocabulary, settings: Mapping[str, Any], path: str) -> None:
        self._model, self._vocabulary, self._settings = model, dict(vocabulary), dict(settings)
        self._cut = to_processor(model, path)
        own = settings["regard"]
        roles = {role: self._vocabulary[settings[role]] for role in _ROLES}
        self.end, self.pad, self.unknown = roles["eos_token"], roles["pad_token"], roles["unk_token"]
        self.start = int(own.get("start", self.pad))
        self.mask, self.sentinels = None, ()
        codes = map(_LANGUAGE.fullmatch, self._vocabulary)
        self.languages = tuple(code[1] for code in codes if code)
        self._size = max(len(self._vocabulary), int(own.get("pieces", 0)))
        held = set(self._vocabulary.values())
        surplus = (number for number in range(self._size) if number not in held)
        # <unk> may be said, as in transformers: there it stands for a word that the vocabulary lacks
        self.never_said = (*sorted({self.pad, self.start} - {self.end}), *surplus)
        self._special = frozenset(roles.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePiece, (self._model, self._vocabulary, self._settings, "source.spm")

    def __len__(self) -> int:
        return self._size

    @property
    def settings(self) -> dict[str, Any]:
        return self._settings

    def shares(self, other: Tokenizer) -> bool:
        """Whether an id is the same piece on both sides, though each cuts texts in its own way."""
        if self is other:
            return True
        apart = bool(self._settings.get("separate_vocabs"))
        return isinstance(other, SentencePiece) and not apart and self._vocabulary == other._vocabulary

    def identity(self, target: Tokenizer | None, frame: str, longest: int) -> dict[str, bytes]:
        other = self if target is None else target
        if not isinstance(other, SentencePiece):
            raise UsageError("a model whose source is cut by SentencePiece has a target that is so, too")
        apart = not self.shares(other)
        config = {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": longest,
            **self._settings,
            "separate_vocabs": apart,
        }
        files = {
            "source.spm": self._model,
            "target.spm": other._model,
            "vocab.json": _json(self._vocabulary),
            "tokenizer_config.json": _json(config),
        }
        return files | ({"target_vocab.json": _json(other._vocabulary)} if apart else {})

    def to_json(self, frame: str | None = None) -> str:
        raise UsageError(
            "a tokenizer of SentencePiece's files has no tokenizer.json; copy its folder instead"
        )

    def save(self, path: Path) -> None:
        """Into the folder of a path, as the tokenizer of both sides."""
        try:
            for name, content in self.identity(
                None, "end", self._settings.get("model_max_length", 512)
            ).items():
                path.with_name(name).write_bytes(content)
        except OSError as error:
            raise RegardError(f"{path}: cannot write the tokenizer: {error.strerror}") from error

    @cached_property
    def fingerprint(self) -> str:
        parts = [sorted(self._vocabulary.items()), self.start, self.end, self._size]
        return hashlib.sha256(self._model + json.dumps(parts).encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        language, rest = with_language(replace_surrogates(text))
        pieces = self._cut.encode(rest, return_type=str)
        return self._ids([language, *pieces] if language else pieces)

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        """A piece that SentencePiece does not know is what stands there: even that spells no special."""
        unknown = self._vocabulary[self._settings["unk_token"]]
        found = [self._vocabulary.get(piece, unknown) for piece in pieces]
        return [unknown if number in self._special else number for number in found]

    def encode_inside(self, text: str) -> list[int]:
        return encode_behind(self.encode, text)

    def spans(self, text: str) -> tuple[list[int], Spans]:
        language, rest = with_language(replace_surrogates(text))
        cut = self._cut.encode(rest, return_type="offset_mapping")
        before = len(language)
        ids = self._ids([language, *cut["pieces"]] if language else cut["pieces"])
        found = [(begin + before, end + before) for begin, end in cut["offsets"]]
        return ids, trimmed(text, [(0, before), *found] if language else found)

    def decode(self, ids: Sequence[int]) -> str:
        names = [self._names.get(number) for number in map(int, ids) if number not in self._special]
        text = str(self._cut.decode_pieces([name for name in names if name is not None]))
        return text.replace(_SPACE, " ").strip()  # of pieces that only the other side knows

    @cached_property
    def _names(self) -> dict[int, str]:
        return {number: name for name, number in self._vocabulary.items()}

    @cached_property
    def _table(self) -> list[tuple[str, bytes | None]]:
        table: list[tuple[str, bytes | None]] = [("", None)] * len(self)
        for name, number in self._vocabulary.items():
            is_byte = self._cut.is_byte(self._cut.piece_to_id(name))
            content = of_sentencepiece(name) if is_byte else name.replace(_SPACE, " ").encode()
            table[number] = (name, None if number in self._special else content)
        return table


def with_language(text: str) -> tuple[str, str]:
    """The language that a text begins with, `>>fra<<` or nothing, and the rest."""
    end = text.find("<<") if text.startswith(">>") else -1
    return (text[: end + 2], text[end + 2 :]) if end >= 0 else ("", text)


def to_processor(model: bytes, path: str) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor.from_proto(model)
    except RuntimeError as error:
        raise UsageError(f"{path}: not a model of SentencePiece ({error}); copy it again") from None


def is_sentencepiece(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("source.spm", "vocab.json"))


def read_sentencepiece(path: Path) -> SentencePiece:
    """One side of a model's folder: its source.spm or target.spm, and the files beside it."""
    folder, is_target = path.parent, path.name == "target.spm"
    if not (folder / "target.spm").is_file():
        raise UsageError(f"{folder}: has a source.spm, but no target.spm for its translations; copy it again")
    config = read_settings(folder / "tokenizer_config.json")
    named = {**read_settings(folder / "special_tokens_map.json"), **config}
    model = read_settings(folder / "config.json")
    own = config.get("regard")
    if not isinstance(own, dict):
        sizes = ["decoder_vocab_size", "vocab_size"] if is_target else ["vocab_size"]
        size = next((model[name] for name in sizes if isinstance(model.get(name), int)), 0)
        own = {"pieces": size}
        if isinstance(start := model.get("decoder_start_token_id"), int):
            own["start"] = start
    own = checked(own, str(folder / "tokenizer_config.json"))
    apart = bool(config.get("separate_vocabs"))
    name = "target_vocab.json" if apart and is_target else "vocab.json"
    vocabulary = read_vocabulary(folder / name, own.get("pieces", 0))
    settings: dict[str, Any] = {name: config[name] for name in _KEPT if name in config}
    for role, usual in _ROLES.items():
        said = named.get(role) or usual
        settings[role] = str(said.get("content") if isinstance(said, dict) else said)
        if settings[role] not in vocabulary:
            raise UsageError(
                f"{folder / name}: not the vocabulary of a Marian model, it lacks {shown(settings[role])}"
            )
    settings["separate_vocabs"] = apart or model.get("share_encoder_decoder_embeddings") is False
    settings["regard"] = own
    if settings.get("sp_model_kwargs"):
        raise UsageError(
            f"{folder / 'tokenizer_config.json'}: sp_model_kwargs is something that Regard cannot do"
        )
    try:
        return SentencePiece(read_bytes(path, LARGE), vocabulary, settings, str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot read the tokenizer: {error.strerror}") from None


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    content = read_object(path)[1]
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise UsageError(f"{path}: not a vocabulary, which gives each piece a number")
    if len(set(content.values())) < len(content) or max(content.values()) >= max(size, len(content)):
        raise UsageError(f"{path}: not a vocabulary, two pieces have one number or there are gaps")
    return dict(content)


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
