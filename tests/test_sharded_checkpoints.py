"""Checkpoints that several ranks wrote: any region of any cut, torch's reader and writer, damage."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import CheckpointError, RegardError
from regard.storage import checkpoint_folder, finish_sharded, load_checkpoint, load_latest, read_manifest
from regard.storage.checkpoint import KINDS, load_weights
from regard.storage.files import new_folder, to_json
from regard.storage.sharded import ShardedTensors, TensorShard, shard_name, write_shard
from regard.training.sharding import local_shards

SHAPES = {"embedding": (11, 4), "bias": (3,), "matrix": (8, 5), "step": ()}


def tensors(seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng, dtype=torch.float64) for name, shape in SHAPES.items()}


def rows_of(full: dict[str, Tensor], rank: int, size: int) -> dict[str, TensorShard]:
    """As FSDP2 cuts: equal portions of the first axis, the last ones smaller or empty; scalars on rank 0."""
    shards = {}
    for name, tensor in full.items():
        if tensor.dim():
            portion = -(-len(tensor) // size)
            part = tensor[rank * portion : (rank + 1) * portion]
            if part.numel():
                shards[name] = TensorShard(part, [rank * portion] + [0] * (tensor.dim() - 1))
        elif rank == 0:
            shards[name] = TensorShard(tensor, [])
    return shards


def write(folder: Path, full: dict[str, Tensor], size: int) -> list[Path]:
    paths = [folder / shard_name("model", rank, size) for rank in range(size)]
    for rank, path in enumerate(paths):
        write_shard(path, rows_of(full, rank, size))
    return paths


@pytest.mark.parametrize("size", [1, 2, 4, 12])
def test_any_region_is_that_of_the_full_tensor(size: int, tmp_path: Path) -> None:
    full = tensors()
    read, rng = ShardedTensors(write(tmp_path, full, size)), random.Random(1)
    assert {name: torch.equal(read[name], full[name]) for name in read} == dict.fromkeys(full, True)
    for _ in range(200):
        name = rng.choice(list(full))
        starts = [rng.randint(0, length) for length in full[name].shape]
        sizes = [rng.randint(0, length - start) for start, length in zip(starts, full[name].shape)]
        expected = full[name][tuple(slice(a, a + n) for a, n in zip(starts, sizes))]
        assert torch.equal(read.region(name, starts, sizes), expected)


def test_tensors_that_all_ranks_have_are_written_once_each_by_one() -> None:
    """The ranks of DDP share the bytes out."""
    full = {f"layer.{number}": torch.zeros(number + 1, 3) for number in range(20)}
    parts = [local_shards(full, rank, 4) for rank in range(4)]
    assert sorted(name for part in parts for name in part) == sorted(full)
    sizes = [sum(each.tensor.nbytes for each in part.values()) for part in parts]
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    """DCP's own reader on our files, ours on those of its `HuggingFaceStorageWriter`."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter

    full = tensors()
    write(tmp_path, full, 3)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in full.items()}
    dcp.load(loaded, storage_reader=HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert all(torch.equal(loaded[name], full[name]) for name in full)
    theirs = tmp_path / "dcp"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(
            full, storage_writer=HuggingFaceStorageWriter(str(theirs), save_distributed=True), no_dist=True
        )
    read = ShardedTensors(sorted(theirs.glob("*.safetensors")))
    assert all(torch.equal(read[name], full[name]) for name in full) and read.keys() == full.keys()


def checkpoint(run: Path, step: int, size: int) -> Path:
    final, files = checkpoint_folder(run, step), {}
    with new_folder(final) as folder:
        for kind, full in zip(KINDS, (tensors(step), tensors(-step))):
            for rank in range(size):
                name = shard_name(kind, rank, size)
                files[name] = write_shard(folder / name, rows_of(full, rank, size))
        finish_sharded(final, folder, {"step": step}, files)
    return final


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_noticed_and_the_checkpoint_before_is_used(seed: int, tmp_path: Path) -> None:
    run, rng, log = tmp_path, random.Random(seed), list[str]()
    size = rng.randint(1, 4)
    for step in (1, 2):
        checkpoint(run, step, size)
    last = checkpoint_folder(run, 2)
    assert load_checkpoint(last).state == {"step": 2}
    victim = last / rng.choice([*read_manifest(last), "manifest.json"])
    content = bytearray(victim.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    rng.choice([lambda: victim.write_bytes(content), victim.unlink])()
    found = load_latest(run, log.append)
    assert found is not None and found.state == {"step": 1} and len(log) == 1 and str(last) in log[0]
    assert all(torch.equal(found.model[name], each) for name, each in tensors(1).items())


def test_weights_alone_do_not_read_the_optimizer(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 5, 3)
    (folder / shard_name("optimizer", 1, 3)).write_bytes(b"damaged")
    assert {name: torch.equal(each, tensors(5)[name]) for name, each in load_weights(folder).items()} == (
        dict.fromkeys(SHAPES, True)
    )
    with pytest.raises(CheckpointError, match="optimizer-00002"):
        load_checkpoint(folder)


def test_parts_that_rank_0_does_not_see_are_an_error(tmp_path: Path) -> None:
    """Each machine has a disk of its own under the same name."""
    with pytest.raises(RegardError) as caught:
        finish_sharded(
            tmp_path / "step-1", tmp_path, {}, {shard_name("model", 1, 2): {"bytes": 9, "sha256": ""}}
        )
    assert caught.value.code == "E_RUN_SHARED"


@pytest.mark.parametrize(
    "offsets",
    ["[", "{}", '{"a": {"saved_offsets": [0]}}', '{"a": {"saved_offsets": [-1, 0]}}', '{"a": 3}', "[1]",
     '{"a": {"saved_offsets": [4611686018427387904, 0]}}', '{"a": {"saved_offsets": [true, 0]}}'],
)  # fmt: skip
def test_offsets_of_strangers_are_refused_before_memory_is_taken(offsets: str, tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, 2)}, tmp_path / "x.safetensors", {"DCP_SHARDING_INFO": offsets})
    with pytest.raises(CheckpointError):
        ShardedTensors([tmp_path / "x.safetensors"])


def test_a_missing_or_double_part_is_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, tensors(), 3)
    for wrong in (paths[1:], [*paths, paths[0]]):
        with pytest.raises(CheckpointError, match="do not make a whole"):
            ShardedTensors(wrong)
    manifest = json.loads((checkpoint(tmp_path, 7, 2) / "manifest.json").read_text())
    parts = [shard_name(kind, rank, 2) for kind in KINDS for rank in (0, 1)]
    assert list(manifest["files"]) == [*parts, "state.json"]
    for missing in parts:  # without the last part a tensor would only seem shorter
        names = [name for name in manifest["files"] if name != missing]
        content = {"step": 7, "files": {name: manifest["files"][name] for name in names}}
        (tmp_path / "checkpoints/step-7/manifest.json").write_text(to_json(content))
        with pytest.raises(CheckpointError, match="not a manifest"):
            load_checkpoint(tmp_path / "checkpoints/step-7")
