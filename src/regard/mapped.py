"""Memory-mapped tensors: pages are read when they are used, and released when a tensor has been copied.

Pages of a mapped file count as resident memory as long as any part of the file is mapped. A tensor that is
copied, to change its layout, would otherwise be in memory twice.
"""

from __future__ import annotations

import mmap
from typing import BinaryIO
from weakref import WeakValueDictionary

import torch
from torch import Tensor

CHUNK = 1 << 20  # bytes compared at once


class _File(mmap.mmap):
    """A private mapping of a file, which may be written to, and a second one that keeps the original."""

    original: mmap.mmap


# Mapped files by the address of their first byte, as long as a tensor of them lives. Only their pages are
# ever released: any other memory would lose its content.
_files: WeakValueDictionary[int, _File] = WeakValueDictionary()


def map_file(file: BinaryIO) -> Tensor:
    """The bytes of a file, which must not be empty. Writes change the memory, never the file."""
    memory = _File(file.fileno(), 0, access=mmap.ACCESS_COPY)
    memory.original = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    _files[whole.data_ptr()] = memory
    return whole


def release_pages(tensor: Tensor, in_use: bool = False) -> None:
    """Release the pages of a mapped file that belong to this tensor alone; they are read again when needed.

    Changes of the tensor are lost, unless it is still `in_use`: then changed pages stay. A tensor that is not
    mapped is left alone.
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
    for place in range(start, end, CHUNK):
        size = min(CHUNK, end - place)
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
