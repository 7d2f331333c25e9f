"""The small models that come with the package, for lessons and first tries."""

from __future__ import annotations

from pathlib import Path

from regard.errors import UsageError, near_miss

PLACE = Path(__file__).parent.parent / "models"


def names() -> list[str]:
    return sorted(folder.name for folder in PLACE.iterdir() if folder.is_dir()) if PLACE.is_dir() else []


def find_model(path: Path) -> Path:
    """A folder, or the package's model of that name; a folder of the user comes first."""
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is not a folder")
    if str(path) in names():
        return PLACE / path
    near = near_miss(str(path), names())
    known = f"; the package has {', '.join(names())}" if names() and len(path.parts) == 1 else ""
    raise UsageError(f"{path}: no such folder{near or known}")
