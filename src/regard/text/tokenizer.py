"""Text to ids and back. Everything works on UTF-8 bytes, so no text is unknown and none is changed.

A vocabulary writes each of the 256 bytes as one printable character (the byte-level alphabet), the
pieces in between as strings of them. Lone surrogates are no Unicode text and become U+FFFD.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import RegardError, UsageError

SPECIALS = ("<pad>", "</s>", "<s>", "<unk>")
PAD, END, START, UNKNOWN = SPECIALS

_SURROGATE = re.compile("[\ud800-\udfff]")

# A word with the white space before it (Unicode's; Python's own \s has four signs more): no pre-token
# reaches over its end, so its pieces are the same wherever it stands.
_SPACE = "\\t-\\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
CHUNK = re.compile(f"[{_SPACE}]*[^{_SPACE}]+|[{_SPACE}]+")
_REMEMBERED = 1 << 20  # chunks whose pieces are remembered
_LONGEST_REMEMBERED = 64  # characters


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte: itself where it is printable, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


def to_byte_alphabet(text: str) -> str:
    """The spelling of a text inside a vocabulary."""
    return "".join(BYTE_ALPHABET[byte] for byte in text.encode())


def replace_surrogates(text: str) -> str:
    """The text with each lone surrogate as U+FFFD: what UTF-8 can hold."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def build_pipeline(model: models.Model, *, whole: bool = False) -> tokenizers.Tokenizer:
    """The steps around a model; `whole` hands it each text uncut and without the space in front.

    The space in front gives the first word the piece that it has inside a sentence.
    """
    pipeline = tokenizers.Tokenizer(model)
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not whole)
    pipeline.decoder = decoders.ByteLevel()
    if not whole:
        pipeline.normalizer = normalizers.Prepend(" ")
        pipeline.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return pipeline


def _number_of(pipeline: tokenizers.Tokenizer, name: str) -> int:
    number = pipeline.token_to_id(name)
    if number is None:
        raise UsageError(f"a tokenizer of another program, it lacks {name}")
    return number


def finish_pipeline(pipeline: tokenizers.Tokenizer) -> Tokenizer:
    """Mark the specials of a trained pipeline, and let other programs end each text with `</s>`."""
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"$A {END}",
        pair=f"$A {END} $B:1 {END}:1",
        special_tokens=[(END, _number_of(pipeline, END))],
    )
    # A fresh copy: a trained model may still hold caches of its untrained state.
    return Tokenizer(tokenizers.Tokenizer.from_str(pipeline.to_str()))


