"""Device, precision and threads: chosen once, from the hardware and the environment, never from a timing."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from regard.errors import DeviceError

MIN_BFLOAT16_WIDTH = 128  # below this width converting to bfloat16 and back costs a CPU more than it saves
CGROUPS, PROCESS_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Machine:
    device: torch.device
    precision: str  # float32, bfloat16 or float64
    threads: int

    def use(self) -> None:
        """Set the number of threads of this process. Only commands and training runs call this: a library
        call leaves the process as it is unless its caller passes `threads`."""
        torch.set_num_threads(self.threads)


def choose_machine(
    device: str = "auto", precision: str = "auto", threads: int = 0, width: int = 0
) -> Machine:
    """The machine of a run; `threads` 0 means `default_threads()`."""
    chosen = choose_device(device)
    if precision == "auto":
        precision = choose_precision(chosen, width)
    return Machine(chosen, precision, threads or default_threads())


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f'device "{name}" is unknown; use auto, cpu, cuda, cuda:1 or mps') from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise DeviceError(f'device "{name}" is not available: torch sees {count} CUDA devices')
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(f'device "{name}" is not available: this machine has no Metal device')
    if device.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f'device "{name}" is not supported; use auto, cpu, cuda, cuda:1 or mps')
    return device


def choose_precision(device: torch.device, width: int) -> str:
    """bfloat16 if the hardware multiplies it and the model is wide enough to gain, else float32."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if device.type == "cpu" and bfloat16_hardware() and width >= MIN_BFLOAT16_WIDTH:
        return "bfloat16"
    return "float32"


def bfloat16_hardware() -> bool:
    """True if this CPU has instructions that multiply bfloat16 (AVX512-BF16, AMX)."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def release_memory() -> None:
    """Return free heap memory to the operating system.

    Batches of varying sizes fragment glibc's heap, which keeps the free blocks: a run that needs one gigabyte
    would soon hold three.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:  # glibc only
        trim(0)


def freeze_gc() -> None:
    """Exclude all current objects from garbage collection: a full collection that walks torch and the models
    would pause every request for a fifth of a second."""
    gc.collect()
    gc.freeze()


def peak_memory() -> int:
    """Peak resident memory of this process in bytes, 0 where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def _c_library() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def default_threads() -> int:
    """The usable cores, or OMP_NUM_THREADS where that is fewer."""
    # a list such as "4,2" has a number for each level of nested parallelism
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    cores = len(available_cores())
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) else cores


def available_cores() -> list[int]:
    """The cores of this process's affinity mask, at most as many as its cgroup's CPU quota pays for."""
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    quota = cpu_quota()
    return cores if quota is None else cores[: max(1, int(quota))]


def cpu_quota() -> float | None:
    """CPUs that the cgroups of this process may use (`docker run --cpus`), None without a limit.

    A quota does not change the affinity mask: on a host of 64 cores a container with 2 CPUs still sees 64.
    """
    quotas = [quota for folder in _cgroup_folders() if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _cgroup_folders() -> Iterator[Path]:
    """The folders of this process's cgroups with a CPU controller, and of their parents.

    A line of /proc/self/cgroup is `0::/path` (version 2) or `4:cpu,cpuacct:/path` (version 1). In a container
    the path may be that of the host, and only the root is mounted.
    """
    try:
        lines = PROCESS_CGROUPS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in {CGROUPS / controllers, CGROUPS / "cpu"} if controllers else {CGROUPS}:
            folder = root / path.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(root))


def _quota_of(folder: Path) -> float | None:
    """quota / period: `cpu.max` of version 2 holds both, version 1 has a file for each."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            numbers = " ".join((folder / name).read_text() for name in names).split()
            quota, period = int(numbers[0]), int(numbers[1])
        except (OSError, ValueError, IndexError):  # no such file, or "max": no limit
            continue
        if quota > 0 and period > 0:  # version 1 writes -1 for no limit
            return quota / period
    return None
