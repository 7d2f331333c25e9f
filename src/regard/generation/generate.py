"""Decode requests that are all there: batches of similar length, the longest first, results in order.

No request enters a running batch: rows of different ages make every cache as wide as the oldest one's, which
costs more than full batches save. Requests that arrive over time go through `scheduler.Scheduler`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Barrier
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.config import Decode
from regard.data.batches import cut
from regard.device import release_memory
from regard.errors import RegardError
from regard.generation.requests import BatchKey, Hypothesis, Request, Steppable
from regard.generation.search import BeamSearch
from regard.inputs.text import SpecialTokens
from regard.models.attention import BLOCK, round_up
from regard.sample import Sample

if TYPE_CHECKING:
    from regard.generation.constraints import Constraint
    from regard.generation.sampling import Sampling

    Search = BeamSearch[Any] | Sampling[Any]
ModelFor = Callable[[Request], Steppable[Any]]
Warn = Callable[[str], None]
MIN_WORKER_TOKENS = 1024  # smaller batches cost more than a core of their own saves
MANY = 32  # requests, for which returning memory to the system takes no noticeable time
OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
)  # torch's messages


def generate(
    model_for: ModelFor,
    requests: Sequence[Request],
    special: SpecialTokens,
    device: torch.device,
    tokens_per_batch: int,
    warn: Warn = lambda text: None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each request, in order; a result does not depend on the other requests.

    Several threads take batches from one queue, each on its share of the cores: a step of a small model is
    hundreds of small operations, which gain nothing from a second core. If memory runs out, batches are
    halved and `warn` is called once.
    """
    workers = worker_count(device, tokens_per_batch)
    total = sum(request.rows * request.width for request in requests)
    portion = min(tokens_per_batch // workers, max(MIN_WORKER_TOKENS, -(-total // workers)))
    work = BatchQueue(model_for, requests, special, device, warn)
    work.batches.extend(request_batches(model_for, requests, portion))
    if workers > 1 and len(work.batches) > 1:
        run_in_threads(work, workers)
        work.batches.extend([number] for number in work.postponed)
    work.run()
    if len(requests) >= MANY:
        release_memory()
    return work.results


@dataclass
class BatchQueue:
    """Batches of request numbers, and the results; shared by the threads that run them."""

    model_for: ModelFor
    requests: Sequence[Request]
    special: SpecialTokens
    device: torch.device
    warn: Warn
    batches: deque[list[int]] = field(default_factory=deque)
    postponed: list[int] = field(default_factory=list)  # too large for the memory beside the other threads
    results: list[list[Hypothesis]] = field(init=False)
    cost_limit: float = float("inf")  # rows times padded source tokens, once memory ran out
    stopped: bool = False

    def __post_init__(self) -> None:
        self.results = [[] for _ in self.requests]

    def run(self, alone: bool = True) -> None:
        """Take batch after batch until none is left."""
        while self.batches and not self.stopped:
            try:
                numbers = self.batches.popleft()
            except IndexError:  # another thread took it
                return
            batch = [self.requests[number] for number in numbers]
            if len(batch) > 1 and batch_cost(batch) > self.cost_limit:
                self.halve(numbers)
                continue
            search = make_search(self.model_for(batch[0]), self.special, self.device, batch[0].key)
            running: dict[Any, int] = {}
            is_short = False
            try:
                running |= zip(search.admit(batch), numbers)
                while search.active and not self.stopped:
                    for active in search.step():
                        self.results[running.pop(active)] = active.hypotheses
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                is_short = True
            if is_short:  # outside of `except`, whose traceback holds the tensors of the step
                del search
                self.retry(list(running.values()) or numbers, alone)

    def retry(self, numbers: list[int], alone: bool) -> None:
        """Memory ran out: run these again in smaller batches, and all others too."""
        release_gpu_memory()
        cost = batch_cost([self.requests[number] for number in numbers])
        if len(numbers) > 1:
            if self.cost_limit == float("inf"):
                self.warn(out_of_memory_warning(len(numbers)))
            self.cost_limit = min(self.cost_limit, cost // 2)
            self.halve(numbers)
        elif alone:
            raise TooLarge(cost)
        else:
            self.postponed += numbers

    def halve(self, numbers: list[int]) -> None:
        half = len(numbers) // 2
        self.batches.extendleft([numbers[half:], numbers[:half]])


def run_in_threads(work: BatchQueue, workers: int) -> None:
    """Run the batches in several threads; an error in one, or an interrupt, stops all after their step."""
    threads = worker_threads(workers)
    try:
        running = [threads.submit(work.run, False) for _ in range(workers)]
        for each in wait(running, return_when=FIRST_EXCEPTION).done:
            each.result()
    finally:
        work.stopped = True
        threads.shutdown()
    work.stopped = False


def decode(
    model: Steppable[Any],
    samples: Sequence[Sample],
    options: Decode,
    special: SpecialTokens,
    device: torch.device,
    prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[Constraint] | None = None,
    warn: Warn = lambda text: None,
) -> list[list[Hypothesis]]:
    """`generate` for samples that share a model and options."""
    requests = [
        Request(
            sample.source,
            options,
            prefixes[number] if prefixes else (),
            constraints[number] if constraints else None,
        )
        for number, sample in enumerate(samples)
    ]
    return generate(lambda request: model, requests, special, device, options.tokens_per_batch, warn)


def make_search(model: Steppable[Any], special: SpecialTokens, device: torch.device, key: BatchKey) -> Search:
    """An empty search for requests of one key."""
    if key.kind == "draws":
        from regard.generation.sampling import Sampling

        return Sampling(model, special, device, key)
    if key.kind == "phrases":
        from regard.generation.constrained import ConstrainedSearch

        return ConstrainedSearch(model, special, device, key)
    return BeamSearch(model, special, device, key)


def request_batches(
    model_for: ModelFor, requests: Sequence[Request], tokens_per_batch: int
) -> Iterator[list[int]]:
    """Numbers of requests of one model and key, in batches of similar length."""
    groups: dict[tuple[int, BatchKey, int], list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault((id(model_for(request)), request.key, request.rows), []).append(number)
    for (_, _, rows), numbers in groups.items():
        lengths = [len(requests[number].ids) for number in numbers]
        for batch in batches_by_length(lengths, max(1, tokens_per_batch // rows)):
            yield [numbers[place] for place in batch]


def batches_by_length(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Indices in batches of similar length, the longest first: memory runs out early or never."""
    sizes = np.array([round_up(max(1, length), BLOCK) for length in lengths], dtype=np.int64)
    order = np.argsort(np.array(lengths), kind="stable")
    return [batch.tolist() for batch in reversed(cut(order, sizes[order], tokens_per_batch))]


def batch_cost(requests: Sequence[Request]) -> int:
    """Rows times padded source tokens."""
    rows = sum(request.rows for request in requests)
    return rows * max((request.width for request in requests), default=0)


# Threads


def worker_count(device: torch.device, tokens: int) -> int:
    """One worker per core, as far as each has enough tokens."""
    cores = torch.get_num_threads() if device.type == "cpu" else 1
    return max(1, min(cores, tokens // MIN_WORKER_TOKENS))


def worker_threads(count: int) -> ThreadPoolExecutor:
    """Threads that each compute with their share of the cores; the caller's setting stays."""
    cores = torch.get_num_threads()
    shares: SimpleQueue[int] = SimpleQueue()
    for number in range(count):
        shares.put(max(1, cores // count + (number < cores % count)))
    threads = ThreadPoolExecutor(count, "worker", lambda: use_cores(shares.get()))
    all_started = Barrier(count)
    for each in [threads.submit(all_started.wait) for _ in range(count)]:
        each.result()
    torch.set_num_threads(cores)  # for threads that others start
    return threads


def use_cores(count: int) -> None:
    """How many cores an operation of this thread may take."""
    torch.set_num_threads(count)
    torch.get_num_threads()  # else the first operation takes what another thread has set by then


@contextmanager
def one_core() -> Iterator[None]:
    """Operations of this thread take one core."""
    cores = torch.get_num_threads()
    use_cores(1)
    try:
        yield
    finally:
        torch.set_num_threads(cores)


# Memory


class TooLarge(RegardError):
    """A single request needs more memory than there is."""

    default_code = "E_OUT_OF_MEMORY"

    def __init__(self, cost: int) -> None:
        super().__init__(
            f"not enough memory for a single sentence ({cost} tokens times beams): "
            "use a smaller beam, or split the line"
        )


def out_of_memory_warning(count: int) -> str:
    return f"out of memory with {count} sentences at once: continuing with smaller batches"


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch raises a RuntimeError with a message, except on CUDA."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(message in str(error) for message in OUT_OF_MEMORY)
    )


def release_gpu_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
