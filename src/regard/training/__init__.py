"""Loss, schedule, the loop, evaluation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.training.evaluate import text_scores
    from regard.training.progress import Listener, Record, Silent
    from regard.training.replaying import replay
    from regard.training.run import Outcome, train

__all__ = ["Listener", "Outcome", "Record", "Silent", "replay", "text_scores", "train"]
HOMES = {
    "text_scores": "evaluate",
    "replay": "replaying",
    **dict.fromkeys(("Listener", "Record", "Silent"), "progress"),
    **dict.fromkeys(("Outcome", "train"), "run"),
}


def __getattr__(name: str) -> object:
    """Each on first use: the tasks need a few measures of this room, and no trainer."""
    if name in HOMES:
        return getattr(import_module(f"regard.training.{HOMES[name]}"), name)
    raise AttributeError(f"module 'regard.training' has no attribute {name!r}")
