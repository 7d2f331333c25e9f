"""`regard doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

from rich.table import Table
from rich.text import Text

from regard import __version__
from regard.cli.terminal import tables

LIBRARIES = ("torch", "tokenizers", "safetensors", "sacrebleu", "numpy", "pydantic")


def doctor() -> None:
    """Tell what this machine can do and how Regard would use it."""
    import torch

    from regard.machine import available_cores, bfloat16_hardware, choose_machine

    chosen = choose_machine(width=512)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("regard", __version__)
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in LIBRARIES:
        table.add_row(name, metadata.version(name))
    table.add_row("cores", f"{len(available_cores())} usable of {os.cpu_count()}")
    table.add_row("processor", torch.backends.cpu.get_cpu_capability())
    table.add_row("bfloat16", "in hardware" if bfloat16_hardware() else "not in hardware: float32 is used")
    table.add_row("memory", memory())
    cuda = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    table.add_row("cuda", ", ".join(cuda) or "none")
    free = shutil.disk_usage(Path.cwd()).free
    table.add_row("disk here", f"{free / 2**30:.1f} GiB free")
    table.add_row("corpora", Text(os.environ.get("REGARD_DATA") or "REGARD_DATA is not set"))
    table.add_row(
        "would use", f"{chosen.device}, {chosen.threads} threads, {chosen.precision} from width 512 on"
    )
    tables().print(table)


def memory() -> str:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return "unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"
