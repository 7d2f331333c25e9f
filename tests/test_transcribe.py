"""Speech to text: results, windows, times of words, formats, Whisper folders, bad sounds."""

from __future__ import annotations

import io
import json
import struct
import wave
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as package
import speech
from conftest import Command, Refused
from regard.batch import collate
from regard.errors import UsageError
from regard.generation.encoded import EncodedSources
from regard.generation.processors import TimestampRules
from regard.generation.word_times import first_columns, median_filter
from regard.inputs.growing import growing_blocks
from regard.sample import Sample
from regard.storage.ctranslate2 import KINDS, read_variables
from regard.storage.importing import import_folder
from regard.tasks import SpokenSegment, SpokenWord, Transcriber, Transcription
from regard.tasks.speech import Recording, passages, quiet_cut, tidied, words_of
from regard.tasks.subtitles import rendered
from regard.tasks.transcriber import SoundWindow
from speech import RATE, SECONDS, special, spoken, tiny_whisper, wav

OPTIONS = {"task": "transcribe", "timestamps": False, "word_times": False, "decode": None, "language": None}


@pytest.fixture(scope="module")
def singer() -> Transcriber:
    return Transcriber.load(speech.singer())


@pytest.fixture(scope="module")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_whisper(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def whisper(whisper_folder: Path) -> Transcriber:
    return Transcriber.load(whisper_folder, precision="float32")


def noise(seconds: float, rate: int = 16000, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * rate))


# --- a model that was trained here ------------------------------------------------------------------------


def test_a_trained_model_writes_what_was_said(singer: Transcriber, tmp_path: Path) -> None:
    content = wav(spoken("lo hi hi", seed=99))
    (tmp_path / "notes.wav").write_bytes(content)
    result = singer.transcribe(tmp_path / "notes.wav")
    assert result.text == "lo hi hi"
    assert result.seconds == pytest.approx(len(spoken("lo hi hi")) / RATE, abs=0.001)
    assert (result.language, result.words, result.skipped) == (None, (), False)
    assert [each.text for each in result.segments] == ["lo hi hi"]
    several = singer.transcribe([str(tmp_path / "notes.wav"), content, wav(spoken("hi", seed=98))])
    assert [each.text for each in several] == ["lo hi hi", "lo hi hi", "hi"]
    assert [each.file for each in several] == [str(tmp_path / "notes.wav"), "file 2", "file 3"]


def test_a_file_does_not_depend_on_its_neighbours(singer: Transcriber) -> None:
    files = [wav(spoken(text, seed=number)) for number, text in enumerate(["lo", "hi hi", "lo hi lo"])]
    together = singer.transcribe(files, word_times=True)
    for file, result in zip(files, together):
        alone = singer.transcribe(file, word_times=True)
        assert (alone.text, alone.segments, alone.words) == (result.text, result.segments, result.words)


def test_words_have_times_in_order(singer: Transcriber) -> None:
    result = singer.transcribe(wav(spoken("lo hi lo", seed=5)), word_times=True)
    assert [word.text for word in result.words] == result.text.split()
    times = [time for word in result.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] <= result.seconds
    assert all(0 < word.probability <= 1 for word in result.words)


def test_a_long_file_is_read_in_windows_cut_where_it_is_quiet(singer: Transcriber) -> None:
    text = "lo hi hi " * 8
    result = singer.transcribe(wav(spoken(text, seed=3)))
    assert len(result.segments) > 3
    assert all(one.end <= two.start for one, two in pairwise(result.segments))
    assert result.text == " ".join(each.text for each in result.segments)


def test_a_window_is_cut_in_the_quietest_place_near_its_end() -> None:
    for begin in (25.5, 27.0, 29.4):
        window = (noise(30.0, RATE) * 20000).astype(np.int16)
        window[round(begin * RATE) : round((begin + 0.4) * RATE)] //= 50
        assert begin < quiet_cut(window, RATE) / RATE < begin + 0.4


def test_other_rates_and_channels_are_read(singer: Transcriber) -> None:
    sound = spoken("lo hi", rate=44100, seed=4)
    stereo = np.stack([sound, sound], axis=1)
    assert singer.transcribe(wav(stereo, 44100)).text == "lo hi"
    seven = np.stack([spoken("lo hi", seed=4)] * 7, axis=1)
    assert singer.transcribe(wav(seven)).text == "lo hi"


