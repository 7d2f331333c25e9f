"""Readers of pictures, videos and sound: what a tokenizer is for text.

`read` decodes a file to the form in which samples are stored (uint8 pixels, int16 samples), `frames`
computes from it what the model reads: float32 [T,F], one row for each position. A reader belongs to a
model folder (preprocessor_config.json); readers with equal fingerprints give equal frames.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config.input import AudioInput, ImageInput, InputConfig, PictureConfig, VideoInput
from regard.errors import UsageError
from regard.inputs.audio import Samples, read_sound, sound_windows
from regard.inputs.image import Pixels, read_image, read_video
from regard.inputs.media import LIMITS, MediaLimits
from regard.inputs.preprocessor import FILE, from_folder, to_hf
from regard.inputs.spectrogram import log_mel, spectrum_length

Array = NDArray[Any]
Frames = NDArray[np.float32]  # [T,F]
Source = str | Path | bytes | Array
VERSION = 1  # of what is computed: stored samples of another version are made again


class FrameReader(ABC):
    """Files to frames. `config` holds all settings, `limits` what is refused."""

    config: InputConfig
    limits: MediaLimits
    width: int  # F, the values of one position
    most: int  # the largest T
    grid: tuple[int, ...] | None = None  # (rows, columns), (times, rows, columns); None: a sequence

    @cached_property
    def fingerprint(self) -> str:
        """Short hash: readers with equal fingerprints give equal frames."""
        content = json.dumps([VERSION, self.config.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @abstractmethod
    def read(self, source: Source) -> Array:
        """The stored form of a file ("train.tar:name.png" too), of its bytes, or of an array."""

    @abstractmethod
    def positions(self, raw: Array) -> int:
        """T, without computing the frames."""

    @abstractmethod
    def frames(self, raw: Array) -> Frames:
        """What the model reads: [T,F]."""

    @abstractmethod
    def labels(self, raw: Array) -> list[str]:
        """The name of each position."""

    def folder_files(self) -> dict[str, bytes]:
        """The files of a model folder that hold the settings."""
        return {FILE: (json.dumps(to_hf(self.config), indent=2, sort_keys=True) + "\n").encode()}

    def save(self, folder: str | Path) -> None:
        for name, content in self.folder_files().items():
            (Path(folder) / name).write_bytes(content)

    @staticmethod
    def load(folder: str | Path, limits: MediaLimits = LIMITS) -> FrameReader:
        """The reader of a folder of Regard or of transformers."""
        return make_reader(from_folder(Path(folder)), limits)


def make_reader(config: InputConfig, limits: MediaLimits = LIMITS) -> FrameReader:
    match config:
        case ImageInput():
            return ImageReader(config, limits)
        case VideoInput():
            return VideoReader(config, limits)
        case AudioInput():
            return AudioReader(config, limits)


class PatchReader(FrameReader):
    """Pictures and videos: rows are patches, values in the order of a flattened convolution kernel, so that
    Linear(F, D) equals the patch projection of ViT (Conv2d) and ViViT, VideoMAE (Conv3d)."""

    config: ImageInput | VideoInput
    grid: tuple[int, ...]

    def __init__(self, config: PictureConfig, times: int, tubelet: int, limits: MediaLimits) -> None:
        self.limits, self.tubelet = limits, tubelet
        rows, columns = config.height // config.patch, config.width // config.patch
        self.cut = (times, tubelet, rows, config.patch, columns, config.patch, config.channels)
        self.most = times * rows * columns
        self.width = config.channels * tubelet * config.patch**2
        # (v / 255 - mean) / deviation = v scale + offset, a product and a sum: [C,1] each
        mean, deviation = np.asarray(config.mean)[:, None], np.asarray(config.deviation)[:, None]
        self.scale = (1 / (255 * deviation)).astype(np.float32)
        self.offset = (-mean / deviation).astype(np.float32)

    def positions(self, raw: Array) -> int:
        return self.most

    def frames(self, raw: Array) -> Frames:
        self._check(raw)
        cut = raw.reshape(self.cut).transpose(0, 2, 4, 6, 1, 3, 5)  # [times,rows,columns,C,tubelet,p,p]
        result: Frames = cut.reshape(self.most, len(self.scale), -1) * self.scale
        result += self.offset
        return result.reshape(self.most, self.width)

    def pixels(self, frames: Array) -> Pixels:
        """The stored form of frames: the inverse of `frames`; values beyond 0..255 are clipped."""
        times, tubelet, rows, patch, columns, _, channels = self.cut
        values = (np.asarray(frames, np.float32).reshape(self.most, channels, -1) - self.offset) / self.scale
        whole: Pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        parts = whole.reshape(times, rows, columns, channels, tubelet, patch, patch)
        return parts.transpose(0, 4, 1, 5, 2, 6, 3).reshape(self._shape)

    def labels(self, raw: Array) -> list[str]:
        rows, columns = self.grid[-2:]
        return [f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns)]

    def _check(self, raw: Array) -> None:
        if raw.dtype != np.uint8 or raw.shape != self._shape:
            raise UsageError(
                f"pixels of shape {raw.shape} and type {raw.dtype}; the model reads uint8 {self._shape}",
                code="E_IMAGE_ARRAY",
            )

    @property
    @abstractmethod
    def _shape(self) -> tuple[int, ...]:
        """Of the stored form."""


class ImageReader(PatchReader):
    """Pictures as patches, row by row; stored as uint8 [H,W,C]."""

    config: ImageInput

    def __init__(self, config: ImageInput, limits: MediaLimits = LIMITS) -> None:
        super().__init__(config, 1, 1, limits)
        self.config = config
        self.grid = (config.height // config.patch, config.width // config.patch)

    def read(self, source: Source) -> Pixels:
        return read_image(source, self.config, self.limits)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.config.height, self.config.width, self.config.channels


class VideoReader(PatchReader):
    """Videos as tubelets, by time, row and column; stored as uint8 [N,H,W,C]."""

    config: VideoInput

    def __init__(self, config: VideoInput, limits: MediaLimits = LIMITS) -> None:
        super().__init__(config, config.frames // config.tubelet, config.tubelet, limits)
        self.config = config
        rows, columns = config.height // config.patch, config.width // config.patch
        self.grid = (config.frames // config.tubelet, rows, columns)

    def read(self, source: Source) -> Pixels:
        return read_video(source, self.config, self.config.frames, self.limits)

    def labels(self, raw: Array) -> list[str]:
        size, places = self.config.tubelet, super().labels(raw)
        firsts = range(1, self.config.frames + 1, size)
        times = [f"frame {n}" if size == 1 else f"frames {n}-{n + size - 1}" for n in firsts]
        return [f"{time}, {place}" for time in times for place in places]

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.config.frames, self.config.height, self.config.width, self.config.channels


class AudioReader(FrameReader):
    """Sound as frames of its log-mel spectrogram, or as patches of it; stored as int16 [samples].

    Patches overlap where the stride is less than the patch. They are ordered by mel, then by time, with
    values (mel, time): Linear(F, D) equals the Conv2d of ASTPatchEmbeddings.
    """

    config: AudioInput

    def __init__(self, config: AudioInput, limits: MediaLimits = LIMITS) -> None:
        self.config, self.limits = config, limits
        self.width, self.most = config.mels, config.spectrum_frames
        if config.patch is not None:
            self.stride = config.stride or config.patch
            rows, columns = (
                (side - config.patch) // self.stride + 1 for side in (config.mels, config.spectrum_frames)
            )
            self.grid, self.most, self.width = (rows, columns), rows * columns, config.patch**2

    def read(self, source: Source) -> Samples:
        return read_sound(source, self.config.sample_rate, self.limits)

    def windows(
        self, source: str | Path | bytes, overlap: float = 0.0, seconds: float | None = None
    ) -> Iterator[tuple[float, Samples]]:
        """Windows of a sound of any length, each with its beginning in seconds, in bounded memory."""
        size = self.config.seconds if seconds is None else seconds
        return sound_windows(source, self.config.sample_rate, size, overlap, self.limits)

    def positions(self, raw: Array) -> int:
        return self.most if self.grid else spectrum_length(len(raw), self.config)

    def spectrogram(self, raw: Array) -> Frames:
        """[frames,mels], before it is cut into patches."""
        if raw.dtype != np.int16 or raw.ndim != 1:
            message = f"samples of shape {raw.shape} and type {raw.dtype}; the model reads int16 [samples]"
            raise UsageError(message, code="E_AUDIO_ARRAY")
        return log_mel(raw, self.config)

    def frames(self, raw: Array) -> Frames:
        spectrum = self.spectrogram(raw)
        if self.config.patch is None:
            return spectrum
        size = self.config.patch
        patches = np.lib.stride_tricks.sliding_window_view(spectrum.T, (size, size))
        return patches[:: self.stride, :: self.stride].reshape(self.most, self.width)

    def labels(self, raw: Array) -> list[str]:
        time = self.config.hop / self.config.sample_rate
        if self.grid is None or self.config.patch is None:
            return [f"{n * time:.2f} s" for n in range(self.positions(raw))]
        rows, columns = self.grid
        size, step = self.config.patch, self.stride
        bands = [f"mels {n * step + 1}-{n * step + size}" for n in range(rows)]
        return [f"{n * step * time:.2f} s, {band}" for band in bands for n in range(columns)]
