"""One rank of `trial.bytes_of_base`: one update of the base model, and the bytes that the rank then holds.

python qa/cluster/memory.py JOB.json        # with RANK and WORLD_SIZE set, or alone
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])

import torch

from qa.survive.runs import local
from regard.batch import Batch, Tokens
from regard.config import resolve
from regard.models.families import build, build_meta
from regard.training.distributed import connect
from regard.training.loss import cross_entropy
from regard.training.optimizer import make_optimizer

VOCABULARY = 37_000


def measure(parallel: Any, out: str) -> None:
    config = resolve(
        {"data": {"train": "phrasebook"}, "model": {"preset": "transformer-base", "dropout": 0.0}}
    )
    torch.set_num_threads(1)
    device = torch.device("cpu")
    ids = torch.arange(12).reshape(2, 6) + 5
    tokens = Tokens(ids, torch.arange(6).expand(2, 6))
    with connect(device, config) as dist:
        is_meta = dist.shards(parallel)
        weights = dict(build(config.model, VOCABULARY).named_parameters()) if dist.is_rank0 else {}
        model = (build_meta if is_meta else build)(config.model, VOCABULARY)
        loss = dist.wrap(model, lambda batch: cross_entropy(model.forward(batch), ids), parallel, device)
        dist.fill_shards(model, weights)
        weights.clear()
        optimizer = make_optimizer(model, config.train)
        loss(Batch(tokens, tokens, ids)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        held = [*model.parameters(), *(each.grad for each in model.parameters() if each.grad is not None)]
        held += [value for state in optimizer.state.values() for value in state.values()]
        total = sum(local(tensor).nbytes for tensor in held)
        Path(f"{out}.{dist.rank}").write_text(str(total))


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    measure(job["parallel"], job["out"])
