"""Choosing tokens: beam search, sampling and scoring, for every model."""

from regard.generation.alternatives import NextWord, next_words
from regard.generation.constraints import Constraint, Lexicon, Phrase
from regard.generation.engine import Engine, make_engine
from regard.generation.ensemble import Ensemble, Mean, scorer
from regard.generation.generate import decode, generate
from regard.generation.requests import Hypothesis, Request, Steppable, longest_output
from regard.generation.scheduler import Handle, Scheduler
from regard.generation.score import answers, ranked_ends, score
from regard.inputs.text import SpecialTokens

Wish = Request  # the name in earlier versions

__all__ = [
    "Constraint",
    "Engine",
    "Ensemble",
    "Handle",
    "Hypothesis",
    "Lexicon",
    "Mean",
    "NextWord",
    "Phrase",
    "Request",
    "Scheduler",
    "SpecialTokens",
    "Steppable",
    "Wish",
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
