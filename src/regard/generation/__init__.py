"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.generation.alternatives import Word, next_words
from regard.generation.engine import Engine, make_engine
from regard.generation.ensemble import Ensemble, Mean, scorer
from regard.generation.lanes import Lanes
from regard.generation.options import Hypothesis, longest_output
from regard.generation.phrases import Constraint, Lexicon, Phrase
from regard.generation.pool import Handle, Pool
from regard.generation.progress import pieces_needed
from regard.generation.run import decode, decode_all
from regard.generation.score import answers, ranked_ends, score
from regard.generation.sources import Steppable, Wish
from regard.inputs.text import Special

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
