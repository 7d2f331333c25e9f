"""The interface of all tokenizers: text to token ids and back.

Three classes implement it: `ByteLevelTokenizer` (trained by Regard), `HFTokenizer` (tokenizer.json of other
programs) and `SentencePieceTokenizer` (the .spm files of Marian models). `load_tokenizer` chooses the class.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from regard.errors import RegardError

Settings = dict[str, Any]
Spans = list[tuple[int, int]]  # begin and end of each token in the text, in characters

_SURROGATE = re.compile("[\ud800-\udfff]")
_SENTINEL = re.compile(r"<extra_id_(\d+)>")  # T5's: each replaces a span
_WORD = re.compile(r"\s*\S+(?:\s+\Z)?")  # with the space before it; the last one also with that behind it
_LEADS = ("x", ".", "0")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The token ids that generation needs, named as in transformers' generation_config.json where given."""

    start: int
    end: int
    suppressed: tuple[int, ...] = ()  # suppress_tokens
    bad_words: tuple[tuple[int, ...], ...] = ()  # bad_words_ids: sequences that are never generated
    begin_suppressed: tuple[int, ...] = ()  # begin_suppress_tokens
    forced_bos: int | None = None  # forced_bos_token_id
    forced_eos: int | None = None  # forced_eos_token_id: the token at the maximum length
    max_length: int | None = None  # max_length of a language model, prompt included; [decode] overrides it
    min_length: int = 0  # min_length, likewise
    ends: tuple[int, ...] = ()  # further end tokens: a text stops at any of {end, *ends}
    renormalize: bool = False  # renormalize_logits: a search ranks by log p of the tokens that are allowed
    no_timestamps: int | None = None  # no_timestamps_token_id of Whisper; the ids behind it are times


def special_tokens(target: Tokenizer) -> SpecialTokens:
    """The special tokens of a model that generates with this tokenizer."""
    return SpecialTokens(target.start, target.end, target.suppressed, forced_bos=target.first)


