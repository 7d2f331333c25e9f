"""Read tensors from pickles, in a separate process: `python -I unpickle.py JOB`.

The one place where a pickle is read, with torch.load(weights_only=True), which builds only tensors and plain
containers. It has limits of memory, time and disk, because a small file can request any amount of them. This
file imports nothing of the package, so that the process contains only what it needs.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file

REFUSED = 3  # exit code: the file is refused, with the reason on stderr
SPARE = 2 << 30  # bytes in addition to the weights
SECONDS = 1800  # of CPU time
LONGEST_NAME = 1000  # characters


class RefusedPickle(Exception):
    """The file contains something else than named tensors."""


def in_short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def set_limits(size: int) -> None:
    """Limit memory, disk and time to what weights of this size need."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
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
    """The tensors of a file by name; a tensor with two names is returned once."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # of the reader, and of invalid bytes
        raise RefusedPickle(f"is not a file of plain tensors ({in_short(error)})") from None
    if not isinstance(content, dict) or not content:
        raise RefusedPickle(f"contains no named tensors, but a {type(content).__name__}")
    aliases: dict[object, list[str]] = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise RefusedPickle("has a tensor whose name is not a short string")
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
            raise RefusedPickle(f"contains {name[:80]!r}, which is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            # an expanded view of a few numbers can have any size
            raise RefusedPickle(f"contains {name[:80]!r}, which is larger than its data")
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        aliases.setdefault(place if tensor.numel() else name, []).append(name)
    chosen = {min(names, key=rank) for names in aliases.values()}
    return {name: content[name].detach().contiguous().clone() for name in content if name in chosen}


def rank(name: str) -> tuple[bool, bool]:
    """Of the names of a tied tensor, prefer that of the embedding."""
    return "shared" not in name, name.startswith(("lm_head.", "cls."))


def main(job: str) -> int:
    """Convert each file of a job to safetensors; print the names of the tensors."""
    files: list[list[str]] = json.loads(job)
    set_limits(sum(Path(source).stat().st_size for source, _ in files))
    names = []
    for source, out in files:
        try:
            tensors = read(Path(source))
            save_file(tensors, out, {"format": "pt"})
            names.append(sorted(tensors))
        except RefusedPickle as error:
            print(f"{source} {error}", file=sys.stderr)
            return REFUSED
        except (MemoryError, RuntimeError, OSError) as error:
            print(f"{source} cannot be converted to safetensors ({in_short(error)})", file=sys.stderr)
            return REFUSED
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
