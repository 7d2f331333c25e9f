"""Recordings as windows that a model reads, and what it wrote as segments and words with their times."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from regard.inputs.text import Tokenizer
from regard.tasks.results import SpokenSegment, SpokenWord

Samples = NDArray[np.int16]
SILENCE = 32  # of 32768: 60 decibels below the loudest; quieter windows are not read
NO_SPEECH, UNSURE = 0.6, -1.0  # Whisper's: p(no speech) above, mean log p of the text below
SEARCHED = 1 / 6  # share of a window, at its end, in which the quietest place is looked for
BREATH = 0.2  # seconds whose loudness is compared
SENTENCE_ENDS = tuple(".。!！?？")
PUNCTUATION = frozenset(string.punctuation + "。，！？：”“、¿")
UNSPACED = frozenset(("zh", "ja", "th", "lo", "my", "yue"))  # languages written without spaces
LONGEST_WORD = 0.7  # seconds; twice the median, but no more, is too long for a word beside a pause
TOLERANCE = 0.5  # seconds by which the time of a segment may differ from that of its first or last word


# --- windows ----------------------------------------------------------------------------------------------


@dataclass
class Recording:
    """A sound of any length, of which one window is in memory."""

    name: str
    blocks: Iterator[Samples]
    rate: int
    size: int  # samples of a window
    begin: int = 0  # the first sample of `rest`
    rest: Samples = field(default_factory=lambda: np.zeros(0, np.int16))
    ended: bool = False

    def window(self) -> Samples:
        """The next samples, at most `size`; none at the end."""
        parts, count = [self.rest], len(self.rest)
        while count <= self.size and not self.ended:  # one more sample says whether anything follows
            block = next(self.blocks, None)
            self.ended = block is None
            if block is not None:
                parts.append(block)
                count += len(block)
        self.rest = np.concatenate(parts) if len(parts) > 1 else self.rest
        return self.rest[: self.size]

    def advance(self, count: int) -> None:
        self.rest, self.begin = self.rest[count:], self.begin + count

    @property
    def is_last(self) -> bool:
        """Whether nothing follows the window."""
        return self.ended and len(self.rest) <= self.size

    @property
    def seconds(self) -> float:
        """From the beginning of the recording to the window."""
        return self.begin / self.rate


def quiet_cut(window: Samples, rate: int) -> int:
    """The middle of the quietest 0.2 seconds in the last part of a window: where it is cut."""
    step = max(1, round(rate * BREATH / 10))
    first = round(len(window) * (1 - SEARCHED))
    count = (len(window) - first) // step
    if count < 10:
        return len(window)
    energy = np.square(window[first : first + count * step].astype(np.float64)).reshape(count, step).sum(1)
    around = np.convolve(energy, np.ones(10), mode="valid")  # of 0.2 seconds, at every 0.02
    lowest = int(len(around) - 1 - around[::-1].argmin())  # of equally quiet places the last
    return first + (lowest + 5) * step


def is_silent(window: Samples) -> bool:
    return len(window) == 0 or int(np.abs(window.astype(np.int32)).max()) < SILENCE


# --- segments ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """Tokens of text between two times, in seconds from the beginning of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]  # without times
    log_probabilities: tuple[float, ...]


