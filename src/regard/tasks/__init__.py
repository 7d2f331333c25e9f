"""Text in, answer out. The classes of models are imported on first use: results and specs need no torch."""

from typing import TYPE_CHECKING

from regard.compat import lazy_names
from regard.tasks.results import (
    Alternative,
    Answer,
    AnswerResult,
    Candidate,
    Caption,
    Classification,
    Embedding,
    Entity,
    Filling,
    Generation,
    Label,
    Results,
    SpokenSegment,
    SpokenWord,
    Tagging,
    TextScore,
    Transcription,
    Translation,
    Word,
)
from regard.tasks.task_model import Split, TaskModel, TooLong

if TYPE_CHECKING:
    from regard.tasks.captioner import Captioner
    from regard.tasks.embedder import Embedder
    from regard.tasks.encoder import Answerer, Classifier
    from regard.tasks.filler import Filler
    from regard.tasks.generator import Generator
    from regard.tasks.loading import load, load_adapters, load_as
    from regard.tasks.tagger import Tagger
    from regard.tasks.transcriber import Transcriber
    from regard.tasks.translation import PhraseConstraints, decode_options
    from regard.tasks.translator import Translator

__getattr__ = lazy_names(
    __name__,
    {
        "captioner": ("Captioner",),
        "embedder": ("Embedder",),
        "encoder": ("Answerer", "Classifier"),
        "filler": ("Filler",),
        "generator": ("Generator",),
        "loading": ("load", "load_adapters", "load_as"),
        "tagger": ("Tagger",),
        "transcriber": ("Transcriber",),
        "translation": ("PhraseConstraints", "decode_options"),
        "translator": ("Translator",),
    },
)
