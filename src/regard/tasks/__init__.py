"""Text in, answer out."""

from regard.tasks.lines import TooLong
from regard.tasks.results import Alternative, Candidate, Translation
from regard.tasks.segments import Split
from regard.tasks.translator import Translator, decode_options, load
from regard.tasks.wishes import Wish

__all__ = [
    "Alternative",
    "Candidate",
    "Split",
    "TooLong",
    "Translation",
    "Translator",
    "Wish",
    "decode_options",
    "load",
]
