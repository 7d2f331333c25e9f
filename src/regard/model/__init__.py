"""Attention, positions, layers, state, the Transformer, and the families built from them."""

from regard.model.attention import attend, visible, weights
from regard.model.families import Model, build, parameters
from regard.model.recurrent import RecurrentEncoderDecoder
from regard.model.state import State
from regard.model.tap import Tap
from regard.model.transformer import EncoderDecoder

__all__ = [
    "EncoderDecoder",
    "Model",
    "RecurrentEncoderDecoder",
    "State",
    "Tap",
    "attend",
    "build",
    "parameters",
    "visible",
    "weights",
]