def passages(
    tokens: Sequence[int], log_p: Sequence[float], first: int | None, step: float, seconds: float
) -> tuple[list[Passage], float]:
    """The passages of a window of so many seconds, and how many of them were transcribed completely.

    Tokens from `first` on are times in steps of `step` seconds. Between two passages are two times; what
    follows the last pair is read again with the next window, unless the model said that nothing follows.
    """
    is_time = [first is not None and token >= first for token in tokens]
    if first is None or not any(is_time):
        return _passage(tokens, log_p, is_time, 0.0, seconds), seconds

    def time(token: int) -> float:
        return (token - first) * step

    cuts = [at for at in range(1, len(tokens)) if is_time[at - 1] and is_time[at]]
    ends_once = len(tokens) > 1 and is_time[-1] and not is_time[-2]
    if not cuts:
        last = time(next(token for token, at in zip(reversed(tokens), reversed(is_time)) if at))
        return _passage(tokens, log_p, is_time, 0.0, min(last or seconds, seconds)), seconds
    result: list[Passage] = []
    begin = 0
    for cut in [*cuts, *([len(tokens)] if ends_once else [])]:
        part = slice(begin, cut)
        start, end = (min(time(tokens[at]), seconds) for at in (begin, cut - 1))
        result += _passage(tokens[part], log_p[part], is_time[part], start, end)
        begin = cut
    done = seconds if ends_once else min(time(tokens[begin - 1]), seconds)
    return result, done if done > 0 else seconds


def _passage(
    tokens: Sequence[int], log_p: Sequence[float], is_time: Sequence[bool], start: float, end: float
) -> list[Passage]:
    words = [(token, value) for token, value, skip in zip(tokens, log_p, is_time) if not skip]
    if not words:
        return []
    ids, values = zip(*words)
    return [Passage(start, max(start, end), ids, values)]


# --- words ------------------------------------------------------------------------------------------------


def words_of(
    tokens: Sequence[int], log_p: Sequence[float], times: Sequence[float], tokenizer: Tokenizer, spaced: bool
) -> list[SpokenWord]:
    """Words with the times of their tokens; `times` has one more, the end of the last token.

    Punctuation belongs to a word, its time does not.
    """
    index = tokenizer.words(tokens) if spaced else characters(tokens, tokenizer)
    groups: dict[int, list[int]] = {}
    for place, word in enumerate(index):
        if word >= 0:
            groups.setdefault(word, []).append(place)
    words = []
    for places in groups.values():
        texts = [tokenizer.decode([tokens[place]]).strip() for place in places]
        core = [place for place, text in zip(places, texts) if not text or set(text) - PUNCTUATION] or places
        probability = float(np.exp([log_p[place] for place in core]).mean())
        text = tokenizer.decode([tokens[place] for place in places]).strip()
        if text:
            words.append(SpokenWord(times[core[0]], times[core[-1] + 1], text, probability))
    return words


def characters(tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The number of each token's word, where every token, or run of tokens, of whole characters is one."""
    result, pending, number = [], b"", 0
    for token in tokens:
        pending += tokenizer.token_bytes[token] or b""
        result.append(number)
        try:
            pending.decode()
        except UnicodeDecodeError:
            continue
        pending, number = b"", number + 1
    return result


def tidied(words: Sequence[SpokenWord], segment: SpokenSegment, pause: float) -> list[SpokenWord]:
    """Shorten words that are too long because a pause lies before or behind them, as Whisper does.

    `pause` is the time since the last word of the segment before.
    """
    usual = usual_length(words)
    longest = 2 * usual
    words = list(words)
    for place in range(1, len(words)):
        after_sentence = words[place - 1].text.endswith(SENTENCE_ENDS)
        if after_sentence and words[place].end - words[place].start > longest:
            words[place] = replace(words[place], start=words[place].end - longest)
    first = words[0]
    if first.end - first.start > longest and first.end - segment.start + pause > 4 * usual:
        first = replace(first, start=max(0.0, first.end - longest))
    if first.start < segment.start - TOLERANCE and segment.start < first.end:
        first = replace(first, start=max(0.0, min(first.end - usual, segment.start)))
    words[0] = first
    last = words[-1]
    if last.end > segment.end + TOLERANCE and last.start < segment.end:
        words[-1] = replace(last, end=max(last.start + usual, segment.end))
    return words


def usual_length(words: Sequence[SpokenWord]) -> float:
    lengths = [word.end - word.start for word in words if word.end > word.start]
    return min(LONGEST_WORD, median(lengths)) if lengths else 0.0