def test_silence_has_no_text(singer: Transcriber, whisper: Transcriber) -> None:
    for model in (singer, whisper):
        for seconds in (0.3, 9.0):
            result = model.transcribe(wav(np.zeros(round(seconds * RATE))), word_times=True)
            assert (result.text, result.segments, result.words) == ("", (), ())
            assert result.seconds == seconds


def test_options_that_a_model_does_not_have_are_refused(singer: Transcriber) -> None:
    sound = wav(spoken("lo"))
    with pytest.raises(UsageError, match="it names no languages") as wrong:
        singer.transcribe(sound, language="en")
    assert wrong.value.code == "E_LANGUAGE"
    with pytest.raises(UsageError, match="does not translate") as wrong:
        singer.transcribe(sound, task="translate")
    assert wrong.value.code == "E_SPEECH_TASK"
    with pytest.raises(UsageError, match="beam"):
        singer.transcribe(sound, decode={"beam": 0})


# --- bad sounds -------------------------------------------------------------------------------------------


def nan_wav() -> bytes:
    sound = noise(0.5, RATE)
    sound[100] = np.nan
    return wav(sound, subtype="FLOAT")


def rate_zero() -> bytes:
    content = bytearray(wav(noise(0.1, RATE)))
    content[24:28] = struct.pack("<I", 0)
    return bytes(content)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "NaN": (nan_wav, "E_AUDIO_NONFINITE"),
    "rate 0": (rate_zero, "E_AUDIO"),
    "text": (lambda: b"this is no sound at all, but a text", "E_AUDIO_FORMAT"),
    "empty": (lambda: b"", "E_AUDIO_FORMAT"),
    "header alone": (lambda: wav(noise(0.2, RATE))[:30], "E_AUDIO_DAMAGED"),
    "33 channels": (lambda: wav(np.zeros((100, 33))), "E_AUDIO_CHANNELS"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sounds_are_refused_by_name(name: str, singer: Transcriber, tmp_path: Path) -> None:
    make, code = BAD[name]
    (tmp_path / "bad.wav").write_bytes(make())
    with pytest.raises(UsageError, match=r"bad\.wav") as wrong:
        singer.transcribe(tmp_path / "bad.wav")
    assert str(wrong.value.code).startswith(code)
    with pytest.raises(UsageError, match="file 1"):
        singer.transcribe(make())


def test_a_missing_file_is_named(singer: Transcriber) -> None:
    with pytest.raises(UsageError, match=r"nothing-here\.wav"):
        singer.transcribe("nothing-here.wav")


def test_eight_hours_need_the_memory_of_a_window(singer: Transcriber, tmp_path: Path) -> None:
    """Of a file that grows as it is read: one window, and the block behind it, are held."""
    hours, rate = 8, RATE
    zeros = np.zeros(1 << 16, dtype=np.int16)
    blocks = (zeros for _ in range(hours * 3600 * rate // len(zeros)))
    recording = Recording("long", blocks, rate, 2 * rate)
    held = 0
    while len(window := recording.window()):
        held = max(held, len(recording.rest))
        recording.advance(len(window))
    assert recording.seconds == pytest.approx(hours * 3600, abs=len(zeros) / rate)
    assert held <= 2 * rate + len(zeros)


def test_a_limit_of_seconds_is_checked_before_decoding(singer: Transcriber) -> None:
    run = singer.run([wav(np.zeros(RATE * 4))], longest=3, **OPTIONS)
    with pytest.raises(UsageError, match="3 seconds") as wrong:
        run.advance()
    assert wrong.value.code == "E_AUDIO_SECONDS"


# --- Whisper folders --------------------------------------------------------------------------------------


def encoded_window(model: Transcriber, sound: bytes, language: str, times: bool) -> tuple[Any, SoundWindow]:
    run = model.run([sound], **{**OPTIONS, "language": language, "timestamps": times, "decode": {"beam": 1}})
    track = run.tracks[0]
    window = SoundWindow(track, track.recording.window(), 0.0)
    (window.encoded,) = model.encoded.encode([model.reader.frames(window.samples)], model.device)
    window.prompt = model.prompt(language, "transcribe", timestamps=times)
    return run, window


@pytest.mark.parametrize("times", [False, True])
def test_ids_are_those_of_transformers(times: bool, tmp_path: Path) -> None:
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = Transcriber.load(tiny_whisper(tmp_path, times=times), precision="float32")
    theirs = WhisperForConditionalGeneration.from_pretrained(tmp_path).eval()
    extract = WhisperFeatureExtractor.from_pretrained(tmp_path)
    for seed in range(6):
        sound = (noise(1.5, seed=seed) * 32767).clip(-32768, 32767).astype(np.int16)
        run, window = encoded_window(model, wav(sound, 16000), "de", times)
        ours = list(model.decode([window], run.plan)[0].tokens[len(window.prompt) :])
        features = extract(sound / np.float32(32768), sampling_rate=16000, return_tensors="pt").input_features
        options = {"language": "de", "task": "transcribe", "num_beams": 1, "return_timestamps": times}
        expected = theirs.generate(features, **options)[0].tolist()
        places = [at for at, token in enumerate(ours) if token > special("<|notimestamps|>")]
        # theirs reads a window again behind its last complete segment
        count = places[1] + 1 if times and len(places) > 1 else min(len(ours), 36)
        assert ours[:count] == expected[:count]
        assert count > 1


def test_the_language_is_the_most_probable_one(whisper: Transcriber) -> None:
    sound = wav(noise(1.0, seed=1), 16000)
    _, window = encoded_window(whisper, sound, "en", times=False)
    target = [special("<|startoftranscript|>")]
    batch = collate([Sample(whisper.reader.frames(window.samples), target=target)])
    with torch.no_grad():
        logits = whisper.model(batch)[0, -1]
    ids = {name: special(f"<|{name}|>") for name in ("en", "de")}
    expected = max(ids, key=lambda name: float(logits[ids[name]]))
    assert whisper.transcribe(sound).language == expected
    assert whisper.transcribe(sound, language="de").language == "de"
    with pytest.raises(UsageError, match="it knows de, en"):
        whisper.transcribe(sound, language="fr")


def test_a_window_without_speech_has_no_text(whisper: Transcriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whisper's rule: the token "no speech" is probable, and the text is not."""
    sound = wav(noise(1.0, seed=1), 16000)
    _, window = encoded_window(whisper, sound, "en", times=False)
    batch = collate(
        [Sample(whisper.reader.frames(window.samples), target=[special("<|startoftranscript|>")])]
    )
    with torch.no_grad():
        expected = whisper.model(batch)[0, -1].softmax(dim=0)[special("<|nospeech|>")]
    whisper.listen([window])
    assert window.no_speech == pytest.approx(float(expected), rel=1e-3)
    for times in (True, False):
        text = whisper.transcribe(sound, timestamps=times).text
        with monkeypatch.context() as patch:
            patch.setattr("regard.tasks.transcriber.NO_SPEECH", window.no_speech - 1e-6)
            patch.setattr("regard.tasks.transcriber.UNSURE", 0.0)
            empty = whisper.transcribe(sound, timestamps=times, word_times=True)
            assert (empty.text, empty.segments, empty.words, empty.seconds) == ("", (), (), 1.0)
            patch.setattr("regard.tasks.transcriber.UNSURE", -1e6)
            assert whisper.transcribe(sound, timestamps=times).text == text != ""
            patch.setattr("regard.tasks.transcriber.UNSURE", 0.0)
            patch.setattr("regard.tasks.transcriber.NO_SPEECH", window.no_speech + 1e-6)
            assert whisper.transcribe(sound, timestamps=times).text == text


def test_steps_from_hidden_states_are_those_of_the_whole_model(whisper: Transcriber) -> None:
    """Stepwise = full, and a row among others = the row alone, for the decoder behind encoded sources."""
    frames = [whisper.reader.frames((noise(1.0, seed=seed) * 20000).astype(np.int16)) for seed in range(3)]
    sources = EncodedSources(whisper.engines[0])
    device = torch.device("cpu")
    hidden = sources.encode(frames, device)
    alone = [sources.encode([each], device)[0] for each in frames]
    for many, one in zip(hidden, alone):
        np.testing.assert_array_equal(many, one)
    ids = [257, 258, 261, 265, 70, 80]
    full = whisper.model(collate([Sample(each, target=ids) for each in frames]))  # [3,T,V]
    cache = sources.start(collate([Sample(each) for each in hidden]))
    for place, token in enumerate(ids):
        logits, cache = sources.step(cache, torch.full((3, 1), token))
        torch.testing.assert_close(logits[:, -1], full[:, place], atol=2e-4, rtol=1e-4)


def test_a_batch_of_files_gives_what_each_gives_alone(whisper: Transcriber) -> None:
    files = [wav(noise(seconds, seed=seed), 16000) for seed, seconds in enumerate([0.7, 5.0, 2.0])]
    for options in ({"timestamps": True}, {"timestamps": False}):
        together = whisper.transcribe(files, word_times=True, decode={"max_length": 12}, **options)
        for file, result in zip(files, together):
            alone = whisper.transcribe(file, word_times=True, decode={"max_length": 12}, **options)
            assert (alone.text, alone.segments, alone.words) == (result.text, result.segments, result.words)
            assert alone.language == result.language


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=12), st.integers(0, 5))
def test_times_follow_their_rules(text: list[int], seed: int) -> None:
    """Tokens 0..9 are text, 10 the end, 12 "no timestamps", 13.. times."""
    rules = TimestampRules(12, 10)
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=31).astype(np.float32))
    written: list[int] = []
    for _ in range(len(text)):
        row = logits.roll(len(written)).clone()
        rules.restrict(row, written)
        token = int(row.argmax())
        assert row[token] > -np.inf
        written.append(token)
        if token == 10:
            break
    times = [token for token in written if token > 12]
    assert times == sorted(times)
    assert not written or written[0] > 12
    for first, second, third in zip(written, written[1:], written[2:]):
        assert not (first > 12 and second > 12 and third > 12)
    assert 12 not in written


