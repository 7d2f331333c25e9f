"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.decode.alternatives import Word, next_words
from regard.decode.engine import Engine, make_engine
from regard.decode.ensemble import Ensemble, Mean, scorer
from regard.decode.lanes import Lanes
from regard.decode.options import Hypothesis, longest_output
from regard.decode.phrases import Constraint, Lexicon, Phrase
from regard.decode.pool import Handle, Pool
from regard.decode.progress import pieces_needed
from regard.decode.run import decode, decode_all
from regard.decode.score import answers, ranked_ends, score
from regard.decode.sources import Steppable, Wish
from regard.text import Special

__all__ = [
    "Constraint",
    "Engine",
    "Ensemble",
    "Handle",
    "Hypothesis",
    "Lanes",
    "Lexicon",
    "Mean",
    "Phrase",
    "Pool",
    "Special",
    "Steppable",
    "Wish",
    "Word",
    "answers",
    "decode",
    "decode_all",
    "longest_output",
    "make_engine",
    "next_words",
    "pieces_needed",
    "ranked_ends",
    "score",
    "scorer",
]
