"""Tensors out of pickles, in a process of its own: `python -I unpickle.py JOB`, where nothing else is opened.

The one place where a pickle is read, by torch's reader that builds tensors and plain containers alone. It has
bounds of memory, time and disk, because a small file may ask for any amount of them. This file imports
nothing of the package, so that the process holds nothing but what it needs.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file

REFUSED = 3  # exit code: the file is not what it should be, and one sentence on stderr says why
SPARE = 2 << 30  # bytes beside what the weights need
SECONDS = 1800  # of the processor
LONGEST_NAME = 1000  # characters


class Refused(Exception):
    pass


def in_short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def bound(size: int) -> None:
    """No more memory, disk and time than weights of this size can need."""
    try:
        import resource
    except ImportError:  # Windows has no such bounds
        return
    for kind, most in (
        (resource.RLIMIT_DATA, 4 * size + SPARE),
        (resource.RLIMIT_FSIZE, 2 * size + (1 << 24)),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name; one that is there under two names comes once."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # the reader's own errors, and whatever broken bytes lead to
        raise Refused(f"is not a file of plain tensors ({in_short(error)})") from None
    if not isinstance(found, dict) or not found:
        raise Refused(f"holds no tensors by name, but a {type(found).__name__}")
    named: dict[object, list[str]] = {}
    for name, tensor in found.items():
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise Refused("names a tensor with something else than a short text")
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
            raise Refused(f"holds {name[:80]!r}, which is no plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise Refused(f"holds {name[:80]!r}, of which a part stands for the whole")  # of any size
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        named.setdefault(place if tensor.numel() else name, []).append(name)
    kept = {min(names, key=rank) for names in named.values()}
    return {name: found[name].detach().contiguous().clone() for name in found if name in kept}


def rank(name: str) -> tuple[bool, bool]:
    """Of the names of one tensor that of the embedding counts, which others are tied to."""
    return "shared" not in name, name.startswith(("lm_head.", "cls."))


def main(job: str) -> int:
    """Each file of a job to a safetensors file; the names of the tensors go to stdout."""
    files: list[list[str]] = json.loads(job)
    bound(sum(Path(source).stat().st_size for source, _ in files))
    names = []
    for source, out in files:
        try:
            tensors = read(Path(source))
            save_file(tensors, out, {"format": "pt"})
            names.append(sorted(tensors))
        except Refused as error:
            print(f"{source} {error}", file=sys.stderr)
            return REFUSED
        except (MemoryError, RuntimeError, OSError) as error:
            print(f"{source} cannot be turned into safetensors ({in_short(error)})", file=sys.stderr)
            return REFUSED
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
