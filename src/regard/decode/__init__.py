"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.decode.options import Hypothesis, Special
from regard.decode.run import decode
from regard.decode.score import score

__all__ = ["Hypothesis", "Special", "decode", "score"]
