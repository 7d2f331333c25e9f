"""Modules and tensors that are divided among ranks; only several processes import this file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from regard.batch import Batch
from regard.models.transformer import Block
from regard.storage.sharded import TensorShard
from regard.training.distributed import Gradients, LossFunction


class LossModule(nn.Module):
    """The loss as one module from batch to number, which torch can distribute."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch)


def shard(module: LossModule, device: torch.device, gradients: Gradients = "auto") -> nn.Module:
    """FSDP2: each rank holds a shard of weights, gradients and optimizer state; blocks are gathered on use.

    Of a decoder block only the feed-forward is a unit: the cross-attention's keys and values are computed
    outside of the block's forward.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # it warns about blocks whose output is changed in place afterwards, which happens nowhere here
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if gradients == "bfloat16" else None)
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for part in list(module.modules()):
        if isinstance(part, Block):
            fully_shard(part if part.cross is None else part.feed_forward, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    return module


def local_shards(tensors: Mapping[str, Tensor], rank: int, world_size: int) -> dict[str, TensorShard]:
    """What this rank writes: its part of sharded tensors, and a share of those that every rank has."""
    shards, written = {}, [0] * world_size  # bytes of each rank
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].nbytes, item[0])):
        if hasattr(tensor, "device_mesh"):
            sharded: Any = tensor
            local = sharded.to_local()
            if local.numel():
                shards[name] = TensorShard(local, list(sharded.__create_chunk_list__()[0].offsets))
            continue
        writer = written.index(min(written))
        written[writer] += tensor.nbytes
        if writer == rank:
            shards[name] = TensorShard(tensor, [0] * tensor.dim())
    return shards
