"""Pictures, videos and sounds as tasks take them: a path, bytes, an array, or a data URL.

`open_source` says what a reader of frames opens, `read_frames` computes what the model reads.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from regard.config.input import AudioInput
from regard.data.readers.media import SUFFIXES
from regard.errors import UsageError
from regard.inputs.frames import FrameReader, Source
from regard.sample import FrameArray, Sample
from regard.storage.inputs import READS
from regard.tasks.task_model import NamedFile, TooLong

DATA_URL = "data:"
ONE = {"image": "a picture", "video": "a video", "audio": "a sound"}
FRAMES_PER_BATCH = 4096
LONGEST_NAME = 200  # characters


@dataclass(frozen=True)
class MediaFrames:
    """A file as the model reads it."""

    name: str
    frames: FrameArray | None  # [S,F]; None for a sound that is skipped
    truncated: bool = False  # only the beginning of a sound was read

    @property
    def sample(self) -> Sample:
        return Sample(() if self.frames is None else self.frames)


def open_source(source: Any, number: int = 1) -> NamedFile:
    """A path, bytes, an array or a data URL: its name, and what a reader opens."""
    if isinstance(source, NamedFile):
        return source
    if isinstance(source, str) and source.startswith(DATA_URL):
        return data_file(source, number)
    if isinstance(source, str | os.PathLike):
        return NamedFile(os.fspath(source), source)
    return NamedFile(f"file {number}", source if isinstance(source, bytes) else np.asarray(source))


def data_file(url: str, number: int = 1) -> NamedFile:
    """The bytes of "data:image/png;name=photo.png;base64,...", whose name may be missing."""
    head, comma, content = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise UsageError(
            f"file {number}: a data URL needs the form data:image/png;base64,...", code="E_MEDIA_URL"
        )
    try:
        named = next((each for each in head.split(";") if each.startswith("name=")), "")
        name = unquote(named.removeprefix("name="))[:LONGEST_NAME] or f"file {number}"
        return NamedFile(name, b64decode(content, validate=True))
    except (binascii.Error, ValueError):
        raise UsageError(f"file {number}: the data URL is not base64", code="E_MEDIA_URL") from None


def open_raw(reader: FrameReader, file: NamedFile) -> Any:
    """The stored form of a file; errors name it, and say which kind the model reads."""
    kind = reader.config.kind
    other = kind_of(file.name) if isinstance(file.content, str | Path) else None
    if other is not None and not file.name.lower().endswith(SUFFIXES[kind]):
        message = f"{file.name} is {ONE[other]}, and this model reads {READS[kind]}"
        raise UsageError(message, code="E_MODEL_INPUT")
    try:
        content: Source = file.content
        return reader.read(content)
    except UsageError as error:
        if error.code == "E_MEDIA_MISSING":
            message = f"{error}; this model reads {READS[kind]}: give the path of a file"
            raise UsageError(message, code=error.code) from None
        if isinstance(file.content, str | Path) or file.name in str(error):
            raise
        text = str(error).removeprefix("the data: ")
        raise UsageError(f"{file.name}: {text}", code=error.code) from None


def kind_of(name: str) -> str | None:
    """What a file is by its name; None for other names."""
    return next((kind for kind, suffixes in SUFFIXES.items() if name.lower().endswith(suffixes)), None)


def read_frames(
    reader: FrameReader, source: Any, on_too_long: TooLong = "truncate", number: int = 1
) -> MediaFrames:
    """A file as frames. A sound longer than the model reads is cut off, skipped or refused."""
    file = open_source(source, number)
    raw, config = open_raw(reader, file), reader.config
    is_long = isinstance(config, AudioInput) and len(raw) > config.samples
    if is_long and on_too_long == "error":
        seconds = len(raw) / config.sample_rate  # type: ignore[union-attr]
        raise UsageError(
            f"{file.name}: {seconds:.1f} seconds of sound, and the model reads {config.seconds:g}; "  # type: ignore[union-attr]
            "cut it, or let it be truncated or skipped (on too long)",
            code="E_TOO_LONG",
        )
    if is_long and on_too_long == "skip":
        return MediaFrames(file.name, None)
    return MediaFrames(file.name, reader.frames(raw), is_long)


def frame_batches(
    reader: FrameReader, sources: Sequence[Any], on_too_long: TooLong = "truncate", first: int = 1
) -> Iterator[list[MediaFrames]]:
    """Files as frames, a batch at a time: frames take more memory than files."""
    size = max(1, FRAMES_PER_BATCH // reader.most)
    for start in range(0, len(sources), size):
        part = sources[start : start + size]
        yield [read_frames(reader, each, on_too_long, first + start + at) for at, each in enumerate(part)]
