"""Fit and measure the confidence of a translation model: confidence.json, and a section of its card.

A translation counts as usable if its chrF is at least 40; one of a text in another language, or of random
letters, never does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF

from regard.evaluation import Data, read_test_set
from regard.storage import write_text
from regard.storage.confidence import ConfidenceModel, write_confidence
from regard.storage.models import find_model
from regard.tasks import Translator, load
from regard.tasks.confidence import FEATURES

Array = NDArray[np.float64]
USABLE = 40.0  # chrF
WARNED = 0.08  # share of everyday texts that may be warned of
HALF = 0.5  # a translation that is more probably unusable is warned of, if that is not too often
RIDGE = 1e-3
MOST_OTHERS = 1000  # texts of each other kind
LENGTHS = (1, 5, 8, 12, 10**9)  # bins of words of the source
BINS = 10  # of the reliability diagram
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SECTION = "## Confidence\n"


class FeatureRows:
    """In place of a model's confidence: keeps the features, and returns the number of their row."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []

    def probability(self, values: Sequence[float]) -> float:
        self.rows.append(list(values))
        return float(len(self.rows) - 1)


@dataclass(frozen=True)
class Scored:
    """Texts with the features of their translations."""

    texts: Sequence[str]
    features: Array  # [N, features]
    usable: Array  # [N], 0 or 1


def fit_confidence(
    model: str | Path,
    data: Data | None = None,
    other_languages: Sequence[str] = (),
    *,
    threads: int = 0,
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Fit the confidence of a model on pairs that it was not trained on; returns what was measured.

    One half of the pairs is fitted, the other measured; `other_languages` are texts in such, and texts of
    random letters are made from the sources. Writes confidence.json and a section of the card.
    """
    task = load(model, "cpu", threads=threads)
    assert isinstance(task, Translator)
    pairs = [(each.source, each.target) for each in read_test_set(task.folder, data)]
    everyday = score_pairs(task, [source for source, _ in pairs], [target for _, target in pairs])
    others = {
        "other-language": score_pairs(task, other_languages[:MOST_OTHERS]),
        "nonsense": score_pairs(task, [*nonsense(pairs[:MOST_OTHERS])]),
    }
    halves = [[half_of(each, start) for each in (everyday, *others.values())] for start in (0, 1)]
    fitted = fit(halves[0])
    measured = measure(fitted, dict(zip(("everyday", *others), halves[1])))
    path = find_model(Path(model))
    write_confidence(path, fitted, measured)
    write_section(path / "README.md", section(measured))
    log(f"confidence of {path}: AUC {measured['auc']:.3f}, calibration error {measured['ece']:.3f}")
    return measured


def score_pairs(task: Translator, texts: Sequence[str], references: Sequence[str] | None = None) -> Scored:
    """Translate texts; without references their translations are not usable."""
    recorder = FeatureRows()
    task.confidence = cast(Any, recorder)
    results = task.translate_lines(list(texts), split="never", other_language="translate")
    chrf = CHRF()
    rows, usable, kept = [], [], []
    for number, result in enumerate(results):
        if result.candidates and result.candidates[0].tokens and not result.kept:
            is_usable = references is not None and (
                chrf.sentence_score(result.text, [references[number]]).score >= USABLE
            )
            rows.append(recorder.rows[int(result.confidence or 0)])
            usable.append(float(is_usable))
            kept.append(result.source)
    return Scored(kept, np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES)), np.array(usable))


def nonsense(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Sources with a random letter for each."""
    rng = random.Random(1)
    for source, _ in pairs:
        yield re.sub(r"[^\W\d_]", lambda match: rng.choice(LETTERS), source)


def half_of(scored: Scored, start: int) -> Scored:
    return Scored(scored.texts[start::2], scored.features[start::2], scored.usable[start::2])


def fit(parts: Sequence[Scored]) -> ConfidenceModel:
    """Logistic regression by Newton's method on standardised features; everyday texts come first.

    Texts of other kinds count a quarter of everyday ones, all together: they are easy to recognise.
    """
    rows = np.concatenate([each.features for each in parts])
    labels = np.concatenate([each.usable for each in parts])
    others = max(1, len(rows) - len(parts[0].texts))
    share = 0.25 * len(parts[0].texts) / others
    counts = np.concatenate(
        [np.full(len(each.texts), 1.0 if at == 0 else share) for at, each in enumerate(parts)]
    )
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    inputs = np.column_stack([np.ones(len(rows)), (rows - mean) / scale])  # [N, 1 + features]
    weights = np.zeros(inputs.shape[1])
    for _ in range(30):
        p = sigmoid(inputs @ weights)
        gradient = inputs.T @ (counts * (labels - p)) - RIDGE * len(rows) * weights
        hessian = (inputs * (counts * p * (1 - p))[:, None]).T @ inputs
        weights += np.linalg.solve(hessian + RIDGE * len(rows) * np.eye(len(weights)), gradient)
    raw = weights[1:] / scale
    model = ConfidenceModel(FEATURES, raw.tolist(), float(weights[0] - raw @ mean), 0.0)
    everyday = np.sort(probabilities(model, parts[0]))
    below = min(HALF, float(everyday[int(WARNED * len(everyday))])) if len(everyday) else HALF
    return ConfidenceModel(model.features, model.weights, model.bias, below)


def sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -50, 50))))


