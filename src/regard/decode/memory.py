"""Batches that fit into memory: one that does not is cut in two, and later ones are no larger."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch

from regard.errors import RegardError

Answer = TypeVar("Answer")
TOO_MUCH = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")  # torch's words


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out; of torch's errors only the text tells, but for CUDA's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in TOO_MUCH)
    )


def attempt(run: Callable[[], Answer]) -> Answer | None:
    """What `run` gives, or None where memory ran out; by then all that it had taken is free again."""
    try:
        return run()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def in_memory(
    batches: Iterable[Sequence[int]],
    run: Callable[[Sequence[int]], Answer],
    cost: Callable[[Sequence[int]], int],
    say: Callable[[str], None],
) -> Iterable[tuple[Sequence[int], Answer]]:
    """Run all batches, those that do not fit in halves; `say` is told once."""
    waiting = deque(batches)
    too_much: int | None = None  # the least cost that is known not to fit
    while waiting:
        batch = waiting.popleft()
        if too_much is None or cost(batch) < too_much or len(batch) == 1:
            answer = attempt(lambda: run(batch))  # noqa: B023  (called at once)
            if answer is not None:
                yield batch, answer
                continue
            if len(batch) == 1:
                raise RegardError(
                    f"not enough memory for a single sentence ({cost(batch)} pieces times beams): "
                    "take a smaller beam, or cut the line"
                )
            if too_much is None:
                say(f"out of memory with {len(batch)} sentences at once: going on with smaller batches")
            too_much = cost(batch)
        middle = len(batch) // 2
        waiting.extendleft([batch[middle:], batch[:middle]])