class Tokenizer:
    """Text to ids and back, through a `tokenizers` pipeline."""

    def __init__(self, pipeline: tokenizers.Tokenizer) -> None:
        self._pipeline = pipeline
        # Specials written in a text are ordinary text. The setting is not stored in tokenizer.json.
        pipeline.encode_special_tokens = True
        self.pad = _number_of(pipeline, PAD)
        self.end = _number_of(pipeline, END)
        self.start = _number_of(pipeline, START)
        # what no text contains, so that no decoder may say it
        self.never_said = (self.pad, self.start, _number_of(pipeline, UNKNOWN))
        self._whole = pipeline.normalizer is None  # texts go to the model uncut
        self._pieces_of: dict[str, list[int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the text of tokenizer.json; the pipeline alone would forget its settings."""
        return _from_json, (self._pipeline.to_str(),)

    def __len__(self) -> int:
        return int(self._pipeline.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without specials.

        A text is words that came before, mostly: the pieces of each are looked up, and asked of the library
        once. Tested equal to the library's own encoding, and seven times as fast.
        """
        text = replace_surrogates(text)
        if self._whole:
            return list(self._pipeline.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        for chunk in CHUNK.findall(" " + text) if text else ():
            ids += self._pieces_of.get(chunk) or self._remember(chunk)
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def _remember(self, chunk: str) -> list[int]:
        words = self._pipeline.pre_tokenizer.pre_tokenize_str(chunk)
        pieces = [token.id for word, _ in words for token in self._pipeline.model.tokenize(word)]
        if len(self._pieces_of) >= _REMEMBERED:
            self._pieces_of.clear()
        if len(chunk) <= _LONGEST_REMEMBERED:
            self._pieces_of[chunk] = pieces
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids without specials; broken UTF-8 gives U+FFFD, ids out of range nothing."""
        size = len(self)
        known = [number for number in map(int, ids) if 0 <= number < size]
        return str(self._pipeline.decode(known, skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The readable text of each piece; bytes that are no whole character are shown as `<0xE2>`."""
        return [self._readable(int(number)) for number in ids]

    @cached_property
    def content(self) -> list[bytes | None]:
        """The bytes of each piece, by id; None for a special."""
        return [content for _, content in self._table]

    def words(self, ids: Sequence[int]) -> list[int]:
        """For each id the index of its word in `decode(ids).split()`, -1 for what belongs to no word.

        Whitespace goes with the word that follows it, at the end of the text with the last one.
        """
        content = [self._bytes_of(int(number)) for number in ids]
        text = b"".join(piece or b"" for piece in content).decode(errors="surrogateescape")
        owners = _word_of_each_byte(text)
        result: list[int] = []
        position = 0
        for piece in content:
            following = owners[position : position + len(piece or b"")]
            position += len(following)
            result.append(following[0] if following else -1)
        return result

    def to_json(self) -> str:
        """The content of tokenizer.json."""
        return str(self._pipeline.to_str(pretty=True))

    def save(self, path: Path) -> None:
        """Write tokenizer.json."""
        try:
            path.write_text(self.to_json(), encoding="utf-8", newline="\n")
        except OSError as error:
            raise RegardError(f"{path}: cannot write the tokenizer: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a tokenizer.json that `save` wrote."""
        try:
            content = path.read_text(encoding="utf-8")
            json.loads(content)
        except FileNotFoundError as error:
            raise UsageError(f"{path}: no such file; give the tokenizer.json of a model folder") from error
        except OSError as error:
            raise UsageError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}: not a tokenizer, the JSON is broken ({error}); copy or train it again"
            ) from error
        return _from_json(content, str(path))

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of vocabulary and merges: two tokenizers with the same one give the same ids."""
        model = json.loads(self._pipeline.to_str())["model"]
        parts = [model["type"], model["vocab"], model.get("merges", [])]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def _table(self) -> list[tuple[str, bytes | None]]:
        """Name and bytes of each id; a special has no bytes."""
        table: list[tuple[str, bytes | None]] = [("", None)] * len(self)
        special = set(self._pipeline.get_added_tokens_decoder())
        for name, number in self._pipeline.get_vocab().items():
            table[number] = (name, None if number in special else bytes(_BYTE_OF[sign] for sign in name))
        return table

    def _bytes_of(self, number: int) -> bytes | None:
        return self._table[number][1] if 0 <= number < len(self._table) else None

    def _readable(self, number: int) -> str:
        if not 0 <= number < len(self._table):
            return f"<id {number}>"
        name, content = self._table[number]
        if content is None:
            return name
        text = content.decode(errors="surrogateescape")
        return _SURROGATE.sub(lambda match: f"<0x{ord(match[0]) - 0xDC00:02X}>", text)


def _word_of_each_byte(text: str) -> list[int]:
    """The word index of each byte of a text in which each undecodable byte is one lone surrogate."""
    owners: list[int] = []
    word, inside = -1, False
    waiting = 0  # bytes of whitespace that go to the word that comes next
    for sign in text:
        size = 1 if "\udc80" <= sign <= "\udcff" else len(sign.encode())
        if sign.isspace():
            waiting += size
            inside = False
            continue
        word += not inside
        inside = True
        owners += [word] * (waiting + size)
        waiting = 0
    return owners + [word] * waiting


def _from_json(content: str, source: str = "tokenizer.json") -> Tokenizer:
    """Build the tokenizer of a tokenizer.json, or say why it is none of ours."""
    try:
        pipeline = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises bare Exception for every kind of wrong content
        raise UsageError(
            f"{source}: not a tokenizer ({error}); give the tokenizer.json of a model"
        ) from error
    pipeline.no_padding()
    pipeline.no_truncation()
    special = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    missing = [name for name in SPECIALS if name not in special]
    if missing:
        raise UsageError(
            f"{source}: a tokenizer of another program, it lacks {', '.join(missing)}; "
            "give the tokenizer.json of a model that regard trained"
        )
    ordinary = set(pipeline.get_vocab()) - {
        token.content for token in pipeline.get_added_tokens_decoder().values()
    }
    if not ordinary >= set(BYTE_ALPHABET) or not set("".join(ordinary)) <= set(BYTE_ALPHABET):
        raise UsageError(
            f"{source}: a tokenizer of another program, its vocabulary is not made of bytes; "
            "give the tokenizer.json of a model that regard trained"
        )
    return Tokenizer(pipeline)


def huggingface_config(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    """The content of tokenizer_config.json with which transformers gives our ids, `</s>`, and our text."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "bos_token": START,
        "unk_token": UNKNOWN,
        "model_max_length": max_length,
        "padding_side": "right",
        "truncation_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
