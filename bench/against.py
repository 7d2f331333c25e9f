"""The same model in other programs, interleaved in one process: decoding and training.

    python -m bench.against decode -m runs/demo --beam 1 --beam 4 --against ctranslate2 --against transformers
    python -m bench.against train --preset transformer-tiny --against transformers --against torch.nn
    python -m bench.against train run.toml --set train.tokens_per_batch=2048 --against transformers

Medians over rounds (updates, when training), and the ratio of the medians of rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from bench.learners import learners, see_that_they_can
from bench.race import Runner, arguments, race, report
from bench.rivals import PROGRAMS, rival
from regard.batch import Batch
from regard.cli.bench import decoder, read, runs_of, sentences
from regard.config import Config
from regard.errors import UsageError
from regard.inputs.text import split_sentences
from regard.training.run import open_trainer


def decode(given: argparse.Namespace) -> None:
    """Other programs do not split texts into sentences, so all programs get single sentences."""
    texts = sentences() if given.file is None else read(given.file)
    texts = [part for text in texts[: given.texts] for part, _ in split_sentences(text) if part]
    for beam in given.beam or [1, 4]:
        runners: dict[str, Runner] = {
            f"regard {precision}": decoder(given.model, texts, precision, beam, "cpu", given.threads)
            for precision in given.precision or ["float32"]
        }
        for program in given.against:
            if program not in PROGRAMS:
                raise UsageError(f"--against {program}: choose among {', '.join(PROGRAMS)}")
            for precision in PROGRAMS[program]:
                runners[f"{program} {precision}"] = rival(program, precision, given.model, texts, beam)
        finish(f"{len(texts)} sentences, {beam} beams", runners, given)


def train(given: argparse.Namespace) -> None:
    for name, config in runs_of(given.config, given.preset, given.set).items():
        see_that_they_can(given.against, config.model)
        with tempfile.TemporaryDirectory() as folder:
            finish(f"{name}, target tokens", updates(config, Path(folder), given.against), given)


def updates(config: Config, folder: Path, programs: Sequence[str]) -> dict[str, Runner]:
    """One update of each program on the same batches; a runner returns its target tokens."""
    trainer = open_trainer(config, folder)
    data, device = trainer.data, trainer.machine.device
    others = learners(programs, config, data.source, data.target, device)
    streams = {name: replace(trainer.stream) for name in others}  # each gives the same batches as ours

    def theirs(name: str) -> int:
        batches = [streams[name].next() for _ in range(config.train.accumulate)]
        others[name](batches)
        return sum(count(batch) for batch in batches)

    runners: dict[str, Runner] = {"regard": lambda: trainer.update().tokens}
    return runners | {name: lambda name=name: theirs(name) for name in others}


def count(batch: Batch) -> int:
    return batch.target.count if batch.target is not None else 0


def finish(title: str, runners: dict[str, Runner], given: argparse.Namespace) -> None:
    speeds = race(runners, given.rounds)
    ours, others = ([n for n in runners if n.startswith("regard") == own] for own in (True, False))
    for mine, other in product(ours, others):
        report(title, speeds, mine, other, given.json)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("decode", parents=[arguments(None, 3)], add_help=False)
    one.add_argument("--file", type=Path)
    one.add_argument("--texts", type=int, default=200)
    one.add_argument("--beam", type=int, action="append")
    one.add_argument("--precision", action="append")
    one.add_argument("--threads", type=int, default=0)
    one.set_defaults(run=decode)
    two = commands.add_parser("train", parents=[arguments(None, 20, model=False)], add_help=False)
    two.add_argument("config", type=Path, nargs="?")
    two.add_argument("--preset", action="append", default=[])
    two.add_argument("--set", action="append", default=[])
    two.set_defaults(run=train)
    for each in (one, two):
        each.add_argument("--against", action="append", default=[], required=True)
    given = parser.parse_args(words)
    given.run(given)


if __name__ == "__main__":
    main()
