"""A WAV file that is still being written: its samples as they arrive.

The header of such a file does not know its length, so soundfile cannot read it; of WAV, PCM of 16 bit and
floats of 32 bit need no decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from regard.errors import UsageError
from regard.inputs.audio import Floats, Samples, resample_blocks, to_int16
from regard.inputs.media import LIMITS, MediaLimits

Wait = Callable[[], bool]  # waits for more; False: there will be none
HEADER = 1 << 16  # bytes in which the samples must begin
BLOCK = 1 << 18  # bytes of one step
TYPES = {(1, 16): "<i2", (3, 32): "<f4"}  # of (format, bits)
EXTENSIBLE = 0xFFFE  # the format is in the first two bytes of a longer header
UNKNOWN = (0, 0xFFFFFFFF, 0x7FFFFFFF)  # sizes that programs write before they know


def growing_blocks(path: Path, rate: int, wait: Wait, limits: MediaLimits = LIMITS) -> Iterator[Samples]:
    """int16 blocks of one channel at `rate`, until `wait` says that no more will come."""
    try:
        with path.open("rb") as file:
            kind, channels, file_rate, size = read_header(file, path, wait, limits)
            blocks = mono_blocks(file, kind, channels, size, path, wait)
            same = file_rate == rate
            yield from map(to_int16, blocks if same else resample_blocks(blocks, file_rate, rate))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", code="E_MEDIA_READ") from None


def read_header(file: BinaryIO, path: Path, wait: Wait, limits: MediaLimits) -> tuple[str, int, int, int]:
    """Type of the samples, channels, sample rate, bytes of samples (0: unknown); the file is at the first."""
    riff = exactly(file, 12, path, wait)
    if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
        raise UsageError(f"{path}: only WAV files are read while they grow", code="E_AUDIO_FORMAT")
    settings: tuple[int, ...] = ()
    while file.tell() < HEADER:
        name, size = struct.unpack("<4sI", exactly(file, 8, path, wait))
        if name == b"data" and settings:
            form, channels, rate, _, _, bits = settings
            if (form, bits) not in TYPES:
                message = f"{path}: format {form} of {bits} bit; PCM of 16 bit or floats of 32 are read"
                raise UsageError(f"{message} while a file grows", code="E_AUDIO_FORMAT")
            if not 0 < rate <= limits.sample_rate or not 0 < channels <= limits.channels:
                message = f"{path}: {channels} channels, a sample rate of {rate:,}"
                raise UsageError(f"{message}: not a sound that is read", code="E_AUDIO_RATE")
            return TYPES[form, bits], channels, rate, 0 if size in UNKNOWN else size
        if size > HEADER:
            break
        content = exactly(file, size + size % 2, path, wait)
        if name == b"fmt " and size >= 16:
            settings = struct.unpack("<HHIIHH", content[:16])
            if settings[0] == EXTENSIBLE and size >= 26:
                settings = (struct.unpack("<H", content[24:26])[0], *settings[1:])
    raise UsageError(f"{path}: no samples in the WAV file", code="E_AUDIO_DAMAGED")


def exactly(file: BinaryIO, size: int, path: Path, wait: Wait) -> bytes:
    content = file.read(size)
    while len(content) < size:
        if not wait():
            raise UsageError(
                f"{path}: the sound is damaged or truncated (its header)", code="E_AUDIO_DAMAGED"
            )
        content += file.read(size - len(content))
    return content


def mono_blocks(
    file: BinaryIO, kind: str, channels: int, size: int, path: Path, wait: Wait
) -> Iterator[Floats]:
    """The mean of the channels, float32 in [-1,1]."""
    dtype, rest, total = np.dtype(kind), b"", 0
    frame = dtype.itemsize * channels
    while not size or total < size:
        new = file.read(min(BLOCK, size - total) if size else BLOCK)
        if not new:
            if not wait():
                return
            continue
        total += len(new)
        rest += new
        whole = len(rest) // frame * frame
        values = np.frombuffer(rest[:whole], dtype).reshape(-1, channels)
        rest = rest[whole:]
        if not len(values):
            continue
        floats = values.astype(np.float32) / (32768 if dtype.kind == "i" else 1)
        if not np.isfinite(floats).all():
            raise UsageError(f"{path}: samples that are NaN or infinite", code="E_AUDIO_NONFINITE")
        yield floats.mean(axis=1)
