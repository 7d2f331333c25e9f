"""Model folders for `hostile.py`: small good ones, and what somebody could make of them."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import re
import string
import struct
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
import tomli_w
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.config import resolve
from regard.inputs.text import load_tokenizer, train_tokenizer
from regard.models.families import build
from regard.storage import unique_weights, write_identity, write_weights

LINK, PIPE, FOLDER = "link", "pipe", "folder"
Entry = bytes | tuple[str, str]  # the content of a file, or (LINK, where to), (PIPE, ""), (FOLDER, "")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Folder:
    files: dict[str, Entry]
    may_open: bool = True

    def with_file(self, name: str, content: Entry | object) -> Folder:
        if not isinstance(content, bytes | tuple):
            content = json.dumps(content).encode()
        return replace(self, files={**self.files, name: content})

    def without(self, *names: str) -> Folder:
        return replace(self, files={k: v for k, v in self.files.items() if k not in names})

    def read(self, name: str) -> Any:
        content = self.files[name]
        return json.loads(content) if isinstance(content, bytes) else None

    def changed(self, name: str, **fields: Any) -> Folder:
        return self.with_file(name, {**self.read(name), **fields})

    def refused(self) -> Folder:
        return replace(self, may_open=False)


def lay(path: Path, folder: Folder) -> None:
    path.mkdir()
    for name, content in folder.files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        elif content[0] == LINK:
            place.symlink_to(content[1])
        elif content[0] == PIPE:
            os.mkfifo(place)
        else:
            place.mkdir()


# --- good folders

SIGNS = sorted({*string.ascii_lowercase, ",", ".", "1", "é"})


def wordpiece() -> tokenizers.Tokenizer:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SIGNS, *(f"##{sign}" for sign in SIGNS)]
    numbers = {name: number for number, name in enumerate(names)}
    pipeline = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    pipeline.normalizer, pipeline.decoder = normalizers.BertNormalizer(), decoders.WordPiece()
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.add_special_tokens(names[:5])
    pipeline.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return pipeline


def byte_pairs() -> tokenizers.Tokenizer:
    names = [*pre_tokenizers.ByteLevel.alphabet(), "ab", "Ġa", "<|endoftext|>"]
    numbers = {name: number for number, name in enumerate(sorted(names))}
    pipeline = tokenizers.Tokenizer(models.BPE(numbers, [("a", "b"), ("Ġ", "a")]))
    known = r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(known), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(["<|endoftext|>"])
    return pipeline


def unigram() -> tokenizers.Tokenizer:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁a", -2.5)]
    pipeline = tokenizers.Tokenizer(models.Unigram([*pieces, *((sign, -3.0) for sign in SIGNS)], unk_id=2))
    pipeline.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("``", '"')])
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pipeline.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return pipeline


def with_byte_pieces() -> tokenizers.Tokenizer:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *SIGNS, "▁a"]
    numbers = {name: number for number, name in enumerate(names)}
    pipeline = tokenizers.Tokenizer(
        models.BPE(numbers, [("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pipeline.add_special_tokens(["<unk>", "<s>", "</s>"])
    return pipeline


SHAPES: dict[str, tuple[str, dict[str, Any], Callable[[], tokenizers.Tokenizer] | None]] = {
    "own": ("translate", {}, None),
    "pre": ("translate", {"norm": "pre"}, None),
    "rnn": ("translate", {"family": "bahdanau"}, None),
    "fill": ("fill", {}, wordpiece),
    "classify": ("classify", {}, wordpiece),
    "gpt": ("generate", {"family": "gpt"}, byte_pairs),
    "llama": ("generate", {"family": "llama", "kv_heads": 1}, with_byte_pieces),
    "t5": ("translate", {"family": "t5", "gated": True}, unigram),
}


def bases() -> dict[str, Folder]:
    """Good folders: our own, and such as other programs write."""
    torch.manual_seed(1)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name, (task, shape, pieces) in SHAPES.items():
            path = Path(place) / name
            path.mkdir()
            write_model(path, task, shape, pieces)
            found[name] = Folder({each.name: each.read_bytes() for each in path.iterdir()})
        path = Path(place) / "spm"
        path.mkdir()
        write_model(path, "translate", {}, path)
        found["spm"] = Folder({each.name: each.read_bytes() for each in path.iterdir()})
    found["parts"] = in_parts(found["llama"])
    words = found["fill"].read("tokenizer.json")["model"]["vocab"]
    found["words"] = (
        found["fill"]
        .without("tokenizer.json")
        .with_file("vocab.txt", "".join(f"{w}\n" for w in words).encode())
    )
    pairs = found["gpt"].read("tokenizer.json")["model"]
    merges = "".join(f"{' '.join(merge)}\n" for merge in pairs["merges"])
    found["pairs"] = (
        found["gpt"]
        .without("tokenizer.json")
        .with_file("vocab.json", pairs["vocab"])
        .with_file("merges.txt", f"#version: 0.2\n{merges}".encode())
    )
    return found


def sentencepiece_files(path: Path) -> None:
    """source.spm, target.spm and vocab.json, as Marian's models have them."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a b ab", "é1, ab ab", "".join(SIGNS)] * 20),
        model_writer=model,
        vocab_size=45,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    for name in ("source.spm", "target.spm"):
        (path / name).write_bytes(model.getvalue())
    cut = SentencePieceProcessor(model_proto=model.getvalue())
    names = ["</s>", "<unk>", *(cut.id_to_piece(number) for number in range(3, len(cut))), "<pad>"]
    (path / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))


