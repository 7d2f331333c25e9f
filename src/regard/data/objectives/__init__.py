"""Objectives: from rows of text to what a model reads and predicts. Tasks differ only here in training."""

from regard.data.dataset import Encodings, Objective
from regard.data.objectives.frames import ClassifyFrames, FrameObjective, FramesToText
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
    "ClassifyFrames",
    "ContextWindow",
    "Encodings",
    "ExtractiveQA",
    "FrameObjective",
    "FramesToText",
    "MaskedLM",
    "Objective",
    "Seq2Seq",
    "SpanCorruption",
    "Tag",
    "split_labels",
]
