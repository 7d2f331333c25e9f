"""Tensors as they stand in a file: mapped into memory, read when they are used, let go of when copied.

Pages of a mapped file count as resident memory for as long as anything of the file is mapped. Who copies a
tensor, because its numbers are needed in another order, would otherwise hold it twice.
"""

from __future__ import annotations

import mmap
from typing import BinaryIO
from weakref import WeakValueDictionary

import torch
from torch import Tensor

PORTION = 1 << 20  # bytes that are compared at once


class _File(mmap.mmap):
    """The bytes of a file, to be written to, and beside them the same ones as they were."""

    original: mmap.mmap


# By the address of its first byte, as long as a tensor of it lives. Only what stands here is ever let go of:
# any other memory would lose what it holds.
_files: WeakValueDictionary[int, _File] = WeakValueDictionary()


def map_file(file: BinaryIO) -> Tensor:
    """The bytes of a file that is not empty. Who writes to them changes the memory, never the file."""
    memory = _File(file.fileno(), 0, access=mmap.ACCESS_COPY)
    memory.original = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    _files[whole.data_ptr()] = memory
    return whole


def let_go(tensor: Tensor, in_use: bool = False) -> None:
    """The pages of a file that a tensor alone stands on leave memory until they are read again.

    Who wrote to the tensor finds in it what the file says, unless it is still `in_use`: then pages that
    somebody has changed stay. A tensor that is of no file is left alone.
    """
    whole = tensor.untyped_storage().data_ptr()
    memory = _files.get(whole)
    if memory is None or not hasattr(memory, "madvise"):  # Windows has none
        return
    first = tensor.data_ptr() - whole
    start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (first + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if not tensor.is_contiguous():
        return
    for place in range(start, end, PORTION):
        size = min(PORTION, end - place)
        if not in_use or _is_unchanged(memory, place, size):
            memory.madvise(mmap.MADV_DONTNEED, place, size)


def _is_unchanged(memory: _File, start: int, size: int) -> bool:
    now, before = (
        torch.frombuffer(each, dtype=torch.uint8, count=size, offset=start)
        for each in (memory, memory.original)
    )
    same = torch.equal(now, before)
    memory.original.madvise(mmap.MADV_DONTNEED, start, size)
    return same


def is_view(part: Tensor, whole: Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
