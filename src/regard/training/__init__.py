"""Training: the run, the trainer, loss, optimizer, distribution, evaluation."""

from regard.compat import old_names
from regard.training.listeners import Listener, Record, RunInfo
from regard.training.run import Outcome, train

__getattr__ = old_names(__name__)
