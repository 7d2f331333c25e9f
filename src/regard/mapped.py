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


def is_view(part: Tensor, whole: Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
