"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.compat import old_names
from regard.generation.alternatives import NextWord, next_words
from regard.generation.constraints import Constraint, ConstraintPhrase, Lexicon
from regard.generation.engine import Engine, make_engine
from regard.generation.ensemble import Ensemble, Mean, scorer
from regard.generation.generate import decode, generate
from regard.generation.requests import Hypothesis, Request, Steppable, longest_output
from regard.generation.scheduler import Handle, Scheduler
from regard.generation.score import answers, ranked_ends, score
from regard.inputs.text import SpecialTokens

__getattr__ = old_names(__name__)

__all__ = [
    "Constraint",
    "ConstraintPhrase",
    "Engine",
    "Ensemble",
    "Handle",
    "Hypothesis",
    "Lexicon",
    "Mean",
    "NextWord",
    "Request",
    "Scheduler",
    "SpecialTokens",
    "Steppable",
    "answers",
    "decode",
    "generate",
    "longest_output",
    "make_engine",
    "next_words",
    "ranked_ends",
    "score",
    "scorer",
]
