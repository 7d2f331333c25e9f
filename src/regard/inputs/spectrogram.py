"""Log-mel spectrograms, equal to those of Whisper's and AST's feature extractors in transformers.

A frame of N samples x, with window w: power P[f] = |sum_n w[n] x[n] e^(-2 pi i f n / F)|^2, mel energies
E = P A with triangular filters A [bins,mels], then the logarithm. Plain NumPy, since training calls it for
each sample.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config.input import AudioInput

Floats = NDArray[Any]
CHUNK = 256  # frames at a time, which stay in the processor's cache
WHISPER_FLOOR, KALDI_FLOOR = 1e-10, 1.192092955078125e-07  # the latter: float32's epsilon
PREEMPHASIS = 0.97
KALDI_LOWEST = 20.0  # Hz
WHISPER_HIGHEST = 8000.0  # Hz


def spectrum_length(samples: int, config: AudioInput) -> int:
    """Frames of a sound of so many samples, at least one and at most those of `seconds`."""
    return config.spectrum_frames if config.pad else _unpadded_length(samples, config)


def _unpadded_length(samples: int, config: AudioInput) -> int:
    length = samples // config.hop
    if config.scale == "kaldi":  # only whole windows
        length = 1 + (samples - config.window) // config.hop
    return min(max(1, length), config.spectrum_frames)


def log_mel(raw: NDArray[np.int16], config: AudioInput) -> NDArray[np.float32]:
    """The normalised log-mel spectrogram [T,mels] of int16 samples."""
    length = spectrum_length(len(raw), config)
    spectrum = (whisper if config.scale == "whisper" else kaldi)(raw, length, config)
    if config.mean or config.deviation != 1.0:
        spectrum = (spectrum - config.mean) / config.deviation
    return spectrum.astype(np.float32, copy=False)


def whisper(raw: NDArray[np.int16], length: int, config: AudioInput) -> Floats:
    """(max(log10 E, the largest - 8) + 4) / 4. Frames are centred; the sound is reflected at its ends."""
    size = config.samples if config.pad else min(max(len(raw), config.hop), config.samples)
    sound = _amplitudes(raw, size, np.float32)
    half = config.window // 2
    sound = np.pad(sound, half, mode="reflect")
    energies = np.zeros((length, config.mels), np.float32)
    audible = min(length, (len(raw) + half) // config.hop + 1)  # the windows behind hold silence alone
    energies[:audible] = _energies(sound, audible, config, config.window)
    spectrum = np.log10(np.maximum(energies, WHISPER_FLOOR))
    result: Floats = (np.maximum(spectrum, spectrum.max() - 8.0) + 4.0) / 4.0
    return result


def kaldi(raw: NDArray[np.int16], length: int, config: AudioInput) -> Floats:
    """log E of frames without their mean, with pre-emphasis; frames behind the end of the sound are 0."""
    whole = _unpadded_length(len(raw), config)
    sound = _amplitudes(raw, (whole - 1) * config.hop + config.window, np.float64)
    size = 1 << (config.window - 1).bit_length()  # of the transform: a power of two
    energies = _energies(sound, whole, config, size)
    spectrum = np.zeros((length, config.mels))
    spectrum[:whole] = np.log(np.maximum(energies, KALDI_FLOOR))
    return spectrum


def _amplitudes(raw: NDArray[np.int16], size: int, kind: type) -> Floats:
    """In [-1,1], cut or filled with silence to `size` samples."""
    sound: Floats = np.zeros(size, kind)
    sound[: len(raw)] = raw[:size]
    sound /= 32768
    return sound


def _energies(sound: Floats, length: int, config: AudioInput, size: int) -> Floats:
    """E [T,mels] in the precision of `sound`."""
    windows = np.lib.stride_tricks.sliding_window_view(sound, config.window)[:: config.hop]
    window, filters = _window_and_filters(config, size, sound.dtype.str)
    energies: Floats = np.empty((length, config.mels), sound.dtype)
    for row in range(0, length, CHUNK):
        frames = windows[row : min(row + CHUNK, length)]
        if config.scale == "kaldi":
            frames = frames - frames.mean(axis=1, keepdims=True)
            shifted = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
            frames = frames - PREEMPHASIS * shifted
        waves = np.fft.rfft(frames * window, size)  # [T,bins]
        power = waves.real**2 + waves.imag**2
        energies[row : row + CHUNK] = power @ filters
    return energies


@lru_cache(maxsize=16)
def _tables(
    scale: str, window: int, size: int, mels: int, rate: int, precision: str
) -> tuple[Floats, Floats]:
    """Hann window [N] and mel filters [bins,mels]."""
    bins = size // 2 + 1
    if scale == "whisper":
        hann = np.hanning(window + 1)[:-1]  # periodic
        filters = slaney_filters(bins, mels, rate)
    else:
        hann = np.hanning(window)
        filters = kaldi_filters(bins, mels, rate)
    return hann.astype(precision), filters.astype(precision)


def _window_and_filters(config: AudioInput, size: int, precision: str) -> tuple[Floats, Floats]:
    return _tables(config.scale, config.window, size, config.mels, config.sample_rate, precision)


def slaney_filters(bins: int, mels: int, rate: int) -> Floats:
    """Triangles of equal area between points that are even on Slaney's scale: linear up to 1 kHz, then
    logarithmic; up to 8 kHz, or half of the sample rate."""
    step = np.log(6.4) / 27.0  # of the logarithmic part, which begins at 1000 Hz = 15 mels
    highest = min(WHISPER_HIGHEST, rate / 2)
    top = 15.0 + np.log(highest / 1000.0) / step if highest >= 1000 else highest * 3 / 200
    points = np.linspace(0.0, top, mels + 2)
    hertz = np.where(points < 15.0, points * 200 / 3, 1000.0 * np.exp(step * (points - 15.0)))
    return _triangles(np.linspace(0, rate // 2, bins), hertz) * (2.0 / (hertz[2:] - hertz[:-2]))


def kaldi_filters(bins: int, mels: int, rate: int) -> Floats:
    """Triangles on Kaldi's scale, mel = 1127 ln(1 + f / 700), from 20 Hz to half of the sample rate."""
    ends = _kaldi_mels(np.array([KALDI_LOWEST, rate // 2]))
    places = _kaldi_mels(np.arange(bins) * rate / (2 * (bins - 1)))
    return _triangles(places, np.linspace(ends[0], ends[1], mels + 2))


def _kaldi_mels(hertz: Floats) -> Floats:
    mels: Floats = 1127.0 * np.log(1.0 + hertz / 700.0)
    return mels


def _triangles(places: Floats, points: Floats) -> Floats:
    """[bins,mels]: filter m rises from points[m] to points[m + 1] and falls to points[m + 2]."""
    slopes = points[None] - places[:, None]
    widths = np.diff(points)
    result: Floats = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return result
