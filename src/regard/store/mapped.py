"""Tensors as they stand in a file: mapped into memory, read when they are used, let go of when copied.

Pages of a mapped file count as resident memory for as long as anything of the file is mapped. Who copies a
tensor, because its numbers stand in another order there, would otherwise hold it twice.
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
    """The pages of the file that a tensor stands in leave memory until they are read again.

    All of them, because the system reads its neighbours' as well. Not for files whose tensors somebody wrote
    to: the memory would hold again what the file says. A tensor that is of no file is left alone.
    """
    memory = _files.get(tensor.untyped_storage().data_ptr())
    if memory is not None and hasattr(memory, "madvise"):  # Windows has none
        memory.madvise(mmap.MADV_DONTNEED)


def is_view(part: Tensor, whole: Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
