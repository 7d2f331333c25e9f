"""Several processes, one run: the only file that knows torch.distributed. Everything else asks `crew()`.

A process that works by itself (`Alone`) and one of those that torchrun starts (`Together`) have the same few
methods. Rank 0 is the voice: it alone prepares, writes and speaks. The others see the same folders. What only
several processes need is imported where they do: it takes a second.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.batch import Batch
from regard.device import available_cores
from regard.errors import RegardError
from regard.models.transformer import Block

Item = TypeVar("Item")
Result = TypeVar("Result")
Module = TypeVar("Module", bound=nn.Module)
Kind = Literal["auto", "ddp", "fsdp"]
LossOf = Callable[[Batch], Tensor]
PATIENCE = timedelta(days=7)  # of those who wait while the voice prepares a large corpus


class Elsewhere(RegardError):
    """Another process of the run failed, and says why itself."""


class Agreed(RegardError):
    """What every process of the run meets at the same step, so that they can still save together."""


class Alone:
    """One process: everything is its own, and nothing is asked of others."""

    rank, size = 0, 1

    @property
    def is_voice(self) -> bool:
        return self.rank == 0

    def spread(self, model: nn.Module, loss: LossOf, kind: Kind) -> LossOf:
        """The loss of this process' share, through which gradients become those of all shares.

        To be called before the optimiser is made: the parameters may become shares.
        """
        return loss

    def in_step(self, last: bool) -> AbstractContextManager[object]:
        """Around the loss of one of several batches: gradients go around with the last alone."""
        return nullcontext()

    def sum(self, *numbers: float) -> Sequence[float]:
        """Over all processes."""
        return numbers

    def by_voice(self, number: float) -> float:
        """The voice's number, for all: clocks differ."""
        return number

    def any(self, asked: bool) -> bool:
        return asked

    def one(self, number: Tensor) -> float:
        """A norm over all parameters."""
        return float(number)

    def whole(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """For the voice to write; what others get is not said."""
        return tensors

    def own(self, tensor: Tensor, place: Tensor) -> Tensor:
        """Of a whole tensor what belongs into `place`."""
        return tensor

    def readable(self, model: Module) -> Module:
        """With whole weights, for one process to read by itself."""
        return model

    def spare(self, model: Module) -> Module:
        """`readable`, and for gradients that nobody else hears of."""
        return model

    def once(self, work: Callable[[], Result]) -> Result:
        """The voice works by itself while the others wait; all get the result, which is plain JSON."""
        return work()

    def voice_first(self, work: Callable[[], Result]) -> Result:
        """All do it, the others after the voice: they find what it wrote."""
        return work()

    def divided(self, items: Sequence[Item], work: Callable[[Sequence[Item]], list[Result]]) -> list[Result]:
        """The results of all items, each made by one of the processes; they are plain JSON."""
        return work(items)

    def may_save(self, error: Exception) -> bool:
        """Whether all that is needed for a checkpoint is at hand after this error."""
        return True


class Together(Alone):
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        self.module: Any = None
        self.twin: nn.Module | None = None  # fsdp: the model with room for whole weights

    def spread(self, model: nn.Module, loss: LossOf, kind: Kind) -> LossOf:
        whole = WholeLoss(model, loss)
        if kind == "fsdp":
            self.twin = deepcopy(model).cpu()
            self.module = sharded(whole)
        else:
            from torch.nn.parallel import DistributedDataParallel

            self.module = DistributedDataParallel(
                whole, forward_sync_buffers=False, gradient_as_bucket_view=True
            )
        found: LossOf = self.module
        return found

    @contextmanager
    def in_step(self, last: bool) -> Iterator[None]:
        if self.twin is not None:
            self.module.set_requires_gradient_sync(last)
        with self.module.no_sync() if self.twin is None and not last else nullcontext():
            yield

    def sum(self, *numbers: float) -> Sequence[float]:
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        found: list[float] = total.tolist()
        return found

    def by_voice(self, number: float) -> float:
        return self.sum(number if self.is_voice else 0.0)[0]

    def any(self, asked: bool) -> bool:
        return self.sum(float(asked))[0] > 0

    def one(self, number: Tensor) -> float:
        return float(full(number))

    def whole(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():  # in the same order everywhere: each is gathered from all
            gathered = full(tensor)
            if self.is_voice:
                found[name] = gathered.cpu()
        return found

    def own(self, tensor: Tensor, place: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(place, DTensor) or place.shape != tensor.shape:
            return tensor
        there = tensor.to(place.device, place.dtype)
        return distribute_tensor(there, place.device_mesh, place.placements, src_data_rank=None)

    def readable(self, model: Module) -> Module:
        if self.twin is None:
            return model
        with torch.no_grad():
            for shard, place in zip(model.parameters(), self.twin.parameters(), strict=True):
                place.copy_(full(shard))
        twin: Any = self.twin if self.device.type == "cpu" else deepcopy(self.twin).to(self.device)
        return twin  # type: ignore[no-any-return]

    def spare(self, model: Module) -> Module:
        return deepcopy(self.readable(model))

    def once(self, work: Callable[[], Result]) -> Result:
        found: list[Result] = []
        if not self.is_voice:
            heard: Result = self.heard(self.tell(None))
            return heard
        try:
            with working_as(Alone()):
                found.append(work())
        finally:
            self.tell(found)  # a failure too: nobody waits for what will not come
        return found[0]

    def heard(self, told: Any) -> Any:
        if not told:
            raise Elsewhere("the first process of this run failed")
        return told[0]

    def voice_first(self, work: Callable[[], Result]) -> Result:
        found: list[Result] = []
        self.once(lambda: found.append(work()))
        return found[0] if found else work()

    def divided(self, items: Sequence[Item], work: Callable[[Sequence[Item]], list[Result]]) -> list[Result]:
        own = items[self.rank :: self.size]
        found: list[Any] = [None] * len(items)
        for rank, part in enumerate(self.gather(work(own) if own else [])):
            found[rank :: self.size] = part
        return found

    def may_save(self, error: Exception) -> bool:
        return isinstance(error, Agreed)

    def tell(self, value: object) -> Any:
        """The voice's value, as JSON."""
        content = as_bytes(value)
        length = torch.tensor([len(content)])
        dist.broadcast(length, 0, group=self.patient)
        content = content if self.is_voice else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(content, 0, group=self.patient)
        return from_bytes(content)

    def gather(self, value: object) -> list[Any]:
        """The values of all processes, as JSON."""
        content = as_bytes(value)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(content)]), group=self.patient)
        longest = max(int(length) for length in lengths)
        room = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        padded = nn.functional.pad(content, (0, longest - len(content)))
        dist.all_gather(room, padded, group=self.patient)
        return [from_bytes(each[: int(length)]) for each, length in zip(room, lengths)]


