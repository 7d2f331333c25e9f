"""Pictures and videos as inputs: equal to transformers and to convolutions, laws, and what is refused."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from transformers import ViTConfig, ViTImageProcessorPil
from transformers.models.vit.modeling_vit import ViTPatchEmbeddings

from regard.config.input import AudioInput, ImageInput, Modifier, VideoInput, parse_input
from regard.errors import UsageError
from regard.inputs.frames import FrameReader, ImageReader, VideoReader, make_reader
from regard.inputs.image import evenly
from regard.inputs.media import MediaLimits, open_media
from regard.inputs.modifiers import modify

SMALL = ImageReader(ImageInput(height=32, width=48, patch=8, mean=(0.1, 0.2, 0.3), deviation=(0.4, 0.5, 0.6)))
VIDEO = VideoReader(VideoInput(height=12, width=8, patch=4, frames=6, tubelet=3))


def noise(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).integers(0, 256, shape, dtype=np.uint8)


def encode(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


PICTURE = Image.fromarray(noise(45, 77, 3))


def code_of(source: Any, reader: FrameReader = SMALL) -> str | None:
    with pytest.raises(UsageError) as caught:
        reader.read(source)
    return caught.value.code


# equal to transformers


@pytest.mark.parametrize("resample", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"height": 32, "width": 48}, (45, 77)),
        ({"height": 32, "width": 48}, (32, 48)),
        ({"height": 24, "width": 24, "fit": "crop"}, (45, 77)),
        ({"height": 24, "width": 24, "fit": "crop"}, (77, 45)),
        ({"height": 24, "width": 24, "fit": "crop"}, (9, 11)),
        ({"height": 16, "width": 16, "channels": 1}, (21, 20)),
    ],
)
def test_values_equal_those_of_vit_image_processor(
    tmp_path: Path, resample: str, fields: dict[str, Any], size: tuple[int, int]
) -> None:
    """Through the folder, too: transformers reads what we write. The difference is that of one float32
    rounding, since v scale + offset is computed instead of (v / 255 - mean) / deviation."""
    channels = fields.get("channels", 3)
    reader = make_reader(
        parse_input({"kind": "image", "patch": 8, "resample": resample, "mean": (0.3,), **fields})
    )
    assert isinstance(reader, ImageReader)
    picture = Image.fromarray(noise(*size, 3) if channels == 3 else noise(*size))
    reader.save(tmp_path)
    processor = ViTImageProcessorPil.from_pretrained(tmp_path)
    expected = processor(picture, return_tensors="pt")["pixel_values"]  # [1,C,H,W]
    raw = reader.read(encode(picture))
    rows = torch.from_numpy(reader.frames(raw))
    patches = torch.nn.functional.unfold(expected, 8, stride=8)[0].T
    assert (rows - patches).abs().max() < 1e-6
    assert (raw == reader.read(np.asarray(picture))).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_linear_over_patches_is_the_projection_of_vit(channels: int) -> None:
    config = ViTConfig(image_size=(32, 48), patch_size=8, num_channels=channels, hidden_size=10)
    embeddings = ViTPatchEmbeddings(config)
    reader = make_reader(ImageInput(height=32, width=48, patch=8, channels=channels))
    pixels = noise(32, 48, channels)
    values = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1  # mean and deviation 0.5
    expected = embeddings(values)[0]
    weight, bias = embeddings.projection.weight.flatten(1), embeddings.projection.bias
    rows = torch.from_numpy(reader.frames(pixels))
    assert (rows.shape[1], len(rows)) == (reader.width, reader.most)
    torch.testing.assert_close(rows @ weight.T + bias, expected, atol=1e-5, rtol=0)


def test_linear_over_tubelets_is_a_3d_convolution() -> None:
    convolution = torch.nn.Conv3d(3, 10, kernel_size=(3, 4, 4), stride=(3, 4, 4))
    clip = noise(6, 12, 8, 3)
    values = torch.from_numpy(clip).permute(3, 0, 1, 2)[None] / 127.5 - 1  # [1,C,N,H,W]
    expected = convolution(values).flatten(2).transpose(1, 2)[0]
    rows = torch.from_numpy(VIDEO.frames(VIDEO.read(clip)))
    ours = rows @ convolution.weight.flatten(1).T + convolution.bias
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    assert VIDEO.grid == (2, 3, 2)


# laws


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_pixels_are_the_inverse_of_frames(data: st.DataObject) -> None:
    patch, rows, columns = (data.draw(st.integers(1, 6)) for _ in range(3))
    channels = data.draw(st.sampled_from([1, 3]))
    mean, deviation = (
        data.draw(st.lists(st.floats(0.1, 0.9), min_size=channels, max_size=channels)) for _ in range(2)
    )
    fields: dict[str, Any] = {"height": patch * rows, "width": patch * columns, "channels": channels}
    fields |= {"patch": patch, "mean": mean, "deviation": deviation}
    shape: tuple[int, ...] = (patch * rows, patch * columns, channels)
    if data.draw(st.booleans()):
        times, tubelet = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
        fields |= {"kind": "video", "frames": times * tubelet, "tubelet": tubelet}
        shape = (times * tubelet, *shape)
    reader = make_reader(parse_input({"kind": "image", **fields}))
    assert isinstance(reader, ImageReader | VideoReader)
    raw = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, shape, dtype=np.uint8)
    frames = reader.frames(raw)
    assert frames.dtype == np.float32
    assert frames.shape == (reader.positions(raw), reader.width)
    assert len(frames) == reader.most == np.prod(reader.grid) == len(set(reader.labels(raw)))
    assert (reader.pixels(frames) == raw).all()
    assert (reader.read(raw) == raw).all()


def test_labels_name_rows_columns_and_frames() -> None:
    labels = SMALL.labels(noise(32, 48, 3))
    assert (labels[0], labels[6 * 2 + 3]) == ("row 1, column 1", "row 3, column 4")
    assert VIDEO.labels(noise(6, 12, 8, 3))[-1] == "frames 4-6, row 3, column 2"
    single = VideoReader(VideoInput(height=4, width=4, patch=4, frames=2, tubelet=1))
    assert single.labels(noise(2, 4, 4, 3)) == ["frame 1, row 1, column 1", "frame 2, row 1, column 1"]


def test_a_patch_lies_where_its_label_says() -> None:
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[16:24, 24:32] = 255
    bright = SMALL.frames(pixels).mean(axis=1).argmax()
    assert SMALL.labels(pixels)[bright] == "row 3, column 4"


def test_fingerprints_follow_the_settings() -> None:
    config = ImageInput(height=32, width=48, patch=8)
    assert make_reader(config).fingerprint == make_reader(config.model_copy()).fingerprint
    others = [{"patch": 16}, {"resample": "bicubic"}, {"mean": (0.4,)}, {"fit": "pad"}]
    prints = {make_reader(config.model_copy(update=each)).fingerprint for each in [{}, *others]}
    assert len(prints) == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"height": 30, "width": 32}, "height = 30 is not a multiple of patch = 16"),
        ({"height": 32, "width": 32, "channels": 1, "mean": [0.1, 0.2, 0.3]}, "3 numbers for 1 channels"),
        ({"height": 32, "width": 32, "deviation": [0.0]}, "greater than 0"),
        ({"height": 32, "width": 32, "channels": 2}, "channels"),
        ({"kind": "video", "height": 32, "width": 32, "frames": 7}, "frames = 7 is not a multiple"),
        ({"kind": "smell"}, "smell"),
    ],
)
def test_wrong_settings_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_input({"kind": "image", **fields})


# decoding


def test_the_orientation_of_a_photo_is_followed() -> None:
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:, :24] = 200  # bright on the left
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    turned = SMALL.read(encode(Image.fromarray(pixels), "PNG", exif=exif))
    assert (turned == pixels[::-1, ::-1]).all()


def test_transparency_lies_over_white() -> None:
    values = np.zeros((32, 48, 4), np.uint8)
    values[:, :24] = (10, 20, 30, 255)
    for source in (
        encode(Image.fromarray(values)),
        encode(Image.fromarray(values), "WEBP", lossless=True),
        values,
    ):
        pixels = SMALL.read(source)
        assert pixels[0, 0].tolist() == [10, 20, 30]
        assert pixels[0, -1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_is_read_as_grey_or_rgb(mode: str, channels: int) -> None:
    grey = Image.fromarray(np.full((20, 30), 180, np.uint8))
    image = Image.fromarray(np.full((20, 30), 180 * 257, np.uint16)) if mode == "I;16" else grey.convert(mode)
    if mode == "1":
        image = Image.fromarray(np.full((20, 30), 255, np.uint8)).convert("1")
    content = encode(image, "JPEG" if mode == "CMYK" else "PNG")
    pixels = make_reader(ImageInput(height=8, width=8, patch=4, channels=channels)).read(content)
    assert pixels.shape == (8, 8, channels)
    assert np.abs(pixels.astype(int) - (255 if mode == "1" else 180)).max() <= 1


def test_pictures_are_padded_and_cropped_without_distortion() -> None:
    wide = np.full((10, 40, 3), 255, np.uint8)
    wide[:, 20:] = 100
    padded = ImageReader(ImageInput(height=40, width=40, patch=8, fit="pad")).read(wide)
    assert (padded[:15] == 0).all() and (padded[15:25, :20] == 255).all() and (padded[25:] == 0).all()
    cropped = ImageReader(ImageInput(height=10, width=20, patch=10, fit="crop")).read(wide)
    assert (cropped[:, :10] == 255).all() and (cropped[:, 10:] == 100).all()


def test_an_animation_is_its_first_frame_or_a_video(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((12, 8), 20 * n, np.uint8)) for n in range(11)]
    content = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (SMALL.read(content) == 0).all()
    assert VIDEO.read(content)[:, 0, 0, 0].tolist() == [20 * n for n in (0, 2, 4, 6, 8, 10)]
    for n, frame in enumerate(frames):  # the order of the numbers, not of the letters: 2 before 10
        frame.save(tmp_path / f"frame{n}.png")
    (tmp_path / "notes.txt").write_text("not a frame")
    assert (VIDEO.read(tmp_path) == VIDEO.read(content)).all()
    assert VIDEO.read(encode(PICTURE)).shape == (6, 12, 8, 3)  # a still picture repeats
    assert evenly(3, 6) == [0, 0, 1, 1, 2, 2]


def test_a_picture_in_a_tar_is_read_by_name(tmp_path: Path) -> None:
    tar, content = tmp_path / "train.tar", encode(PICTURE)
    with tarfile.open(tar, "w") as archive:
        for name in ("a.png", "dir/b.png", "../up.png"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, kind in (
            ("link.png", tarfile.SYMTYPE),
            ("hard.png", tarfile.LNKTYPE),
            ("dev", tarfile.CHRTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    expected = SMALL.read(content)
    for name in ("a.png", "dir/b.png", "../up.png"):  # nothing is extracted, so no name can escape
        assert (SMALL.read(f"{tar}:{name}") == expected).all()
    for name in ("link.png", "hard.png", "dev"):
        assert code_of(f"{tar}:{name}") == "E_MEDIA_MEMBER"
    assert code_of(f"{tar}:c.png") == "E_MEDIA_MISSING"
    assert code_of(f"{tar}:a.png", ImageReader(SMALL.config, MediaLimits(bytes=100))) == "E_FILE_SIZE"
    with tarfile.open(tar, "w") as archive:  # written again: its index is made again
        entry = tarfile.TarInfo("c.png")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    assert (SMALL.read(f"{tar}:c.png") == expected).all()
    tar.write_bytes(tar.read_bytes()[:900])
    assert code_of(f"{tar}:c.png") == "E_MEDIA_TAR"
    tar.write_text("no tar at all" * 100)
    assert code_of(f"{tar}:c.png") == "E_MEDIA_TAR"


# what is refused


def png_header(side: int) -> bytes:
    """A picture of 40 kB that claims to be large."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", bytes(40_000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_001, 10_000, 30_000, 2**31 - 1])
