"""The built-in models of pictures and sounds: commands without -m, and files that are not of their kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from conftest import Command, Refused
from regard.storage import models as builtin
from regard.tasks import load
from speech import RATE, wav

DATA = Path(__file__).parent / "data"  # of the test sets of Fashion-MNIST and FSDD
GARMENTS = sorted((DATA / "garments").iterdir())
DIGITS = sorted((DATA / "digits").iterdir())
pytestmark = pytest.mark.usefixtures("same_threads")


def other_pictures() -> dict[str, NDArray[np.uint8]]:
    rng = np.random.default_rng(5)
    cross = Image.new("RGB", (64, 64), (250, 250, 250))
    ImageDraw.Draw(cross).line([(5, 5), (58, 58)], fill=(200, 30, 30), width=6)
    ImageDraw.Draw(cross).line([(5, 58), (58, 5)], fill=(200, 30, 30), width=6)
    return {
        "noise": rng.integers(0, 256, (64, 64, 3), np.uint8),
        "blank": np.full((40, 60, 3), 255, np.uint8),
        "black": np.zeros((28, 28, 3), np.uint8),
        "ramp": np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (64, 64, 3)).copy(),
        "cross": np.asarray(cross),
    }


def test_a_garment_is_named_without_a_model(regard: Command, tmp_path: Path) -> None:
    for file in GARMENTS:
        found = regard("classify", file)
        assert found.lines == [file.stem]
        assert "Using the built-in model garments (-m selects another)" in found.err
    assert regard("classify", DATA / "garments").lines == [f"{file}\t{file.stem}" for file in GARMENTS]
    row = json.loads(regard("classify", GARMENTS[0], "--json").out)
    assert row["label"] == GARMENTS[0].stem and "no garment" in row["probabilities"]
    light = 255 - np.asarray(
        Image.open(DATA / "garments" / "trousers.png")
    )  # dark on white, larger, in colour
    Image.fromarray(light).convert("RGB").resize((200, 200)).save(tmp_path / "photo.jpg")
    assert regard("classify", tmp_path / "photo.jpg").lines == ["trousers"]


def test_a_model_of_pictures_without_a_run_is_evaluated(regard: Command, tmp_path: Path) -> None:
    for file in GARMENTS:
        (tmp_path / file.stem).mkdir()
        shutil.copy(file, tmp_path / file.stem)
    scores = json.loads(regard("evaluate", "-m", "garments", "--data", tmp_path, "--json").out)
    assert scores["accuracy"] == 1


def test_a_picture_and_a_sound_are_explained(regard: Command, refused: Refused, tmp_path: Path) -> None:
    for name, file in (("garments", GARMENTS[0]), ("spoken-digits", DIGITS[0])):
        found = json.loads(regard("explain", "-m", name, file, "--json").out)
        assert found["output"] == load(builtin.PLACE / name).trace(str(file)).output
    regard("explain", "-m", "garments", GARMENTS[0], "-o", tmp_path / "heads.svg")
    assert (tmp_path / "heads.svg").stat().st_size
    assert str(GARMENTS[0]) in refused("explain", "-m", "english-names", GARMENTS[0])


def test_what_names_no_sound_is_told_with_what_would(refused: Refused) -> None:
    message = refused("transcribe", GARMENTS[0])
    assert message.startswith(f"{GARMENTS[0]}: ") and ".wav, .flac" in message


def test_a_picture_of_something_else_is_no_garment(regard: Command, tmp_path: Path) -> None:
    for name, pixels in other_pictures().items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    lines = regard("classify", tmp_path).lines
    assert lines == [f"{tmp_path / name}.png\tno garment" for name in sorted(other_pictures())]


def test_digits_are_written_down_without_a_model(regard: Command) -> None:
    for file in DIGITS:
        found = regard("transcribe", file)
        assert found.lines == [file.stem.replace("-", " ")]
        assert "Using the built-in model spoken-digits (-m selects another)" in found.err
    expected = [f"{file}\t{file.stem.replace('-', ' ')}" for file in DIGITS]
    assert regard("transcribe", DATA / "digits").lines == expected
    row = json.loads(regard("transcribe", DIGITS[0], "--words", "--format", "json").out)
    assert [word["text"] for word in row["words"]] == DIGITS[0].stem.split("-")


def string(pitch: float) -> NDArray[np.float64]:
    """Half a second of a string that is plucked: overtones that fade."""
    time = np.arange(RATE // 2) / RATE
    waves = [np.sin(2 * np.pi * n * pitch * time) / n for n in range(1, 6)]
    return 0.2 * np.exp(-4 * time) * np.sum(waves, axis=0)


def test_other_sounds_are_no_digits(regard: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sounds = {
        "clicks": np.where(np.arange(2 * RATE) % 2000 < 8, 0.7, 0.0),
        "hiss": 0.2 * rng.standard_normal(2 * RATE),
        "strings": np.concatenate([string(pitch) for pitch in (262, 330, 392, 523)]),
    }
    for name, samples in sounds.items():
        (tmp_path / f"{name}.wav").write_bytes(wav(samples))
    lines = regard("transcribe", tmp_path).lines
    assert lines == [f"{tmp_path / name}.wav\t(no digits)" for name in sorted(sounds)]
    (tmp_path / "silence.wav").write_bytes(wav(np.zeros(RATE)))
    assert regard("transcribe", tmp_path / "silence.wav").out.strip() == ""


def test_the_same_in_python() -> None:
    classifier, pixels = load("garments"), np.asarray(Image.open(GARMENTS[0]))
    assert classifier.classify(pixels).label == GARMENTS[0].stem
    for file in DIGITS:
        assert load("spoken-digits").transcribe(file).text == file.stem.replace("-", " ")


@pytest.mark.parametrize(("name", "licence"), [("garments", "mit"), ("spoken-digits", "cc-by-sa-4.0")])
def test_size_and_card(name: str, licence: str) -> None:
    place = builtin.PLACE / name
    assert sum(file.stat().st_size for file in place.iterdir()) <= 3_000_000
    card = (place / "README.md").read_text(encoding="utf-8")
    assert f"license: {licence}" in card
    assert all(part in card for part in ("Data and licence", "What it can and cannot do", "test: "))
