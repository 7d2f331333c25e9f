"""Data augmentation: named modifiers that change a stored sample, or its frames, at random.

Each is a function of the sample, its strength and a NumPy generator: equal generators give equal samples.
Pictures are uint8 [H,W,C] or, as videos, [N,H,W,C], whose frames are changed alike; sounds are int16
[samples].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from regard.config.input import Modifier
from regard.errors import UsageError
from regard.inputs.audio import FULL_SCALE, resample, to_int16

Array = NDArray[Any]
Rng = np.random.Generator
Change = Callable[[Array, float, Rng], Array]


def modify(raw: Array, modifiers: Sequence[Modifier], rng: Rng) -> Array:
    """A changed copy of a stored sample, or the sample itself; modifiers of frames are left to the other."""
    changes = SOUND if raw.dtype == np.int16 else PICTURE
    for modifier in modifiers:
        if modifier.name in Modifier.FRAMES:
            continue
        if modifier.name not in changes:
            kind = "sounds" if changes is SOUND else "pictures"
            message = f"the modifier {modifier.name} is not for {kind}; they have {', '.join(changes)}"
            raise UsageError(message, code="E_MODIFIER")
        if rng.random() < modifier.probability and raw.size:
            raw = changes[modifier.name](raw, modifier.strength, rng)
    return raw


def modify_frames(
    frames: Array, modifiers: Sequence[Modifier], rng: Rng, grid: tuple[int, ...] | None = None
) -> Array:
    """SpecAugment (Park et al. 2019): a span of times or mels of the frames gets their mean.

    frames: [T,mels]; with `grid` = (rows, columns) patches, whose rows are mels and columns times.
    """
    for modifier in modifiers:
        if modifier.name in Modifier.FRAMES and rng.random() < modifier.probability:
            axis = (modifier.name == "mel_mask") if grid is None else (modifier.name == "time_mask")
            changed = frames.copy()
            view = changed if grid is None else changed.reshape(*grid, -1)
            begin, end = _span(view.shape[int(axis)], modifier.strength, rng)
            view[(slice(None),) * int(axis) + (slice(begin, end),)] = frames.mean()
            frames = changed
    return frames


def _span(size: int, share: float, rng: Rng) -> tuple[int, int]:
    """A random span of at most this share of `size`."""
    length = int(rng.integers(0, int(share * size) + 1))
    begin = int(rng.integers(0, size - length + 1))
    return begin, begin + length


# pictures


def shift(raw: Array, strength: float, rng: Rng) -> Array:
    """Move by up to `strength` pixels; pixels at the edge are repeated."""
    most = int(strength)
    down, right = (int(each) for each in rng.integers(-most, most + 1, 2))
    rows = np.clip(np.arange(raw.shape[-3]) - down, 0, raw.shape[-3] - 1)
    columns = np.clip(np.arange(raw.shape[-2]) - right, 0, raw.shape[-2] - 1)
    return raw.take(rows, axis=-3).take(columns, axis=-2)


def flip(raw: Array, strength: float, rng: Rng) -> Array:
    """Left and right exchanged."""
    return np.ascontiguousarray(raw[..., ::-1, :])


def rotate(raw: Array, strength: float, rng: Rng) -> Array:
    """By up to `strength` degrees either way; corners get the mean colour of the picture's corners."""
    angle = rng.uniform(-strength, strength)
    pictures = raw.reshape(-1, *raw.shape[-3:])
    turns = [_rotate_one(picture, angle) for picture in pictures]
    return np.stack(turns).reshape(raw.shape)


def _rotate_one(picture: Array, angle: float) -> Array:
    corners = picture[[0, 0, -1, -1], [0, -1, 0, -1]].mean(axis=0)
    colour = tuple(int(each) for each in np.rint(corners))
    image = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    fill = colour[0] if len(colour) == 1 else colour
    return np.asarray(image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=fill)).reshape(picture.shape)


def erase(raw: Array, strength: float, rng: Rng) -> Array:
    """A rectangle of up to `strength` of the area gets the mean colour (Zhong et al. 2020)."""
    area = rng.uniform(0, strength)
    high = rng.uniform(area, 1.0) if area else 0.0  # share of the height; area / high of the width
    sides = high, (area / high if high else 0.0)
    result = raw.copy()
    lengths = [round(share * size) for share, size in zip(sides, raw.shape[-3:-1])]
    top, left = (int(rng.integers(0, size - n + 1)) for n, size in zip(lengths, raw.shape[-3:-1]))
    place = (..., slice(top, top + lengths[0]), slice(left, left + lengths[1]), slice(None))
    result[place] = np.rint(raw.mean(axis=(-3, -2), keepdims=True)).astype(np.uint8)
    return result


def brightness(raw: Array, strength: float, rng: Rng) -> Array:
    """Values times 1 +- strength."""
    return _to_uint8(raw * np.float32(rng.uniform(1 - strength, 1 + strength)))


def contrast(raw: Array, strength: float, rng: Rng) -> Array:
    """Differences from the mean times 1 +- strength."""
    mean, factor = np.float32(raw.mean()), np.float32(rng.uniform(1 - strength, 1 + strength))
    return _to_uint8((raw - mean) * factor + mean)


def invert(raw: Array, strength: float, rng: Rng) -> Array:
    """Light and dark exchanged."""
    return 255 - raw


def _to_uint8(values: Array) -> Array:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


# sounds


def shift_sound(raw: Array, strength: float, rng: Rng) -> Array:
    """Move in time by up to `strength` of the length, which stays; silence fills."""
    by = round(rng.uniform(-1, 1) * min(strength, 1.0) * len(raw))
    result = np.zeros_like(raw)
    if by >= 0:
        result[by:] = raw[: len(raw) - by]
    else:
        result[:by] = raw[-by:]
    return result


def speed(raw: Array, strength: float, rng: Rng) -> Array:
    """Play 1 +- strength times as fast, which changes length and pitch (Ko et al. 2015); in steps of 1 %."""
    rate = round(100 * rng.uniform(1 - strength, 1 + strength))
    return raw if rate == 100 else to_int16(resample(_amplitudes(raw), rate, 100))


def gain(raw: Array, strength: float, rng: Rng) -> Array:
    """Louder or softer by up to `strength` decibels."""
    return to_int16(_amplitudes(raw) * np.float32(10 ** (rng.uniform(-strength, strength) / 20)))


def noise(raw: Array, strength: float, rng: Rng) -> Array:
    """White noise, up to `strength` of the sound's root mean square."""
    sound = _amplitudes(raw)
    level = np.float32(rng.uniform(0, strength)) * np.sqrt(np.mean(sound**2))
    return to_int16(sound + level * rng.standard_normal(len(raw), dtype=np.float32))


def silence(raw: Array, strength: float, rng: Rng) -> Array:
    """Silence at both ends, each up to `strength` of the length."""
    before, behind = (int(rng.uniform(0, strength) * len(raw)) for _ in range(2))
    return np.pad(raw, (before, behind))


def _amplitudes(raw: Array) -> NDArray[np.float32]:
    return raw.astype(np.float32) / np.float32(FULL_SCALE)


PICTURE: dict[str, Change] = {
    "shift": shift,
    "flip": flip,
    "rotate": rotate,
    "erase": erase,
    "brightness": brightness,
    "contrast": contrast,
    "invert": invert,
}
SOUND: dict[str, Change] = {
    "shift": shift_sound,
    "speed": speed,
    "gain": gain,
    "noise": noise,
    "silence": silence,
}
