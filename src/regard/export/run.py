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
from regard.export.check import BARS, LOGITS, Figures
from regard.export.readme import TITLES, readme
from regard.export.sample import Texts, sample_for
from regard.export.vocabulary import names, write_tokenizers
from regard.storage import Folder, friendly_os_errors, open_folder, write_json, write_text

MODULES = {"ctranslate2": "regard.export.to_ctranslate2", "onnx": "regard.export.to_onnx"}
# what each can hold, known here without its library
FAMILIES = {
    "ctranslate2": ("transformer", "t5", "gpt", "llama"),
    "onnx": ("transformer", "t5", "gpt", "llama", "bert"),
}
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
    rounding alone. What is rounded on purpose (float16, int8) is checked in float32 first.
    """
    if out.exists():
        raise UsageError(f"{out} already exists; choose another folder with --out")
    if form == "onnx" and precision != "float32":
        raise UsageError(f"--precision {precision}: ONNX files are written in float32; leave it out")
    engine = library(form)
    folder = open_folder(model)
    if folder.config.family not in FAMILIES[form]:
        raise UsageError(
            f"{model}: a {folder.config.family} model cannot be exported to {form}, which holds "
            f"{', '.join(FAMILIES[form])}"
        )
    texts = sample_for(folder, sample)
    with aside(out) as place:
        for each in dict.fromkeys(("float32", precision)):
            figures = write_and_check(engine, form, folder, place, each, texts, say)
        write_tokenizers(place, folder)
        if form == "onnx":  # CTranslate2 writes its own
            write_json(place / "config.json", described(folder))
        told = readme(folder, form, precision, texts.origin, figures, names(folder.target))
        write_text(place / "README.md", told)
    return Exported(out, texts.origin, figures)


def write_and_check(
    engine: ModuleType, form: str, folder: Folder, place: Path, precision: str, texts: Texts, say: Say
) -> Figures:
    shutil.rmtree(place)
    place.mkdir()
    say(f"writing the model for {TITLES[form]} in {precision}")
    engine.write(folder, place, precision)
    say(f"checking it with {len(texts.texts)} texts: {texts.origin}")
    figures: Figures = engine.check(place, folder, texts.texts)
    figures.demand(LOGITS if form == "onnx" else BARS[precision], TITLES[form])
    return figures


def library(form: str) -> ModuleType:
    """Our module for an engine; what it needs is asked for by name where it is not installed."""
    try:
        return import_module(MODULES[form])
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "regard":
            raise
        raise UsageError(
            f'exporting to {form} needs the package {error.name}; pip install "regard[export]"'
        ) from None


@contextmanager
def aside(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` if all goes well, and else is no more."""
    place = out.with_name(f".{out.name}.partial")
    with friendly_os_errors(out):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            yield place
            place.rename(out)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def described(folder: Folder) -> dict[str, Any]:
    """What a program must know of a model beside its numbers."""
    own = folder.special
    return {
        "task": folder.task.name,
        "family": folder.config.family,
        "head": folder.config.head,
        "labels": list(folder.labels),
        "max_length": folder.config.max_length,
        "decoder_start_token_id": own.start,
        "eos_token_id": own.end,
        "pad_token_id": folder.target.pad,
        "suppress_tokens": list(own.suppressed),
    }
