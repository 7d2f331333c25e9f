"""Regard trains, runs and shows Transformers.

import regard
model = regard.load("runs/demo")
model.translate("I see the small house.")

`load` gives a Translator, Generator, Filler, Classifier, Tagger, Answerer, Captioner or Transcriber, as the
folder's task asks for.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.compat import OldModuleFinder
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.evaluation import evaluate
    from regard.evaluation.comparison import compare
    from regard.tasks import (
        Answerer,
        Captioner,
        Classifier,
        Embedder,
        Filler,
        Generator,
        Tagger,
        Transcriber,
        Translator,
        load,
        load_adapters,
    )
    from regard.training import train

__version__ = "0.1.0"
sys.meta_path.append(OldModuleFinder())  # `import regard.model` is `import regard.models`
__all__ = [
    "Answerer",
    "Captioner",
    "Classifier",
    "Embedder",
    "Filler",
    "Generator",
    "RegardError",
    "Tagger",
    "Transcriber",
    "Translator",
    "UsageError",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "load_adapters",
    "train",
]
TASKS = (
    "Answerer",
    "Captioner",
    "Classifier",
    "Embedder",
    "Filler",
    "Generator",
    "Tagger",
    "Transcriber",
    "Translator",
    "load",
    "load_adapters",
)
# name -> module, imported on first use, so that `import regard` does not wait for torch
LAZY = dict.fromkeys(TASKS, "regard.tasks") | {
    "compare": "regard.evaluation.comparison",
    "evaluate": "regard.evaluation",
    "train": "regard.training",
}


@contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection meanwhile: importing torch creates many objects and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def __getattr__(name: str) -> object:
    if name in LAZY:
        with paused_gc():
            return getattr(importlib.import_module(LAZY[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