class Tokenizer(ABC):
    """Text to token ids and back."""

    start: int  # first token of a generated text; BERT's [CLS]
    end: int  # last token of a text (</s>, [SEP])
    pad: int
    mask: int | None  # replaces a hidden word, if the vocabulary has such a token
    sentinels: tuple[int, ...]  # replace hidden spans (T5), in order
    placeholders: tuple[int, ...] = ()  # stand for parts that are copied (spans.py), in order
    unknown: int | None = None  # <unk>; byte-level tokenizers need none
    languages: tuple[str, ...] = ()  # target languages that a text can select with `>>fra<<`
    suppressed: tuple[int, ...]  # tokens that must not be generated
    separators: int = 1  # `end` tokens between two texts; RoBERTa has two
    language_tokens: Mapping[str, int] = MappingProxyType({})  # tokens that name a language, by its code
    before: tuple[int, ...] = ()  # special tokens before a source text of an encoder-decoder
    _after: tuple[int, ...] | None = None
    first: int | None = None  # the language that its target texts begin with
    adds_start: bool = False  # a prompt begins with `start`, as the tokenizer's post-processor puts it there
    settings: Settings  # content of tokenizer_config.json, for transformers
    size: int  # of the vocabulary
    library: ClassVar[str] = "tokenizers"  # which splits texts in the same way

    def __len__(self) -> int:
        return self.size

    @property
    def after(self) -> tuple[int, ...]:
        """Special tokens after a source text, as a rule its end token; models of OpenNMT-py have none."""
        return (self.end,) if self._after is None else self._after

    def set_frame(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """`before` and `after`; without anything after it, a text has its end token."""
        self.before, self._after = before, after or None

    @property
    def frame_state(self) -> Settings:
        """What `between` changes, for a pickle."""
        return {"before": self.before, "_after": self._after, "first": self.first}

    def framed(self, ids: Sequence[int]) -> list[int]:
        """A source text of an encoder-decoder with its special tokens; an empty one is not without tokens."""
        return [*self.before, *ids, *self.after] or [self.end]

    @cached_property
    def is_cased(self) -> bool:
        """Whether the vocabulary has words with capitals; without words: letters, which bytes are not."""
        tokens = [token for token in self.tokens(range(self.size)) if not token.startswith("<")]  # <0xE2>
        words = [token for token in tokens if sum(map(str.isalpha, token)) > 1]
        letters = [] if self.unknown is None else tokens
        return any(token != token.lower() for token in words or letters)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Short hash: tokenizers with equal fingerprints give equal ids."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""

    def encode_inside(self, text: str) -> list[int]:
        """Token ids of a text that continues another one: no space is put in front.

        Many tokenizers put a space before every text. So the text is encoded behind a lead character, if the
        tokens of the lead stay the same.
        """
        for lead in sorted(_LEADS, key=lambda lead: lead.isalpha() == text[:1].isalpha()):
            before, both = self.encode(lead), self.encode(lead + text)
            if both[: len(before)] == before:
                return both[len(before) :]
        return self.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    @abstractmethod
    def spans(self, text: str) -> tuple[list[int], Spans]:
        """Token ids of a text, and the span of each in it.

        White space before a word belongs to no span; a part of a character has the span of the character.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; broken UTF-8 gives U+FFFD, ids out of range give nothing."""

    @abstractmethod
    def to_json(self, frame: str | None = None) -> str:
        """Content of tokenizer.json; `frame` names the special tokens around a text (`byte_level.FRAMES`)."""

    @property
    @abstractmethod
    def _table(self) -> list[tuple[str, bytes | None]]:
        """Name and bytes of each id; a special token has no bytes."""

    @property
    def names(self) -> list[str]:
        """The name of each id; rows of the embedding without a token have one, too."""
        return [name or f"<row {number}>" for number, (name, _) in enumerate(self._table)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Readable text of each token; bytes of an incomplete character are shown as `<0xE2>`."""
        return [self._readable(int(number)) for number in ids]

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        """Bytes of each token, by id; None for a special token."""
        return [content for _, content in self._table]

    def words(self, ids: Sequence[int], was_read: bool = False) -> list[int]:
        """For each id the index of its word in `decode(ids).split()`, or -1 if it belongs to no word.

        White space belongs to the following word, at the end of the text to the last one. `was_read`: the ids
        come from a text that a user gave, so <unk> counts as a part of a word.
        """
        contents = [self._bytes_of(int(number)) or b"" for number in ids]
        if was_read:
            contents = [b"?" if number == self.unknown else raw for number, raw in zip(ids, contents)]
        words = _word_of_each_byte(b"".join(contents).decode(errors="surrogateescape"))
        result: list[int] = []
        position = 0
        for content in contents:
            covered = words[position : position + len(content)]
            position += len(covered)
            result.append(covered[0] if covered else -1)
        return result

    def folder_files(self, target: Tokenizer | None, frame: str, longest: int) -> dict[str, bytes]:
        """Files of a model folder that hold this tokenizer, and the target's if that is another one."""
        files = {"tokenizer.json": self.to_json(frame).encode()}
        files["tokenizer_config.json"] = json_bytes(huggingface_config(self, longest, frame))
        for ending, content in target.files().items() if target is not None else ():
            files[f"target_tokenizer{ending}"] = content.encode()
        return files

    def engine_files(self, target: Tokenizer, frame: str) -> dict[str, bytes]:
        """Files with which `library` splits texts as this tokenizer does, for exports."""
        files = {"tokenizer.json": self.to_json(frame).encode()}
        return files if target is self else files | {"target_tokenizer.json": target.to_json().encode()}

    def shares_vocabulary(self, other: Tokenizer) -> bool:
        """True if source and target use one vocabulary."""
        return self is other

    def files(self) -> dict[str, str]:
        """What `load_tokenizer` needs: endings of file names, and contents."""
        return {".json": self.to_json()}

    def save(self, path: Path) -> None:
        """Write tokenizer.json, and the files beside it that `files` lists."""
        with save_errors(path):
            for ending, content in self.files().items():
                file = path.with_name(path.name.removesuffix(".json") + ending)
                file.write_text(content, encoding="utf-8", newline="\n")

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


@contextmanager
def save_errors(path: Path) -> Iterator[None]:
    """Report an OSError of a write as one sentence."""
    try:
        yield
    except OSError as error:
        message = f"{path}: cannot write the tokenizer: {error.strerror}"
        raise RegardError(message, code="E_FILE_WRITE") from error


def json_bytes(content: Settings) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _word_of_each_byte(text: str) -> list[int]:
    """Word index of each byte of a text in which each undecodable byte is a lone surrogate."""
    words = _WORD.findall(text) or [text]
    first = 0 if text.strip() else -1
    sizes = (len(word.encode(errors="surrogateescape")) for word in words)
    return [index for index, size in enumerate(sizes, start=first) for _ in range(size)]


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD, since UTF-8 cannot hold it."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def trimmed(text: str, spans: Spans) -> Spans:
    """Spans without leading white space."""
    return [(end - len(text[start:end].lstrip()), end) for start, end in spans]


def token_name(value: Any) -> str:
    """A token in tokenizer_config.json: a string, or an object with its "content"."""
    return str(value.get("content") if isinstance(value, dict) else value)


def sentinels_of(specials: Mapping[str, int]) -> tuple[int, ...]:
    """Ids of T5's sentinels in the order of their names."""
    matches = ((_SENTINEL.fullmatch(name), number) for name, number in specials.items())
    return tuple(
        number for _, number in sorted((int(match[1]), number) for match, number in matches if match)
    )


def huggingface_config(tokenizer: Tokenizer, max_length: int, frame: str = "end") -> Settings:
    """Content of tokenizer_config.json with which transformers gives the same ids and text."""
    segments = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **tokenizer.settings,
        **(segments if frame == "both" else {}),
        "model_max_length": max_length,
        "padding_side": "right",
        "truncation_side": "right",
    }
