"""Device, precision and threads: decided once, from what the machine has and never from a timing."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from dataclasses import dataclass
from functools import cache

import torch

from regard.errors import UsageError

WIDE_ENOUGH = 128  # below this width converting to bfloat16 and back costs a CPU more than it saves


@dataclass(frozen=True)
class Machine:
    device: torch.device
    precision: str  # float32, bfloat16 or float64
    threads: int

    def use(self) -> None:
        """Set the process up; a number of threads belongs to the bits of a result."""
        torch.set_num_threads(self.threads)


def choose_machine(
    device: str = "auto", precision: str = "auto", threads: int = 0, width: int = 0
) -> Machine:
    found = choose_device(device)
    if precision == "auto":
        precision = choose_precision(found, width)
    return Machine(found, precision, threads or len(available_cores()))


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f'device "{name}" is unknown; use auto, cpu, cuda, cuda:1 or mps') from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f'device "{name}" is not there: torch sees {torch.cuda.device_count()} CUDA devices')
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f'device "{name}" is not there: this machine has no Metal device')
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f'device "{name}" is not supported; use auto, cpu, cuda, cuda:1 or mps')
    return device


def choose_precision(device: torch.device, width: int) -> str:
    """bfloat16 where the hardware multiplies it, and the model is wide enough to gain."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if device.type == "cpu" and bfloat16_hardware() and width >= WIDE_ENOUGH:
        return "bfloat16"
    return "float32"


def bfloat16_hardware() -> bool:
    """Whether this CPU has instructions that multiply bfloat16 (AVX512-BF16, AMX)."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """In float64, on the CPU where the device has none (Metal)."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def give_back_memory() -> None:
    """Return what is free to the system.

    Batches of all sizes leave holes between the blocks of glibc's heap, which it keeps: a training that needs
    one gigabyte would soon hold three.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:  # glibc alone has it
        trim(0)


def settle_memory() -> None:
    """Take what was opened so far out of the search for garbage: it stays, and to look through all of torch
    again and again would halt everybody for a fifth of a second."""
    gc.collect()
    gc.freeze()


def most_memory() -> int:
    """Bytes that this process has held at most, 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def _c_library() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def available_cores() -> list[int]:
    """The cores this process may use, which containers make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
