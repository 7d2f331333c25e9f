"""Pictures and short videos: files to uint8 arrays of the size that a model reads. Pillow decodes.

A picture is turned as its EXIF orientation says, laid over white where it is transparent, and brought to
grey or RGB. Size and format are read from the header and checked before anything is decoded.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from regard.config.input import PictureConfig
from regard.errors import UsageError
from regard.inputs.media import LIMITS, MediaLimits, open_media

Pixels = NDArray[np.uint8]  # [H,W,C]
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
VIDEO_PIXELS = 16  # times the pixels of one picture: those of all frames, since each changes the last
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif"}
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
# what pillow raises for files that are damaged or made to break it; UserWarning where warnings are errors
DAMAGE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    UserWarning,
)
BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def read_image(
    source: str | Path | bytes | NDArray[Any], config: PictureConfig, limits: MediaLimits = LIMITS
) -> Pixels:
    """A picture as uint8 [H,W,C] of the config's size; of an animation the first frame."""
    if isinstance(source, np.ndarray):
        return fit(_from_array(source), config)
    content, name = media_bytes(source, limits)
    with _opened(content, name, limits) as image:
        return fit(_upright(image), config)


def read_video(
    source: str | Path | bytes | NDArray[Any], config: PictureConfig, count: int, limits: MediaLimits = LIMITS
) -> Pixels:
    """`count` frames, taken evenly, as uint8 [N,H,W,C]: of an animated GIF or WebP, a folder of pictures in
    the order of their names (2 before 10), or an array [N,H,W,C]."""
    if isinstance(source, np.ndarray):
        if source.ndim not in (3, 4) or not len(source):
            raise UsageError(f"a video of shape {source.shape}: give [N,H,W,C]", code="E_IMAGE_ARRAY")
        return np.stack([fit(_from_array(source[n]), config) for n in evenly(len(source), count)])
    if not isinstance(source, bytes) and Path(source).is_dir():
        files = sorted((each for each in Path(source).iterdir() if _is_picture(each)), key=_natural)
        _check_frames(len(files), str(source), limits)
        return np.stack([read_image(files[n], config, limits) for n in evenly(len(files), count)])
    content, name = media_bytes(source, limits)
    with _opened(content, name, limits) as image:
        total = int(getattr(image, "n_frames", 1))
        _check_frames(total, name, limits)
        if total * image.width * image.height > VIDEO_PIXELS * limits.pixels:
            message = f"{name}: {total:,} frames of {image.width:,} x {image.height:,} pixels are too many"
            raise UsageError(message, code="E_IMAGE_PIXELS")
        chosen = evenly(total, count)
        frames = {}
        for index in sorted(set(chosen)):  # each frame changes the one before: seek forwards only
            image.seek(index)
            _check_size(image, name, limits)  # a frame can make a GIF larger
            frames[index] = fit(_upright(image.copy()), config)
    return np.stack([frames[n] for n in chosen])


def evenly(total: int, count: int) -> list[int]:
    """Indices of `count` frames of `total`, first and last included; a short video repeats frames."""
    return [round(n * (total - 1) / max(1, count - 1)) for n in range(count)]


def fit(image: Image.Image, config: PictureConfig) -> Pixels:
    """A picture of the config's channels and size, as uint8 [H,W,C]."""
    image = image.convert("L" if config.channels == 1 else "RGB")
    size, chosen = (config.width, config.height), FILTERS[config.resample]
    if config.fit == "squeeze" and image.size != size:
        image = image.resize(size, chosen)
    elif config.fit == "crop":
        # one side fits, the other is at least as long and rounded down, as in transformers
        wide = max(config.width, image.width * config.height // image.height)
        high = max(config.height, image.height * config.width // image.width)
        image = image.resize((wide, high), chosen) if image.size != (wide, high) else image
        left, top = (wide - config.width) // 2, (high - config.height) // 2
        image = image.crop((left, top, left + config.width, top + config.height))
    elif config.fit == "pad":
        image = ImageOps.pad(image, size, method=chosen, color=0)
    return np.array(image, dtype=np.uint8).reshape(config.height, config.width, config.channels)


def media_bytes(source: str | Path | bytes, limits: MediaLimits) -> tuple[bytes, str]:
    """Content and name, for messages."""
    if not isinstance(source, bytes):
        return open_media(source, most=limits.bytes), str(source)
    if len(source) > limits.bytes:
        raise UsageError(f"{len(source):,} bytes: {limits.bytes:,} are read at most", code="E_FILE_SIZE")
    return source, "the data"


@contextmanager
def _opened(content: bytes, name: str, limits: MediaLimits) -> Iterator[Image.Image]:
    """An image whose header was checked; damage that decoding meets becomes an error with the name."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(image, name, limits)
            yield image
    except BOMBS:
        message = f"{name}: more pixels than the {limits.pixels:,} that are decoded at most"
        raise UsageError(message, code="E_IMAGE_PIXELS") from None
    except UnidentifiedImageError:
        message = f"{name}: no picture in a known format ({', '.join(FORMATS)})"
        raise UsageError(message, code="E_IMAGE_FORMAT") from None
    except (*DAMAGE, struct.error, MemoryError) as error:
        message = f"{name}: the picture is damaged or truncated ({error})"
        raise UsageError(message, code="E_IMAGE_DAMAGED") from None


def _check_size(image: Image.Image, name: str, limits: MediaLimits) -> None:
    if image.width * image.height > limits.pixels:
        raise UsageError(
            f"{name}: {image.width:,} x {image.height:,} pixels; {limits.pixels:,} are decoded at most: "
            "make the picture smaller",
            code="E_IMAGE_PIXELS",
        )


def _check_frames(total: int, name: str, limits: MediaLimits) -> None:
    if not total:
        raise UsageError(f"{name}: no picture in this folder", code="E_IMAGE_FRAMES")
    if total > limits.frames:
        raise UsageError(
            f"{name}: {total:,} frames; {limits.frames:,} are read at most", code="E_IMAGE_FRAMES"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Decoded, turned, opaque, 8 bit."""
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):  # PNG of 16 bit grey
        wide = np.asarray(image).astype(np.int64) >> 8
        image = Image.fromarray(np.clip(wide, 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), opaque)
    return image


def _from_array(values: NDArray[Any]) -> Image.Image:
    """uint8 [H,W] or [H,W,C] with 1, 3 or 4 channels."""
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype != np.uint8 or not (values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (3, 4))):
        raise UsageError(
            f"a picture of shape {values.shape} and type {values.dtype}: give uint8 [H,W] or [H,W,C] "
            "with 1, 3 or 4 channels",
            code="E_IMAGE_ARRAY",
        )
    if not values.size:
        raise UsageError(f"a picture of shape {values.shape} has no pixel", code="E_IMAGE_ARRAY")
    return _upright(Image.fromarray(np.ascontiguousarray(values)))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
    return [(1, int(part[:18]), part) if part.isdigit() else (0, 0, part) for part in parts]