def test_too_many_pixels_are_refused_by_the_header(side: int, tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(side))
    with pytest.raises(UsageError, match=r"bomb\.png") as caught:
        SMALL.read(tmp_path / "bomb.png")
    assert caught.value.code == "E_IMAGE_PIXELS"


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF"])
def test_a_truncated_or_changed_picture_is_refused_or_read(form: str) -> None:
    """Never another exception; cut in the middle it is refused."""
    content = encode(PICTURE, form)
    assert code_of(content[: len(content) // 2]) == "E_IMAGE_DAMAGED"
    dice = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(content[: dice.integers(len(content))] if dice.random() < 0.3 else content)
        for _ in range(int(dice.integers(1, 6))):
            if broken:
                broken[dice.integers(min(len(broken), 400))] = dice.integers(256)
        try:
            assert SMALL.read(bytes(broken)).shape == (32, 48, 3)
        except UsageError as error:
            assert error.code in ("E_IMAGE_DAMAGED", "E_IMAGE_FORMAT", "E_IMAGE_PIXELS")


def test_files_that_are_no_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("this is a text\n" * 10)
    (tmp_path / "empty.png").touch()
    with pytest.raises(UsageError, match=r"text\.png: no picture") as caught:
        SMALL.read(tmp_path / "text.png")
    assert caught.value.code == "E_IMAGE_FORMAT"
    assert code_of(tmp_path / "empty.png") == "E_IMAGE_FORMAT"
    assert code_of(encode(PICTURE, "TIFF")) == "E_IMAGE_FORMAT"
    assert code_of(tmp_path / "missing.png") == "E_MEDIA_MISSING"
    assert code_of(tmp_path) == "E_MEDIA_MISSING"
    assert code_of("a\0b.png") == "E_MEDIA_MISSING"
    assert code_of(tmp_path, VIDEO) == "E_IMAGE_FORMAT"  # a folder whose pictures are none
    few = MediaLimits(bytes=100, frames=1)
    assert code_of(encode(PICTURE), ImageReader(SMALL.config, few)) == "E_FILE_SIZE"
    assert code_of(tmp_path, VideoReader(VIDEO.config, few)) == "E_IMAGE_FRAMES"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    assert code_of(tmp_path / "pipe.png") == "E_FILE_TYPE"


def test_a_path_outside_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(encode(PICTURE))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "inside.png").write_bytes(b"content")
    assert open_media("inside.png", root=folder) == b"content"
    for name in ("../secret.png", str(tmp_path / "secret.png"), "link.png", "a/../../secret.png", "\0"):
        with pytest.raises(UsageError) as caught:
            open_media(name, root=folder)
        assert caught.value.code == "E_MEDIA_OUTSIDE"


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((4, 4, 5, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(5),
    ],
)
def test_arrays_of_another_form_are_refused(array: Any) -> None:
    assert code_of(array) == "E_IMAGE_ARRAY"
    assert code_of(array, VIDEO) == "E_IMAGE_ARRAY"


def test_frames_of_another_size_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\(32, 48, 3\)"):
        SMALL.frames(noise(32, 32, 3))


# folders


@pytest.mark.parametrize("fit", ["squeeze", "crop", "pad"])
@pytest.mark.parametrize("kind", ["image", "video"])
def test_a_reader_is_saved_and_loaded(tmp_path: Path, fit: str, kind: str) -> None:
    fields: dict[str, Any] = {"kind": kind, "height": 32, "width": 16, "patch": 4, "fit": fit, "channels": 1}
    if kind == "video":
        fields |= {"frames": 9, "tubelet": 3}
    reader = make_reader(parse_input(fields))
    reader.save(tmp_path)
    again = FrameReader.load(tmp_path)
    assert (again.config, again.fingerprint) == (reader.config, reader.fingerprint)
    kind = json.loads((tmp_path / "preprocessor_config.json").read_text())["image_processor_type"]
    assert kind.startswith("ViT") == (fit == "squeeze" and "tubelet" not in fields)


def test_a_folder_of_transformers_is_loaded(tmp_path: Path) -> None:
    processor = ViTImageProcessorPil(size={"height": 32, "width": 48}, image_mean=[0.1, 0.2, 0.3], resample=3)
    processor.save_pretrained(tmp_path)
    ViTConfig(image_size=(32, 48), patch_size=8).save_pretrained(tmp_path)
    reader = FrameReader.load(tmp_path)
    assert isinstance(reader, ImageReader)
    assert reader.config == ImageInput(height=32, width=48, patch=8, mean=(0.1, 0.2, 0.3), resample="bicubic")
    expected = processor(PICTURE, return_tensors="pt")["pixel_values"]
    patches = torch.nn.functional.unfold(expected, 8, stride=8)[0].T.numpy()
    assert np.abs(reader.frames(reader.read(encode(PICTURE))) - patches).max() < 1e-6
    composite = {"model_type": "vision-encoder-decoder", "encoder": {"patch_size": 4, "num_channels": 3}}
    (tmp_path / "config.json").write_text(json.dumps(composite))
    assert FrameReader.load(tmp_path).width == 4 * 4 * 3


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{"image_processor_type": "CLIPImageProcessor"}', "E_INPUT_PROCESSOR"),
        ("{}", "E_INPUT_PROCESSOR"),
        ('{"image_processor_type": ["ViTImageProcessor"]}', "E_INPUT_PROCESSOR"),
        ("[]", "E_INPUT_SETTINGS"),
        ('{"image_processor_type": "ViTImageProcessor", "size": {"edge": 4}}', "E_INPUT_SETTINGS"),
        ('{"image_processor_type": "ViTImageProcessor", "size": "large"}', "E_INPUT_SETTINGS"),
        ('{"image_processor_type": "ViTImageProcessor", "do_rescale": false}', "E_INPUT_SETTINGS"),
        ('{"image_processor_type": "ViTImageProcessor", "resample": 17}', "E_INPUT_SETTINGS"),
        ('{"regard": {"kind": "image", "height": 1000000, "width": 16}}', "E_INPUT_SETTINGS"),
        ('{"regard": 3}', "E_INPUT_SETTINGS"),
        (None, "E_INPUT_MISSING"),
    ],
)
def test_other_processors_and_damaged_files_are_refused(
    tmp_path: Path, content: str | None, code: str
) -> None:
    if content is not None:
        (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(UsageError, match=r"preprocessor_config\.json") as caught:
        FrameReader.load(tmp_path)
    assert caught.value.code == code


def test_reading_needs_no_torch() -> None:
    code = "import sys, regard.inputs.frames, regard.inputs.modifiers; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# modifiers


STRENGTHS = {"shift": 4.0, "rotate": 15.0, "erase": 0.4, "brightness": 0.4, "contrast": 0.4}


@pytest.mark.parametrize("name", Modifier.IMAGE)
@pytest.mark.parametrize("shape", [(32, 48, 3), (8, 8, 1), (5, 12, 8, 3)])
def test_modifiers_are_functions_of_their_generator(name: str, shape: tuple[int, ...]) -> None:
    raw = noise(*shape)
    before = raw.copy()
    modifier = Modifier(name=name, strength=STRENGTHS.get(name, 0.0))
    results = [modify(raw, [modifier], np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4, 5)]
    assert all(each.shape == shape and each.dtype == np.uint8 for each in results)
    assert (results[0] == results[1]).all()
    assert any((each != raw).any() for each in results)
    assert (raw == before).all()
    never = Modifier(name=name, strength=STRENGTHS.get(name, 0.0), probability=0.0)
    assert modify(raw, [never], np.random.default_rng(1)) is raw


def test_what_the_modifiers_do() -> None:
    raw = np.zeros((9, 9, 3), np.uint8)
    raw[4, 4] = 200
    rng = np.random.default_rng(0)
    moved = [modify(raw, [Modifier(name="shift", strength=2)], rng) for _ in range(300)]
    places = {tuple(int(n) for n in np.argwhere(each[..., 0])[0]) for each in moved}
    assert places == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    ramp = np.broadcast_to(np.arange(9, dtype=np.uint8)[None, :, None], (9, 9, 3))
    assert (modify(ramp, [Modifier(name="flip")], rng)[0, :, 0] == np.arange(9)[::-1]).all()
    assert (modify(raw, [Modifier(name="invert")], rng) == 255 - raw.astype(int)).all()
    grains = noise(40, 40, 1)
    erased = [modify(grains, [Modifier(name="erase", strength=0.5)], rng) for _ in range(300)]
    assert 0.2 < np.mean([each != grains for each in erased]) < 0.3  # the area is even between 0 and 0.5
    half = [
        modify(raw, [Modifier(name="brightness", strength=0.5, probability=0.5)], rng) for _ in range(400)
    ]
    assert 140 < sum(each is raw for each in half) < 260


def test_modifiers_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="gain is not for pictures") as caught:
        modify(noise(8, 8, 3), [Modifier(name="gain", strength=3.0)], np.random.default_rng(0))
    assert caught.value.code == "E_MODIFIER"
    assert Modifier(name="shift", strength=3).suits("audio") and not Modifier(name="flip").suits("audio")
    for fields in ({"name": "rotate", "strength": 181}, {"name": "rotate"}, {"name": "flip", "strength": 1}):
        with pytest.raises(ValidationError):
            Modifier(**fields)
    assert AudioInput().kind == "audio"
