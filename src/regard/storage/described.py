"""Facts about what is no model folder: a GGUF file, or an adapter of peft."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

from regard.errors import UsageError, extra
from regard.storage.adapters import ADAPTER_WEIGHTS, CONFIG
from regard.storage.files import read_json
from regard.storage.models import memory
from regard.storage.weights import shapes_in


def describe_path(name: str) -> dict[str, str] | None:
    """Rows of a table for a GGUF file or an adapter; None for anything else."""
    path = Path(name)
    if path.is_file():
        return describe_gguf(path)
    if (path / CONFIG).is_file() and not (path / "config.json").is_file():
        return describe_adapter(path)
    return None


def describe_gguf(path: Path) -> dict[str, str]:
    from regard.storage.gguf.header import read_header

    file = read_header(path)
    with extra("gguf"):
        from gguf import GGMLQuantizationType
    kind = str(file.metadata.get("general.architecture", ""))
    count = sum(prod(each.shape) for each in file.tensors.values())
    sizes: Counter[str] = Counter()
    for each in file.tensors.values():
        sizes[GGMLQuantizationType(each.kind).name] += each.size
    rows = {
        "name": str(file.metadata.get("general.name", path.stem)),
        "format": "GGUF; regard models import makes a model folder of it",
        "task": "generate",
        "family": kind,
        "parameters": f"{count:,}",
        "context": str(file.metadata.get(f"{kind}.context_length", "")),
        "precision": ", ".join(name for name, _ in sizes.most_common()),
        "memory": memory(count),
        "licence": str(file.metadata.get("general.license", "")),
        "path": str(path),
    }
    return {key: value for key, value in rows.items() if value}


def describe_adapter(path: Path) -> dict[str, str]:
    config = read_json(path / CONFIG)
    shapes = shapes_in(path / ADAPTER_WEIGHTS)
    targets = config.get("target_modules")
    if not isinstance(targets, list | str | None):
        raise UsageError(f"{path / CONFIG}: target_modules is no list", code="E_ADAPTER")
    rows = {
        "name": path.name,
        "format": f"adapter of peft ({config.get('peft_type')}); -m BASE+{path} opens it",
        "task": str(config.get("task_type") or ""),
        "base": str(config.get("base_model_name_or_path") or ""),
        "rank": str(config.get("r", "")),
        "on": targets if isinstance(targets, str) else ", ".join(map(str, targets or ())),
        "parameters": f"{sum(map(prod, shapes.values())):,}",
        "path": str(path),
    }
    return {key: value for key, value in rows.items() if value}
