"""Text in, answer out."""

from regard.compat import old_names
from regard.tasks.answerer import Answer, Answered, Answerer
from regard.tasks.classifier import Classification, Classifier, Label
from regard.tasks.embedder import Embedder, Embedding
from regard.tasks.filler import Filler
from regard.tasks.generator import Generator
from regard.tasks.load import load, load_as
from regard.tasks.tagger import Entity, Tagger, Tagging, Word
from regard.tasks.translation import Alternative, Candidate, PhraseConstraints, Split, TooLong, Translation
from regard.tasks.translator import Translator, decode_options

__all__ = [
    "Alternative",
    "Answer",
    "Answered",
    "Answerer",
    "Candidate",
    "Classification",
    "Classifier",
    "Embedder",
    "Embedding",
    "Entity",
    "Filler",
    "Generator",
    "Label",
    "PhraseConstraints",
    "Split",
    "Tagger",
    "Tagging",
    "TooLong",
    "Translation",
    "Translator",
    "Word",
    "decode_options",
    "load",
    "load_as",
]

__getattr__ = old_names(__name__)
