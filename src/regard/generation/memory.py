"""Whether memory ran out, which torch tells in several ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

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
