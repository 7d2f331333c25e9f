"""One run recorded: every tensor by name, and what can be read off it."""

from regard.interpret.alignment import Links, align, cross_weights, links, pharaoh, word_weights
from regard.interpret.beam import BeamTree, Node
from regard.interpret.comparison import Comparison, compare
from regard.interpret.interventions import Change, Changed, Intervening, TokenChange, parse
from regard.interpret.pieces import Pieces
from regard.interpret.recorder import Recorder
from regard.interpret.trace import Trace

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
