"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.decode.alternatives import Word, next_words
from regard.decode.engine import make_engine
from regard.decode.ensemble import Ensemble, Mean, scorer
from regard.decode.options import Hypothesis, longest_output
from regard.decode.phrases import Constraint, Lexicon, Phrase
from regard.decode.progress import pieces_needed
from regard.decode.run import decode
from regard.decode.score import answers, ranked_ends, score
from regard.decode.search import Steppable
from regard.text import Special

__all__ = [
    "Constraint",
    "Ensemble",
    "Hypothesis",
    "Lexicon",
    "Mean",
    "Phrase",
    "Special",
    "Steppable",
    "Word",
    "answers",
    "decode",
    "longest_output",
    "make_engine",
    "next_words",
    "pieces_needed",
    "ranked_ends",
    "score",
    "scorer",
]
