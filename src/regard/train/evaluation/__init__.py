"""How good a model is on held-out text, task by task; the trainer knows only `validate` and `final`."""

from regard.train.evaluation.base import Evaluation
from regard.train.evaluation.choose import make_evaluation, make_objective

__all__ = ["Evaluation", "make_evaluation", "make_objective"]