def write_model(
    path: Path, task: str, shape: dict[str, Any], pieces: Callable[[], tokenizers.Tokenizer] | Path | None
) -> None:
    """With the library's own tokenizer, with our own (None), or with the files that a path has."""
    small = {"width": 8, "layers": 1, "max_length": 16}
    small |= {} if shape.get("family") == "bahdanau" else {"heads": 2, "feed_forward": 8}
    config = resolve(
        {"task": {"name": task}, "data": {"train": "corpus.tsv"}, "model": {**small, **shape}}, where="bench"
    )
    if pieces is None:
        tokenizer = train_tokenizer(["a b ab", "é1, ab ab"], "bpe", 270)
    elif isinstance(pieces, Path):
        sentencepiece_files(pieces)
        tokenizer = load_tokenizer(pieces)
    else:
        pieces().save(str(path / "tokenizer.json"))
        tokenizer = load_tokenizer(path / "tokenizer.json")
    labels = ("good", "bad") if task == "classify" else ()
    write_identity(path, config, tokenizer, None, 16, labels)
    write_weights(
        path, config.model, unique_weights(build(config.model, len(tokenizer), len(labels) or None))
    )
    if pieces is not None:  # as another program leaves it
        (path / "run.toml").unlink()
        content = json.loads((path / "config.json").read_text())
        del content["regard"]
        (path / "config.json").write_text(json.dumps(content))


def in_parts(folder: Folder) -> Folder:
    header, data = unpacked(folder.files[WEIGHTS])
    names = sorted(name for name in header if name != "__metadata__")
    parts: dict[str, Entry] = {}
    for number, own in enumerate((names[::2], names[1::2])):
        content, told = b"", {}
        for name in own:
            first, last = header[name]["data_offsets"]
            told[name] = {**header[name], "data_offsets": [len(content), len(content) + last - first]}
            content += data[first:last]
        parts[f"model-0000{number + 1}-of-00002.safetensors"] = packed(told, content)
    listed = {name: list(parts)[place % 2] for place, name in enumerate(names)}
    split = folder.without(WEIGHTS).with_file(INDEX, {"metadata": {}, "weight_map": listed})
    return replace(split, files={**split.files, **parts})


def unpacked(content: Entry) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack("<Q", bytes(content[:8]))
    return json.loads(content[8 : 8 + size]), bytes(content[8 + size :])


