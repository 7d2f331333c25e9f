"""The same model that writes in other programs, for a race: texts in, with Regard's tokenizer; texts out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.llama_cpp import open_llama_cpp
from bench.rounds import Process
from regard.export.check import token_names
from regard.models.transformer import EncoderDecoder, LanguageModel
from regard.storage import Folder, open_folder
from regard.tasks import Translator, load

Ids = list[list[int]]
Write = Callable[[Sequence[str], int, int], list[str]]  # texts, beams, exactly so many new tokens
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "Q8_0": 34 / 32}  # of a weight
PRECISIONS = {
    "ctranslate2": ("float32", "int8"),
    "transformers": ("float32", "bfloat16"),
    "llama.cpp": ("Q8_0",),
}
MODULES = {"llama.cpp": "xllamacpp"}  # where the name of a module is not that of the program


class Writer(NamedTuple):
    """A model that writes, opened in a program."""

    write: Write
    precision: str


def installed(program: str) -> bool:
    return find_spec(MODULES.get(program, program)) is not None


def can_run(program: str, folder: Folder) -> bool:
    """llama.cpp has no encoder-decoders."""
    return program != "llama.cpp" or isinstance(folder.model, LanguageModel)


def writer_in_process(program: str, precision: str, path: Path, place: Path, threads: int) -> Writer:
    """`open_writer` in a process of its own."""
    remote = Process(write_or_precision, program, precision, path, place, threads)
    return Writer(remote, remote())


def write_or_precision(*arguments: Any) -> Callable[..., Any]:
    opened = open_writer(*arguments)
    return lambda *given: opened.write(*given) if given else opened.precision


def open_writer(program: str, precision: str, path: Path, place: Path, threads: int) -> Writer:
    """`place` is a folder for a copy in another format."""
    if program == "regard":
        return regard(path, precision, threads)
    folder = open_folder(path)
    if program == "transformers":
        return Writer(transformers(folder, precision), precision)
    if program == "llama.cpp":
        return Writer(llama_cpp(folder, place, threads), precision)
    return Writer(ctranslate2(folder, precision, place, threads), precision)


def weights_read(folder: Folder) -> int:
    """Weights that a new token reads: of the decoder's blocks and the output layer, not the embedding's.

    Keys and values of cross-attention are computed once a text.
    """
    model: Any = folder.model
    blocks = list(model.decoder)
    once = [part.weight for block in blocks if block.cross for part in (block.cross.key, block.cross.value)]
    every = [each for block in blocks for each in block.parameters()] + [model.output.weight]
    return sum(each.numel() for each in every) - sum(each.numel() for each in once)


def source_ids(folder: Folder, texts: Sequence[str]) -> Ids:
    rows = folder.source.encode_batch(list(texts))
    if isinstance(folder.model, EncoderDecoder):
        return [[*row, folder.source.end] for row in rows]
    return [[folder.source.start, *row] if folder.source.adds_start else row for row in rows]


def regard(path: Path, precision: str, threads: int) -> Writer:
    model = load(path, precision=precision, threads=threads)
    translates = isinstance(model, Translator)
    plain = {"split": "never", "other_language": "translate", "check": False}
    run = partial(model.translate_lines, **plain) if translates else model.generate_texts

    def write(texts: Sequence[str], beams: int, count: int) -> list[str]:
        found = run(list(texts), beam=beams, decode={"min_length": count, "max_length": count})
        check([each.candidates[0].token_ids for each in found], count)
        return [each.text.strip() for each in found]

    return Writer(write, model.precision)


# --- CTranslate2 ------------------------------------------------------------------------------------------


def ctranslate2(folder: Folder, precision: str, place: Path, threads: int) -> Write:
    import ctranslate2 as library

    copy = ctranslate2_copy(folder, place / "ctranslate2")
    reads = isinstance(folder.model, EncoderDecoder)
    known, said = vocabulary(copy, "source"), vocabulary(copy, "target")
    number = {name: id for id, name in enumerate(said)}
    adds_end = json.loads((copy / "config.json").read_text("utf-8")).get("add_source_eos", False)
    kind = library.Translator if reads else library.Generator
    model = kind(str(copy), compute_type=precision, inter_threads=1, intra_threads=threads)

    def write(texts: Sequence[str], beams: int, count: int) -> list[str]:
        rows = source_ids(folder, texts)
        names = [[known[id] for id in (row[:-1] if adds_end else row)] for row in rows]
        options = {"beam_size": beams, "max_batch_size": len(rows)}
        if reads:
            options |= {"min_decoding_length": count, "max_decoding_length": count}
            found = [each.hypotheses[0] for each in model.translate_batch(names, **options)]
        else:
            options |= {"min_length": count, "max_length": count, "include_prompt_in_result": False}
            found = [each.sequences[0] for each in model.generate_batch(names, **options)]
        return decoded(folder, [[number[name] for name in row] for row in found], count)

    return write


def ctranslate2_copy(folder: Folder, place: Path) -> Path:
    """By its own converter; a model that Regard trained, by Regard's."""
    if not (place / "model.bin").is_file():
        if (folder.path / "run.toml").is_file():
            from regard.export.to_ctranslate2 import write

            place.mkdir(parents=True, exist_ok=True)
            write(folder, place, "float32")
        else:
            from ctranslate2.converters import TransformersConverter

            TransformersConverter(str(folder.path)).convert(str(place), force=True)
    return place


def vocabulary(copy: Path, side: str) -> list[str]:
    for name in (f"{side}_vocabulary", "shared_vocabulary", "vocabulary"):
        if (copy / f"{name}.json").is_file():
            return list(json.loads((copy / f"{name}.json").read_text("utf-8")))
    raise ValueError(f"{copy}: no vocabulary")


def decoded(folder: Folder, rows: Ids, count: int) -> list[str]:
    check(rows, count)
    return [folder.target.decode(row).strip() for row in rows]


def check(rows: Sequence[Sequence[int]], count: int) -> None:
    if any(len(row) != count for row in rows):
        raise RuntimeError(f"{[*map(len, rows)]} tokens written, not {count} each as was asked for")


# --- transformers -----------------------------------------------------------------------------------------


def transformers(folder: Folder, precision: str) -> Write:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    reads = isinstance(folder.model, EncoderDecoder)
    kind: Any = AutoModelForSeq2SeqLM if reads else AutoModelForCausalLM
    model = kind.from_pretrained(folder.path, dtype=getattr(torch, precision), local_files_only=True).eval()

    def write(texts: Sequence[str], beams: int, count: int) -> list[str]:
        ids = torch.tensor(source_ids(folder, texts))  # of one length
        lengths = {"min_new_tokens": count, "max_new_tokens": count}
        with torch.inference_mode():
            mask = torch.ones_like(ids)
            found = model.generate(ids, attention_mask=mask, num_beams=beams, do_sample=False, **lengths)
        return decoded(folder, found[:, 1 if reads else ids.shape[1] :].tolist(), count)

    return write


# --- llama.cpp --------------------------------------------------------------------------------------------


def llama_cpp(folder: Folder, place: Path, threads: int) -> Write:
    generate = open_llama_cpp(folder.path, token_names(folder.source), place, threads)

    def write(texts: Sequence[str], beams: int, count: int) -> list[str]:
        return [text.strip() for text in generate(source_ids(folder, texts), count)]

    return write
