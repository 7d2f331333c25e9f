"""Tensors in mappings of their own: of a file, read when they are used, or of memory, taken when written.

Pages of a mapped file count as resident memory for as long as anything of the file is mapped. Who copies a
tensor, because its numbers are needed in another order, would otherwise hold it twice. And what grows for the
length of a run and then goes should not leave holes in the heap.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import BinaryIO
from weakref import WeakValueDictionary

import torch
from torch import Tensor

# By the address of its first byte, as long as a tensor of it lives. Only what stands here is ever let go of:
# any other memory would lose what it holds.
_files: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()


def map_file(file: BinaryIO) -> Tensor:
    """The bytes of a file that is not empty. Who writes to them changes the memory, never the file."""
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    _files[whole.data_ptr()] = memory
    return whole


def let_go(tensor: Tensor) -> None:
    """The pages of a file that a tensor alone stands on leave memory until they are read again.

    Who wrote to the tensor finds in it what the file says, so this is for one that is not used any more. A
    tensor that is of no file is left alone.
    """
    whole = tensor.untyped_storage().data_ptr()
    memory = _files.get(whole)
    if memory is None or not hasattr(memory, "madvise"):  # Windows has none
        return
    first = tensor.data_ptr() - whole
    start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (first + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
    if length > 0 and tensor.is_contiguous():
        memory.madvise(mmap.MADV_DONTNEED, start, length)


def reserved(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros in pages that take memory only when they are written, and leave it with the tensor.

    Elsewhere than in a processor's memory, and where the system has no such pages, they are torch's zeros.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type == "cpu" and size and hasattr(mmap, "MAP_PRIVATE"):
        try:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return torch.frombuffer(memory, dtype=like.dtype).view(*shape)
        except OSError:  # there is no room: torch says so in its own words
            pass
    return like.new_zeros(tuple(shape))


def is_view(part: Tensor, whole: Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
