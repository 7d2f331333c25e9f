"""Write a model for another engine, and keep it only if that engine gives Regard's output.

Also calibrate a model for int8: measure the range of each linear layer's input on sample text."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from regard.batch import Batch, collate
from regard.errors import UsageError, extra
from regard.export.check import LOGITS, TOLERANCES, Agreement, token_names
from regard.export.sample import EncodedText, SampleTexts, real_texts, sample_for
from regard.generation import decode
from regard.generation.packing import activation_ranges
from regard.inputs.text import Tokenizer
from regard.models.encoder import EncoderOnly
from regard.models.transformer import EncoderDecoder, LanguageModel
from regard.resources import read_data
from regard.sample import Sample
from regard.storage import Folder, open_folder, write_json, write_text
from regard.storage.files import friendly_os_errors, new_folder, write_atomically
from regard.storage.folder import FRAMES
from regard.storage.models import find_model
from regard.storage.weights import write_calibration

MODULES = {
    "ctranslate2": "regard.export.to_ctranslate2",
    "onnx": "regard.export.to_onnx",
    "gguf": "regard.export.to_gguf",
}
TITLES = {"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime", "gguf": "llama.cpp"}
FAMILIES = {  # supported, listed here so that the engine need not be installed
    "ctranslate2": ("transformer", "t5", "gpt", "llama"),
    "onnx": ("transformer", "t5", "gpt", "llama", "bert"),
    "gguf": ("llama",),
}
BATCH_SIZE = 20  # texts of a calibration
PROMPT_LENGTH = 60  # tokens of a prompt and its continuation, in README.md
Log = Callable[[str], None]


@dataclass(frozen=True)
class ExportResult:
    path: Path
    origin: str  # of the texts of the check
    agreement: Agreement


def export_model(
    model: Path,
    form: str,
    out: Path,
    precision: str = "float32",
    sample: Path | None = None,
    say: Log = lambda text: None,
) -> ExportResult:
    """Write the folder `out` with the model for CTranslate2, ONNX Runtime or llama.cpp (`form` "gguf").

    It appears only after the check: equal text for at least 99.5 % of a sample, and numbers that differ by
    rounding only. float16 and int8 are checked in float32 first.
    """
    with new_folder(out) as place:
        if form == "onnx" and precision != "float32":
            raise UsageError(
                f"precision {precision}: ONNX files are written in float32", code="E_EXPORT_PRECISION"
            )
        with extra("gguf" if form == "gguf" else "export"):
            engine = import_module(MODULES[form])
        folder = open_folder(model)
        framed = isinstance(folder.model, EncoderDecoder) and isinstance(folder.input, Tokenizer)
        if framed and (folder.source.before or folder.source.language_tokens):
            raise UsageError(
                f"{model}: its texts begin with special tokens, which exports do not put there",
                code="E_EXPORT_FAMILY",
            )
        if folder.config.family not in FAMILIES[form]:
            raise UsageError(
                f"{model}: a {folder.config.family} model cannot be exported to {form}, which supports "
                f"{', '.join(FAMILIES[form])}",
                code="E_MODEL_FAMILY",
            )
        if getattr(folder.config, "decoder_mixer", "attention") != "attention":
            raise UsageError(
                f"{model}: model.decoder_mixer is not exported to {form}, which has no such layer",
                code="E_EXPORT_FAMILY",
            )
        texts = sample_for(folder, sample)
        for each in dict.fromkeys(("float32", precision)):
            agreement = write_and_check(engine, form, folder, place, each, texts, say)
        if form != "gguf":  # which has it in the file
            write_tokenizers(place, folder)
        if form == "onnx":  # CTranslate2 writes its own
            write_json(place / "config.json", config_json(folder))
        write_text(place / "README.md", readme(folder, form, precision, texts.origin, agreement))
    return ExportResult(out, texts.origin, agreement)


def write_and_check(
    engine: ModuleType, form: str, folder: Folder, place: Path, precision: str, texts: SampleTexts, say: Log
) -> Agreement:
    shutil.rmtree(place)
    place.mkdir()
    say(f"writing the model for {TITLES[form]} in {precision}")
    with friendly_os_errors(place):
        engine.write(folder, place, precision)
    say(f"checking it with {len(texts.texts)} texts: {texts.origin}")
    agreement: Agreement = engine.check(place, folder, texts.texts)
    agreement.require(LOGITS if form == "onnx" else TOLERANCES[precision], TITLES[form])
    return agreement


def write_tokenizers(place: Path, folder: Folder) -> None:
    frame = FRAMES.get(folder.config.family, "end")
    for name, content in folder.source.engine_files(folder.target, frame).items():
        write_atomically(place / name, content)


def config_json(folder: Folder) -> dict[str, Any]:
    special = folder.special
    return {
        "task": folder.task.name,
        "family": folder.config.family,
        "head": folder.config.head,
        "labels": list(folder.labels),
        "max_length": folder.config.max_length,
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
        "pad_token_id": folder.target.pad,
        "suppress_tokens": list(special.suppressed),
    }


# README.md: the check, and a program that uses the export


def readme(folder: Folder, form: str, precision: str, origin: str, agreement: Agreement) -> str:
    templates = read_data("export")
    text: str = templates["readme"].format(
        title=folder.path.resolve().name,
        family=folder.config.family,
        task=folder.task.name,
        engine=TITLES[form],
        precision=precision,
        origin=origin,
        agreement=agreement.summary,
        program=program(folder, templates["programs"][form], templates["show"]),
        notes=templates["notes"][form],
    )
    return text


def program(folder: Folder, programs: dict[str, str], show: dict[str, str]) -> str:
    special, names, head = folder.special, token_names(folder.target), folder.config.head or "words"
    limit = None if isinstance(folder.model, EncoderOnly) else folder.model.longest_target
    starts = folder.source.adds_start
    library = "" if folder.source.library == "tokenizers" else f"_{folder.source.library}"
    text = programs[f"{type(folder.model).__name__}{library}"].format(
        start=special.start,
        end=special.end,
        end_name=names[special.end],
        prompt_start=f"{special.start}, " if starts else "",
        start_name=f"{names[special.start]!r}, " if starts else "",
        suppressed=list(special.suppressed),
        suppressed_names=[[names[number]] for number in special.suppressed],
        target="tokenizer.json" if folder.target is folder.source else "target_tokenizer.json",
        source_end=folder.source.end,
        # learned positions are limited
        most=min(PROMPT_LENGTH, limit or PROMPT_LENGTH),
        longest="ids.size + 50" if limit is None else f"min(ids.size + 50, {limit})",
        limits="" if limit is None else f" max_decoding_length={limit}, max_input_length={limit},",
        labels=list(folder.labels),
        pair=', "The text with the answer."' if head == "span" else "",
        show=show["multi_label" if folder.task.multi_label else head],
    )
    return text if folder.labels else text.replace("labels = []\n", "")


# Calibration for int8 in Regard itself


def calibrate(path: Path, sample: Path | None) -> tuple[int, str]:
    """Write calibration.json beside the weights; returns the number of texts and their origin."""
    folder = open_folder(path)
    if not isinstance(folder.model, EncoderDecoder | LanguageModel):
        family = folder.config.family
        message = f"{path}: only models that write text can use int8; this is of the family {family}"
        raise UsageError(message, code="E_MODEL_FAMILY")
    samples = real_texts(folder, sample)
    if samples is None:
        raise UsageError(
            f"{path}: its validation texts are not available, and ranges are not measured on random input; "
            "name a file with one text per line: --sample FILE",
            code="E_EXPORT_TEXTS",
        )
    ranges = activation_ranges(folder.model, batches(folder, samples.texts))
    write_calibration(find_model(path), ranges, samples.origin)
    return len(samples.texts), samples.origin


def batches(folder: Folder, texts: Sequence[EncodedText]) -> Iterator[Batch]:
    """Batches as in training: what the model reads, and what it is to write.

    Where references are missing, the model's greedy output is the target.
    """
    special, options = folder.special, folder.decode.model_copy(update={"beam": 1, "sample": False})
    for first in range(0, len(texts), BATCH_SIZE):
        group = texts[first : first + BATCH_SIZE]
        if isinstance(folder.model, LanguageModel):
            yield collate([Sample(target=[special.start, *text.source]) for text in group], 1)
            continue
        assert isinstance(folder.model, EncoderDecoder)  # see `calibrate`
        samples = [Sample(source=folder.source.framed(text.source)) for text in group]
        targets = [text.target for text in group]
        if not all(targets):
            outputs = decode(folder.model, samples, options, special, torch.device("cpu"))
            targets = [list(best[0].tokens) for best in outputs]
        pairs = zip(samples, targets)
        yield collate([replace(each, target=[special.start, *target]) for each, target in pairs], 1)
