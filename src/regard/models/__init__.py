"""Attention, positions, layers, state, the Transformer, and the families built from them."""

from regard.models.attention import attend, visible, weights
from regard.models.encoder import EncoderOnly
from regard.models.families import GenerativeModel, Model, build, build_meta, parameters
from regard.models.recurrent import RecurrentEncoderDecoder
from regard.models.state import State
from regard.models.tap import Tap
from regard.models.transformer import EncoderDecoder, LanguageModel

__all__ = [
    "EncoderDecoder",
    "EncoderOnly",
    "GenerativeModel",
    "LanguageModel",
    "Model",
    "RecurrentEncoderDecoder",
    "State",
    "Tap",
    "attend",
    "build",
    "build_meta",
    "parameters",
    "visible",
    "weights",
]
