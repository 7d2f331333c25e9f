"""Sound: files to int16 samples of one channel at the sample rate that a model reads. soundfile decodes.

A file is decoded and resampled block by block, so that 8 hours need no more memory than a minute
(`sound_windows`); `read_sound` joins the blocks of a short one.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.inputs.media import LIMITS, MediaLimits, open_media, split_member

Samples = NDArray[np.int16]
Floats = NDArray[np.float32]
FORMATS = "WAV, FLAC, OGG, MP3"
BLOCK = 1 << 16  # samples of the file in one step
STREAM = 0x7FFFF000  # a RIFF size from here on stands for "not known yet"
MP3_FRAMES = 2304  # samples of two frames
ROWS = 4096  # products of one step of the filter: bounds the memory
ZERO_CROSSINGS = 24  # of the sinc, on each side
KAISER_BETA = 9.0  # about 90 dB below the pass band
FULL_SCALE = 32768.0  # int16 of the amplitude 1


def read_sound(source: str | Path | bytes | NDArray[Any], rate: int, limits: MediaLimits = LIMITS) -> Samples:
    """A sound as int16 [samples] of one channel. Arrays are taken to have the rate already: int16, or floats
    in [-1,1], [samples] or [samples,channels]."""
    if isinstance(source, np.ndarray):
        return _from_array(source, rate, limits)
    name = "the data" if isinstance(source, bytes) else str(source)
    parts: list[Samples] = []
    total = 0
    for part in sound_blocks(source, rate, limits, longest=limits.seconds):
        total += len(part)
        if total > limits.seconds * rate:  # the header promised less
            raise _too_long(name, limits.seconds)
        parts.append(part)
    return np.concatenate(parts)


def sound_windows(
    source: str | Path | bytes, rate: int, seconds: float, overlap: float = 0.0, limits: MediaLimits = LIMITS
) -> Iterator[tuple[float, Samples]]:
    """Windows of a sound of any length, each with its beginning in seconds, in bounded memory.

    Two neighbours share `overlap` seconds; the last window may be shorter.
    """
    size, step = round(seconds * rate), round((seconds - overlap) * rate)
    if not 0 < step <= size:
        message = f"windows of {seconds:g} s cannot overlap by {overlap:g} s"
        raise UsageError(message, code="E_AUDIO_WINDOW")
    rest, begin, fresh = np.zeros(0, np.int16), 0, 0  # `fresh`: samples of `rest` that no window had
    for part in sound_blocks(source, rate, limits):
        rest, fresh = np.concatenate([rest, part]), fresh + len(part)
        while len(rest) >= size:
            yield begin / rate, rest[:size]
            fresh = len(rest) - size
            rest, begin = rest[step:], begin + step
    if fresh:
        yield begin / rate, rest


def sound_blocks(
    source: str | Path | bytes, rate: int, limits: MediaLimits = LIMITS, longest: float = math.inf
) -> Iterator[Samples]:
    """int16 blocks of one channel at `rate`; the header is checked before anything is decoded."""
    import soundfile  # loads a library, which only sound needs

    name = "the data" if isinstance(source, bytes) else str(source)
    damage = (soundfile.SoundFileError, OSError, TypeError, ValueError, RuntimeError)
    with ExitStack() as stack:
        try:
            content = stack.enter_context(_stream(source, limits))
            head = content.read(12)
            _check_format(head, content.seek(0, io.SEEK_END), name)
            content.seek(0)
            file = stack.enter_context(soundfile.SoundFile(content))
            _check_header(file.samplerate, file.channels, file.frames, name, limits, longest)
            blocks = _mono_blocks(file, name)
            if file.samplerate == rate:
                yield from map(to_int16, blocks)
            else:
                yield from map(to_int16, resample_blocks(blocks, file.samplerate, rate))
        except damage as error:
            reason = getattr(error, "error_string", error)
            message = f"{name}: the sound is damaged or truncated ({reason})"
            raise UsageError(message, code="E_AUDIO_DAMAGED") from None


def to_int16(values: NDArray[Any]) -> Samples:
    """Amplitudes in [-1,1] as int16; louder ones are clipped."""
    return np.clip(np.rint(values * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def resample(values: Floats, rate: int, target: int) -> Floats:
    """A sound at another sample rate: ceil(N target / rate) values."""
    parts = list(resample_blocks(iter([values]), rate, target))
    return np.concatenate(parts) if parts else values[:0]


def resample_blocks(blocks: Iterator[Floats], rate: int, target: int) -> Iterator[Floats]:
    """Resample by the ratio L/M with a windowed-sinc filter h, in its polyphase form:

    y[n] = sum_k h[n M - k L] x[k]: all n with the same n mod L use the same taps of h. What is computed does
    not depend on how x is divided into blocks.
    """
    up, down = target // math.gcd(rate, target), rate // math.gcd(rate, target)
    taps = polyphase_taps(up, down)  # [L,K]
    before = taps.shape[1] // 2  # inputs before and behind the centre
    x, begin, done = np.zeros(before, np.float32), -before, 0  # x[0] is input number `begin`
    total = 0
    for block in blocks:
        total += len(block)
        x = np.concatenate([x, block.astype(np.float32, copy=False)])
        ready = max(done, ((total - before) * up - 1) // down + 1) if total > before else done
        if ready > done:
            yield _filter(x, begin, done, ready, taps, down)
            done = ready
            used = done * down // up - before - begin  # inputs that no later output needs
            x, begin = x[used:], begin + used
    end = -(-total * up // down)
    if end > done:
        x = np.concatenate([x, np.zeros(2 * before + 2, np.float32)])
        yield _filter(x, begin, done, end, taps, down)


def _filter(x: Floats, begin: int, first: int, end: int, taps: Floats, down: int) -> Floats:
    """y[first:end]. Output n is centred at input n M / L and takes K inputs around it."""
    up, size = taps.shape
    y = np.empty(end - first, np.float32)
    views = np.lib.stride_tricks.sliding_window_view(x, size)
    for n in range(first, min(first + up, end)):  # one of each phase
        start = n * down // up - size // 2 + 1 - begin
        rows = views[start::down][: -(-(end - n) // up)]  # [J,K]
        for row in range(0, len(rows), ROWS):
            part = np.dot(rows[row : row + ROWS], taps[n * down % up])
            y[n - first + row * up :: up][: len(part)] = part
    return y


@lru_cache(maxsize=4)
def polyphase_taps(up: int, down: int) -> Floats:
    """h as [L,K]: row p has the taps of outputs whose centre lies p/L behind an input.

    h(t) = c sinc(c t) w(t), t in inputs, c = min(1, L/M) the cutoff, w a Kaiser window; each row sums to 1,
    so that a constant stays one.
    """
    cutoff = min(1.0, up / down)
    half = math.ceil(ZERO_CROSSINGS / cutoff)
    taps = np.empty((up, 2 * half), np.float32)  # K = 2 half
    for row in range(0, up, 256):  # odd rates have many rows
        phase = np.arange(row, min(row + 256, up))[:, None] / up
        times = phase - np.arange(-half + 1, half + 1)
        kaiser = np.i0(KAISER_BETA * np.sqrt(np.clip(1 - (times / half) ** 2, 0, None)))
        values = np.sinc(cutoff * times) * kaiser
        taps[row : row + 256] = values / values.sum(axis=1, keepdims=True)
    return taps


def _stream(source: str | Path | bytes, limits: MediaLimits) -> Any:
    """An open file; a long one is not read into memory."""
    if isinstance(source, bytes):
        if len(source) > limits.bytes:
            message = f"{len(source):,} bytes: {limits.bytes:,} are read at most"
            raise UsageError(message, code="E_FILE_SIZE")
        return io.BytesIO(source)
    if split_member(source)[1] is None and Path(source).is_file():
        return Path(source).open("rb")
    return io.BytesIO(open_media(source, most=limits.bytes))


def _check_format(head: bytes, size: int, name: str) -> None:
    wav = head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE"
    mp3 = head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0)
    if not (wav or mp3 or head[:4] in (b"fLaC", b"OggS")):
        raise UsageError(f"{name}: no sound in a known format ({FORMATS})", code="E_AUDIO_FORMAT")
    # libsndfile shortens a truncated WAV without an error; the last byte may be padding
    if head[:4] == b"RIFF" and size + 1 < 8 + int.from_bytes(head[4:8], "little") < STREAM:
        raise UsageError(f"{name}: the sound is truncated", code="E_AUDIO_DAMAGED")


def _check_header(
    rate: int, channels: int, frames: int, name: str, limits: MediaLimits, longest: float
) -> None:
    if not 0 < rate <= limits.sample_rate:
        message = f"{name}: a sample rate of {rate:,}; it must be 1 to {limits.sample_rate:,}"
        raise UsageError(message, code="E_AUDIO_RATE")
    if not 0 < channels <= limits.channels:
        message = f"{name}: {channels} channels; there must be 1 to {limits.channels}"
        raise UsageError(message, code="E_AUDIO_CHANNELS")
    if frames / rate > longest:
        raise _too_long(name, longest)


def _too_long(name: str, longest: float) -> UsageError:
    return UsageError(
        f"{name}: longer than the {longest:g} seconds that are read as one; divide it, or read it in windows",
        code="E_AUDIO_SECONDS",
    )


def _mono_blocks(file: Any, name: str) -> Iterator[Floats]:
    """The mean of the channels, float32 in [-1,1]."""
    size, total = max(1024, BLOCK // file.channels), 0
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        total += len(block)
        _check_finite(block, name)
        block = np.clip(block, -1, 1)  # floats can be any
        yield block.mean(axis=1) if block.shape[1] > 1 else block[:, 0]

    if not total:
        raise UsageError(f"{name}: a sound without samples", code="E_AUDIO_EMPTY")
    if total < file.frames - max(MP3_FRAMES, file.frames // 100):  # the length of an MP3 is not exact
        message = f"{name}: the sound is damaged or truncated ({total:,} of {file.frames:,} samples)"
        raise UsageError(message, code="E_AUDIO_DAMAGED")


def _check_finite(values: NDArray[Any], name: str) -> None:
    if not np.isfinite(values).all():
        raise UsageError(f"{name}: samples that are NaN or infinite", code="E_AUDIO_NONFINITE")


def _from_array(values: NDArray[Any], rate: int, limits: MediaLimits) -> Samples:
    if values.ndim not in (1, 2) or not (values.dtype == np.int16 or values.dtype.kind == "f"):
        raise UsageError(
            f"a sound of shape {values.shape} and type {values.dtype}: give int16, or floats in [-1,1], "
            "[samples] or [samples,channels]",
            code="E_AUDIO_ARRAY",
        )
    if values.ndim == 2 and not 0 < values.shape[1] <= limits.channels:
        message = f"a sound of shape {values.shape}: give [samples,channels], 1 to {limits.channels} channels"
        raise UsageError(message, code="E_AUDIO_CHANNELS")
    if not len(values):
        raise UsageError("a sound without samples", code="E_AUDIO_EMPTY")
    if len(values) > limits.seconds * rate:
        raise _too_long("the array", limits.seconds)
    if values.dtype == np.int16:
        return values if values.ndim == 1 else np.rint(values.mean(axis=1)).astype(np.int16)
    _check_finite(values, "the array")
    if values.size and np.abs(values).max() > 2:
        message = "an array of floats beyond [-1,1]: divide samples of 16 bit by 32768"
        raise UsageError(message, code="E_AUDIO_ARRAY")
    return to_int16(values if values.ndim == 1 else values.mean(axis=1))
