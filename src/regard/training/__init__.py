"""Loss, schedule, the loop, evaluation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.metrics.bleu import text_scores
    from regard.training.progress import Listener, Record, Silent
    from regard.training.replaying import replay
    from regard.training.run import Outcome, train

__all__ = ["Listener", "Outcome", "Record", "Silent", "replay", "text_scores", "train"]
HOMES = {
    "text_scores": "metrics.bleu",
    "replay": "training.replaying",
    **dict.fromkeys(("Listener", "Record", "Silent"), "training.progress"),
    **dict.fromkeys(("Outcome", "train"), "training.run"),
}


def __getattr__(name: str) -> object:
    """Imported on first use: importing `regard.training` alone does not import the trainer."""
    if name in HOMES:
        return getattr(import_module(f"regard.{HOMES[name]}"), name)
    raise AttributeError(f"module 'regard.training' has no attribute {name!r}")
