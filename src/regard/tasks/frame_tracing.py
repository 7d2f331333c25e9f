"""Trace what a model reads of a picture or sound: its positions by name, and the picture that it saw."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from regard.inputs.frames import Array, AudioReader, FrameReader, PatchReader
from regard.interpret import TracedTokens
from regard.models.families import Model
from regard.models.frames import Patches, PictureConvolution, SpectrumConvolution
from regard.models.positions import FrameEmbedding
from regard.sample import FrameArray

CLASS_TOKENS = ("[class]", "[distillation]")


def frame_positions(reader: FrameReader, raw: Array, model: Model) -> TracedTokens:
    """The positions that the encoder sees; those of the class tokens come first and belong to no word."""
    labels, first = reader.labels(raw), 0
    embedding = getattr(model, "source", None)
    if isinstance(embedding, FrameEmbedding):
        front = embedding.front
        if isinstance(front, SpectrumConvolution):
            labels = labels[::2]  # it halves the frames
        if isinstance(front, Patches | PictureConvolution):
            first = len(list(front.tokens.parameters()))
        if isinstance(front, PictureConvolution):
            rows, columns = front.grid
            labels = [f"row {row + 1}, column {col + 1}" for row in range(rows) for col in range(columns)]
    texts = [*CLASS_TOKENS[:first], *labels]
    words = [-1] * first + list(range(len(labels)))
    return TracedTokens(tuple(range(len(texts))), tuple(texts), tuple(words))


def frame_meta(reader: FrameReader, raw: Array, frames: FrameArray, tokens: TracedTokens) -> dict[str, Any]:
    """What a page needs to lay weights over the picture: the picture, and the grid of its positions."""
    first = sum(word < 0 for word in tokens.words)
    count = len(tokens) - first
    if isinstance(reader, AudioReader):
        spectrum = reader.spectrogram(raw)  # [frames, mels]
        seconds = len(spectrum) * reader.config.hop / reader.config.sample_rate
        grid = list(reader.grid or (1, count))
        return {
            "kind": "audio",
            "image": png(grey(spectrum)),
            "first": first,
            "grid": grid,
            "seconds": seconds,
        }
    assert isinstance(reader, PatchReader)
    pixels = reader.pixels(frames)
    film = pixels.ndim == 4
    grid = list(reader.grid)
    if count != len(frames):  # convolutions have fewer positions than there are patches
        share = (count / len(frames)) ** 0.5
        grid = [round(grid[0] * share), round(grid[1] * share)]
    image = np.concatenate(list(pixels), axis=1) if film else pixels  # the frames of a film side by side
    return {"kind": reader.config.kind, "image": png(image), "first": first, "grid": grid}


def grey(spectrum: FrameArray) -> Array:
    """A spectrogram as a picture: time from left to right, high tones above."""
    low, high = float(spectrum.min()), float(spectrum.max())
    scaled = (spectrum.T[::-1] - low) / max(1e-9, high - low)
    return (255 * scaled).astype(np.uint8)[..., None]


def png(pixels: Array) -> str:
    """A picture [H,W,C] as a data URL."""
    from PIL import Image

    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
