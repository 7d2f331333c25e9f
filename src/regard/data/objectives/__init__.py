"""Objectives: from rows of text to what a model reads and predicts. Tasks differ only here in training."""

from regard.data.dataset import BatchLayout, Encodings, Objective, RowWise
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
    "BatchLayout",
    "CausalLM",
    "Classify",
    "ContextWindow",
    "Encodings",
    "ExtractiveQA",
    "MaskedLM",
    "Objective",
    "RowWise",
    "Seq2Seq",
    "SpanCorruption",
    "Tag",
    "split_labels",
]
