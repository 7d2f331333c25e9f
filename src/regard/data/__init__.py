"""Files to rows of text, rows to samples by the task's objective, samples to batches of similar lengths."""

from regard.compat import old_names
from regard.data.batches import epoch_pools, plan
from regard.data.corpora import has_rows, iter_examples, read_examples
from regard.data.dataset import Dataset
from regard.data.files import lines, text_lines
from regard.data.objectives import Objective, Seq2Seq

__getattr__ = old_names(__name__)
