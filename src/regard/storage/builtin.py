"""Find the folder of a model name: of the user, of a pulled model, or of a built-in model."""

from __future__ import annotations

from pathlib import Path

from regard.errors import UsageError, near_miss
from regard.storage.pulled import as_hub_name, find_pulled, pulled_models

PLACE = Path(__file__).parents[1] / "builtin" / "models"


def names() -> list[str]:
    """The built-in models, for lessons and first tries."""
    return sorted(folder.name for folder in PLACE.iterdir() if folder.is_dir()) if PLACE.is_dir() else []


def translators() -> dict[tuple[str, str], str]:
    """The built-in translators by source and target: the name ends with both, as in x-en-de."""
    endings = {name: tuple(name.split("-")[-2:]) for name in names()}
    pairs = {(pair[0], pair[1]): name for name, pair in endings.items() if list(map(len, pair)) == [2, 2]}
    return dict(sorted(pairs.items(), key=lambda item: item[0][0] != "en"))


def find_model(path: Path) -> Path:
    """A folder, else a pulled model, else a built-in model of that name; nothing is downloaded."""
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is not a folder")
    name = path.as_posix()
    hub_name = as_hub_name(name)
    if hub_name is not None and (pulled := find_pulled(hub_name)) is not None:
        return pulled.path
    if name in names():
        return PLACE / path
    near = near_miss(name, [*names(), *(each.name for each in pulled_models())])
    others = f"; built-in models: {', '.join(names())}" if names() and len(path.parts) == 1 else ""
    hub = "" if hub_name is None else f'; "regard models pull {name}" downloads it if it is on the hub'
    raise UsageError(f"{path}: no such folder{hub}{near or others}")
