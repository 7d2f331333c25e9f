"""Train a run by ranks that Ray Train starts, on one machine or on a cluster.

    python recipes/cluster/ray_train.py run.toml runs/first --workers 2

A worker that dies ends all of them; Ray starts them again, and the run goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def train_rank(job: dict[str, Any]) -> None:
    """What each worker runs; Ray Train has set RANK, WORLD_SIZE and the address of rank 0."""
    import regard

    regard.train(job["config"], job["output"], resume=True)


def main() -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="one for each worker")
    given = parser.parse_args()
    job = {"config": str(given.config.resolve()), "output": str(given.output.resolve())}
    TorchTrainer(
        train_rank,
        train_loop_config=job,
        torch_config=TorchConfig(backend=None if given.gpus else "gloo"),
        scaling_config=ScalingConfig(num_workers=given.workers, use_gpu=given.gpus),
        run_config=RunConfig(
            name="regard",
            storage_path=f"{given.output.resolve().parent}/ray",
            failure_config=FailureConfig(max_failures=3),
        ),
    ).fit()


if __name__ == "__main__":
    main()
