"""torch.distributed behind one object; only this file, `peers.py` and `sharding.py` import it.

`connect` gives `SingleProcess`, or `Distributed` in a process that torchrun started; both have the same
methods, and the object is passed to whatever needs it. Rank 0 alone prepares data, writes files and logs;
all ranks see the same folders. Imports that only several processes need stay inside functions: they take a
second.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore

from regard.batch import Batch
from regard.config import Config
from regard.device import available_cores
from regard.errors import CollectiveError, PeerError, RegardError
from regard.storage.weights import assign_parameters

if TYPE_CHECKING:
    from regard.training.peers import Peers

Item = TypeVar("Item")
Result = TypeVar("Result")
Module = TypeVar("Module", bound=nn.Module)
Parallel = Literal["auto", "ddp", "fsdp"]
Gradients = Literal["auto", "bfloat16"]  # how ranks exchange them
LossFunction = Callable[[Batch], Tensor]
_connections = itertools.count()  # of this process, one after the other


class SingleProcess:
    """One process: rank 0 of 1."""

    rank, world_size = 0, 1

    @property
    def is_rank0(self) -> bool:
        return self.rank == 0

    def shards(self, parallel: Parallel) -> bool:
        """Whether a run divides its weights among the ranks: its model is then built on the meta device."""
        return False

    def wrap(
        self,
        model: nn.Module,
        loss: LossFunction,
        parallel: Parallel,
        device: torch.device,
        gradients: Gradients = "auto",
    ) -> LossFunction:
        """Move the model to `device`; return the loss whose backward averages gradients over all ranks.

        `gradients` is the precision in which the ranks exchange them, by default that of the weights.
        Call it before creating the optimizer: parameters may become shards.
        """
        model.to(device)
        return loss

    def fill_shards(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Give a model on the meta device, now divided, the weights of rank 0; others pass none."""

    def warm_up(self, loss: Callable[[], Tensor]) -> None:
        """Let the first backward pass be one from which nothing is learned."""

    def gradient_sync(self, enabled: bool) -> AbstractContextManager[object]:
        """Context of one backward pass; of accumulated batches only the last synchronises gradients."""
        return nullcontext()

    def all_reduce(self, *numbers: float) -> Sequence[float]:
        """Sums over all ranks."""
        return numbers

    def any(self, flag: bool) -> bool:
        return self.all_reduce(float(flag))[0] > 0

    def unsharded(self, model: Module) -> Module:
        """The model with full weights in this process, for evaluation. All ranks must call it."""
        return model

    def on_rank0(self, work: Callable[[], Result]) -> Result:
        """Run `work` on rank 0 while the others wait; all get its result, which must be plain JSON."""
        return work()

    def rank0_first(self, work: Callable[[], Result]) -> Result:
        """Run `work` on all ranks, first on rank 0: the others find the files it wrote."""
        return work()

    def map_sharded(
        self, items: Sequence[Item], work: Callable[[Sequence[Item]], list[Result]]
    ) -> list[Result]:
        """`work(items)` with the items divided among the ranks; results must be plain JSON."""
        return work(items)

    def gather(self, work: Callable[[], Result]) -> list[Result]:
        """Run `work` on all ranks; the results of all, which must be plain JSON. If it fails on one of them,
        all raise an error that names it."""
        return [work()]

    def agree(self, facts: dict[str, Any]) -> None:
        """Raise on all ranks if one of them has other facts than rank 0."""

    def can_save_after(self, error: Exception) -> bool:
        """Whether a checkpoint can still be saved together after this error."""
        return True


