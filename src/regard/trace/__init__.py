"""One run recorded: every tensor by name, and what can be read off it."""

from regard.trace.alignment import Links, align, cross_weights, links, pharaoh, word_weights
from regard.trace.recorder import Recorder

__all__ = ["Links", "Recorder", "align", "cross_weights", "links", "pharaoh", "word_weights"]
