"""The curves of a run as a picture in its folder."""

from __future__ import annotations

import io
from pathlib import Path

from regard.config import load_config
from regard.storage import write_atomically
from regard.training.progress import FILE, Record, read_metrics
from regard.training.report.tasks import TASKS, Measure


def draw_curves(folder: Path) -> Path:
    """`curves.png`: loss, the task's validation scores and learning rate over the updates."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = read_metrics(folder / FILE)
    training = [record for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.6))
    figure.subplots_adjust(left=0.04, right=0.99, bottom=0.14, top=0.9, wspace=0.2)
    config = load_config(folder / "run.toml")
    wording = TASKS[config.task.name]
    per = next(each for each in wording.scores if each.key == "loss")
    smoothed = " (smoothed)" if config.train.label_smoothing else ""
    _curve(left, training, per, f"training{smoothed}")
    _curve(left, valid, per, "validation", marker="o")
    left.set(title=per.name, xlabel="update")
    for score in wording.curves:
        _curve(middle, valid, score, score.name, marker="o")
    middle.set(title=wording.chart, xlabel="update")
    _curve(right, training, Measure("lr", "learning rate"), "learning rate")
    right.set(title="learning rate", xlabel="update")
    right.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))  # short, whatever the rate
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        if axes.has_data():
            axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    plt.close(figure)
    write_atomically(folder / "curves.png", picture.getvalue())
    return folder / "curves.png"


def _curve(axes: object, records: list[Record], measure: Measure, label: str, marker: str = "") -> None:
    found = [(record["step"], measure.of(record)) for record in records]
    points = [(step, value) for step, value in found if value is not None]
    if points:
        axes.plot(*zip(*points), label=label, marker=marker, markersize=3)  # type: ignore[attr-defined]