class Distributed(SingleProcess):
    """One of several processes that torchrun started."""

    def __init__(self, device: torch.device, peers: Peers) -> None:
        self.device, self.peers = device, peers
        self.rank, self.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.objects = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=peers.timeout))
        self.module: Any = None
        self.skeleton: nn.Module | None = None  # fsdp: the model without memory for its weights

    def shards(self, parallel: Parallel) -> bool:
        return parallel == "fsdp"

    def wrap(
        self,
        model: nn.Module,
        loss: LossFunction,
        parallel: Parallel,
        device: torch.device,
        gradients: Gradients = "auto",
    ) -> LossFunction:
        from regard.training.sharding import LossModule, shard

        if self.shards(parallel):
            self.skeleton = deepcopy(model)  # on the meta device: its parameters take no memory
            self.module = shard(LossModule(model, loss), device, gradients)
        else:
            from torch.nn.parallel import DistributedDataParallel

            model.to(device)
            self.module = DistributedDataParallel(
                LossModule(model, loss), forward_sync_buffers=False, gradient_as_bucket_view=True
            )
            if gradients == "bfloat16":
                from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

                # torch refuses the function itself where there is no NCCL, by its name
                self.module.register_comm_hook(None, lambda state, bucket: bf16_compress_hook(state, bucket))
        wrapped: LossFunction = self.module
        return wrapped

    def fill_shards(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """One parameter after the other: no rank but 0 ever holds more than one of them in full."""
        if self.skeleton is None:
            return
        from torch.distributed.tensor import distribute_tensor

        def local(name: str, parameter: Any) -> Tensor:
            full = torch.empty(parameter.shape, dtype=parameter.dtype, device=self.device)
            if self.is_rank0:
                full.copy_(weights[name].detach())
            return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=0)

        assign_parameters(model, model, local)
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.to(self.device))

    def warm_up(self, loss: Callable[[], Tensor]) -> None:
        """DDP orders its buckets by the first backward pass, and a sum of three or more ranks depends on a
        number's place in them: the first update after a resume must have the same order as any other."""
        if self.skeleton is None:
            self.module.train()
            loss().backward()  # type: ignore[no-untyped-call]
            self.module.zero_grad(set_to_none=True)

    @contextmanager
    def gradient_sync(self, enabled: bool) -> Iterator[None]:
        if self.skeleton is not None:
            self.module.set_requires_gradient_sync(enabled)
        with self.module.no_sync() if self.skeleton is None and not enabled else nullcontext():
            yield

    def all_reduce(self, *numbers: float) -> Sequence[float]:
        self.peers.operations += 1
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        sums: list[float] = total.tolist()
        return sums

    def unsharded(self, model: Module) -> Module:
        """With FSDP a temporary copy, on the device if it fits there, else on the CPU."""
        if self.skeleton is None:
            return model
        copy: Any = deepcopy(self.skeleton)
        assign_parameters(copy, model, lambda name, shard: full_tensor(shard).detach().cpu())
        try:
            copy.to(self.device)
        except torch.OutOfMemoryError:
            copy.cpu()
        return copy  # type: ignore[no-any-return]

    def on_rank0(self, work: Callable[[], Result]) -> Result:
        results: list[Result] = []
        try:
            if self.is_rank0:
                results.append(work())
        finally:  # after a failure too: the others must not wait
            received: list[Result] = self.all_gather_object(results)[0]
        if not received:
            raise PeerError(f"{self.peers.name(0)} failed and reports the reason itself", code="E_RUN_PEER")
        return results[0] if self.is_rank0 else received[0]

    def rank0_first(self, work: Callable[[], Result]) -> Result:
        results: list[Result] = []
        self.on_rank0(lambda: results.append(work()))
        return results[0] if results else work()

    def map_sharded(
        self, items: Sequence[Item], work: Callable[[Sequence[Item]], list[Result]]
    ) -> list[Result]:
        part = items[self.rank :: self.world_size]
        results: list[Any] = [None] * len(items)
        for rank, values in enumerate(self.gather(lambda: work(part) if part else [])):
            results[rank :: self.world_size] = values
        return results

    def gather(self, work: Callable[[], Result]) -> list[Result]:
        values: list[Result] = []
        problem: Exception | None = None
        try:
            values.append(work())
        except (RegardError, OSError, MemoryError) as error:
            problem = error
        code = getattr(problem, "code", None) or "E_RUN_PEER"
        received = self.all_gather_object([values, str(problem), code])
        for rank, (part, message, reason) in enumerate(received):
            if not part:
                raise CollectiveError(f"{self.peers.name(rank)}: {message}", code=reason) from problem
        return [part[0] for part, _, _ in received]

    def agree(self, facts: dict[str, Any]) -> None:
        from regard.training.peers import refuse_differences

        named = zip(self.peers.hosts, self.all_gather_object(facts))
        refuse_differences([{"host": host, **values} for host, values in named])

    def can_save_after(self, error: Exception) -> bool:
        return isinstance(error, CollectiveError)

    def all_gather_object(self, value: object) -> list[Any]:
        """The values of all ranks, as JSON: torch's function of this name uses pickle."""
        self.peers.wait_for_all()
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        torch.distributed.all_gather(lengths, torch.tensor([len(content)]), group=self.objects)
        longest = max(int(length) for length in lengths)
        buffers = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        padded = nn.functional.pad(content, (0, longest - len(content)))
        torch.distributed.all_gather(buffers, padded, group=self.objects)
        return [json.loads(each[: int(n)].numpy().tobytes()) for each, n in zip(buffers, lengths)]