class WholeLoss(nn.Module):
    """The loss as one module from batch to number: what torch can spread over processes."""

    def __init__(self, model: nn.Module, loss: LossOf) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch)


def sharded(whole: WholeLoss) -> nn.Module:
    """Shares of weights, gradients and optimiser in each process; whole weights come when they are needed.

    That is block by block; of a decoder's block the feed-forward alone, because keys and values of the source
    are computed outside of it.
    """
    from torch.distributed.fsdp import fully_shard

    # it warns of blocks whose result is changed in place afterwards, which nothing here does
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
    for module in list(whole.modules()):
        if isinstance(module, Block):
            fully_shard(module if module.cross is None else module.feed_forward)
    fully_shard(whole)
    return whole


def full(tensor: Tensor) -> Tensor:
    """The whole of a tensor of which each process has a share; all have to ask for it."""
    gather: Callable[[], Tensor] | None = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def as_bytes(value: object) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> Any:
    return json.loads(content.numpy().tobytes())


# --- who works here


_at_work: list[Alone] = [Alone()]


def crew() -> Alone:
    """Who trains in this process."""
    return _at_work[-1]


@contextmanager
def working_as(who: Alone) -> Iterator[None]:
    _at_work.append(who)
    try:
        yield
    finally:
        _at_work.pop()


@contextmanager
def gathered(device: torch.device) -> Iterator[None]:
    """Join the other processes of this run, if torchrun started several; that waits for all of them."""
    if processes() == 1:
        yield
        return
    mine = not dist.is_initialized()
    if mine:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        join("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        with working_as(Together(device)):
            yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise Elsewhere(
                "another process of this run ended; go on from the last checkpoint with --resume, or let "
                "torchrun do that with --max-restarts"
            ) from error
        raise
    if mine:  # after a failure the process ends anyway, and the others may not answer
        dist.destroy_process_group()


def join(backend: str) -> None:
    """Find the others by what torchrun says; names that were left by processes that died are not believed."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://"))
    own = PrefixStore(f"attempt-{restarts()}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=size)


def processes() -> int:
    """That torchrun started for this run, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_voice() -> bool:
    return int(os.environ.get("RANK", "0")) == 0 or processes() == 1


def restarts() -> int:
    """How often torchrun started the processes again after one had died; then the run goes on."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def own_device(name: str) -> str:
    """Each process of a machine has its own GPU."""
    if processes() == 1 or not (name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())):
        return name
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def own_threads(threads: int) -> int:
    """Its share of the cores, where nothing else is said."""
    if threads or processes() == 1:
        return threads
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(available_cores()) // here)