def probabilities(model: ConfidenceModel, part: Scored) -> Array:
    return sigmoid(part.features @ np.array(model.weights) + model.bias)


def measure(model: ConfidenceModel, parts: dict[str, Scored]) -> dict[str, Any]:
    """What confidence is worth on texts that it was not fitted on."""
    everyday = parts["everyday"]
    p, usable = probabilities(model, everyday), everyday.usable
    diagram = reliability(p, usable)
    error = sum(row["texts"] * abs(row["predicted"] - row["usable"]) for row in diagram) / len(p)
    return {
        "usable": f"chrF >= {USABLE:g}",
        "texts": len(p),
        "share_usable": round(float(usable.mean()), 4),
        "auc": auc(p, usable),
        "auc_by_length": by_length(model, [everyday]),
        "auc_by_length_of_all": by_length(model, [*parts.values()]),
        "ece": round(error, 4),
        "reliability": diagram,
        "warn_below": model.warn_below,
        "warned": {
            name: round(float((probabilities(model, each) < model.warn_below).mean()), 4)
            for name, each in parts.items()
            if len(each.texts)
        },
    }


def by_length(model: ConfidenceModel, parts: Sequence[Scored]) -> list[dict[str, Any]]:
    """AUC of texts of similar length, in words."""
    words = np.array([len(text.split()) for each in parts for text in each.texts])
    p = np.concatenate([probabilities(model, each) for each in parts])
    usable = np.concatenate([each.usable for each in parts])
    return [
        {"words": low, "texts": int(chosen.sum()), "auc": auc(p[chosen], usable[chosen])}
        for low, high in pairwise(LENGTHS)
        for chosen in [(words >= low) & (words < high)]
    ]


def auc(scores: Array, labels: Array) -> float | None:
    """The probability that a usable translation has a higher score than one that is not (ties count half)."""
    positive, negative = scores[labels == 1], np.sort(scores[labels == 0])
    if not len(positive) or not len(negative):
        return None
    below = np.searchsorted(negative, positive, "left") + np.searchsorted(negative, positive, "right")
    return round(float(below.mean() / 2 / len(negative)), 4)


def reliability(p: Array, usable: Array) -> list[dict[str, Any]]:
    """Mean confidence and share of usable texts in each bin that has texts."""
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    return [
        {
            "from": number / BINS,
            "texts": int(chosen.sum()),
            "predicted": round(float(p[chosen].mean()), 4),
            "usable": round(float(usable[chosen].mean()), 4),
        }
        for number in range(BINS)
        for chosen in [place == number]
        if chosen.any()
    ]


# --- the card


def section(measured: dict[str, Any]) -> str:
    """The section of the card, with the reliability diagram."""
    warned = ", ".join(f"{share:.1%} of {name} texts" for name, share in measured["warned"].items())
    lengths, lengths_of_all = (
        ", ".join(f"{row['auc']:.2f}" for row in measured[name] if row["auc"] is not None)
        for name in ("auc_by_length", "auc_by_length_of_all")
    )
    bins = ", ".join(str(row["words"]) for row in measured["auc_by_length"])
    rows = [
        f"| {row['from']:.1f} | {row['texts']:,} | {row['predicted']:.2f} | {row['usable']:.2f} | "
        f"{'█' * round(20 * row['usable'])}{'░' * (20 - round(20 * row['usable']))} |"
        for row in measured["reliability"]
    ]
    return "\n".join(
        [
            SECTION,
            f"The probability that a translation is usable ({measured['usable']}), measured on "
            f"{measured['texts']:,} everyday texts that it was not fitted on, of which "
            f"{measured['share_usable']:.0%} are usable: AUC {measured['auc']:.2f} (of texts of at least "
            f"{bins} words: {lengths}; with texts in another language and nonsense: {lengths_of_all}), "
            f"expected calibration error {measured['ece']:.3f}. A confidence below "
            f"{measured['warn_below']:.2f} is reported. "
            f"Warned: {warned}.",
            "",
            "| confidence from | texts | mean confidence | usable | |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "",
        ]
    )


def write_section(card: Path, text: str) -> None:
    """Put the section before "Use", in place of an earlier one."""
    content = card.read_text(encoding="utf-8") if card.is_file() else ""
    content = re.sub(rf"{SECTION}.*?(?=^## |\Z)", "", content, flags=re.DOTALL | re.MULTILINE)
    place = content.find("## Use\n")
    place = len(content) if place < 0 else place
    write_text(card, content[:place] + text + content[place:])
