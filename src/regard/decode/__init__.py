"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.decode.engine import make_engine
from regard.decode.options import Hypothesis, Special
from regard.decode.run import decode
from regard.decode.score import score

__all__ = ["Hypothesis", "Special", "decode", "make_engine", "score"]
