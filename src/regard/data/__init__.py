"""Files to `Example`, `Example` to `Sample` by the task's objective, `Sample` to `Batch`."""

from regard.data.batches import plan
from regard.data.corpora import read_examples
from regard.data.dataset import Dataset, tokenize
from regard.data.example import IGNORED, Batch, Example, Sample, Tokens, collate
from regard.data.files import lines
from regard.data.objective import Translation

__all__ = [
    "IGNORED",
    "Batch",
    "Dataset",
    "Example",
    "Sample",
    "Tokens",
    "Translation",
    "collate",
    "lines",
    "plan",
    "read_examples",
    "tokenize",
]
