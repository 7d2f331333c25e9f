"""Folders of at most a megabyte that would take gigabytes or minutes, were they believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from qa.hostile.folders import INDEX, WEIGHTS, Folder, packed, unpacked

Named = Iterator[tuple[str, Folder]]
DEEP = 100_000


def bombs(folders: dict[str, Folder]) -> Named:
    for group in (huge_models, odd_json, lying_weights, tokenizer_bombs, vocabulary_bombs, run_bombs):
        yield from group(folders)


def huge_models(folders: dict[str, Folder]) -> Named:
    """A config that needs more memory than the machine has, beside weights of a few kilobytes."""
    claims: dict[str, list[dict[str, Any]]] = {
        "llama": [
            {"vocab_size": 2**31},
            {"vocab_size": 10**9},
            {"vocab_size": 2**20},
            {"vocab_size": -5},
            {"num_hidden_layers": 10**6},
            {"num_hidden_layers": 1000},
            {"hidden_size": 65536, "head_dim": 32768},
            {"intermediate_size": 10**6},
            {"num_attention_heads": 0},
            {"head_dim": 10**18},
            {"rope_parameters": {"rope_type": "default", "rope_theta": True}},
        ],
        "fill": [
            {"max_position_embeddings": 10**6, "hidden_size": 65536},
            {"max_position_embeddings": 10**9},
            {"num_attention_heads": 3},
            {"intermediate_size": 2**40},
        ],
        "t5": [
            {"relative_attention_num_buckets": 2**31},
            {"relative_attention_num_buckets": 65536},
            {"num_layers": 1000, "num_decoder_layers": 1000},
        ],
        "gpt": [{"n_positions": 10**6, "n_embd": 65536}, {"n_inner": -1}, {"n_layer": "many"}],
        "own": [{"d_model": 65536, "max_position_embeddings": 10**6}, {"encoder_layers": 900}],
    }
    for name, changes in claims.items():
        for change in changes:
            yield f"{name} {json.dumps(change)}", folders[name].changed("config.json", **change)
    for change in (
        {"layers": 1000},
        {"width": 65536, "heads": 1},
        {"max_length": 10**18},
        {"epsilon": -1.0},
    ):
        shape = {**folders["pre"].read("config.json")["model"], **change}
        yield f"pre {json.dumps(change)}", folders["pre"].changed("config.json", model=shape)
    start = folders["t5"].changed("generation_config.json", decoder_start_token_id=10**12)
    yield "t5 begins with 10^12", start
    labels = {str(number): "x" for number in range(40_000)}
    yield "40,000 labels", folders["classify"].changed("config.json", id2label=labels)


def odd_json(folders: dict[str, Folder]) -> Named:
    """JSON that is deep, or that says two things at once."""
    base = folders["gpt"]
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        yield f"deep {name}", base.with_file(name, b"[" * DEEP)
        yield f"deep object {name}", base.with_file(name, b'{"a":' * DEEP)
    yield "deep index", folders["parts"].with_file(INDEX, b'{"weight_map":' + b"[" * DEEP)
    config = json.dumps(base.read("config.json"))
    for odd in ("NaN", "-Infinity", "1e999", "9" * DEEP, "[" * 500 + "]" * 500):
        text = config.replace('"n_embd": 8', f'"n_embd": {odd}')
        yield f"config with {odd[:10]}", base.with_file("config.json", text.encode())
    yield "a name twice", base.with_file("config.json", f'{{"n_embd": 9, {config[1:]}'.encode())
    yield "many lists", base.with_file("config.json", b"[" + b"[]," * 300_000 + b"[]]")


def lying_weights(folders: dict[str, Folder]) -> Named:
    base = folders["llama"]
    header, data = unpacked(base.files[WEIGHTS])
    name = next(each for each in header if each != "__metadata__")
    for size in (2**32, 2**63, 10**8, len(data) * 100):
        yield f"header of {size} bytes", base.with_file(WEIGHTS, packed(header, data, size))
    for change in (
        {"data_offsets": [0, 2**40]},
        {"data_offsets": [4, 8]},
        {"shape": [2**40, 2**40]},
        {"shape": [-1]},
        {"shape": [1] * DEEP},
        {"shape": [0, 2**62], "data_offsets": [0, 0]},
        {"dtype": "F4"},
    ):
        told = {**header, name: {**header[name], **change}}
        yield f"weights {str(change)[:40]}", base.with_file(WEIGHTS, packed(told, data))
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    many = {f"t{number}": empty for number in range(10_000)}
    yield "10,000 empty tensors", base.with_file(WEIGHTS, packed(many, b""))
    yield "deep header", base.with_file(WEIGHTS, packed(b'{"a":' * DEEP, b""))


def tokenizer_bombs(folders: dict[str, Folder]) -> Named:
    base = folders["gpt"]
    content = base.read("tokenizer.json")

    def with_model(**fields: Any) -> Folder:
        return base.with_file("tokenizer.json", {**content, "model": {**content["model"], **fields}})

    def with_step(part: str, step: Any) -> Folder:
        return base.with_file("tokenizer.json", {**content, part: step})

    pieces = content["model"]["vocab"]
    yield "a piece of 100,000 characters", with_model(vocab={**pieces, "x" * 100_000: len(pieces)})
    yield "a number of 2^40", with_model(vocab={**pieces, "xy": 2**40})
    yield "a number of 2^31", with_model(vocab={**pieces, "xy": 2**31})
    yield "a number twice", with_model(vocab={**pieces, "xy": 5})
    yield "a number below 0", with_model(vocab={**pieces, "xy": -1})
    for pattern in (
        r"(a+)+$",
        r"(?:a|a)*b",
        r"(.*)*\1",
        r"(?:(?:a{1000}){1000}){1000}",
        r"a*a*a*a*a*a*a*a*b",
        r"(?<n>a\g<n>?b)",
        r"(?:[a-z]+\s?){1,99}$",
        "(" * 50_000,
    ):
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        yield f"cuts at {pattern[:30]}", with_step("pre_tokenizer", split)
    replace = {"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""}
    yield "replaces without end", with_step("normalizer", replace)
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    yield "doubles 60 times", with_step("normalizer", {"type": "Sequence", "normalizers": [double] * 60})
    long = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 900_000}
    yield "one sign to 900,000", with_step("normalizer", long)
    yield (
        "10,000 steps",
        with_step("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 10_000}),
    )
    nested: Any = {"type": "NFC"}
    for _ in range(100):
        nested = {"type": "Sequence", "normalizers": [nested]}
    yield "steps in steps", with_step("normalizer", nested)
    told = base.read("tokenizer_config.json")
    for own in ({"pieces": 2**40}, {"pieces": 2**31, "start": 1}, {"start": 10**9}, {"pieces": "many"}, [1]):
        yield f"says {own}", base.with_file("tokenizer_config.json", {**told, "regard": own})


def vocabulary_bombs(folders: dict[str, Folder]) -> Named:
    yield "a million lines", folders["words"].with_file("vocab.txt", b"\n" * 1_000_000)
    yield "one long line", folders["words"].with_file("vocab.txt", b"x" * 1_000_000)
    yield "no merges", folders["pairs"].with_file("merges.txt", b"a b c\n" * 100_000)
    told = folders["spm"].read("tokenizer_config.json")
    for own in ({"pieces": 10**30}, {"start": 10**6}, {"pieces": "many"}):
        yield f"spm says {own}", folders["spm"].with_file("tokenizer_config.json", {**told, "regard": own})
    many = {**folders["pairs"].read("vocab.json"), "xy": 2**32}
    yield "numbers of pairs", folders["pairs"].with_file("vocab.json", many)


def run_bombs(folders: dict[str, Folder]) -> Named:
    base = folders["own"]
    for name, content in {
        "deep": b"a = " + b"[" * DEEP,
        "dotted": b".".join([b"a"] * 20_000) + b" = 1",
        "long number": b"[model]\nlayers = " + b"9" * DEEP,
        "million beams": b"[decode]\nbeam = 1000000",
        "no text": b"\xff" * 1000,
    }.items():
        yield f"run.toml {name}", base.with_file("run.toml", content)
