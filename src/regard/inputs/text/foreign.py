"""Tokenizers of other programs: WordPiece (BERT), bytes (GPT-2), SentencePiece's pieces (T5, Llama).

They are read from a tokenizer.json, or from vocab.txt or vocab.json and merges.txt; which special is which
stands in the files beside it. To callers they are `Tokenizer`s; ids and texts are those of transformers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text.guard import MOST_PIECES, check_pieces, read_lines, read_object, told
from regard.inputs.text.tokenizer import (
    BYTE_OF,
    Spans,
    Tokenizer,
    replace_surrogates,
    sentinels_of,
    special_ids,
    to_pipeline,
    trimmed,
)

Settings = dict[str, Any]

# Under which names transformers knows the roles, and how they are mostly spelt where no file says it.
USUAL = {
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "bos_token": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}
_SPACE = "\u2581"  # SentencePiece's sign for a space
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# English contractions and marks, as transformers joins them where a tokenizer asks for it
_CLEAN = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


LEADS = ("x", ".", "0")  # signs behind which a text is cut as in the middle of a line


def encode_behind(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Encoded behind a sign that it does not melt with, since many put a space before every text."""
    for lead in sorted(LEADS, key=lambda lead: lead.isalpha() == text[:1].isalpha()):
        before, whole = encode(lead), encode(lead + text)
        if whole[: len(before)] == before:
            return whole[len(before) :]
    return encode(text)


