"""What a model is asked: the only place where tasks differ in training."""

from regard.data.objectives.answers import Answers, Window
from regard.data.objectives.base import Arranged, AsTheyStand, Columns, Dice, Objective
from regard.data.objectives.continuation import Continuation
from regard.data.objectives.hidden import HiddenSpans, HiddenWords
from regard.data.objectives.labels import Labels, Tags
from regard.data.objectives.pairs import Pairs, Translation

__all__ = [
    "Answers",
    "Arranged",
    "AsTheyStand",
    "Columns",
    "Continuation",
    "Dice",
    "HiddenSpans",
    "HiddenWords",
    "Labels",
    "Objective",
    "Pairs",
    "Tags",
    "Translation",
    "Window",
]