def packed(header: Any, data: bytes, size: int | None = None) -> bytes:
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(told) if size is None else size) + told + data


# --- folders that would run something, or read what is not theirs


class _Runs:
    """Unpickled, it leaves a trace."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def harmful(folders: dict[str, Folder], seed: int, number: int, canary: Path) -> Folder:
    """One of the ways to make a folder harmful, with some mutation beside it for every third."""
    chance = random.Random(f"harm {seed} {number}")
    name = chance.choice(sorted(folders))
    folder = HARMS[number % len(HARMS)](folders[name], chance, canary)
    return mutate(folder, chance) if number % 3 == 2 else folder


def evil_code(folder: Folder, chance: random.Random, canary: Path) -> Folder:
    """Everything by which a config could name code, with the code beside it; it is passed over."""
    code = f"import pathlib\npathlib.Path({str(canary)!r}).mkdir()\n".encode()
    maps = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoTokenizer": ["evil.T", None]}
    changed = folder.changed(
        "config.json", auto_map=maps, trust_remote_code=True, custom_pipelines={"evil": {"impl": "evil.P"}}
    )
    told = changed.read("tokenizer_config.json")
    changed = changed.with_file(
        "tokenizer_config.json",
        {
            **told,
            "auto_map": maps,
            "trust_remote_code": True,
            "chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}" * 50,
            "tokenizer_file": "/etc/passwd",
        },
    )
    for name in ("evil.py", "__init__.py", "sitecustomize.py", "torch.py", "handler.py"):
        changed = changed.with_file(name, code)
    return changed


def evil_pickle(folder: Folder, chance: random.Random, canary: Path) -> Folder:
    content = pickle.dumps(_Runs(canary), protocol=chance.randrange(5))
    names = [name for name in folder.files if name.endswith(".safetensors")]
    kind = chance.randrange(3)
    if kind == 0:  # beside the weights it is not looked at
        return folder.with_file("pytorch_model.bin", content).with_file("training_args.bin", content)
    if kind == 1:
        return folder.without(*names).with_file("pytorch_model.bin", content).refused()
    return folder.with_file(names[0], content).refused()


def evil_link(folder: Folder, chance: random.Random, canary: Path) -> Folder:
    """A file that is a link to somewhere else: to something secret, endless, or good but not its own."""
    name = chance.choice([n for n in sorted(folder.files) if n != "README.md"])
    good = canary.parent / f"good-{chance.randrange(2**32)}{Path(name).suffix}"
    content = folder.files[name]
    if isinstance(content, bytes):
        good.write_bytes(content)
    targets = [str(good), "/etc/passwd", "/dev/zero", "/dev/urandom", "/proc/self/environ", name, "../", "/"]
    return folder.with_file(name, (LINK, chance.choice(targets))).refused()


def evil_place(folder: Folder, chance: random.Random, canary: Path) -> Folder:
    """An index that names weights elsewhere."""
    good = canary.parent / f"good-{chance.randrange(2**32)}.safetensors"
    first = next(name for name in folder.files if name.endswith(".safetensors"))
    content = folder.files[first]
    good.write_bytes(content if isinstance(content, bytes) else b"")
    header, _ = unpacked(content)
    places = [
        str(good),
        f"../{good.name}",
        f"../../{good.parent.name}/{good.name}",
        "/dev/zero",
        "/etc/passwd",
        "CON",
        "NUL.safetensors",
        "..\\..\\x.safetensors",
        f"file://{good}",
        "C:\\x.safetensors",
        "a\0.safetensors",
        ".",
        "",
        "~/x.safetensors",
        "model.safetensors/../x.safetensors",
        "x" * 5000 + ".safetensors",
        5,
        None,
        ["a"],
    ]
    names = [name for name in folder.files if name.endswith(".safetensors")]
    place = chance.choice(places)
    return (
        folder.without(*names)
        .with_file(INDEX, {"weight_map": {name: place for name in header if name != "__metadata__"}})
        .refused()
    )


def evil_kind(folder: Folder, chance: random.Random, canary: Path) -> Folder:
    """A pipe or a folder where a file should be."""
    name = chance.choice([n for n in sorted(folder.files) if n != "README.md"])
    return folder.with_file(name, (chance.choice([PIPE, FOLDER]), "")).refused()


HARMS = (evil_code, evil_pickle, evil_link, evil_place, evil_kind)


# --- mutations

_DEEP: Any = []
for _ in range(80):
    _DEEP = [_DEEP]
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 255, 1000, 2**15, 2**20, 2**31 - 1, 2**31, 2**32, -(2**31)),
    *(2**53, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-300, 1e308, -1e308),
    *("", "a", "\0", "\x1b[2J", "\u202e", "relu", "true", "NaN", "1", "../..", "/etc/passwd", "x" * 5000),
    *("é" * 100, "<unk>", "[UNK]", "\U0001f600", "(a+)+$", "{}", [], {}, [[]], [None], [1, 2, 3], {"": {}}),
    *([0] * 1000, {"a": 1}, {"type": "Sequence", "normalizers": []}, {"Regex": "(a|a)*b"}, {"String": ""}),
    *({"type": "ByteLevel"}, {"type": "Fuse"}, {"content": "</s>"}, [["a", 1.0]], _DEEP),
)
FIELDS = (
    *(
        "vocab_size",
        "decoder_vocab_size",
        "model_type",
        "architectures",
        "auto_map",
        "hidden_size",
        "d_model",
    ),
    *(
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rope_scaling",
        "regard",
    ),
    *(
        "rope_parameters",
        "rope_theta",
        "n_inner",
        "id2label",
        "problem_type",
        "tie_word_embeddings",
        "pieces",
    ),
    *("decoder_start_token_id", "eos_token_id", "pad_token_id", "bad_words_ids", "suppress_tokens", "model"),
    *("num_beams", "max_length", "temperature", "top_k", "forced_bos_token_id", "length_penalty", "type"),
    *("added_tokens", "normalizer", "pre_tokenizer", "decoder", "post_processor", "truncation", "padding"),
    *("vocab", "merges", "unk_id", "unk_token", "byte_fallback", "sep_token", "eos_token", "pad_token"),
    *("__metadata__", "dtype", "shape", "data_offsets", "weight_map", "do_lower_case", "strip_accents"),
    *("torch_dtype", "dtype", "quantization_config", "begin_suppress_tokens", "do_sample", "chat_template"),
    *("encoder_layers", "decoder_layers", "feed_forward_proj", "scale_embedding", "share", "sp_model_kwargs"),
)


def mutated(folders: dict[str, Folder], seed: int, number: int) -> Folder:
    """A good folder with one to three changes."""
    chance = random.Random(f"mutation {seed} {number}")
    folder = folders[chance.choice(sorted(folders))]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        folder = mutate(folder, chance)
    return folder


def mutate(folder: Folder, chance: random.Random) -> Folder:
    names = [
        n for n, c in sorted(folder.files.items()) if isinstance(c, bytes) and not n.endswith((".md", ".py"))
    ]
    if not names:
        return folder
    name = chance.choice(names)
    content = folder.files[name]
    if not isinstance(content, bytes):
        return folder
    kind = chance.random()
    if kind < 0.05:
        return folder.without(name)
    if kind < 0.20 or name.endswith(".txt"):
        return folder.with_file(name, bytes_mutated(content, chance))
    try:
        if name.endswith(".json"):
            return folder.with_file(name, json_mutated(json.loads(content), chance))
        if name.endswith(".safetensors"):
            return folder.with_file(name, weights_mutated(content, chance))
        if name.endswith(".toml"):
            tree = changed_tree(tomllib.loads(content.decode()), chance)
            return folder.with_file(name, tomli_w.dumps(tree).encode())
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError, struct.error):
        pass  # an earlier change left nothing to parse, or what TOML cannot write
    return folder.with_file(name, bytes_mutated(content, chance))


def bytes_mutated(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    to = min(len(content), at + chance.choice([1, 2, 8, 100, 10_000]))
    noise = bytes(chance.randrange(256) for _ in range(chance.choice([1, 4, 50])))
    lines = content.split(b"\n")
    return chance.choice(
        [
            lambda: content[:at],
            lambda: content[:at] + noise + content[at:],
            lambda: content[:at] + content[to:],
            lambda: content[:at] + noise + content[at + len(noise) :],
            lambda: content[:to] + content[at:to] * chance.choice([1, 5, 50]) + content[to:],
            lambda: b"\n".join(chance.sample(lines, len(lines))),
            lambda: chance.choice([b"", b"\xef\xbb\xbf" + content, b"\0" * 100, content * 2, b"[" * 5000]),
        ]
    )()


def json_mutated(tree: Any, chance: random.Random) -> bytes:
    text = json.dumps(changed_tree(tree, chance))
    kind = chance.random()
    if kind < 0.05:  # numbers that JSON does not have, or that are no numbers
        odd = chance.choice(["NaN", "-Infinity", "1e999", "0" * 5000, "9" * 5000, "1E400", '"\\ud800"'])
        text = re.sub(r"(?<=: )-?\d+(?=[,}])", lambda found: odd, text, count=1)
    elif kind < 0.10 and text.startswith("{") and len(text) > 2:  # a name twice
        name = chance.choice([*tree]) if isinstance(tree, dict) and tree else "a"
        text = f"{{{json.dumps(name)}: {json.dumps(chance.choice(NASTY))}, {text[1:]}"
    return text.encode()


def changed_tree(tree: Any, chance: random.Random) -> Any:
    """A copy with one place changed; each level is gone down with the same chance, whatever its size."""
    if isinstance(tree, dict | list) and len(tree) and chance.random() < 0.8:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        at = chance.choice([*keys]) if len(tree) < 20 or chance.random() < 0.5 else [*keys][-1]
        copy = tree.copy()
        kind = chance.random()
        if kind < 0.1:
            del copy[at]
        elif kind < 0.2:
            copy[at] = copy[chance.choice([*keys])]
        elif kind < 0.25 and isinstance(copy, dict):
            copy[str(chance.choice(NASTY))[:50]] = copy.pop(at)
        elif kind < 0.4 and isinstance(copy, dict):
            copy[chance.choice(FIELDS)] = chance.choice(NASTY)
        elif kind < 0.45 and isinstance(copy, list):
            copy.insert(0, copy[at])
        else:
            copy[at] = changed_tree(copy[at], chance)
        return copy
    if type(tree) is int and chance.random() < 0.5:
        return chance.choice(
            [tree + 1, tree - 1, 2 * tree, -tree, tree // 2, tree * 1000, float(tree), str(tree)]
        )
    return chance.choice(NASTY)


def weights_mutated(content: bytes, chance: random.Random) -> bytes:
    header, data = unpacked(content)
    if chance.random() < 0.6:
        name = chance.choice([n for n in header if n != "__metadata__"])
        told = dict(header[name])
        told[chance.choice(["dtype", "shape", "data_offsets"])] = chance.choice(
            [
                *("F16", "BF16", "F64", "I64", "BOOL", "U8", "F8_E4M3", "F8_E8M0", "F4", "C64", "XX"),
                *([], [0], [-1], [2**63], [2**32, 2**32], [1] * 100, [0, 2**62], told["shape"][::-1]),
                *([0, 4], [8, 0], [0, 2**64 - 1], [2**63, 2**63 + 4], [math.prod(told["shape"])]),
            ]
        )
        header = {**header, name: told}
        if chance.random() < 0.2:
            header[chance.choice(["a", "\x1b[31m", "n" * 3000, "lm_head.weight"])] = header.pop(name)
    else:
        header = changed_tree(header, chance)
    size = chance.choice([None] * 8 + [0, 1, 2**32, 2**63, len(content), 100_000_001])
    return packed(json.dumps(header).encode(), data, size)
