"""Attention, positions, layers, state, the Transformer, and the families built from them."""

from regard.model.attention import attend, visible, weights
from regard.model.encoder import EncoderOnly
from regard.model.families import Model, Writing, build, outline, parameters
from regard.model.recurrent import RecurrentEncoderDecoder
from regard.model.state import State
from regard.model.tap import Tap
from regard.model.transformer import EncoderDecoder, LanguageModel

__all__ = [
    "EncoderDecoder",
    "EncoderOnly",
    "LanguageModel",
    "Model",
    "RecurrentEncoderDecoder",
    "State",
    "Tap",
    "Writing",
    "attend",
    "build",
    "outline",
    "parameters",
    "visible",
    "weights",
]
