"""`regard doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from regard import __version__
from regard.cli.terminal import AsJson, json_line, print_line, print_table

if TYPE_CHECKING:
    from regard.device import Machine

LIBRARIES = ("torch", "tokenizers", "safetensors", "sacrebleu", "numpy", "pydantic")
EXTRAS = {  # `pip install "regard[...]"`: its modules, and their use
    "documents": (("openpyxl", "polib", "srt"), ".po, .srt and .xlsx files"),
    "hub": (("huggingface_hub", "pyarrow"), "models and corpora of the hub"),
    "gguf": (("gguf",), "models of llama.cpp"),
    "export": (("ctranslate2", "onnx", "onnxruntime", "onnxscript"), "CTranslate2 and ONNX"),
    "track": (("tensorboard", "mlflow", "sqlalchemy", "alembic", "wandb", "trackio"), "experiment trackers"),
    "sweep": (("optuna",), "regard sweep"),
    "remote": (("fsspec",), "corpora at addresses"),
    "structured": (("llguidance",), "JSON that fits a schema"),
    "ray": (("ray", "pandas", "pyarrow"), "bulk work on many machines"),
}
INSTRUCTIONS = {  # torch's checks of the processor
    "AVX2": "_is_avx2_supported",
    "AVX512": "_is_avx512_supported",
    "VNNI": "_is_vnni_supported",
    "AVX512-BF16": "_is_avx512_bf16_supported",
    "AMX": "_is_amx_tile_supported",
}
LITTLE_MEMORY, LITTLE_DISK = 4 * 2**30, 2 * 2**30  # a small model trains in 1.5 GiB
GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def doctor(as_json: AsJson = False) -> None:
    """Show what this machine can do, how Regard uses it, and what to set.

    [bold]--json[/] prints one object: the rows of the table, and advice (a list of sentences)

    [bold]Examples[/]

      regard doctor
      regard doctor --json
    """
    from regard.device import choose_machine

    facts = dict(machine_facts(choose_machine(width=512)))
    sentences = list(advice())
    if as_json:
        print_line(json_line({**facts, "advice": sentences}))
        return
    print_table(facts.items())
    print_line("")
    for sentence in sentences or ["nothing to change"]:
        print_line(f"- {sentence}")


def machine_facts(chosen: Machine) -> Iterator[tuple[str, str]]:
    import torch

    from regard.device import MIN_BFLOAT16_WIDTH, available_cores, bfloat16_hardware, cpu_quota

    yield "regard", __version__
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in LIBRARIES:
        yield name, metadata.version(name)
    quota = cpu_quota()
    limit = "" if quota is None else f", cgroup quota of {quota:g} CPUs"
    yield "cores", f"{len(available_cores())} usable of {os.cpu_count()}{limit}"
    yield "threads", f"{chosen.threads} by default (--threads, train.threads)"
    yield "processor", f"{torch.backends.cpu.get_cpu_capability()}; has {', '.join(instructions()) or 'none'}"
    yield "bfloat16", "in hardware" if bfloat16_hardware() else "not in hardware: float32 is used"
    yield "memory", memory()
    cuda = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    yield "cuda", ", ".join(cuda) or "none"
    yield "metal", "there (--device mps)" if torch.backends.mps.is_available() else "none"
    yield "disk here", f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free"
    yield "corpora", os.environ.get("REGARD_DATA") or "REGARD_DATA is not set"
    for extra, lacking in missing().items():
        yield f"extra {extra}", f"lacks {', '.join(lacking)}" if lacking else "there"
    yield (
        "would use",
        f"{chosen.device}, {chosen.threads} threads, {chosen.precision} from width {MIN_BFLOAT16_WIDTH} on",
    )


def advice() -> Iterator[str]:
    """Sentences that say what to install or set."""
    import torch

    from regard.device import available_cores, default_threads

    for extra, lacking in missing().items():
        if lacking:
            yield f"for {EXTRAS[extra][1]}: pip install 'regard[{extra}]'"
    if not os.environ.get("REGARD_DATA"):
        yield "for recipes and public corpora: set REGARD_DATA to a folder for them"
    if len(available_cores()) < (os.cpu_count() or 1):
        yield "not all cores are usable (taskset, a container, a cgroup quota); more threads would not help"
    if default_threads() < len(available_cores()):
        count = default_threads()
        yield f"OMP_NUM_THREADS = {count} limits the threads; --threads or train.threads overrides it"
    free = available_memory()
    if free is not None and free < LITTLE_MEMORY:
        yield f"{free / 2**30:.1f} GiB of memory are free: train with train.tokens_per_batch = 1024 or less"
    if shutil.disk_usage(Path.cwd()).free < LITTLE_DISK:
        yield "little free space on this disk: choose another folder with -o, or lower train.keep"
    if sys.platform == "linux" and Path("/proc/driver/nvidia").exists() and not torch.cuda.is_available():
        yield "this torch cannot use the NVIDIA GPU: install the CUDA build of torch"


def instructions() -> list[str]:
    """Instruction sets of this processor, as torch detects them."""
    import torch

    return [name for name, check in INSTRUCTIONS.items() if getattr(torch.cpu, check, lambda: False)()]


def missing() -> dict[str, list[str]]:
    """The modules of each extra that are not installed."""
    return {
        extra: [module for module in modules if util.find_spec(module) is None]
        for extra, (modules, _) in EXTRAS.items()
    }


def memory() -> str:
    total, free = total_memory(), available_memory()
    if total is None:
        return "unknown"
    size = f"{total / 2**30:.1f} GiB"
    return size if free is None else f"{size}, {free / 2**30:.1f} GiB free"


def total_memory() -> int | None:
    """Memory of the machine, or the limit of its cgroup."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [Path(name).read_text().strip() for name in GROUPS if Path(name).is_file()]
    return min([whole, *(int(limit) for limit in limits if limit.isdecimal())])


def available_memory() -> int | None:
    """Memory that is free or used only for caches of files."""
    table = Path("/proc/meminfo")
    if not table.is_file():
        return None
    rows = dict(line.split(":", 1) for line in table.read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in rows else None
