"""Choosing tokens: beam search, sampling and scoring, for every model.

What only some calls need has its own import: `engine`, `scheduler`, `ensemble`, `constraints` ...
"""

from regard.compat import old_names
from regard.generation.generate import decode, generate
from regard.generation.requests import Hypothesis, Request, Steppable, longest_output
from regard.generation.score import answers, ranked_ends, score
from regard.inputs.text import SpecialTokens

__getattr__ = old_names(__name__)
