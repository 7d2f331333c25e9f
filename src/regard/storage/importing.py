"""Folders of other programs whose weights are pickles (pytorch_model.bin) as folders that open here.

A pickle can run code while it is read. So a process of its own reads it, weights only and with bounds
(`unpickle.py`), and this one sees nothing but the safetensors that come of it.
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
    read_json,
    sync_folder,
    told_plainly,
    write_atomically,
    write_json,
)
from regard.storage.folder import read_model
from regard.storage.weights import INDEX, WEIGHTS

PICKLE, PICKLES = "pytorch_model.bin", "pytorch_model.bin.index.json"
# what goes along: settings, vocabularies and words about the model
COPIED = {".json", ".txt", ".spm", ".model", ".md"}
PLAIN = {"LICENSE", "README"}
KEPT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")  # of the environment
PART = "model-{:05d}-of-{:05d}.safetensors"


def import_folder(source: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write a folder with the weights as safetensors, whole or not at all; the names of its files."""
    if not source.is_dir():
        raise UsageError(f"{source} is not a folder")
    if out.exists():
        raise UsageError(f"{out} is there already; choose another name")
    check_files(source)
    parts = pickles_of(source)
    with told_plainly(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent)
    with place as name:
        work = Path(name) / out.name
        work.mkdir()
        say(f"reading {', '.join(part.name for part in parts)} in a process of its own")
        convert(parts, work)
        copy_beside(source, work)
        check(work, source)
        with told_plainly(out):
            work.rename(out)
            sync_folder(out.parent)
    return sorted(path.name for path in out.iterdir())


def check(work: Path, source: Path) -> None:
    """Whatever is wrong with the model is told now, and of the folder that it comes from."""
    try:
        read_model(work)
    except UsageError as error:
        said = str(error).replace(str(work / WEIGHTS), str(source)).replace(str(work), str(source))
        raise UsageError(f"{said}; nothing was imported") from None


def pickles_of(source: Path) -> list[Path]:
    """The files with the weights: one, or those that an index lists."""
    if (source / WEIGHTS).is_file() or (source / INDEX).is_file():
        raise UsageError(f"{source} has its weights as safetensors already: it opens as it is")
    if (source / PICKLE).is_file():
        return [ordinary(source / PICKLE)]
    if not (source / PICKLES).is_file():
        raise UsageError(f"{source} has no {PICKLE}, from which weights could be taken")
    places = read_json(source / PICKLES, LARGE).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UsageError(f"{source / PICKLES}: holds no weight_map")
    for part in places.values():
        plain = isinstance(part, str) and not set(part) & set("/\\:\0") and part.endswith(".bin")
        if not plain or not (source / part).is_file():
            raise UsageError(f"{source / PICKLES}: names {shown(part)}, which is not in the folder")
    return [ordinary(source / part) for part in sorted(set(places.values()))]


def ordinary(path: Path) -> Path:
    """A link may lead to a file of the hub's cache, and nowhere else."""
    home, real = path.parent.resolve(), path.resolve()
    kept = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (real.is_relative_to(home) or real.is_relative_to(kept)):
        raise UsageError(f"{path}: a link that leads out of the folder; put the file itself there")
    return path


def convert(parts: list[Path], out: Path) -> None:
    """Let another process read the pickles and write safetensors."""
    names = [WEIGHTS] if len(parts) == 1 else [PART.format(n, len(parts)) for n in range(1, len(parts) + 1)]
    job = json.dumps([[str(part.absolute()), str(out.absolute() / name)] for part, name in zip(parts, names)])
    told = {name: os.environ[name] for name in KEPT if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-I", unpickle.__file__, job],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**told, "OMP_NUM_THREADS": "1"},
        cwd=out,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().split("\n")[-1]
        if done.returncode != unpickle.REFUSED:  # ended by a bound, or by the system
            said = f"{parts[0]} cannot be read: its reader ended with code {done.returncode}"
        raise UsageError(f"{said}; nothing was imported")
    if len(parts) > 1:
        held = json.loads(done.stdout)
        places = {tensor: name for name, tensors in zip(names, held) for tensor in tensors}
        size = sum((out / name).stat().st_size for name in names)
        write_json(out / INDEX, {"metadata": {"total_size": size}, "weight_map": places})


def copy_beside(source: Path, out: Path) -> None:
    """The content of the files that belong to the model; folders, code and other weights stay behind."""
    for path in sorted(source.iterdir()):
        wanted = path.suffix in COPIED or path.name in PLAIN
        if wanted and not path.name.endswith(".index.json") and path.is_file():
            ordinary(path)
            with told_plainly(path, "read"):
                content = read_bytes(path, LARGE)
            write_atomically(out / path.name, content)
