"""Traces: one recorded run of a model, with readings, interventions, figures and a page."""

from regard.compat import old_names
from regard.generation.alignment import Links, align, cross_weights, links, pharaoh, word_weights
from regard.interpret.activations import Node, TracedTokens
from regard.interpret.interventions import parse
from regard.interpret.predictions import TraceComparison, compare
from regard.interpret.record import BeamTree
from regard.interpret.trace import Trace
from regard.models.recorder import Recorder

__getattr__ = old_names(__name__)