class Foreign(Tokenizer):
    """A tokenizer that Regard did not make."""

    def __init__(self, pipeline: tokenizers.Tokenizer, settings: Settings, source: str) -> None:
        self._pipeline = pipeline
        self._kind = kind_of(json.loads(pipeline.to_str()), source)
        named, own = names_of(settings), checked(settings.get("regard", {}), source)
        # What the files beside it call special is so, whatever tokenizer.json says.
        pipeline.add_special_tokens(
            [AddedToken(name, special=True, normalized=False) for name in named.values()]
        )
        pipeline.encode_special_tokens = True
        specials = special_ids(pipeline)
        roles = {role: specials[name] for role, name in named.items()}
        if not {"sep_token", "eos_token"} & roles.keys():
            raise UsageError(
                f"{source}: nothing says which piece ends a text; name it as eos_token or sep_token "
                "in tokenizer_config.json"
            )
        self.end = roles["sep_token"] if "sep_token" in roles else roles["eos_token"]
        self.pad = roles.get("pad_token", self.end)
        first = roles.get("cls_token", roles.get("bos_token", self.pad))
        self.start = own.get("start", first)
        self.mask = roles.get("mask_token")
        self.sentinels = sentinels_of(specials)
        pieces = int(pipeline.get_vocab_size())
        self._size = max(pieces, own.get("pieces", 0))
        last = max(pipeline.get_vocab().values(), default=0)
        if max(last, self.start) >= self._size:
            raise UsageError(
                f"{source}: {self._size} pieces, among which there is no number {max(last, self.start)}"
            )
        unsaid = {
            roles[role] for role in ("bos_token", "cls_token", "unk_token", "mask_token") if role in roles
        }
        surplus = range(pieces, self._size)  # rows of the embedding that are no piece
        self.never_said = (*sorted({self.pad, self.start, *unsaid} - {self.end}), *surplus)
        self.unknown = roles.get("unk_token")
        self._special = frozenset(specials.values()) - (
            {self.unknown} - {self.start, self.end}
        )  # a text may give it
        # The same from now on, whatever stands beside it.
        self._settings = {**settings, "regard": {"pieces": self._size, "start": self.start}}
        with told(source):  # that it can be used at all, also for what it does not know
            self.decode(self.encode("a \U0010fffd"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._pipeline.to_str(), self._settings)

    def __len__(self) -> int:
        return self._size

    @property
    def settings(self) -> Settings:
        return self._settings

    def files(self) -> dict[str, str]:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self._settings}
        return {".json": self.to_json(), "_config.json": json.dumps(config, ensure_ascii=False, indent=2)}

    def to_json(self, frame: str | None = None) -> str:
        """The content of tokenizer.json, which has the frame that its makers gave it."""
        return str(self._pipeline.to_str(pretty=True))

    @cached_property
    def fingerprint(self) -> str:
        parts = [self._pipeline.to_str(), self.start, self.end, self._size]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_inside(self, text: str) -> list[int]:
        return encode_behind(self.encode, text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [replace_surrogates(text) for text in texts]
        with told("tokenizer.json"):
            rows = [found.ids for found in self._pipeline.encode_batch_fast(clean, add_special_tokens=False)]
        return [
            ids if self._special.isdisjoint(ids) else self._careful.encode(text).ids
            for text, ids in zip(clean, rows, strict=True)
        ]

    def spans(self, text: str) -> tuple[list[int], Spans]:
        clean = replace_surrogates(text)
        found = self._pipeline.encode(clean, add_special_tokens=False)
        if not self._special.isdisjoint(found.ids):
            found = self._careful.encode(clean)
        return list(found.ids), trimmed(text, found.offsets)

    @cached_property
    def _careful(self) -> tokenizers.Tokenizer:
        """The same for texts that spell a special which the model itself knows as a piece (SentencePiece's
        "</s>"): here no text can reach it."""
        content = json.loads(self._pipeline.to_str())
        names = set(special_ids(self._pipeline))
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
        content["post_processor"] = None
        model = content["model"]
        hidden = {name: f"{name}\0" * 200 for name in names}  # longer than a word can be
        if isinstance(model["vocab"], list):  # unigram
            model["vocab"] = [[hidden.get(name, name), score] for name, score in model["vocab"]]
        else:
            model["vocab"] = {hidden.get(name, name): number for name, number in model["vocab"].items()}
            if model.get("unk_token") in hidden:
                model["unk_token"] = hidden[model["unk_token"]]
        return to_pipeline(json.dumps(content))

    def decode(self, ids: Sequence[int]) -> str:
        size = self._pipeline.get_vocab_size()
        known = [number for number in map(int, ids) if 0 <= number < size]
        text = str(self._pipeline.decode(known, skip_special_tokens=True))
        bpe = isinstance(self._pipeline.model, models.BPE)
        if self._settings.get("clean_up_tokenization_spaces") and not bpe:
            for part in _CLEAN:
                text = text.replace(part, part.strip())
        return text

    @cached_property
    def content(self) -> list[bytes | None]:
        if self._kind == "wordpiece":
            raise UsageError(
                "this model's tokenizer (WordPiece) changes the text that it cuts, so that its pieces have "
                "no bytes of their own; use a model with another kind of tokenizer for this"
            )
        return super().content

    @cached_property
    def _table(self) -> list[tuple[str, bytes | None]]:
        table: list[tuple[str, bytes | None]] = [("", None)] * len(self)
        special = set(special_ids(self._pipeline).values())
        for name, number in self._pipeline.get_vocab().items():
            table[number] = (name, None if number in special else _CONTENT[self._kind](name))
        return table

    def _readable(self, number: int) -> str:
        """WordPiece's own spelling, in which "##" glues a piece to the one before."""
        if self._kind == "wordpiece" and 0 <= number < len(self._table):
            return self._table[number][0]
        return super()._readable(number)


def _rebuilt(content: str, settings: Settings) -> Foreign:
    return Foreign(to_pipeline(content), settings, "tokenizer.json")


def _of_bytes(name: str) -> bytes:
    """GPT-2's pieces are written in the byte alphabet; one that was added later is plain text."""
    return bytes(BYTE_OF[sign] for sign in name) if all(sign in BYTE_OF for sign in name) else name.encode()


def of_sentencepiece(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(_SPACE, " ").encode()


def _of_wordpiece(name: str) -> bytes:
    """For the borders of words alone: a piece that is not glued to the one before begins a word."""
    return name[2:].encode() if name.startswith("##") and len(name) > 2 else f" {name}".encode()


_CONTENT = {"bytes": _of_bytes, "sentencepiece": of_sentencepiece, "wordpiece": _of_wordpiece}


def kind_of(content: Mapping[str, Any], source: str) -> str:
    """Which of the kinds that Regard knows a tokenizer.json describes."""
    around = json.dumps([content.get("pre_tokenizer"), content.get("decoder")], ensure_ascii=False)
    if content["model"]["type"] == "WordPiece":
        return "wordpiece"
    if '"ByteLevel"' in around:
        return "bytes"
    if "Metaspace" in around or _SPACE in around:
        return "sentencepiece"
    raise UsageError(
        f"{source}: a tokenizer of a kind that Regard does not know; give the tokenizer.json of a model with "
        "WordPiece, bytes (GPT-2) or SentencePiece's pieces"
    )


def checked(own: Any, source: str) -> dict[str, int]:
    """How many pieces the model has, and which begins what it writes, if that is said in numbers."""
    numbers = own.values() if isinstance(own, dict) else [None]
    if wrong := [n for n in numbers if type(n) is not int or not 0 <= n <= MOST_PIECES]:
        raise UsageError(f"{source}: {shown(wrong[0])} is no number of pieces, nor the number of one")
    return dict(own)


def names_of(settings: Settings) -> dict[str, str]:
    return {role: settings[role] for role in USUAL if settings.get(role)}


def read_foreign(path: Path, pipeline: tokenizers.Tokenizer | None = None) -> Foreign:
    """Of a folder, or of the pipeline of its tokenizer.json and the files beside it."""
    folder = path if path.is_dir() else path.parent
    name = "tokenizer_config.json" if path.is_dir() else f"{path.name.removesuffix('.json')}_config.json"
    config = read_settings(folder / name)
    pipeline = pipeline or _from_vocabulary(folder, config)
    named = {
        **read_settings(folder / "special_tokens_map.json"),
        **{k: v for k, v in config.items() if v is not None},
    }
    specials, vocabulary = special_ids(pipeline), pipeline.get_vocab()
    settings: Settings = {}
    for role, usual in USUAL.items():
        said = named.get(role)
        said = str(said.get("content") if isinstance(said, dict) else said)
        guess = next((spelt for spelt in usual if spelt in specials), None)
        if (chosen := said if said in vocabulary else guess) is not None:
            settings[role] = chosen
    if "clean_up_tokenization_spaces" in config:
        settings["clean_up_tokenization_spaces"] = config["clean_up_tokenization_spaces"]
    columns = ["input_ids", *(["token_type_ids"] if "cls_token" in settings else []), "attention_mask"]
    settings["model_input_names"] = config.get("model_input_names", columns)
    if own := config.get("regard") or _of_model(read_settings(folder / "config.json")):
        settings["regard"] = own
    return Foreign(pipeline, settings, str(path))


def _of_model(config: Settings) -> Settings:
    """What the model's config.json says of its pieces: how many, and which begins what a decoder writes."""
    own = {}
    if (size := config.get("vocab_size")) is not None:
        own["pieces"] = size
    if (start := config.get("decoder_start_token_id")) is not None:
        own["start"] = start
    return own


def read_settings(path: Path) -> Settings:
    return read_object(path)[1] if path.is_file() else {}


def _from_vocabulary(folder: Path, config: Settings) -> tokenizers.Tokenizer:
    """The pipeline of a folder that has no tokenizer.json."""
    if (folder / "vocab.txt").is_file():
        return _wordpiece(folder / "vocab.txt", config)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _byte_pairs(folder, config)
    raise UsageError(
        f"{folder}: no tokenizer that Regard reads (tokenizer.json, vocab.txt, or vocab.json with merges.txt)"
    )


def _wordpiece(path: Path, config: Settings) -> tokenizers.Tokenizer:
    """BERT's: cleaned, cut at spaces and punctuation, then into the longest pieces from the left."""
    lines = read_lines(path)
    names = lines[:-1] if lines[-1] == "" else lines
    vocabulary = {name.rstrip("\r"): number for number, name in enumerate(names)}
    spelt = {role: config.get(role) or USUAL[role][0] for role in USUAL if role[:3] not in ("bos", "eos")}
    spelt = {
        role: str(name.get("content") if isinstance(name, dict) else name) for role, name in spelt.items()
    }
    for role in ("unk_token", "cls_token", "sep_token"):
        if spelt[role] not in vocabulary:
            raise UsageError(f"{path}: not the vocabulary of a BERT, it lacks {shown(spelt[role])}")
    pipeline = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=spelt["unk_token"]))
    strip = config.get("strip_accents")
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=None if strip is None else bool(strip),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    begin, end = spelt["cls_token"], spelt["sep_token"]
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, vocabulary[begin]), (end, vocabulary[end])],
    )
    known = [name for name in spelt.values() if name in vocabulary]
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    return pipeline


def _byte_pairs(folder: Path, config: Settings) -> tokenizers.Tokenizer:
    """GPT-2's: bytes, joined by the merges of merges.txt in their order."""
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    with told(f"{files[0]}, {files[1]}"):
        check_pieces(read_object(folder / "vocab.json")[1])
        read_lines(folder / "merges.txt")
        vocabulary, merges = models.BPE.read_file(*files)
        pipeline = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    prefix = bool(config.get("add_prefix_space", False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    pipeline.decoder = decoders.ByteLevel()
    known = [name for names in USUAL.values() for name in names if name in vocabulary]
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    return pipeline
