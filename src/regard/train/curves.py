"""The curves of a run as a picture in its folder."""

from __future__ import annotations

import io
from pathlib import Path

from regard.store import write_atomically
from regard.train.progress import FILE, Record, read_metrics


def draw_curves(folder: Path) -> Path:
    """`curves.png`: loss, validation score and learning rate over the updates."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = read_metrics(folder / FILE)
    training = [record for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    _curve(left, training, "loss", "training (smoothed)")
    _curve(left, valid, "loss", "validation", marker="o")
    left.set(title="loss per token", xlabel="update")
    _curve(middle, valid, "bleu", "BLEU", marker="o")
    _curve(middle, valid, "chrf", "chrF", marker="o")
    middle.set(title="validation, greedy", xlabel="update")
    _curve(right, training, "lr", "learning rate")
    right.set(title="learning rate", xlabel="update")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        if axes.has_data():
            axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    plt.close(figure)
    write_atomically(folder / "curves.png", picture.getvalue())
    return folder / "curves.png"


def _curve(axes: object, records: list[Record], key: str, label: str, marker: str = "") -> None:
    points = [(record["step"], record[key]) for record in records if key in record]
    if points:
        axes.plot(*zip(*points), label=label, marker=marker, markersize=3)  # type: ignore[attr-defined]
