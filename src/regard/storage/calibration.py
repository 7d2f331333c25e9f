"""calibration.json: the range of the activations that each linear layer reads, for int8 inference.

The ranges belong to the weights on which they were measured: the file holds the SHA-256 of these weights, and
is ignored with a warning when the folder has other weights by now.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path

from regard.compat import current_weight_names
from regard.errors import UsageError
from regard.storage.checksums import digest, sha256_of
from regard.storage.files import friendly_os_errors, read_json, write_json
from regard.storage.weights import CALIBRATION, weight_files

ActivationRange = tuple[float, float]  # smallest and largest value
Calibration = dict[str, ActivationRange]  # by the name of the layer
COPYING = 60.0  # seconds that may lie between the times of two files of a copied folder
log = logging.getLogger(__name__)


def write_calibration(folder: Path, ranges: Mapping[str, ActivationRange], origin: str) -> None:
    """Write the ranges into a model folder or a checkpoint, with the hash of its weights."""
    with friendly_os_errors(folder, "read"):
        weights = weights_digest(folder)
    write_json(folder / CALIBRATION, {"texts": origin, "weights": weights, "ranges": ranges})


def read_calibration(folder: Path) -> Calibration:
    """The ranges of a folder; {} if it was never calibrated, or has other weights since."""
    path = folder / CALIBRATION
    if not path.is_file():
        return {}
    content = read_json(path)
    ranges = content.get("ranges", content.get("reaches"))  # "reaches": files without a hash
    if not isinstance(ranges, dict) or not all(is_range(each) for each in ranges.values()):
        raise UsageError(f'{path}: "ranges" must hold [smallest, largest] of each layer; delete the file')
    with friendly_os_errors(folder, "read"):
        is_current = _is_current(folder, content.get("weights"))
    if not is_current:
        log.warning('%s was measured on other weights and is ignored; run "regard calibrate" again', path)
        return {}
    return current_weight_names({name: (float(low), float(high)) for name, (low, high) in ranges.items()})


def _is_current(folder: Path, expected: object) -> bool:
    """A file of an older version has no hash: there the weights must not be newer than the ranges."""
    if expected is not None:
        return expected == weights_digest(folder)
    written = max(path.stat().st_mtime for path in weight_files(folder))
    return written <= (folder / CALIBRATION).stat().st_mtime + COPYING


def weights_digest(folder: Path) -> str:
    """SHA-256 of the weights file; of several parts, that of the list of their hashes."""
    parts = weight_files(folder)
    if len(parts) == 1:
        return digest(parts[0])
    return sha256_of("".join(f"{digest(path)}  {path.name}\n" for path in parts).encode())


def is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) in (int, float) and math.isfinite(each) for each in value)
        and value[0] <= value[1]
    )
