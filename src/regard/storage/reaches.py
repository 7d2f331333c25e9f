"""calibration.json: how far the numbers reach that each product of a model reads, as texts showed."""

from __future__ import annotations

import math
from pathlib import Path

from regard.errors import UsageError
from regard.storage.files import read_json, write_json

CALIBRATION = "calibration.json"
Reaches = dict[str, tuple[float, float]]


def write_reaches(folder: Path, reaches: Reaches, origin: str) -> None:
    write_json(folder / CALIBRATION, {"texts": origin, "reaches": reaches})


def read_reaches(folder: Path) -> Reaches:
    """None is none: not every folder was measured."""
    path = folder / CALIBRATION
    if not path.is_file():
        return {}
    told = read_json(path).get("reaches")
    if not isinstance(told, dict) or not all(is_reach(each) for each in told.values()):
        raise UsageError(f'{path}: "reaches" must name [smallest, largest] of each product; delete the file')
    return {name: (float(low), float(high)) for name, (low, high) in told.items()}


def is_reach(told: object) -> bool:
    return (
        isinstance(told, list)
        and len(told) == 2
        and all(type(each) in (int, float) and math.isfinite(each) for each in told)
        and told[0] <= told[1]
    )
