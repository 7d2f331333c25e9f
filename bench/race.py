"""Regard against other programs: the same model, interleaved in one process, medians of the rounds' ratios.

    python -m bench.race generate [--shapes gpt2 llama] [-m FOLDER] [--cells 1x1 8x1] [--json]
    python -m bench.race translate [--shapes marian-32000] [-m FOLDER] [--cells 1x1 32x4] [--cold]
    python -m bench.race embed -m FOLDER [--texts FILE] [--count 512]
    python -m bench.race transcribe -m FOLDER --ctranslate2 FOLDER --files talk.wav [--words]
    python -m bench.race train --preset transformer-tiny --against transformers --against torch.nn

The shapes have random weights, made by transformers at the first use in the folder --cache; -m is a real
model. A cell is texts x beams; every program writes exactly --tokens tokens for each text of --source tokens
(end included), so speed is compared and nothing else. Rivals are CTranslate2, transformers, ONNX Runtime and
llama.cpp (xllamacpp), each where it is installed, all with --threads threads. First come this machine's
limits: bytes read a second, and operations a second of matrix products. For a single greedy text the share of
the bandwidth limit is (bytes of weights that a token reads) * (tokens a second) / (bytes a second).
With --cold each program translates one text after another in a fresh process: the first 200 steps.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bench import embedders, speech
from bench.embedders import Embed, open_embedder
from bench.learners import learners, see_that_they_can
from bench.rivals import (
    BYTES,
    PRECISIONS,
    Writer,
    can_run,
    installed,
    open_writer,
    weights_read,
    writer_in_process,
)
from bench.rounds import Process, Runner, arguments, limits, race, report, seconds
from bench.shapes import SHAPES, make_folder
from regard.cli.bench import runs_of, sentences
from regard.config import Config
from regard.data.files import DATA_VARIABLE, find, lines
from regard.errors import UsageError
from regard.models.transformer import EncoderDecoder
from regard.storage import Folder, open_folder
from regard.tasks.embedder import similarity
from regard.training.run import open_trainer

COLD = 200  # steps
TEXTS = ["data:multi30k/val.en.gz", "data:text/wikitext-2.valid.raw.gz"]  # short and long ones
DECODING: dict[str, dict[str, Any]] = {  # what generate and translate do unless asked otherwise
    "generate": {
        "usual": ["gpt2", "llama", "stories15m", "t5-small"],
        "cells": ["1x1", "8x1"],
        "source": 16,
        "tokens": 64,
    },
    "translate": {
        "usual": ["marian-32000", "marian-58000"],
        "cells": ["1x1", "1x4", "32x1", "32x4"],
        "source": 25,
        "tokens": 32,
    },
}


def decode(given: argparse.Namespace) -> None:
    """Models that write: one race for each model and cell."""
    bandwidth = limits(given.threads, given.json)
    with tempfile.TemporaryDirectory() as name:
        models = [(path.name, path, Path(name) / str(number)) for number, path in enumerate(given.model)]
        shapes = given.shapes if given.shapes or given.model else given.usual
        models += [(shape, make_folder(shape, given.cache), given.cache / shape) for shape in shapes]
        for title, path, place in models:
            folder = open_folder(path)
            entrants = [
                (program, precision)
                for program in ("regard", *given.against)
                for precision in (given.precision if program == "regard" else PRECISIONS[program])
                if can_run(program, folder)
            ]
            if given.cold:
                cold(title, entrants, path, place, given)
                continue
            opening = open_writer if given.one_process else writer_in_process
            opened = {" ".join(each): opening(*each, path, place, given.threads) for each in entrants}
            for cell in given.cells:
                run_cell(f"{title} {cell}", cell, folder, opened, bandwidth, given)


def run_cell(
    title: str,
    cell: str,
    folder: Folder,
    opened: dict[str, Writer],
    bandwidth: float,
    given: argparse.Namespace,
) -> None:
    rows, beams = (int(each) for each in cell.split("x"))
    texts, written = texts_of(folder, rows, given.source), dict[str, list[str]]()

    def work(name: str) -> int:
        written[name] = opened[name].write(texts, beams, given.tokens)
        return rows * given.tokens

    speeds = race({name: partial(work, name) for name in opened}, given.rounds)
    first = written[next(iter(opened))]
    more: dict[str, dict[str, float]] = {}
    for name, own in opened.items():
        more[name] = {"equal texts": sum(map(str.__eq__, written[name], first)) / rows}
        if rows == beams == 1:
            read = weights_read(folder) * BYTES[own.precision]
            more[name]["of bandwidth"] = statistics.median(speeds[name]) * read / bandwidth
    report(title, speeds, given.json, more=more)


def texts_of(folder: Folder, rows: int, count: int) -> list[str]:
    """Texts of exactly so many tokens, the end included that an encoder reads."""
    count -= isinstance(folder.model, EncoderDecoder)
    text, texts = " ".join(sentences()), list[str]()
    _, spans = folder.source.spans(text)
    for (begin, _), (_, end) in zip(spans, spans[count - 1 :]):
        part = text[begin:end].strip()
        if len(folder.source.encode(part)) == count and part not in texts:
            texts.append(part)
        if len(texts) == rows:
            return texts
    raise UsageError(f"{folder.path}: no {rows} texts of {count} tokens")


def cold(
    title: str, entrants: Sequence[tuple[str, str]], path: Path, place: Path, given: argparse.Namespace
) -> None:
    """Steps a second from the first text on, in a process of its own for each measurement."""
    speeds: dict[str, list[float]] = {" ".join(each): [] for each in entrants}
    for _ in range(given.rounds):
        for each in entrants:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                work = (*each, path, place, given.threads, given.source, given.tokens)
                speeds[" ".join(each)].append(pool.apply(first_steps, work))
    report(f"{title}, first {COLD} steps", speeds, given.json, "steps/s")


def first_steps(
    program: str, precision: str, path: Path, place: Path, threads: int, source: int, tokens: int
) -> float:
    torch.set_num_threads(threads)
    opened = open_writer(program, precision, path, place, threads)
    texts = texts_of(open_folder(path), -(-COLD // tokens), source)
    return len(texts) * tokens / seconds(lambda: [opened.write([text], 1, tokens) for text in texts])


def embed(given: argparse.Namespace) -> None:
    """Vectors of many texts at once, and of one text at a time."""
    limits(given.threads, given.json)
    texts = mixed_texts(given.texts, given.count)
    opening = open_embedder if given.one_process else partial(Process, open_embedder)
    with tempfile.TemporaryDirectory() as name:
        opened = {
            f"{program} {precision}": opening(program, precision, given.model, Path(name), given.threads)
            for program in ("regard", *given.against)
            for precision in (given.precision if program == "regard" else embedders.PRECISIONS[program])
        }
        vectors = {name: run(texts) for name, run in opened.items()}
    exact = next(iter(vectors.values()))
    more: dict[str, dict[str, float]] = {
        name: {"least cosine": min(map(similarity, exact, found))} for name, found in vectors.items()
    }
    runners = {name: partial(count_of, run, texts) for name, run in opened.items()}
    report(f"{len(texts)} texts", race(runners, given.rounds), given.json, "texts/s", more)
    short = sorted(texts, key=len)[: max(1, len(texts) // 16)]
    runners = {name: partial(count_of, partial(one_by_one, run), short) for name, run in opened.items()}
    speeds = race(runners, given.rounds)
    more = {name: {"ms": 1000 / statistics.median(found)} for name, found in speeds.items()}
    report("one short text", speeds, given.json, "texts/s", more)


def count_of(run: Callable[[Sequence[str]], object], texts: Sequence[str]) -> int:
    run(texts)
    return len(texts)


def one_by_one(run: Embed, texts: Sequence[str]) -> None:
    for text in texts:
        run([text])


def mixed_texts(paths: Sequence[str], count: int) -> list[str]:
    """Equal shares of the files; without corpora, phrasebook sentences."""
    paths = paths or (TEXTS if os.environ.get(DATA_VARIABLE) else [])
    if not paths:
        return sentences(count=count)
    share = -(-count // len(paths))
    texts = [islice((line for line in lines(find(path)) if line.strip()), share) for path in paths]
    return [text for some in texts for text in some][:count]


def train(given: argparse.Namespace) -> None:
    for name, config in runs_of(given.config, given.preset, given.set).items():
        see_that_they_can(given.against, config.model)
        with tempfile.TemporaryDirectory() as folder:
            speeds = race(updates(config, Path(folder), given.against), given.rounds)
            report(f"{name}, target tokens", speeds, given.json)


def updates(config: Config, folder: Path, programs: Sequence[str]) -> dict[str, Runner]:
    """One update of each program on the same batches; a runner returns its target tokens."""
    trainer = open_trainer(config, folder)
    data, device = trainer.data, trainer.machine.device
    others = learners(programs, config, data.source, data.target, device)
    streams = {name: replace(trainer.stream) for name in others}  # each gives the same batches as ours

    def theirs(name: str) -> int:
        batches = [streams[name].next() for _ in range(config.train.accumulate)]
        others[name](batches)
        return sum(batch.target.count for batch in batches if batch.target is not None)

    runners: dict[str, Runner] = {"regard": lambda: trainer.update().tokens}
    return runners | {name: partial(theirs, name) for name in others}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, kinds in DECODING.items():
        one = commands.add_parser(name, parents=[arguments(None, 5, model=False)], add_help=False)
        one.set_defaults(run=decode, cold=False, **kinds)
        one.add_argument(
            "-m", "--model", type=Path, action="append", default=[], help="a real model's folder"
        )
        one.add_argument("--shapes", nargs="+", choices=SHAPES, default=[])
        one.add_argument("--cells", nargs="+", help="texts x beams")
        one.add_argument("--source", type=int, help="tokens of a text")
        one.add_argument("--tokens", type=int, help="tokens to write")
        one.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "regard-race")
        share(one, [program for program in PRECISIONS if installed(program)])
        if name == "translate":
            one.add_argument("--cold", action="store_true", help=f"the first {COLD} steps of a fresh process")
    vectors = commands.add_parser("embed", parents=[arguments(None, 5)], add_help=False)
    vectors.add_argument("--texts", nargs="+", default=[], help="files of lines; data:FILE is in REGARD_DATA")
    vectors.add_argument("--count", type=int, default=512)
    share(vectors, [program for program in embedders.PRECISIONS if installed(program)])
    vectors.set_defaults(run=embed)
    speech.add_command(commands)
    two = commands.add_parser("train", parents=[arguments(None, 20, model=False)], add_help=False)
    two.add_argument("config", type=Path, nargs="?")
    two.add_argument("--preset", action="append", default=[])
    two.add_argument("--set", action="append", default=[])
    two.add_argument("--against", action="append", default=[], required=True)
    two.set_defaults(run=train)
    given = parser.parse_args(words)
    given.run(given)


def share(parser: argparse.ArgumentParser, programs: Sequence[str]) -> None:
    parser.add_argument("--against", nargs="*", choices=programs, default=programs)
    parser.add_argument("--precision", nargs="+", default=["auto", "float32", "int8"], help="Regard's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one-process", action="store_true", help="all programs in this process")


if __name__ == "__main__":
    main()
