"""confidence.json of a translation model: weights of a logistic regression on features of a translation.

It holds the SHA-256 of the model's weights for which it was fitted; with other weights it is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.storage.files import friendly_os_errors, read_json, write_json
from regard.storage.weights import log, weights_digest

CONFIDENCE = "confidence.json"


@dataclass(frozen=True)
class ConfidenceModel:
    """p(usable) = 1 / (1 + exp(-(bias + sum_i weights_i * features_i)))"""

    features: Sequence[str]  # names
    weights: Sequence[float]
    bias: float
    warn_below: float  # a translation of less is reported

    def probability(self, values: Sequence[float]) -> float:
        total = self.bias + sum(weight * value for weight, value in zip(self.weights, values, strict=True))
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, total))))


def write_confidence(folder: Path, model: ConfidenceModel, measured: dict[str, Any]) -> None:
    with friendly_os_errors(folder, "read"):
        digest = weights_digest(folder)
    write_json(folder / CONFIDENCE, {**asdict(model), "model": digest, "measured": measured})


def read_confidence(folder: Path) -> ConfidenceModel | None:
    """None if the folder has none, or one that was fitted for other weights."""
    path = folder / CONFIDENCE
    if not path.is_file():
        return None
    content = read_json(path)
    names, weights = content.get("features"), content.get("weights")
    if (
        not isinstance(names, list)
        or not isinstance(weights, list)
        or len(names) != len(weights)
        or not all(is_number(each) for each in [content.get("bias"), content.get("warn_below"), *weights])
    ):
        message = f'{path}: "bias", "warn_below" and a weight for each feature must be numbers; delete it'
        raise UsageError(message, code="E_MODEL_CONFIDENCE")
    with friendly_os_errors(folder, "read"):
        is_current = content.get("model") == weights_digest(folder)
    if not is_current:
        log.warning("%s was fitted for other weights and is ignored", path)
        return None
    values = [float(each) for each in weights]
    return ConfidenceModel(names, values, float(content["bias"]), float(content["warn_below"]))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