# --- segments and words -----------------------------------------------------------------------------------


def test_passages_are_between_times() -> None:
    first, step = 100, 0.02
    tokens = [100, 7, 8, 150, 150, 9, 200, 200, 5]
    parts, done = passages(tokens, [-0.1] * 9, first, step, 30.0)
    assert [(each.start, each.end, each.tokens) for each in parts] == [(0.0, 1.0, (7, 8)), (1.0, 2.0, (9,))]
    assert done == 2.0  # what follows is read again
    parts, done = passages([100, 7, 150, 150, 8, 180], [-0.1] * 6, first, step, 30.0)
    assert [each.tokens for each in parts] == [(7,), (8,)]
    assert done == 30.0  # one time at the end: nothing follows
    parts, done = passages([100, 7, 8], [-0.1] * 3, first, step, 12.0)
    assert (parts[0].start, parts[0].end, done) == (0.0, 12.0, 12.0)
    assert passages([], [], first, step, 5.0) == ([], 5.0)
    parts, done = passages([100, 100], [0.0, 0.0], first, step, 5.0)
    assert (parts, done) == ([], 5.0)  # never stands still


def plain_warping(cost: np.ndarray[Any, Any]) -> list[int]:
    """Dynamic time warping, cell by cell."""
    rows, columns = cost.shape
    best: dict[tuple[int, int], tuple[float, list[int]]] = {}
    for i in range(rows):
        for j in range(columns):
            before = [best[at] for at in ((i, j - 1), (i - 1, j - 1), (i - 1, j)) if at in best]
            total, path = min(before, key=lambda each: each[0]) if before else (0.0, [])
            new = path if len(path) > i else [*path, j]
            best[i, j] = total + float(cost[i, j]), new
    return best[rows - 1, columns - 1][1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_time_warping_is_the_cheapest_path(rows: int, columns: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(rows, columns))
    assert first_columns(cost) == plain_warping(cost)


def test_the_median_filter_is_that_of_numpy() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 20)).astype(np.float32))
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (3, 3)), mode="reflect")
    expected = np.median(np.lib.stride_tricks.sliding_window_view(padded, 7, axis=-1), axis=-1)
    np.testing.assert_array_equal(median_filter(x).numpy(), expected)


