"""Tokenizers of other programs: WordPiece (BERT), byte-level BPE (GPT-2), SentencePiece (T5, Llama).

They are read from a tokenizer.json, or from vocab.txt, or from vocab.json and merges.txt; the files beside it
name the special tokens. Ids and texts are those of transformers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.config.reading import SMALL, read_bytes, shown
from regard.errors import TokenizerError
from regard.inputs.text.byte_level import BYTE_OF, special_ids
from regard.inputs.text.checks import (
    check_sizes,
    check_vocabulary,
    model_sizes,
    read_lines,
    read_object,
    read_settings,
    to_pipeline,
    tokenizer_errors,
)
from regard.inputs.text.languages import frame_by_class, frame_of, language_tokens
from regard.inputs.text.tokenizer import (
    Settings,
    Spans,
    Tokenizer,
    replace_surrogates,
    sentinels_of,
    token_name,
    trimmed,
)

# The roles of special tokens in transformers, and their usual spellings where no file names them.
ROLES = {
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "bos_token": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}
_SPACE = "\u2581"  # SentencePiece's character for a space
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# English contractions and punctuation, as transformers joins them with clean_up_tokenization_spaces
_CLEAN = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class HFTokenizer(Tokenizer):
    """A tokenizer of another program, through a `tokenizers` pipeline."""

    def __init__(self, pipeline: tokenizers.Tokenizer, settings: Settings, source: str) -> None:
        self._pipeline = pipeline
        self._kind = kind_of(json.loads(pipeline.to_str()), source)
        names = {role: settings[role] for role in ROLES if settings.get(role)}
        sizes = check_sizes(settings.get("regard", {}), source)
        # Tokens that the files beside it call special are special, whatever tokenizer.json says.
        pipeline.add_special_tokens(
            [AddedToken(name, special=True, normalized=False) for name in names.values()]
        )
        pipeline.encode_special_tokens = True
        specials = special_ids(pipeline)
        roles = {role: specials[name] for role, name in names.items()}
        if not {"sep_token", "eos_token"} & roles.keys():
            raise TokenizerError(
                f"{source}: no token ends a text; name one as eos_token or sep_token in tokenizer_config.json"
            )
        self.end = roles["sep_token"] if "sep_token" in roles else roles["eos_token"]
        self.pad = roles.get("pad_token", self.end)
        self.start = sizes.get("start", roles.get("cls_token", roles.get("bos_token", self.pad)))
        self.mask = roles.get("mask_token")
        self.sentinels = sentinels_of(specials)
        tokens = int(pipeline.get_vocab_size())
        self.size = max(tokens, sizes.get("pieces", 0))
        last = max(pipeline.get_vocab().values(), default=0)
        if max(last, self.start) >= self.size:
            raise TokenizerError(
                f"{source}: the vocabulary has {self.size} tokens, and no id {max(last, self.start)}"
            )
        suppressed = {
            roles[role] for role in ("bos_token", "cls_token", "unk_token", "mask_token") if role in roles
        }
        surplus = range(tokens, self.size)  # rows of the embedding without a token
        self.suppressed = (*sorted({self.pad, self.start, *suppressed} - {self.end}), *surplus)
        self.unknown = roles.get("unk_token")
        # a text may contain <unk>
        self._special = frozenset(specials.values()) - ({self.unknown} - {self.start, self.end})
        # what `files` writes: the same sizes later, whatever config.json says then
        frame = {"frame": 1} if "frame" in sizes else {}
        self.settings = {**settings, "regard": {"pieces": self.size, "start": self.start, **frame}}
        with tokenizer_errors(source):  # that it works at all, also for unknown characters
            self.decode(self.encode("a \U0010fffd"))
            # as in transformers, the post-processor decides whatever tokenizer_config.json says
            first = pipeline.encode("a", add_special_tokens=True).ids[:1]
            pair = pipeline.encode("a", "a", add_special_tokens=True)
            between = [each for each, part in zip(pair.ids, pair.sequence_ids) if part is None]
            self.separators = max(1, between.count(self.end) - 1)
            self.adds_start = first in ([roles.get("bos_token")], [roles.get("cls_token")])
        self.language_tokens = language_tokens(specials)
        if "frame" in sizes:  # version 1 to 3 of folders: the end token alone
            self.set_frame(*frame_of(pipeline))
            # BART's targets begin with <s>, which is not what its decoder begins with
            ids = {self.start, *self.language_tokens.values()}
            self.first = next((each for each in self.before[:1] if each not in ids), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (self._pipeline.to_str(), self.settings), self.frame_state

    def files(self) -> dict[str, str]:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self.settings}
        return {".json": self.to_json(), "_config.json": json.dumps(config, ensure_ascii=False, indent=2)}

    def to_json(self, frame: str | None = None) -> str:
        """Content of tokenizer.json, which keeps its post-processor."""
        return str(self._pipeline.to_str(pretty=True))

    @cached_property
    def fingerprint(self) -> str:
        parts = [self._pipeline.to_str(), self.start, self.end, self.size]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [replace_surrogates(text) for text in texts]
        with tokenizer_errors("tokenizer.json"):
            rows = [row.ids for row in self._pipeline.encode_batch_fast(clean, add_special_tokens=False)]
        return [
            ids if self._special.isdisjoint(ids) else self._without_specials.encode(text).ids
            for text, ids in zip(clean, rows, strict=True)
        ]

    @property
    def special_names(self) -> set[str]:
        """How special tokens are spelled."""
        return set(special_ids(self._pipeline))

    def encode_template(self, text: str) -> list[int]:
        """Token ids of what a chat template makes, in which special tokens are spelled."""
        return list(self._with_specials.encode(replace_surrogates(text), add_special_tokens=False).ids)

    @cached_property
    def _with_specials(self) -> tokenizers.Tokenizer:
        return to_pipeline(self._pipeline.to_str())

    def spans(self, text: str) -> tuple[list[int], Spans]:
        clean = replace_surrogates(text)
        encoding = self._pipeline.encode(clean, add_special_tokens=False)
        if not self._special.isdisjoint(encoding.ids):
            encoding = self._without_specials.encode(clean)
        return list(encoding.ids), trimmed(text, encoding.offsets)

    @cached_property
    def _without_specials(self) -> tokenizers.Tokenizer:
        """A copy for texts that spell a special token which is also a token of the model (SentencePiece's
        "</s>"): here no text can give its id."""
        content = json.loads(self._pipeline.to_str())
        names = set(special_ids(self._pipeline))
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
        content["post_processor"] = None
        model = content["model"]
        renamed = {name: f"{name}\0" * 200 for name in names}  # longer than a word can be
        if isinstance(model["vocab"], list):  # unigram
            model["vocab"] = [[renamed.get(name, name), score] for name, score in model["vocab"]]
        else:
            model["vocab"] = {renamed.get(name, name): number for name, number in model["vocab"].items()}
            if model.get("unk_token") in renamed:
                model["unk_token"] = renamed[model["unk_token"]]
        return to_pipeline(json.dumps(content))

    def decode(self, ids: Sequence[int]) -> str:
        size = self._pipeline.get_vocab_size()
        valid = [number for number in map(int, ids) if 0 <= number < size]
        text = str(self._pipeline.decode(valid, skip_special_tokens=True))
        bpe = isinstance(self._pipeline.model, models.BPE)
        if self.settings.get("clean_up_tokenization_spaces") and not bpe:
            for part in _CLEAN:
                text = text.replace(part, part.strip())
        return text

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        if self._kind == "wordpiece":
            raise TokenizerError(
                "this model's tokenizer (WordPiece) changes the text, so its tokens have no bytes; "
                "use a model with another kind of tokenizer for this"
            )
        return super().token_bytes

    @cached_property
    def _table(self) -> list[tuple[str, bytes | None]]:
        table: list[tuple[str, bytes | None]] = [("", None)] * len(self)
        special = set(special_ids(self._pipeline).values())
        for name, number in self._pipeline.get_vocab().items():
            table[number] = (name, None if number in special else _BYTES_BY_KIND[self._kind](name))
        return table

    def _readable(self, number: int) -> str:
        """WordPiece tokens as they are spelled: "##" marks one that continues a word."""
        if self._kind == "wordpiece" and 0 <= number < len(self._table):
            return self._table[number][0]
        return super()._readable(number)


def _from_json(content: str, settings: Settings) -> HFTokenizer:
    return HFTokenizer(to_pipeline(content), settings, "tokenizer.json")


def _bytes_of_gpt2(name: str) -> bytes:
    """GPT-2's tokens are spelled in the byte alphabet; added tokens are plain text."""
    return bytes(BYTE_OF[sign] for sign in name) if all(sign in BYTE_OF for sign in name) else name.encode()


