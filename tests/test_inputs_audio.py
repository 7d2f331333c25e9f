"""Sound as input: equal to transformers' feature extractors, resampling, windows, and what is refused."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import tracemalloc
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import ASTConfig, ASTFeatureExtractor, WhisperFeatureExtractor
from transformers.models.audio_spectrogram_transformer.modeling_audio_spectrogram_transformer import (
    ASTPatchEmbeddings,
)
from transformers.utils import is_speech_available

from regard.config.input import AudioInput, Modifier, parse_input
from regard.errors import UsageError
from regard.inputs.audio import polyphase_taps, resample, resample_blocks
from regard.inputs.frames import AudioReader, FrameReader, make_reader
from regard.inputs.media import MediaLimits
from regard.inputs.modifiers import modify, modify_frames

RATE = 16000
WHISPER = AudioReader(AudioInput(seconds=4.0))
PLAIN = AudioReader(AudioInput(seconds=4.0, pad=False))
AST_FIELDS: dict[str, Any] = {"seconds": 2.56, "mels": 64, "scale": "kaldi", "patch": 16, "stride": 10}
AST = AudioReader(AudioInput(**AST_FIELDS, mean=-4.2677393, deviation=2 * 4.5689974))


def chirp(seconds: float, rate: int = RATE, loud: float = 0.4) -> Any:
    """A rising tone in noise, with a silent part, as int16."""
    times = np.arange(round(seconds * rate)) / rate
    sound = loud * np.sin(2 * np.pi * (200 + 400 * times) * times)
    sound += 0.1 * loud * np.random.default_rng(7).standard_normal(len(times))
    sound[len(times) // 3 : len(times) // 2] = 0
    return (sound * 32767).astype(np.int16)


def floats(raw: Any) -> Any:
    return raw.astype(np.float32) / 32768


def encode(sound: Any, rate: int = RATE, form: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound, rate, format=form, subtype=subtype)
    return file.getvalue()


def code_of(source: Any, reader: FrameReader = PLAIN) -> str | None:
    with pytest.raises(UsageError) as caught:
        reader.read(source)
    return caught.value.code


def ast_extractor(**fields: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # empty mel filters, which AST has at low frequencies
        return ASTFeatureExtractor(**fields)


# equal to transformers


@pytest.mark.parametrize("seconds", [0.05, 0.5, 1.2345, 3.99, 4.0, 7.1])
@pytest.mark.parametrize("loud", [0.4, 0.001])
def test_log_mels_equal_those_of_whisper(seconds: float, loud: float, tmp_path: Path) -> None:
    raw = chirp(seconds, loud=loud)
    WHISPER.save(tmp_path)
    extractor = WhisperFeatureExtractor.from_pretrained(tmp_path)
    expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np")["input_features"][0].T
    assert np.abs(WHISPER.frames(raw) - expected).max() < 1e-4
    expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np", padding="do_not_pad")
    assert np.abs(PLAIN.frames(raw) - expected["input_features"][0].T).max() < 1e-4


@pytest.mark.skipif(
    is_speech_available(), reason="torchaudio computes other filters than transformers' NumPy"
)
@pytest.mark.parametrize("seconds", [0.05, 1.2345, 2.56, 3.1])
@pytest.mark.parametrize("normalise", [True, False])
def test_spectrograms_equal_those_of_ast(seconds: float, normalise: bool, tmp_path: Path) -> None:
    raw = chirp(seconds)
    reader = AST if normalise else AudioReader(AudioInput(**AST_FIELDS))
    reader.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extractor = ASTFeatureExtractor.from_pretrained(tmp_path)
    expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np")["input_values"][0]
    assert np.abs(reader.spectrogram(raw) - expected).max() < 1e-5


def test_linear_over_patches_is_the_projection_of_ast() -> None:
    config = ASTConfig(
        hidden_size=12, patch_size=16, frequency_stride=10, time_stride=10, max_length=256, num_mel_bins=64
    )
    embeddings = ASTPatchEmbeddings(config)
    raw = chirp(2.0)
    expected = embeddings(torch.from_numpy(AST.spectrogram(raw))[None])[0]
    rows = torch.from_numpy(AST.frames(raw))
    ours = rows @ embeddings.projection.weight.flatten(1).T + embeddings.projection.bias
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    assert rows.shape == (AST.most, AST.width) == (5 * 25, 256)
    assert AST.grid == (5, 25)


@pytest.fixture(scope="module")
def digits() -> Path:
    """Spoken digits, where REGARD_DATA says, or beside the repository."""
    folder = Path(os.environ.get("REGARD_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "audio" / "fsdd").is_dir():
        pytest.skip("the spoken digits are not here; REGARD_DATA names their folder")
    return folder / "audio" / "fsdd"


def test_spoken_digits_equal_those_of_whisper(digits: Path) -> None:
    with tarfile.open(digits / "test.tar") as tar:
        names = tar.getnames()[::29]
        contents = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    extractor = WhisperFeatureExtractor(chunk_length=4)
    reader = AudioReader(AudioInput(seconds=4.0, sample_rate=8000))
    for name in names:
        exact, _ = soundfile.read(io.BytesIO(contents[name]), dtype="int16")
        assert (reader.read(f"{digits}/test.tar:{name}") == exact).all()
        raw = WHISPER.read(contents[name])  # 8 kHz to 16 kHz
        assert len(raw) == 2 * len(exact)
        expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np")["input_features"][0].T
        assert np.abs(WHISPER.frames(raw) - expected).max() < 1e-4


# laws


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_positions_are_counted_before_frames_are_computed(data: st.DataObject) -> None:
    hop = data.draw(st.integers(20, 300))
    window = data.draw(st.integers(max(16, hop // 2), 500))
    fields: dict[str, Any] = {"sample_rate": 4000, "seconds": data.draw(st.floats(0.2, 0.6)), "mels": 20}
    fields |= {"hop": hop, "window": window, "scale": data.draw(st.sampled_from(["whisper", "kaldi"]))}
    fields["pad"] = data.draw(st.booleans())
    reader = AudioReader(AudioInput(**fields))
    raw = chirp(data.draw(st.floats(0, 1)), rate=4000)
    frames = reader.frames(raw)
    assert frames.dtype == np.float32
    assert frames.shape == (reader.positions(raw), reader.width)
    assert 1 <= len(frames) <= reader.most
    assert len(frames) == reader.most or not reader.config.pad
    assert np.isfinite(frames).all()
    assert len(reader.labels(raw)) == len(frames)


def test_labels_name_times_and_bands() -> None:
    assert PLAIN.labels(chirp(2.0))[120] == "1.20 s"
    labels = AST.labels(chirp(1.0))
    assert (labels[0], labels[1], labels[25]) == (
        "0.00 s, mels 1-16",
        "0.10 s, mels 1-16",
        "0.00 s, mels 11-26",
    )
    assert len(set(labels)) == AST.most


def test_a_click_lies_where_its_label_says() -> None:
    raw = np.zeros(2 * RATE, np.int16)
    raw[round(1.2 * RATE)] = 32767
    loudest = PLAIN.frames(raw).mean(axis=1).argmax()
    assert PLAIN.labels(raw)[loudest] == "1.20 s"


def test_silence_is_a_sound() -> None:
    for reader in (WHISPER, PLAIN, AST):
        assert np.isfinite(reader.frames(reader.read(encode(np.zeros(RATE, np.int16))))).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch": 16, "pad": False}, "patch needs pad"),
        ({"stride": 10}, "give patch"),
        ({"patch": 81}, "larger than the spectrogram"),
        ({"seconds": 0.001}, "less than one hop"),
        ({"sample_rate": 0}, "sample_rate"),
        ({"deviation": 0.0}, "deviation"),
    ],
)
def test_wrong_settings_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_input({"kind": "audio", **fields})


# resampling


@pytest.mark.parametrize(
    ("rate", "target"),
    [(8000, 16000), (44100, 16000), (48000, 16000), (16000, 8000), (11025, 16000), (44101, 16000)],
)
def test_tones_are_resampled_as_they_are(rate: int, target: int) -> None:
    """Inside of the ends, tones well below half of both rates: 80 dB and better."""
    tones = lambda count, per: sum(  # noqa: E731
        0.3 * np.sin(2 * np.pi * hertz * np.arange(count) / per) for hertz in (440, 1700)
    )
    sound = tones(rate, rate).astype(np.float32)
    result = resample(sound, rate, target)
    assert len(result) == target
    assert np.abs(result - tones(target, target))[500:-500].max() < 3e-5
    assert np.abs(resample(np.ones(3000, np.float32), rate, target)[300:-300] - 1).max() < 1e-5


@pytest.mark.parametrize(("rate", "target"), [(8000, 16000), (44100, 16000), (48000, 16000), (22050, 16000)])
def test_resampling_is_that_of_scipy(rate: int, target: int) -> None:
    signal = pytest.importorskip("scipy.signal")
    sound = np.random.default_rng(0).standard_normal(5000)
    up, down = target // np.gcd(rate, target), rate // np.gcd(rate, target)
    taps = polyphase_taps(int(up), int(down)).astype(np.float64)  # [L,K], tap of time p/L - m in [p, m]
    half = taps.shape[1] // 2
    whole = np.zeros(2 * half * up + 1)
    for phase in range(up):
        for column, m in enumerate(range(-half + 1, half + 1)):
            whole[phase - m * up + half * up] = taps[phase, column]
    expected = signal.resample_poly(sound, up, down, window=whole / up)
    result = resample(sound.astype(np.float32), rate, target)
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() < 1e-5


def test_tones_beyond_the_new_rate_are_removed() -> None:
    high = np.sin(2 * np.pi * 6000 * np.arange(32000) / 16000).astype(np.float32)
    assert np.abs(resample(high, 16000, 8000)[200:-200]).max() < 1e-4


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(8000, 16000), (44100, 16000), (3, 2), (16000, 16001), (7, 5)]),
    st.lists(st.integers(0, 700), min_size=1, max_size=8),
)
def test_blocks_do_not_change_what_is_resampled(rates: tuple[int, int], sizes: list[int]) -> None:
    sound = np.random.default_rng(0).standard_normal(sum(sizes)).astype(np.float32)
    blocks = np.split(sound, np.cumsum(sizes)[:-1])
    parts = [*resample_blocks(iter(blocks), *rates), sound[:0]]
    whole = resample(sound, *rates)
    assert len(whole) == -(-len(sound) * rates[1] // rates[0])
    assert np.abs(np.concatenate(parts) - whole).max(initial=0) < 1e-5


# decoding


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_files_without_loss_are_read_exactly(form: str, channels: int, tmp_path: Path) -> None:
    raw = chirp(0.5)
    path = tmp_path / "sound"
    path.write_bytes(encode(np.stack([raw] * channels, axis=1), form=form))
    for source in (path, str(path), path.read_bytes()):
        assert np.abs(PLAIN.read(source).astype(int) - raw).max() <= (channels == 7)  # a mean is rounded
    assert (PLAIN.read(raw) == raw).all()
    assert (PLAIN.read(floats(raw)) == raw).all()
    assert (PLAIN.read(np.stack([floats(raw)] * 2, axis=1)) == raw).all()


@pytest.mark.parametrize("form", ["OGG", "MP3"])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_files_with_loss_sound_alike(form: str, rate: int) -> None:
    raw = chirp(1.0, rate=rate)
    result = PLAIN.read(encode(raw, rate, form)).astype(float)
    expected = resample(floats(raw), rate, RATE) * 32768
    assert len(result) == RATE
    assert np.corrcoef(result, expected)[0, 1] > 0.98


def test_floats_beyond_full_scale_are_clipped() -> None:
    sound = np.array([[3e38, 3e38], [-3e38, -3e38], [0.5, 0.5]], np.float32)
    assert PLAIN.read(encode(sound, subtype="FLOAT")).tolist() == [32767, -32768, 16384]


def test_opposite_channels_cancel() -> None:
    raw = chirp(0.2)
    assert (PLAIN.read(encode(np.stack([raw, -raw], axis=1))) == 0).all()


def test_a_long_sound_is_read_in_windows(tmp_path: Path) -> None:
    raw = chirp(10.0, rate=8000)
    path = tmp_path / "long.flac"
    path.write_bytes(encode(raw, 8000, "FLAC"))
    whole = AudioReader(AudioInput(pad=False)).read(path)
    for overlap in (0.0, 1.5):
        windows = list(PLAIN.windows(path, overlap=overlap))
        assert all(len(window) == 4 * RATE for _, window in windows[:-1])
        assert all(round(b - a, 6) == 4.0 - overlap for (a, _), (b, _) in pairwise(windows))
        for begin, window in windows:
            first = round(begin * RATE)
            assert np.abs(window.astype(int) - whole[first : first + len(window)]).max() <= 1
        assert round(windows[-1][0] * RATE) + len(windows[-1][1]) == len(whole)
        assert len(windows) == 1 + -(-(10 - 4) // (4 - overlap))
    short = list(PLAIN.windows(encode(chirp(1.0))))
    assert [(begin, len(window)) for begin, window in short] == [(0.0, RATE)]
    with pytest.raises(UsageError, match="overlap") as caught:
        next(PLAIN.windows(path, overlap=4.0))
    assert caught.value.code == "E_AUDIO_WINDOW"


def test_eight_hours_are_refused_as_a_whole_and_read_in_windows(tmp_path: Path) -> None:
    """730 kB on disk, 230 million samples; at most some megabytes in memory."""
    path = tmp_path / "night.flac"
    with soundfile.SoundFile(path, "w", 4000, 1, format="FLAC") as file:
        for _ in range(8 * 6):
            file.write(np.zeros(4000 * 600, np.int16))
    with pytest.raises(UsageError, match=r"night\.flac: longer than the 600 seconds") as caught:
        PLAIN.read(path)
    assert caught.value.code == "E_AUDIO_SECONDS"
    reader = AudioReader(AudioInput(sample_rate=4000, seconds=30.0))
    tracemalloc.start()
    try:
        count = sum(1 for _ in reader.windows(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 8 * 120
    assert peak < 10 << 20


# what is refused


@pytest.mark.parametrize("form", ["WAV", "FLAC", "MP3"])
def test_a_truncated_sound_is_refused(form: str) -> None:
    content = encode(chirp(3.0), form=form)
    for size in (40, len(content) // 2):
        assert code_of(content[:size]) == "E_AUDIO_DAMAGED"


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_changed_sound_is_refused_or_read(form: str) -> None:
    """Never another exception."""
    content = encode(chirp(0.3), form=form)
    dice = np.random.default_rng(0)
    for _ in range(100):
        broken = bytearray(content[: dice.integers(len(content))] if dice.random() < 0.3 else content)
        for _ in range(int(dice.integers(1, 6))):
            if broken:
                broken[dice.integers(min(len(broken), 300))] = dice.integers(256)
        try:
            raw = PLAIN.read(bytes(broken))
            assert raw.dtype == np.int16 and raw.ndim == 1
        except UsageError as error:
            assert str(error.code).startswith("E_AUDIO_")


def test_files_that_are_no_sounds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("this is a text\n" * 100)
    with pytest.raises(UsageError, match=r"text\.wav: no sound in a known format") as caught:
        PLAIN.read(tmp_path / "text.wav")
    assert caught.value.code == "E_AUDIO_FORMAT"
    assert code_of(encode(chirp(0.1), form="AIFF")) == "E_AUDIO_FORMAT"
    assert code_of(b"") == "E_AUDIO_FORMAT"
    assert code_of(tmp_path / "missing.wav") == "E_MEDIA_MISSING"
    assert code_of(encode(np.zeros(0, np.int16))) == "E_AUDIO_EMPTY"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [1, 2])
def test_values_that_are_no_numbers_are_refused(value: float, channels: int) -> None:
    sound = np.zeros((100, channels), np.float32)
    sound[50] = value
    assert code_of(encode(sound, subtype="FLOAT")) == "E_AUDIO_NONFINITE"
    assert code_of(sound) == "E_AUDIO_NONFINITE"


@pytest.mark.parametrize(
    ("offset", "field", "codes"),
    [
        (24, struct.pack("<I", 0), {"E_AUDIO_DAMAGED", "E_AUDIO_RATE"}),  # sample rate
        (24, struct.pack("<I", 500_000), {"E_AUDIO_RATE"}),
        (24, struct.pack("<I", 2**32 - 1), {"E_AUDIO_DAMAGED", "E_AUDIO_RATE"}),
        (22, struct.pack("<H", 0), {"E_AUDIO_DAMAGED", "E_AUDIO_CHANNELS"}),  # channels
        (22, struct.pack("<H", 40), {"E_AUDIO_DAMAGED", "E_AUDIO_CHANNELS"}),
        (22, struct.pack("<H", 65535), {"E_AUDIO_DAMAGED", "E_AUDIO_CHANNELS"}),
    ],
)
def test_impossible_headers_are_refused(offset: int, field: bytes, codes: set[str]) -> None:
    content = bytearray(encode(chirp(0.1)))
    content[offset : offset + len(field)] = field
    assert code_of(bytes(content)) in codes


def test_bounds_can_be_set() -> None:
    strict = AudioReader(PLAIN.config, MediaLimits(bytes=40_000, seconds=1.0, channels=2, sample_rate=20_000))
    assert len(strict.read(encode(chirp(1.0)))) == RATE
    assert code_of(encode(chirp(1.01)), strict) == "E_AUDIO_SECONDS"
    assert code_of(chirp(1.01), strict) == "E_AUDIO_SECONDS"
    assert code_of(encode(chirp(2.0)), strict) == "E_FILE_SIZE"
    assert code_of(encode(np.zeros((10, 3))), strict) == "E_AUDIO_CHANNELS"
    assert code_of(encode(np.zeros(10), 22050), strict) == "E_AUDIO_RATE"


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 2, 2)), np.zeros(5, np.int32), np.zeros(5, np.uint8), 3000 * np.ones(5), np.zeros(5) + 0j],
)
def test_arrays_of_another_form_are_refused(array: Any) -> None:
    assert code_of(array) == "E_AUDIO_ARRAY"


def test_frames_need_stored_samples() -> None:
    with pytest.raises(UsageError, match="int16"):
        PLAIN.frames(np.zeros(100, np.float32))


# folders


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "WhisperFeatureExtractor"),
        ({"mels": 128, "sample_rate": 24000, "seconds": 5.0}, "WhisperFeatureExtractor"),
        ({"pad": False}, "RegardFeatureExtractor"),
        ({"seconds": 2.5}, "RegardFeatureExtractor"),
        ({"sample_rate": 8000}, "RegardFeatureExtractor"),  # transformers' filters would end at 8 kHz
        (AST_FIELDS, "ASTFeatureExtractor"),
        ({**AST_FIELDS, "window": 512}, "RegardFeatureExtractor"),
    ],
)
def test_a_reader_is_saved_and_loaded(tmp_path: Path, fields: dict[str, Any], kind: str) -> None:
    reader = AudioReader(AudioInput(**fields))
    reader.save(tmp_path)
    again = FrameReader.load(tmp_path)
    assert (again.config, again.fingerprint) == (reader.config, reader.fingerprint)
    assert json.loads((tmp_path / "preprocessor_config.json").read_text())["feature_extractor_type"] == kind


def test_folders_of_transformers_are_loaded(tmp_path: Path) -> None:
    raw = chirp(1.5)
    extractor = WhisperFeatureExtractor(feature_size=40, chunk_length=3, hop_length=200)
    extractor.save_pretrained(tmp_path)
    expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np")["input_features"][0].T
    assert np.abs(FrameReader.load(tmp_path).frames(raw) - expected).max() < 1e-4
    extractor = ast_extractor(num_mel_bins=64, max_length=200, mean=-3.0, std=2.5)
    extractor.save_pretrained(tmp_path)
    ASTConfig(
        patch_size=8, frequency_stride=4, time_stride=4, max_length=200, num_mel_bins=64
    ).save_pretrained(tmp_path)
    reader = FrameReader.load(tmp_path)
    assert isinstance(reader, AudioReader)
    assert (reader.width, reader.grid) == (64, (15, 49))
    expected = extractor(floats(raw), sampling_rate=RATE, return_tensors="np")["input_values"][0]
    if not is_speech_available():
        assert np.abs(reader.spectrogram(raw) - expected).max() < 1e-5
    ASTConfig(frequency_stride=4, time_stride=5).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="time_stride"):
        FrameReader.load(tmp_path)


# modifiers


STRENGTHS = {"shift": 0.2, "speed": 0.2, "gain": 6.0, "noise": 0.3, "silence": 0.3}


@pytest.mark.parametrize("name", Modifier.AUDIO)
def test_modifiers_are_functions_of_their_generator(name: str) -> None:
    raw = chirp(0.5)
    before = raw.copy()
    modifier = Modifier(name=name, strength=STRENGTHS[name])
    results = [modify(raw, [modifier], np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4)]
    assert all(each.dtype == np.int16 and each.ndim == 1 for each in results)
    assert (results[0] == results[1]).all()
    assert len({each.tobytes() for each in results}) == 4
    assert (raw == before).all()
    assert all(len(each) == len(raw) for each in results) == (name not in ("speed", "silence"))


def test_what_the_modifiers_do() -> None:
    raw = chirp(1.0)
    rng = np.random.default_rng(0)
    lengths = [len(modify(raw, [Modifier(name="speed", strength=0.1)], rng)) / RATE for _ in range(50)]
    assert 0.9 < min(lengths) < 0.95 < 1.05 < max(lengths) < 1.12
    level = lambda sound: float(np.sqrt(np.mean(floats(sound) ** 2)))  # noqa: E731
    decibels = [20 * np.log10(level(modify(raw, [Modifier(name="gain", strength=6.0)], rng)) / level(raw))
                for _ in range(50)]  # fmt: skip
    assert -6.1 < min(decibels) < -4 and 4 < max(decibels) < 6.1
    quiet = modify(raw, [Modifier(name="silence", strength=0.5)], rng)
    assert level(quiet) < level(raw) and bytes(raw.tobytes()) in bytes(quiet.tobytes())
    with pytest.raises(UsageError, match="flip is not for sounds"):
        modify(raw, [Modifier(name="flip")], rng)


def test_masks_hide_times_or_mels() -> None:
    frames, rng = PLAIN.frames(chirp(1.0)), np.random.default_rng(3)
    before = frames.copy()
    for name, axis in (("time_mask", 0), ("mel_mask", 1)):
        modifier = Modifier(name=name, strength=0.5)
        assert modify(chirp(1.0), [modifier], rng).shape == (RATE,)  # sounds are left alone
        sizes = []
        for _ in range(30):
            changed = (modify_frames(frames, [modifier], rng) != before).all(axis=1 - axis)
            sizes.append(int(changed.sum()))
            assert np.abs(np.diff(changed, prepend=False, append=False)).sum() in (0, 2)  # one span
        assert 0.3 * len(changed) < max(sizes) <= 0.5 * len(changed)
    patches = AST.frames(chirp(2.0))
    masked = modify_frames(
        patches, [Modifier(name="time_mask", strength=0.5)], np.random.default_rng(1), AST.grid
    )
    hidden = (masked == patches.mean()).all(axis=1).reshape(AST.grid)
    assert 0 < hidden.sum() < hidden.size
    assert (hidden == hidden[:1]).all()  # the same times in every band
    assert (frames == before).all()


def test_readers_of_all_kinds_are_made() -> None:
    assert isinstance(make_reader(AudioInput()), AudioReader)
    assert make_reader(AudioInput()).fingerprint != make_reader(AudioInput(mels=81)).fingerprint
