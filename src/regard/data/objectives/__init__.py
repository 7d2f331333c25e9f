"""Objectives: from rows to what a model reads and predicts. Tasks differ only here in training.

Those on pictures and sounds are in `frames`, which is imported where they are used.
"""

from regard.data.dataset import Encodings, Objective
from regard.data.objectives.language import CausalLM, MaskedLM, SpanCorruption
from regard.data.objectives.supervised import (
    Classify,
    ContextWindow,
    ExtractiveQA,
    Seq2Seq,
    Tag,
    split_labels,
)

__all__ = [
    "CausalLM",
    "Classify",
    "ContextWindow",
    "Encodings",
    "ExtractiveQA",
    "MaskedLM",
    "Objective",
    "Seq2Seq",
    "SpanCorruption",
    "Tag",
    "split_labels",
]
