"""Validation: bounded memory, and the same scores however many processes share the work."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import resolve
from regard.data.batches import MASKS, generator
from regard.data.objectives import MaskedLM
from regard.evaluation import run_config
from regard.generation.score import TOKENS_PER_BATCH
from regard.models.families import build
from regard.models.positions import Learned, Sinusoidal
from regard.sample import IGNORED
from regard.storage import checkpoint_folder, checkpoint_steps
from regard.training import train
from regard.training.distributed import SingleProcess
from regard.training.evaluation import labelled_positions
from regard.training.evaluation.language import MaskedLMEvaluation
from regard.training.prepare import prepare_data
from regard.training.stream import Stream
from toys import task_config

CPU = torch.device("cpu")


class Ranks(SingleProcess):
    """Divides work as several ranks do, one after another; results travel as JSON."""

    def __init__(self, world_size: int) -> None:
        self.parts: list[int] = []
        self.world_size = world_size

    def map_sharded(self, items: Sequence[Any], work: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
        results: list[Any] = [None] * len(items)
        for rank in range(self.world_size):
            part = items[rank :: self.world_size]
            self.parts.append(len(part))
            results[rank :: self.world_size] = json.loads(json.dumps(work(part)))
        return results


@pytest.mark.usefixtures("same_threads")
@pytest.mark.parametrize("task", ["classify", "tag", "answer", "fill"])
def test_the_ranks_share_a_validation_and_agree_with_one(task: str, tmp_path: Path) -> None:
    """Each process evaluated all texts of these tasks; only translations were divided."""
    config = task_config(task, tmp_path, steps=1)
    data = prepare_data(config, tmp_path / "run", lambda text: None)
    torch.manual_seed(1)
    model = build(config.model, len(data.source), len(data.labels) or None).eval()
    ranks = Ranks(3)
    alone = data.valid.validate(model, 5, 1)
    shared = data.valid.validate(model, 5, 1, ranks)
    assert shared == alone
    assert len(ranks.parts) == 3 and max(ranks.parts) < sum(ranks.parts) / 2


@pytest.mark.usefixtures("same_threads")
def test_validating_a_masked_model_keeps_the_logits_of_one_batch(tmp_path: Path) -> None:
    """The logits of every token of the validation data were in memory at once: 8 GB for 1 MB of text."""
    config = task_config("fill", tmp_path, steps=1)
    data = prepare_data(config, tmp_path / "run", lambda text: None)
    assert isinstance(data.valid, MaskedLMEvaluation) and isinstance(data.objective, MaskedLM)
    evaluation = MaskedLMEvaluation(data.objective, list(data.valid.examples) * 20)
    vocabulary, held = len(data.source), list[int]()

    def model(batch: Any) -> torch.Tensor:
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        held.append(sum(each.numel() for each in tensors if each.shape[-1:] == (vocabulary,)))
        return torch.randn(*batch.source.ids.shape, vocabulary)

    model.parameters = lambda: iter([torch.zeros(1)])  # type: ignore[attr-defined]
    _, outputs = evaluation.predict(model)  # type: ignore[arg-type]
    assert len(held) > 10, "several batches"
    assert max(held) <= 2 * TOKENS_PER_BATCH * vocabulary
    assert [len(each) for each in outputs] == [len(labelled_positions(each)) for each in evaluation.samples]
    assert all(sample.labels.count(IGNORED) < len(sample.labels) for sample in evaluation.samples)


def test_positions_of_a_training_batch_are_not_read_from_the_device() -> None:
    """`int(positions.max())` waited for the GPU in every forward. Reading a meta tensor is an error."""
    positions = torch.zeros(2, 5, dtype=torch.int64, device="meta")
    for layer in (Sinusoidal(8, 16), Learned(8, 16)):
        assert layer.to("meta").train()(positions).shape == (2, 5, 8)


def test_a_resumed_run_reads_the_state_of_version_1(tmp_path: Path) -> None:
    """state.json keeps its field names: checkpoints of earlier versions resume, and those of this one too."""
    config = resolve(task_config("classify", tmp_path, steps=2, checkpoint_every=2).model_dump(by_alias=True))
    train(config, tmp_path / "run")
    state = json.loads(
        (
            checkpoint_folder(tmp_path / "run", checkpoint_steps(tmp_path / "run")[-1]) / "state.json"
        ).read_text()
    )
    names = "step epoch pool place tokens flops seconds updating waiting validating saving best_step"
    names += " best_score best_loss worse bad bad_in_a_row spikes usual backs backs_in_a_row trouble data"
    assert set(state) == set(names.split())


@pytest.mark.parametrize("version", [2, 3])
def test_masked_tokens_do_not_depend_on_the_world_size(version: int, tmp_path: Path) -> None:
    """Every rank drew for the rows of all ranks. Runs of version 2 still do, so that they keep their bits."""
    config = task_config("fill", tmp_path, steps=1)
    data = prepare_data(config, tmp_path / "run", lambda text: None)
    whole = Stream(data.training, data.objective, 512, 7, version=version)
    numbers = whole.batches[0].tolist()
    samples = whole.samples(numbers)
    assert len(numbers) > 3 and any(sample.labels for sample in samples)
    for rank in range(2):
        share = Stream(data.training, data.objective, 512, 7, rank=rank, world_size=2, version=version)
        assert share.samples(numbers) == samples[rank::2]
    rng = generator(7, 0, 1, MASKS, 0)
    in_order = [whole.rows.sample(number, rng) for number in numbers]
    assert (samples == in_order) == (version == 2)
    assert (whole.samples(numbers[::-1])[::-1] == samples) == (version == 3), "whatever the batch"


def test_what_a_built_in_model_says_of_its_run_is_enough(tmp_path: Path) -> None:
    """Its run.toml has a task and no data: there is no run to take a test set from, and that is no error."""
    (tmp_path / "run.toml").write_text('version = 3\n\n[task]\nname = "tag"\n', encoding="utf-8")
    assert run_config(tmp_path) is None
