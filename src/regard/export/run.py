"""Write a model for another engine, and keep it only if that engine says what we say."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.errors import UsageError
from regard.export.check import BARS, Bar, Figures, Reference
from regard.export.readme import TITLES, readme
from regard.export.sample import sample_for
from regard.store import Folder, open_folder, told_plainly, write_json, write_text
from regard.store.folder import FRAMES
from regard.text import Tokenizer

ENGINES = {"ctranslate2": "regard.export.to_ctranslate2", "onnx": "regard.export.to_onnx"}
# what each can hold, known here without its library
FAMILIES = {
    "ctranslate2": ("transformer", "t5", "gpt", "llama"),
    "onnx": ("transformer", "t5", "gpt", "llama", "bert"),
}
LOGITS = Bar(largest=1e-4, mean=1e-4)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    path: Path
    origin: str  # of the texts it was checked with
    figures: Figures


def export_model(
    model: Path,
    form: str,
    out: Path,
    precision: str = "float32",
    sample: Path | None = None,
    say: Say = lambda text: None,
) -> Exported:
    """Write the folder `out` with the model for CTranslate2 ("ctranslate2") or ONNX Runtime ("onnx").

    It appears only after the check: the same text for at least 99.5 % of a sample, and numbers that differ by
    rounding alone.
    """
    if out.exists():
        raise UsageError(f"{out} already exists; choose another folder with --out")
    if form == "onnx" and precision != "float32":
        raise UsageError(f"--precision {precision}: ONNX files are written in float32; leave it out")
    engine = library(form)
    folder = open_folder(model)
    if folder.config.family not in FAMILIES[form]:
        raise UsageError(
            f"{model}: a {folder.config.family} model cannot be exported to {form}, which Regard writes for "
            f"{', '.join(FAMILIES[form])}"
        )
    texts = sample_for(folder, sample)
    with aside(out) as place:
        say(f"writing the model for {TITLES[form]}")
        if form == "onnx":
            engine.write(folder, place, precision)
            say(f"checking it with {len(texts.texts)} texts: {texts.origin}")
            figures: Figures = engine.check(place, folder, texts.texts)
            figures.demand(LOGITS, TITLES[form])
        else:
            figures = through_ctranslate2(engine, folder, place, precision, texts.texts, say)
        write_tokenizers(place, folder)
        names = spelt(folder.target)
        if form == "onnx":
            write_json(place / "config.json", described(folder))
        write_text(place / "README.md", readme(folder, form, precision, texts.origin, figures, names))
    return Exported(out, texts.origin, figures)
