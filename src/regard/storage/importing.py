"""`regard import`: convert a folder whose weights are pickles (pytorch_model.bin) to safetensors.

A pickle can run code while it is read. So a separate process reads it, weights only and with limits
(`unpickle.py`), and this process reads only the safetensors that it writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from regard.config.reading import LARGE, read_bytes, shown
from regard.errors import UsageError
from regard.storage import unpickle
from regard.storage.files import (
    check_files,
    friendly_os_errors,
    read_json,
    sync_folder,
    write_atomically,
    write_json,
)
from regard.storage.folder import read_model
from regard.storage.weights import INDEX, WEIGHTS

PICKLE, PICKLES = "pytorch_model.bin", "pytorch_model.bin.index.json"
# files that are copied: settings, vocabularies and documentation
COPIED = {".json", ".txt", ".spm", ".model", ".md"}
COPIED_NAMES = {"LICENSE", "README"}
ENVIRONMENT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")  # variables that the process gets
PART = "model-{:05d}-of-{:05d}.safetensors"


def import_folder(source: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write a folder with safetensors, completely or not at all; returns the names of its files."""
    if not source.is_dir():
        raise UsageError(f"{source} is not a folder")
    if out.exists():
        raise UsageError(f"{out} exists; choose another name")
    check_files(source)
    parts = pickles_of(source)
    with friendly_os_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent)
    with place as name:
        work = Path(name) / out.name
        work.mkdir()
        say(f"reading {', '.join(part.name for part in parts)} in a separate process")
        convert(parts, work)
        copy_beside(source, work)
        check(work, source)
        with friendly_os_errors(out):
            work.rename(out)
            sync_folder(out.parent)
    return sorted(path.name for path in out.iterdir())


def check(work: Path, source: Path) -> None:
    """Open the converted model; errors name the folder that it comes from."""
    try:
        read_model(work)
    except UsageError as error:
        message = str(error).replace(str(work / WEIGHTS), str(source)).replace(str(work), str(source))
        raise UsageError(f"{message}; nothing was imported") from None


def pickles_of(source: Path) -> list[Path]:
    """The weight files: one, or those that an index lists."""
    if (source / WEIGHTS).is_file() or (source / INDEX).is_file():
        raise UsageError(f"{source} already has safetensors: it needs no conversion")
    if (source / PICKLE).is_file():
        return [inside_folder(source / PICKLE)]
    if not (source / PICKLES).is_file():
        raise UsageError(f"{source} has no {PICKLE}")
    places = read_json(source / PICKLES, LARGE).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UsageError(f"{source / PICKLES}: has no weight_map")
    for part in places.values():
        is_name = isinstance(part, str) and not set(part) & set("/\\:\0") and part.endswith(".bin")
        if not is_name or not (source / part).is_file():
            raise UsageError(f"{source / PICKLES}: lists {shown(part)}, which is not in the folder")
    return [inside_folder(source / part) for part in sorted(set(places.values()))]


def inside_folder(path: Path) -> Path:
    """Refuse a link out of the folder, except to a file of the hub's cache."""
    home, real = path.parent.resolve(), path.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (real.is_relative_to(home) or real.is_relative_to(blobs)):
        raise UsageError(f"{path}: a link that leads out of the folder; put the file itself there")
    return path


def convert(parts: list[Path], out: Path) -> None:
    """Read the pickles and write safetensors in a separate process."""
    names = [WEIGHTS] if len(parts) == 1 else [PART.format(n, len(parts)) for n in range(1, len(parts) + 1)]
    job = json.dumps([[str(part.absolute()), str(out.absolute() / name)] for part, name in zip(parts, names)])
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    result = subprocess.run(
        [sys.executable, "-I", unpickle.__file__, job],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**environment, "OMP_NUM_THREADS": "1"},
        cwd=out,
        check=False,
    )
    if result.returncode:
        message = result.stderr.strip().split("\n")[-1]
        if result.returncode != unpickle.REFUSED:  # ended by a limit, or by the system
            message = f"{parts[0]} cannot be read: its reader ended with code {result.returncode}"
        raise UsageError(f"{message}; nothing was imported")
    if len(parts) > 1:
        tensors_of_part = json.loads(result.stdout)
        places = {tensor: name for name, tensors in zip(names, tensors_of_part) for tensor in tensors}
        size = sum((out / name).stat().st_size for name in names)
        write_json(out / INDEX, {"metadata": {"total_size": size}, "weight_map": places})


def copy_beside(source: Path, out: Path) -> None:
    """Copy settings, vocabularies and documentation; folders, code and other weights are left out."""
    for path in sorted(source.iterdir()):
        is_copied = path.suffix in COPIED or path.name in COPIED_NAMES
        if is_copied and not path.name.endswith(".index.json") and path.is_file():
            inside_folder(path)
            with friendly_os_errors(path, "read"):
                content = read_bytes(path, LARGE)
            write_atomically(out / path.name, content)
