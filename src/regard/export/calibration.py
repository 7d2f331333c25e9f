"""Measure on texts how far a model's numbers reach, so that its products can be done in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from regard.batch import Batch, collate
from regard.errors import UsageError
from regard.export.sample import Text, known_texts
from regard.generation import decode
from regard.generation.packing import measure
from regard.models import EncoderDecoder, LanguageModel
from regard.sample import Sample
from regard.storage import Folder, open_folder
from regard.storage.folder import run_of
from regard.storage.reaches import write_reaches

AT_ONCE = 20  # texts


def calibrate(path: Path, given: Path | None) -> tuple[int, str]:
    """Write calibration.json into a model's folder; gives how many texts were read, and their origin."""
    folder = open_folder(path)
    if not isinstance(folder.model, EncoderDecoder | LanguageModel):
        raise UsageError(f"{path}: only models that write can use bytes; {folder.config.family} does not")
    found = known_texts(folder, given)
    if found is None:
        raise UsageError(
            f"{path}: its validation texts are not here, and bytes are never measured on chance; "
            "name a file with a text a line: --sample FILE"
        )
    reaches = measure(folder.model, batches(folder, found.texts))
    write_reaches(run_of(folder.path) or folder.path, reaches, found.origin)
    return len(found.texts), found.origin


def batches(folder: Folder, texts: Sequence[Text]) -> Iterator[Batch]:
    """What the model reads and writes, as training would show it."""
    for first in range(0, len(texts), AT_ONCE):
        group = texts[first : first + AT_ONCE]
        if isinstance(folder.model, LanguageModel):
            yield collate([Sample(target=[folder.special.start, *text.source]) for text in group], 1)
        else:
            yield collate([pair(folder, text) for text in answered(folder, group)], 1)


def pair(folder: Folder, text: Text) -> Sample:
    return Sample(source=[*text.source, folder.source.end], target=[folder.special.start, *text.target])


def answered(folder: Folder, texts: Sequence[Text]) -> list[Text]:
    """Texts whose answer nobody knows get the model's own."""
    if all(text.target for text in texts) or not isinstance(folder.model, EncoderDecoder):
        return list(texts)
    asked = [Sample(source=[*text.source, folder.source.end]) for text in texts]
    options = folder.decode.model_copy(update={"beam": 1, "sample": False})
    found = decode(folder.model, asked, options, folder.special, torch.device("cpu"))
    return [replace(text, target=list(own[0].tokens)) for text, own in zip(texts, found)]