# --- tensors


def full_tensor(tensor: Tensor) -> Tensor:
    """The full value of a sharded tensor; all ranks must call it."""
    gather: Callable[[], Tensor] | None = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def shard_of(tensors: Mapping[str, Tensor], name: str, parameter: Any) -> Tensor:
    """Of some full tensors the one with this name, or this rank's part of it if the parameter is sharded."""
    if not hasattr(parameter, "device_mesh"):
        return tensors[name]
    from torch.distributed.tensor import DTensor

    from regard.storage.sharded import ShardedTensors, region

    shape = tensors.shapes[name] if isinstance(tensors, ShardedTensors) else tensors[name].shape
    if parameter.shape != shape:  # of the optimizer's state the number of steps
        return tensors[name]

    chunk = parameter.__create_chunk_list__()[0]
    local = region(tensors, name, chunk.offsets, chunk.sizes).to(parameter.device, parameter.dtype)
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )


# --- processes


@contextmanager
def connect(device: torch.device, config: Config, resume: bool = False) -> Iterator[SingleProcess]:
    """Join the other processes of this run, if torchrun started several; waits for all of them.

    All must have the same config, packages and code. After an error that only one rank met, the others name
    that rank.
    """
    if world_size() == 1:
        yield SingleProcess()
        return
    from regard.training.peers import Peers, refuse_differences, start_facts

    prefix = f"attempt-{restarts()}-{next(_connections)}"
    peers = Peers(int(os.environ["RANK"]), world_size(), config.train.timeout, prefix)
    try:
        refuse_differences(peers.join(start_facts(config, resume)))
        is_owner = not torch.distributed.is_initialized()
        if is_owner:
            init_process_group(device, peers)
        yield Distributed(device, peers)
        if is_owner:  # after a failure the process ends anyway, and the others may not respond
            torch.distributed.destroy_process_group()
    except (PeerError, CollectiveError):
        raise
    except RuntimeError as error:
        if isinstance(error, torch.distributed.DistError) or "gloo" in str(error).lower():
            raise peers.failure() from error
        peers.publish(error)
        raise
    except Exception as error:
        peers.publish(error)
        raise
    finally:
        peers.close()


def init_process_group(device: torch.device, peers: Peers) -> None:
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    store = PrefixStore("group", peers.store)
    wait = timedelta(seconds=peers.timeout)
    torch.distributed.init_process_group(
        backend, store=store, rank=peers.rank, world_size=peers.world_size, timeout=wait
    )


def world_size() -> int:
    """Processes that torchrun started for this run, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank0() -> bool:
    return int(os.environ.get("RANK", "0")) == 0 or world_size() == 1


def restarts() -> int:
    """How often torchrun restarted the processes after one had died; then the run resumes."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def local_device(name: str) -> str:
    """Each process of a machine has its own GPU."""
    if world_size() == 1 or not (name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())):
        return name
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def local_threads(threads: int) -> int:
    """By default each process gets an equal share of the cores."""
    if threads or world_size() == 1:
        return threads
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(available_cores()) // local_size)
