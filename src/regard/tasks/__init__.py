"""Text in, answer out."""

from regard.tasks.segments import Split
from regard.tasks.translator import Candidate, Translation, Translator, decode_options, load

__all__ = ["Candidate", "Split", "Translation", "Translator", "decode_options", "load"]
