"""Files to rows of text, rows to samples by the task's objective, samples to batches of similar lengths."""

from regard.data.batches import epoch_pools, plan
from regard.data.corpora import read_examples
from regard.data.dataset import Dataset
from regard.data.files import lines
from regard.data.objectives import Objective, Seq2Seq

__all__ = ["Dataset", "Objective", "Seq2Seq", "epoch_pools", "lines", "plan", "read_examples"]
