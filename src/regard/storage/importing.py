"""`regard models import`: convert a folder whose weights are pickles (pytorch_model.bin) to safetensors.

A pickle can run code while it is read. So a separate process reads it, weights only and with limits
(`unpickle.py`), and this process reads only the safetensors that it writes. Models of CTranslate2 (model.bin,
.argosmodel) and files of llama.cpp (.gguf) hold numbers only and are read here (`ctranslate2/`, `gguf/`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from regard.config.reading import LARGE, read_bytes
from regard.errors import UsageError
from regard.storage import unpickle
from regard.storage.files import (
    check_files,
    check_inside,
    friendly_os_errors,
    new_folder,
    write_atomically,
    write_json,
)
from regard.storage.folder import read_model
from regard.storage.marian.file import find_model
from regard.storage.weights import INDEX, WEIGHTS, index_parts

PICKLE, PICKLES = "pytorch_model.bin", "pytorch_model.bin.index.json"
# files that are copied: settings, vocabularies and documentation
COPIED = {".json", ".jinja", ".txt", ".spm", ".model", ".md"}
COPIED_NAMES = {"LICENSE", "README"}
ENVIRONMENT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")  # variables that the process gets
REFUSED = "E_IMPORT"
GGUF, ARGOS, MODEL = ".gguf", ".argosmodel", "model.bin"
FILES = (GGUF, ARGOS, ".npz", ".bin")
PART = "model-{:05d}-of-{:05d}.safetensors"


def import_folder(source: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write a folder with safetensors, completely or not at all; returns the names of its files."""
    if not source.is_dir() and not (source.is_file() and source.suffix in FILES):
        message = f"{source} is neither a folder nor a file of the kind {', '.join(FILES)}"
        raise UsageError(message, code="E_MODEL_FOLDER")
    model = None if source.suffix in (GGUF, ARGOS) else find_model(source)
    if source.is_file() and source.suffix not in (GGUF, ARGOS) and model is None:
        raise UsageError(f"{source}: not a model of Marian; name its folder", code=REFUSED)
    with new_folder(out) as work:
        if source.is_file() and source.suffix == GGUF:
            from regard.storage.gguf import convert_gguf

            convert_gguf(source, work, say)
        elif model is not None:
            from regard.storage.marian.convert import convert_marian

            say(f"reading {model.name} of Marian")
            convert_marian(model, work)
        elif source.is_file():
            from regard.storage.argos import convert_argos

            convert_argos(source, work)
        elif (source / MODEL).is_file():
            from regard.storage.ctranslate2 import convert_ctranslate2

            say(f"reading {MODEL} of CTranslate2")
            convert_ctranslate2(source, work)
        else:
            import_pickles(source, work, say)
        check(work, source)
    return sorted(path.name for path in out.iterdir())


def import_pickles(source: Path, work: Path, say: Callable[[str], None]) -> None:
    check_files(source)
    parts = pickles_of(source)
    say(f"reading {', '.join(part.name for part in parts)} in a separate process")
    convert(parts, work)
    copy_beside(source, work)


def check(work: Path, source: Path) -> None:
    """Open the converted model; errors name the folder that it comes from."""
    try:
        read_model(work)
    except UsageError as error:
        message = str(error).replace(str(work / WEIGHTS), str(source)).replace(str(work), str(source))
        raise UsageError(f"{message}; nothing was imported", code=error.code) from None


def pickles_of(source: Path) -> list[Path]:
    """The weight files: one, or those that an index lists."""
    if (source / WEIGHTS).is_file() or (source / INDEX).is_file():
        raise UsageError(f"{source} already has safetensors: it needs no conversion", code=REFUSED)
    if (source / PICKLE).is_file():
        parts = [source / PICKLE]
    elif (source / PICKLES).is_file():
        parts, _ = index_parts(source / PICKLES, ".bin")
    else:
        raise UsageError(f"{source} has no {PICKLE}", code=REFUSED)
    for part in parts:
        check_inside(part)
    return parts


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
        raise UsageError(f"{message}; nothing was imported", code=REFUSED)
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
            check_inside(path)
            with friendly_os_errors(path, "read"):
                content = read_bytes(path, LARGE)
            write_atomically(out / path.name, content)