def test_punctuation_belongs_to_a_word_without_its_time(whisper: Transcriber) -> None:
    tokenizer = whisper.tokenizer
    ids = tokenizer.encode(" No, yes")
    times = [float(at) for at in range(len(ids) + 1)]
    words = words_of(ids, [-0.5] * len(ids), times, tokenizer, spaced=True)
    assert [(word.text, word.start, word.end) for word in words] == [("No,", 0.0, 3.0), ("yes", 4.0, 8.0)]
    chinese = tokenizer.encode("你好")
    parts = words_of(chinese, [-0.5] * 6, [float(at) for at in range(7)], tokenizer, spaced=False)
    assert [(word.text, word.start, word.end) for word in parts] == [("你", 0.0, 3.0), ("好", 3.0, 6.0)]


def test_words_beside_a_pause_are_shortened() -> None:
    ends = {"One": 3.0, "two.": 3.4, "Six": 6.0, "is": 6.3, "it": 6.6}
    starts = [0.0, *ends.values()]
    words = [SpokenWord(start, end, text, 1.0) for start, (text, end) in zip(starts, ends.items())]
    tidy = tidied(words, SpokenSegment(2.5, 6.6, "..."), pause=5.0)
    assert tidy[0].start == pytest.approx(2.2)  # twice the median of 0.4
    assert tidy[2].start == pytest.approx(5.2)  # after a sentence
    assert tidy[1] == words[1]


