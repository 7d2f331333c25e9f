"""Calibrate a model for int8: measure the range of each linear layer's input on sample text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from regard.batch import Batch, collate
from regard.errors import UsageError
from regard.export.sample import EncodedText, real_texts
from regard.generation import decode
from regard.generation.packing import activation_ranges
from regard.models.transformer import EncoderDecoder, LanguageModel
from regard.sample import Sample
from regard.storage import Folder, open_folder
from regard.storage.models import find_model
from regard.storage.weights import write_calibration

BATCH_SIZE = 20  # texts


def calibrate(path: Path, sample: Path | None) -> tuple[int, str]:
    """Write calibration.json beside the weights; returns the number of texts and their origin."""
    folder = open_folder(path)
    if not isinstance(folder.model, EncoderDecoder | LanguageModel):
        family = folder.config.family
        raise UsageError(f"{path}: only models that write text can use int8; this is of the family {family}")
    samples = real_texts(folder, sample)
    if samples is None:
        raise UsageError(
            f"{path}: its validation texts are not available, and ranges are not measured on random input; "
            "name a file with one text per line: --sample FILE"
        )
    ranges = activation_ranges(folder.model, batches(folder, samples.texts))
    write_calibration(find_model(path), ranges, samples.origin)
    return len(samples.texts), samples.origin


def batches(folder: Folder, texts: Sequence[EncodedText]) -> Iterator[Batch]:
    """Batches as in training: what the model reads, and what it is to write."""
    for first in range(0, len(texts), BATCH_SIZE):
        group = texts[first : first + BATCH_SIZE]
        if isinstance(folder.model, LanguageModel):
            yield collate([Sample(target=[folder.special.start, *text.source]) for text in group], 1)
        else:
            yield collate([to_sample(folder, text) for text in with_targets(folder, group)], 1)


def to_sample(folder: Folder, text: EncodedText) -> Sample:
    return Sample(source=[*text.source, folder.source.end], target=[folder.special.start, *text.target])


def with_targets(folder: Folder, texts: Sequence[EncodedText]) -> list[EncodedText]:
    """The texts; without references, the model's greedy output is the target."""
    if all(text.target for text in texts) or not isinstance(folder.model, EncoderDecoder):
        return list(texts)
    samples = [Sample(source=[*text.source, folder.source.end]) for text in texts]
    options = folder.decode.model_copy(update={"beam": 1, "sample": False})
    outputs = decode(folder.model, samples, options, folder.special, torch.device("cpu"))
    return [replace(text, target=list(best[0].tokens)) for text, best in zip(texts, outputs)]
