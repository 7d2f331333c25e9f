"""One of the processes of `parallel.py`: it trains what a job says, and writes down what it did.

python qa/survive/rank.py JOB.json        # under torchrun, or with RANK and WORLD_SIZE set
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])

import regard.training.run as run_module
from qa.survive.common import patched
from qa.survive.runs import SPOILS, has_odd, local, no_end, spoiling, watched
from regard.config import resolve
from regard.training import train
from regard.training.stream import Stream
from regard.training.trainer import Trainer


def worker(job: Path) -> None:
    """Train one run after another as one of several processes; each writes down the samples it takes."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    told = json.loads(job.read_text())
    rank = int(os.environ.get("RANK", "0"))
    if len(told["runs"]) > 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    for run in told["runs"]:
        folder = Path(run["folder"])
        (folder.parent / f"{folder.name}.{rank}.pid").write_text(str(os.getpid()))
        config = None if run["config"] is None else resolve(run["config"])
        own = patched(
            no_end(),
            (Stream, "samples", logging(folder, rank)),
            (run_module, "run_updates", telling(folder, rank)),
        )
        with own, wrong_in(folder, run["spoil"]) as found:
            train(config, folder, resume=run["resume"])
        if found:
            raise SystemExit(f"rank {rank}: {found[0]}")
    if dist.is_initialized():
        dist.destroy_process_group()


def logging(folder: Path, rank: int) -> Any:
    plain = Stream.samples

    def samples(stream: Stream, numbers: list[int]) -> Any:
        own = numbers[stream.rank :: stream.world_size]
        with (folder.parent / f"{folder.name}.{rank}.ids").open("a") as file:
            file.write(json.dumps([stream.epoch, stream.pool, stream.batch, own]) + "\n")
        return plain(stream, numbers)

    return samples


def telling(folder: Path, rank: int) -> Any:
    """In the end: how many updates this process left out, and its weights."""
    plain = run_module.run_updates

    def run(trainer: Trainer, metrics: Any) -> bool:
        finished = plain(trainer, metrics)
        weights = hashlib.sha256()
        for tensor in trainer.model.parameters():
            weights.update(local(tensor).numpy().tobytes())
        result = {"bad": trainer.progress.non_finite, "weights": weights.hexdigest()}
        (folder.parent / f"{folder.name}.{rank}.end").write_text(json.dumps(result))
        return finished

    return run


@contextmanager
def wrong_in(folder: Path, spoil: str | None) -> Iterator[list[str]]:
    """The odd sample is spoilt, for the process that has it; what a bad update changed all the same."""
    if spoil is None:
        yield []
        return
    with spoiling(SPOILS[spoil], has_odd(folder)), watched() as found:
        yield found


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