def _bytes_of_sentencepiece(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(_SPACE, " ").encode()


def _bytes_of_wordpiece(name: str) -> bytes:
    """Only for the borders of words: a token without "##" begins a word."""
    return name[2:].encode() if name.startswith("##") and len(name) > 2 else f" {name}".encode()


_BYTES_BY_KIND = {
    "bytes": _bytes_of_gpt2,
    "sentencepiece": _bytes_of_sentencepiece,
    "wordpiece": _bytes_of_wordpiece,
}


def kind_of(content: Mapping[str, Any], source: str) -> str:
    """The kind of a tokenizer.json: "wordpiece", "bytes" or "sentencepiece"."""
    around = json.dumps([content.get("pre_tokenizer"), content.get("decoder")], ensure_ascii=False)
    if content["model"]["type"] == "WordPiece":
        return "wordpiece"
    if '"ByteLevel"' in around:
        return "bytes"
    if "Metaspace" in around or _SPACE in around:
        return "sentencepiece"
    raise TokenizerError(
        f"{source}: unknown kind of tokenizer; give the tokenizer.json of a model with WordPiece, "
        "byte-level BPE (GPT-2) or a SentencePiece vocabulary"
    )


def read_hf_tokenizer(path: Path, pipeline: tokenizers.Tokenizer | None = None) -> HFTokenizer:
    """Read a folder, or take the pipeline of its tokenizer.json and read the files beside it."""
    folder = path if path.is_dir() else path.parent
    name = "tokenizer_config.json" if path.is_dir() else f"{path.name.removesuffix('.json')}_config.json"
    config = read_settings(folder / name)
    pipeline = pipeline or _from_vocabulary(folder, config)
    names = {
        **read_settings(folder / "special_tokens_map.json"),
        **{role: name for role, name in config.items() if name is not None},
    }
    specials, vocabulary = special_ids(pipeline), pipeline.get_vocab()
    settings: Settings = {}
    for role, spellings in ROLES.items():
        named = token_name(names[role]) if role in names else None  # "None" is a word of GPT-2's vocabulary
        usual = next((name for name in spellings if name in specials), None)
        if (chosen := named if named in vocabulary else usual) is not None:
            settings[role] = chosen
    if (template := read_template(folder, config.get("chat_template"))) is not None:
        settings["chat_template"] = template
    if "clean_up_tokenization_spaces" in config:
        settings["clean_up_tokenization_spaces"] = config["clean_up_tokenization_spaces"]
    columns = ["input_ids", *(["token_type_ids"] if "cls_token" in settings else []), "attention_mask"]
    settings["model_input_names"] = config.get("model_input_names", columns)
    sizes = config.get("regard")
    settings["regard"] = sizes or {**model_sizes(read_settings(folder / "config.json")), "frame": 1}
    if sizes is None:
        frame_by_class(pipeline, config, str(path))
    return HFTokenizer(pipeline, settings, str(path))


def read_template(folder: Path, value: object) -> str | None:
    """The chat template: of its own file, or from tokenizer_config.json, where several may have names."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        with tokenizer_errors(file):
            return read_bytes(file, SMALL).decode()
    if isinstance(value, list):
        named = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _from_vocabulary(folder: Path, config: Settings) -> tokenizers.Tokenizer:
    """The pipeline of a folder without tokenizer.json."""
    if (folder / "vocab.txt").is_file():
        return _wordpiece(folder / "vocab.txt", config)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _byte_level_bpe(folder, config)
    raise TokenizerError(
        f"{folder}: no tokenizer that Regard reads (tokenizer.json, vocab.txt, or vocab.json with merges.txt)"
    )


def _wordpiece(path: Path, config: Settings) -> tokenizers.Tokenizer:
    """BERT: normalize, split at spaces and punctuation, then take the longest tokens from the left."""
    lines = read_lines(path)
    names = lines[:-1] if lines[-1] == "" else lines
    vocabulary = {name.rstrip("\r"): number for number, name in enumerate(names)}
    roles = [role for role in ROLES if role not in ("bos_token", "eos_token")]
    special = {role: token_name(config.get(role) or ROLES[role][0]) for role in roles}
    for role in ("unk_token", "cls_token", "sep_token"):
        if special[role] not in vocabulary:
            raise TokenizerError(f"{path}: not a BERT vocabulary, {shown(special[role])} is missing")
    pipeline = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    strip = config.get("strip_accents")
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=None if strip is None else bool(strip),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    start, end = special["cls_token"], special["sep_token"]
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, vocabulary[start]), (end, vocabulary[end])],
    )
    present = [name for name in special.values() if name in vocabulary]
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in present])
    return pipeline


def _byte_level_bpe(folder: Path, config: Settings) -> tokenizers.Tokenizer:
    """GPT-2: bytes, joined by the merges of merges.txt in their order."""
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    with tokenizer_errors(f"{files[0]}, {files[1]}"):
        check_vocabulary(read_object(folder / "vocab.json")[1])
        read_lines(folder / "merges.txt")
        vocabulary, merges = models.BPE.read_file(*files)
        pipeline = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    prefix = bool(config.get("add_prefix_space", False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    pipeline.decoder = decoders.ByteLevel()
    present = [name for names in ROLES.values() for name in names if name in vocabulary]
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in present])
    bos = token_name(config.get("bos_token") or ROLES["bos_token"][-1])
    if config.get("add_bos_token") and bos in vocabulary:
        pipeline.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocabulary[bos])]
        )
    return pipeline
