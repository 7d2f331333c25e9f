"""Which folder a model's name means: one of the user, one that was pulled, or one of the package."""

from __future__ import annotations

from pathlib import Path

from regard.errors import UsageError, near_miss
from regard.storage import models

PLACE = Path(__file__).parents[1] / "builtin" / "models"


def names() -> list[str]:
    """The small models that come with the package, for lessons and first tries."""
    return sorted(folder.name for folder in PLACE.iterdir() if folder.is_dir()) if PLACE.is_dir() else []


def translators() -> dict[tuple[str, str], str]:
    """The package's translators by source and target: a folder's name ends with both, as in x-en-de."""
    named = {name: tuple(name.split("-")[-2:]) for name in names()}
    pairs = {(pair[0], pair[1]): name for name, pair in named.items() if list(map(len, pair)) == [2, 2]}
    return dict(sorted(pairs.items(), key=lambda item: item[0][0] != "en"))


def find_model(path: Path) -> Path:
    """A folder of the user, else the pulled model of that name, else the package's; nothing is fetched."""
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is not a folder")
    name = path.as_posix()
    wanted = models.as_wanted(name)
    if wanted is not None and (pulled := models.find(wanted)) is not None:
        return pulled.path
    if name in names():
        return PLACE / path
    near = near_miss(name, [*names(), *(each.name for each in models.here())])
    known = f"; the package has {', '.join(names())}" if names() and len(path.parts) == 1 else ""
    hub = "" if wanted is None else f'; if the hub has it, "regard models pull {name}" brings it'
    raise UsageError(f"{path}: no such folder{hub}{near or known}")
