"""Files to `Example`, `Example` to `Sample` by the task's objective, samples to batches by length."""

from regard.data.batches import epoch_pools, plan
from regard.data.corpora import read_examples
from regard.data.dataset import Dataset, tokenize
from regard.data.files import lines
from regard.data.objectives import Objective, Translation

__all__ = ["Dataset", "Objective", "Translation", "epoch_pools", "lines", "plan", "read_examples", "tokenize"]
