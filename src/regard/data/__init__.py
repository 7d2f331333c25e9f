"""Files to `Example`, `Example` to `Sample` by the task's objective, `Sample` to `Batch`."""

from typing import TYPE_CHECKING

from regard.data.batches import epoch_pools, plan
from regard.data.corpora import read_examples
from regard.data.dataset import Dataset, tokenize
from regard.data.example import IGNORED, Example, Sample
from regard.data.files import lines
from regard.data.objectives import Objective, Translation

if TYPE_CHECKING:
    from regard.data.batch import Batch, Tokens, collate

__all__ = [
    "IGNORED",
    "Batch",
    "Dataset",
    "Example",
    "Objective",
    "Sample",
    "Tokens",
    "Translation",
    "collate",
    "epoch_pools",
    "lines",
    "plan",
    "read_examples",
    "tokenize",
]


def __getattr__(name: str) -> object:
    """What is made of tensors on first use: checking a corpus need not wait for torch."""
    if name in ("Batch", "Tokens", "collate"):
        from regard.data import batch

        return getattr(batch, name)
    raise AttributeError(f"module 'regard.data' has no attribute {name!r}")
