"""Train on a corpus larger than one wants in memory: preparation, memory, data's share of a step, order.

    python -m bench.large --pairs 20000000 --steps 300

The pairs are made by the phrasebook and kept as shards in the user's cache (REGARD_CACHE), so a second run
begins at once.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.rounds import arguments, held, show
from regard.config import resolve
from regard.data.cache import entries, size
from regard.training import train
from regard.training.listeners import Listener, Record
from regard.training.prepare import TrainingData, prepare_data
from regard.training.stream import Stream


class Teller(Listener):
    def log(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def record(self, record: Record) -> None:
        if record["kind"] == "train":
            print(f"step {record['step']}: {record['tokens_per_second']:,.0f} tokens/s", file=sys.stderr)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def walk(data: TrainingData, tokens: int, batches: int) -> tuple[float, int]:
    """Milliseconds a batch, and batches that differ after opening the stream anew at their place."""
    ask = data.objective
    stream = Stream(data.training, ask, tokens, seed=1)
    different, began, checked = 0, time.perf_counter(), 0.0
    for number in range(batches):
        place = stream.epoch, stream.pool, stream.batch
        batch = stream.next()
        if number % (batches // 10) == 0:
            since = time.perf_counter()
            again = Stream(data.training, ask, tokens, 1, *place).next()
            same = batch.source is not None and again.source is not None
            different += not (same and batch.source.ids.equal(again.source.ids))  # type: ignore[union-attr]
            checked += time.perf_counter() - since
    return 1000 * (time.perf_counter() - began - checked) / batches, different


def main() -> None:
    parser = arguments(__doc__, model=False)
    parser.add_argument("--pairs", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batches", type=int, default=5000, help="walked without a model")
    options = parser.parse_args()
    tree = {
        "task": {"source": "en", "target": "de"},
        "data": {"train": f"phrasebook:{options.pairs}"},
        "text": {"vocabulary": 8000},
        "model": {"preset": "transformer-tiny"},
        "train": {"steps": options.steps, "checkpoint_every": options.steps, "validate_sentences": 0},
    }
    config = resolve(tree)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, object] = {"pairs": options.pairs, "seed": 1}
        for start in ("first_start_seconds", "second_start_seconds"):
            began = time.perf_counter()
            data = prepare_data(config, folder / "prepared", Teller().log)
            figures[start] = round(time.perf_counter() - began, 2)
            figures[start.replace("seconds", "peak_mib")] = held("VmHWM")
        figures["on_disk_mib"] = round(sum(map(size, entries())) / 2**20, 1)
        figures["batch_ms"], figures["batches_different"] = walk(data, 4096, options.batches)
        train(config, folder / "whole", listeners=[Teller()])
        figures["resident_mib"], figures["peak_mib"] = held("VmRSS"), held("VmHWM")  # of one run
        half = config.model_copy(
            update={"train": config.train.model_copy(update={"steps": options.steps // 2})}
        )
        train(half, folder / "cut", listeners=[Teller()])
        train(config, folder / "cut", resume=True, listeners=[Teller()])
        last = json.loads((folder / f"whole/checkpoints/step-{options.steps}/state.json").read_text())
        figures["data_share_of_update"] = round(last["waiting"] / last["updating"], 5)
        models = [folder / part / "checkpoints" / f"step-{options.steps}" for part in ("whole", "cut")]
        figures["resumed_equal"] = all(
            digest(models[0] / file) == digest(models[1] / file)
            for file in ("model.safetensors", "optimizer.safetensors")
        )
    show(figures, options.json)


if __name__ == "__main__":
    main()
