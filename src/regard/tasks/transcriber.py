"""Speech in, text out: models of Whisper's type, of another program or trained here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from regard.config import Decode
from regard.config.input import AudioInput
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, generate
from regard.generation.encoded import EncodedSources
from regard.generation.word_times import token_positions, usual_heads
from regard.inputs.audio import sound_blocks
from regard.inputs.media import MediaLimits
from regard.models.transformer import EncoderDecoder
from regard.sample import FrameArray
from regard.storage import Folder
from regard.tasks.media import open_source
from regard.tasks.media_methods import TranscribeMethods
from regard.tasks.results import SpokenSegment, SpokenWord, Transcription
from regard.tasks.speech import (
    NO_SPEECH,
    UNSPACED,
    UNSURE,
    Passage,
    Recording,
    Samples,
    is_silent,
    passages,
    quiet_cut,
    tidied,
    words_of,
)
from regard.tasks.task_model import NamedFile, Warn
from regard.tasks.translation import decode_options

AT_ONCE = 8  # windows that are encoded and decoded together


class Transcriber(TranscribeMethods):
    """An opened model that writes down speech.

    It reads windows of `[input] seconds`. A window ends where the model says that a segment ends (Whisper's
    timestamps), else at the quietest place near its end.
    """

    reads_files = True

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        config = folder.reader.config
        if not isinstance(folder.model, EncoderDecoder) or not isinstance(config, AudioInput):
            raise UsageError(f"{folder.path}: a {folder.config.family} model transcribes no speech")
        self.device = next(folder.model.parameters()).device
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.target
        self.audio, self.special, self.speech = config, folder.special, folder.speech
        self.use_engines([folder], precision)
        self.encoded = EncodedSources(self.engines[0])
        named = self.speech.alignment_heads if self.speech else ()
        attention = next(iter(self.model.decoder)).attention
        self.heads = named or usual_heads(len(self.model.decoder), attention.heads)

    @property
    def languages(self) -> list[str]:
        """The languages that can be named; empty for a model of one."""
        return sorted(self.speech.languages) if self.speech else []

    @property
    def first_time(self) -> int | None:
        """The token of the time 0.00."""
        token = self.special.no_timestamps
        return None if token is None else token + 1

    @property
    def step(self) -> float:
        """Seconds between two positions of the encoder, and between two times."""
        return 2 * self.audio.hop / self.audio.sample_rate

    def run(self, files: Sequence[Any], **options: Any) -> TranscriptionRun:
        """A run over files, window by window, with the options of `transcribe`.

        A file of more than `longest` seconds is refused.
        """
        decode, task, language = options["decode"], options["task"], options["language"]
        fields = {name: value for name, value in (decode or {}).items() if value is not None}
        if options.get("beam") is not None:
            fields["beam"] = options["beam"]
        chosen = decode_options(self.folder.decode, fields)
        if language is not None and language not in self.languages:
            which = f"it knows {', '.join(self.languages)}" if self.languages else "it names no languages"
            raise UsageError(f"{self.folder.path}: language {language!r}: {which}", code="E_LANGUAGE")
        if task != "transcribe" and not (self.speech and task in self.speech.tasks):
            raise UsageError(f"{self.folder.path}: this model does not {task}", code="E_SPEECH_TASK")
        times = options["timestamps"] and self.first_time is not None
        warn = options.get("warn") or (lambda text: None)
        plan = Plan(chosen, task, times, options["word_times"], warn)
        first, longest = options.get("first_line", 1), options.get("longest", math.inf)
        sources = (open_source(each, number) for number, each in enumerate(files, first))
        return TranscriptionRun(self, plan, [self.track(each, language, longest) for each in sources])

    def track(self, file: NamedFile, language: str | None, longest: float) -> Track:
        content, rate = file.content, self.audio.sample_rate
        reader = self.folder.reader
        if isinstance(content, np.ndarray):
            blocks: Iterator[Samples] = iter([cast(Samples, reader.read(content))])
        elif isinstance(content, Iterator):  # samples as they are recorded
            blocks = content
        else:
            blocks = named_blocks(file, rate, reader.limits, longest)
        return Track(Recording(file.name, blocks, rate, self.audio.samples), language)

    def _transcribe(self, files: Sequence[Any], options: Mapping[str, Any]) -> list[Transcription]:
        run = self.run(files, **options)
        while not run.done:
            run.advance()
        return run.results()

    # --- one window after another -------------------------------------------------------------------------

    def listen(self, windows: Sequence[SoundWindow]) -> None:
        """What follows the start token: the most probable language, and the probability of no speech."""
        is_unknown = bool(self.languages) and any(each.track.language is None for each in windows)
        if self.speech is None or not (is_unknown or self.speech.no_speech is not None):
            return
        sources = [each.encoded for each in windows]
        logits = self.encoded.first_logits(sources, self.special.start, self.device)  # [N,V]
        if self.speech.no_speech is not None:
            for window, value in zip(windows, logits.softmax(dim=1)[:, self.speech.no_speech].tolist()):
                window.no_speech = value
        if names := list(self.speech.languages):
            best = logits[:, [self.speech.languages[name] for name in names]].argmax(dim=1)
            for window, number in zip(windows, best.tolist()):
                window.language = names[number]

    def prompt(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        return self.speech.prompt(language, task, timestamps) if self.speech else []

    def decode(self, windows: Sequence[SoundWindow], plan: Plan) -> list[Hypothesis]:
        requests = [Request(each.encoded, plan.decode, each.prompt) for each in windows]
        budget = plan.decode.tokens_per_batch
        results = generate(lambda _: self.encoded, requests, self.special, self.device, budget, plan.warn)
        return [best[0] for best in results]

    def word_times(self, window: SoundWindow, parts: Sequence[Passage], task: str) -> list[float]:
        """When each token of all passages begins, and when the last ends; seconds of the window."""
        ids = [token for part in parts for token in part.tokens]
        prompt = [self.special.start, *self.prompt(window.track.language, task, timestamps=False)]
        length = max(1, min(len(window.encoded), -(-len(window.samples) // (2 * self.audio.hop))))
        positions = token_positions(self.model, window.encoded, prompt, ids, self.heads, length)
        return [position * self.step for position in positions]

    def text_of(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)


def named_blocks(file: NamedFile, rate: int, limits: MediaLimits, longest: float) -> Iterator[Samples]:
    """The blocks of a sound of at most `longest` seconds; errors name the file."""
    count = 0
    try:
        for block in sound_blocks(file.content, rate, limits, longest):
            count += len(block)
            if count > longest * rate:  # the header promised less
                message = f"{file.name}: longer than the {longest:g} seconds that are read"
                raise UsageError(message, code="E_AUDIO_SECONDS")
            yield block
    except UsageError as error:
        if not isinstance(file.content, bytes):
            raise
        text = str(error).removeprefix("the data: ")
        raise UsageError(f"{file.name}: {text}", code=error.code) from None


@dataclass(frozen=True)
class Plan:
    """The options of a run."""

    decode: Decode
    task: str
    timestamps: bool
    word_times: bool
    warn: Warn


@dataclass
class Track:
    """A file, and what was found in it so far."""

    recording: Recording
    language: str | None
    segments: list[SpokenSegment] = field(default_factory=list)
    words: list[SpokenWord] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    done: bool = False


@dataclass
class SoundWindow:
    """Samples of a track, from `begin` seconds on."""

    track: Track
    samples: Samples
    begin: float
    encoded: FrameArray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    prompt: Sequence[int] = ()
    language: str | None = None  # the most probable one
    no_speech: float = 0.0  # probability that nobody speaks

    def is_speechless(self, best: Hypothesis) -> bool:
        """Nobody seems to speak, and the text is improbable, too (Radford et al. 2022, 4.5)."""
        log_p = best.token_log_probabilities[len(self.prompt) :]
        return self.no_speech > NO_SPEECH and sum(log_p) < UNSURE * max(1, len(log_p))


@dataclass
class TranscriptionRun:
    """Files that are being transcribed. Each `advance` reads some windows of those that are not done."""

    model: Transcriber
    plan: Plan
    tracks: list[Track]
    on_segment: Callable[[Track, SpokenSegment], None] | None = None

    @property
    def done(self) -> bool:
        return all(track.done for track in self.tracks)

    def advance(self) -> None:
        windows = self.next_windows()
        loud = [each for each in windows if not is_silent(each.samples)]
        for window in windows:
            if is_silent(window.samples) and self.plan.timestamps:
                self.leave(window, len(window.samples))
        if not loud:
            return
        reader = self.model.folder.reader
        frames = [reader.frames(each.samples) for each in loud]
        for window, encoded in zip(loud, self.model.encoded.encode(frames, self.model.device)):
            window.encoded = encoded
        self.model.listen(loud)
        for window in loud:  # the language of a track is that of its first window with any sound
            window.track.language = window.track.language or window.language
        for window in loud:
            window.prompt = self.model.prompt(window.track.language, self.plan.task, self.plan.timestamps)
        for window, best in zip(loud, self.model.decode(loud, self.plan)):
            self.collect(window, best)

    def next_windows(self) -> list[SoundWindow]:
        """With timestamps one of each track, since the text says where the next begins; else several."""
        windows: list[SoundWindow] = []
        for track in self.tracks:
            while not track.done and len(windows) < AT_ONCE:
                recording = track.recording
                samples = recording.window()
                if not len(samples):
                    track.done = True
                    break
                begin = recording.seconds
                if self.plan.timestamps:
                    windows.append(SoundWindow(track, samples, begin))
                    break
                cut = len(samples) if recording.is_last else quiet_cut(samples, recording.rate)
                windows.append(SoundWindow(track, samples[:cut], begin))
                recording.advance(cut)
        return windows

    def leave(self, window: SoundWindow, count: int) -> None:
        """Continue behind `count` samples of a window."""
        recording = window.track.recording
        recording.advance(count)
        window.track.done = recording.ended and not len(recording.rest)

    def collect(self, window: SoundWindow, best: Hypothesis) -> None:
        """Add what was found in a window to its track, and move on."""
        model, track = self.model, window.track
        begin, rate = len(window.prompt), track.recording.rate
        seconds = len(window.samples) / rate
        tokens, log_p = best.tokens[begin:], best.token_log_probabilities[begin:]
        first = model.first_time
        if not self.plan.timestamps and first is not None:  # times where none are wanted
            kept = [(token, value) for token, value in zip(tokens, log_p) if token < first]
            tokens, log_p = tuple(each for each, _ in kept), tuple(value for _, value in kept)
        parts, done = passages(tokens, log_p, first, model.step, seconds)
        if window.is_speechless(best):
            parts, done = [], seconds
        words = self.words(window, parts)
        for part, spoken in zip(parts, words):
            text = model.text_of(part.tokens)
            if not text.strip():
                continue
            segment = SpokenSegment(window.begin + part.start, window.begin + part.end, text.strip())
            if spoken:
                pause = segment.start - (track.words[-1].end if track.words else 0.0)
                spoken = tidied(spoken, segment, pause)
                segment = SpokenSegment(spoken[0].start, spoken[-1].end, segment.text)
                track.words += spoken
            track.segments.append(rounded(segment))
            track.texts.append(text)
            if self.on_segment is not None:
                self.on_segment(track, track.segments[-1])
        if self.plan.timestamps:
            if done < seconds and parts and self.plan.word_times and track.words:
                ended = track.words[-1].end - window.begin  # as Whisper: nothing is spoken in between
                done = ended if 0 < ended < seconds else done
            self.leave(window, max(1, round(done * rate)) if done < seconds else len(window.samples))

    def words(self, window: SoundWindow, parts: Sequence[Passage]) -> list[list[SpokenWord]]:
        """The words of each passage, none if they are not wanted."""
        if not self.plan.word_times or not parts:
            return [[] for _ in parts]
        times = [window.begin + time for time in self.model.word_times(window, parts, self.plan.task)]
        spaced = window.track.language not in UNSPACED
        words, begin = [], 0
        for part in parts:
            end = begin + len(part.tokens)
            tokenizer = self.model.tokenizer
            words.append(
                words_of(part.tokens, part.log_probabilities, times[begin : end + 1], tokenizer, spaced)
            )
            begin = end
        return words

    def results(self) -> list[Transcription]:
        return [self.result(track) for track in self.tracks]

    def result(self, track: Track) -> Transcription:
        between = "" if self.model.speech else " "  # Whisper's tokens hold the spaces between words
        parts = track.texts if self.model.speech else [text.strip() for text in track.texts]
        recording = track.recording
        return Transcription(
            file=recording.name,
            text=between.join(parts).strip(),
            segments=tuple(track.segments),
            words=tuple(map(rounded_word, track.words)),
            language=track.language,
            seconds=round(recording.seconds, 3),
            precision=self.model.precision,
        )


def rounded(segment: SpokenSegment) -> SpokenSegment:
    return SpokenSegment(round(segment.start, 2), round(segment.end, 2), segment.text)


def rounded_word(word: SpokenWord) -> SpokenWord:
    return SpokenWord(round(word.start, 2), round(word.end, 2), word.text, round(word.probability, 4))
