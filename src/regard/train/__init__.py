"""Loss, schedule, the loop, evaluation."""

from regard.train.evaluate import text_scores
from regard.train.progress import Listener, Record, Silent
from regard.train.replaying import replay
from regard.train.run import Outcome, train

__all__ = ["Listener", "Outcome", "Record", "Silent", "replay", "text_scores", "train"]
