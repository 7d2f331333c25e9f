"""Training: the run, the trainer, loss, optimizer, distribution, evaluation."""

from regard.training.progress import Listener, NullListener, Record
from regard.training.run import Outcome, train

__all__ = ["Listener", "NullListener", "Outcome", "Record", "train"]