@given(st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_windows_cover_a_recording(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sound = dice.integers(-9000, 9000, dice.integers(1, 9000)).astype(np.int16)
    cuts = sorted(dice.integers(0, len(sound), 3))
    recording = Recording("x", iter(np.split(sound, cuts)), 100, 1000)
    parts = []
    while len(window := recording.window()):
        cut = len(window) if recording.is_last else quiet_cut(window, 100)
        assert 0 < cut <= len(window)
        parts.append(window[:cut])
        recording.advance(cut)
    np.testing.assert_array_equal(np.concatenate(parts), sound)


# --- formats ----------------------------------------------------------------------------------------------

RESULT = Transcription(
    "talk.wav",
    "Hello. A <b> --> c",
    (SpokenSegment(0.0, 1.5, "Hello."), SpokenSegment(3661.25, 3662.0, "A <b> --> c")),
    (SpokenWord(0.0, 0.5, "Hello.", 0.9),),
)


def test_subtitles() -> None:
    assert rendered(RESULT, "text") == RESULT.text
    assert rendered(RESULT, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:01:01,250 --> 01:01:02,000\nA <b> -> c"
    )
    assert rendered(RESULT, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n01:01:01.250 --> 01:01:02.000\nA &lt;b> -> c"
    )
    assert rendered(RESULT, "srt", words=True) == "1\n00:00:00,000 --> 00:00:00,500\nHello."
    assert json.loads(rendered(RESULT, "json"))["segments"][1]["start"] == 3661.25


def test_the_command(regard: Command, refused: Refused, singer: Transcriber, tmp_path: Path) -> None:
    model, file, more = speech.singer(), tmp_path / "notes.wav", tmp_path / "more.wav"
    file.write_bytes(wav(spoken("lo hi hi", seed=99)))
    more.write_bytes(wav(spoken("hi", seed=98)))
    assert regard("transcribe", "-m", model, file).lines == ["lo hi hi"]
    assert regard("transcribe", "-m", model, file, more).lines == [f"{file}\tlo hi hi", f"{more}\thi"]
    row = json.loads(regard("transcribe", "-m", model, file, "--json", "--words").out)
    expected = singer.transcribe(file, word_times=True)
    assert [word["text"] for word in row["words"]] == [word.text for word in expected.words]
    words = regard("transcribe", "-m", model, file, "--words").lines
    assert [line.split("\t")[2] for line in words] == [word.text for word in expected.words]
    assert regard("transcribe", "-m", model, "-", stdin=file.read_bytes()).lines == ["lo hi hi"]
    regard("transcribe", "-m", model, file, "-o", tmp_path / "notes.srt")
    assert (tmp_path / "notes.srt").read_text(encoding="utf-8").startswith("1\n00:00:00,000 --> 00:00:0")
    follow = regard("transcribe", "-m", model, file, "--follow", "--patience", 0, "--format", "vtt")
    assert follow.out.startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert "lo hi hi" in follow.out
    assert "give a file of speech" in refused("transcribe", "-m", model)


def test_evaluation_gives_error_rates(regard: Command, singer: Transcriber) -> None:
    rows = speech.singer().parent / "valid" / "rows.tsv"
    result = package.evaluate(singer, rows)
    expected = [line.split("\t")[1] for line in rows.read_text(encoding="utf-8").splitlines()[1:]]
    texts = [row["output"] for row in result.outputs]
    assert result["exact"] == sum(map(str.__eq__, texts, expected)) / len(expected)
    assert 0 <= result["word_error_rate"] < 0.5
    shown = json.loads(regard("evaluate", "-m", speech.singer(), "--data", rows, "--json").out)
    assert shown["word_error_rate"] == result["word_error_rate"]


class Growing:
    """Writes the rest of a file in parts, each time that the reader waits."""

    def __init__(self, path: Path, parts: Iterator[bytes]) -> None:
        self.path, self.parts = path, parts

    def __call__(self) -> bool:
        part = next(self.parts, None)
        if part is None:
            return False
        with self.path.open("ab") as file:
            file.write(part)
        return True


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_file_is_read_as_it_grows(step: int, tmp_path: Path) -> None:
    sound = (noise(0.02, RATE) * 30000).astype(np.int16)
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(sound.tobytes())
    whole = bytearray(content.getvalue())
    whole[40:44] = struct.pack("<I", 0xFFFFFFFF)  # the writer does not know the length yet
    path = tmp_path / "live.wav"
    path.write_bytes(b"")
    parts = (bytes(whole[at : at + step]) for at in range(0, len(whole), step))
    blocks = list(growing_blocks(path, RATE, Growing(path, parts)))
    np.testing.assert_array_equal(np.concatenate(blocks), sound)


def test_growing_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    for content in (b"fLaC" + bytes(40), b"RIFF\0\0\0\0WAVEdata\0\0\0\0", b"RIFF"):
        path = tmp_path / "live.wav"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"live\.wav"):
            list(growing_blocks(path, RATE, lambda: False))


# --- CTranslate2 ------------------------------------------------------------------------------------------


def to_ctranslate2(folder: Path, out: Path, quantization: str | None = None) -> Path:
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    converter.convert(str(out), quantization=quantization)
    (out / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    return out


@pytest.fixture(scope="module")
def converted(whisper_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return to_ctranslate2(whisper_folder, tmp_path_factory.mktemp("ct2") / "model")


def weights(path: Path) -> dict[str, torch.Tensor]:
    model = Transcriber.load(path, precision="float32", engine="plain").model
    return {name: each.detach() for name, each in model.named_parameters()}


def test_a_whisper_of_ctranslate2_is_imported(
    whisper_folder: Path, converted: Path, whisper: Transcriber, tmp_path: Path
) -> None:
    files = import_folder(converted, tmp_path / "again")
    assert "model.safetensors" in files and "preprocessor_config.json" in files
    ours, original = weights(tmp_path / "again"), weights(whisper_folder)
    assert ours.keys() == original.keys()
    for name, tensor in original.items():
        torch.testing.assert_close(ours[name], tensor, atol=0, rtol=0)
    again = Transcriber.load(tmp_path / "again")
    assert again.speech == whisper.speech
    assert set(again.special.suppressed) == set(whisper.special.suppressed)


@pytest.mark.parametrize(("kind", "tolerance"), [("int8", 2e-2), ("float16", 2e-3), ("int16", 1e-3)])
def test_quantized_weights_are_read(
    kind: str, tolerance: float, whisper_folder: Path, tmp_path: Path
) -> None:
    import_folder(to_ctranslate2(whisper_folder, tmp_path / "small", kind), tmp_path / "again")
    ours = weights(tmp_path / "again")
    for name, tensor in weights(whisper_folder).items():
        assert float((ours[name] - tensor).abs().max()) <= tolerance * max(1.0, float(tensor.abs().max())), (
            name
        )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_models_are_refused_without_much_memory(converted: Path, data: st.DataObject) -> None:
    content = bytearray((converted / "model.bin").read_bytes())
    head = 4 + 2 + len("WhisperSpec") + 1 + 8
    kind = data.draw(st.sampled_from(["cut", "byte", "count"]))
    if kind == "cut":
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    elif kind == "byte":
        content[data.draw(st.integers(0, head + 60))] ^= data.draw(st.integers(1, 255))
    else:
        content[head - 4 : head] = struct.pack("<I", data.draw(st.integers(300, 2**32 - 1)))
    path = converted.parent / "damaged.bin"
    path.write_bytes(bytes(content))
    try:
        _, variables = read_variables(path, KINDS)
    except UsageError as error:
        assert error.code == "E_IMPORT"
    else:  # a byte of a name or of a number changed
        assert sum(each.numel() for each in variables.values()) <= 2 * len(content)


def test_other_models_of_ctranslate2_are_refused(converted: Path, tmp_path: Path) -> None:
    content = (converted / "model.bin").read_bytes().replace(b"WhisperSpec", b"TransforSpe", 1)
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "model.bin").write_bytes(content)
    with pytest.raises(UsageError, match="TransforSpe"):
        import_folder(folder, tmp_path / "out")
    (folder / "model.bin").write_bytes((converted / "model.bin").read_bytes())
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        import_folder(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_load_opens_a_transcriber(whisper_folder: Path) -> None:
    model = package.load(whisper_folder)
    assert isinstance(model, Transcriber)
    assert model.languages == ["de", "en"]
    assert model.audio.seconds == SECONDS
