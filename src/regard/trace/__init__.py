"""One run recorded: every tensor by name, and what can be read off it."""

from regard.trace.alignment import Links, align, cross_weights, links, pharaoh, word_weights
from regard.trace.beam import BeamTree, Node
from regard.trace.comparison import Comparison, compare
from regard.trace.interventions import Change, Changed, Intervening, TokenChange, parse
from regard.trace.pieces import Pieces
from regard.trace.recorder import Recorder
from regard.trace.trace import Trace

__all__ = [
    "BeamTree",
    "Change",
    "Changed",
    "Comparison",
    "Intervening",
    "Links",
    "Node",
    "Pieces",
    "Recorder",
    "TokenChange",
    "Trace",
    "align",
    "compare",
    "cross_weights",
    "links",
    "parse",
    "pharaoh",
    "word_weights",
]
