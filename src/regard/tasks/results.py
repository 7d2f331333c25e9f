"""The results of all tasks: plain values, the same from Python, from `--json` and over HTTP.

Every result has the text it belongs to, `skipped` (the text was too long, and `on_too_long` is "skip") and
the `precision` of the model. A blank text has an empty result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import PlainSerializer, TypeAdapter

from regard.compat import OldAttributes
from regard.metrics import perplexity_scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    Pixels = NDArray[np.uint8]

Result = TypeVar("Result")


def finite_or_none(number: float) -> float | None:
    """JSON has neither infinity nor NaN."""
    return number if math.isfinite(number) else None


Number = Annotated[float, PlainSerializer(finite_or_none, return_type=float | None)]  # may be infinite


@cache
def adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def as_dict(result: object) -> dict[str, Any]:
    """A result as JSON has it; infinite numbers become None."""
    kind: Any = type(result)
    row: dict[str, Any] = adapter(kind).dump_python(result, mode="json")
    return row


class Results(list[Result]):
    """The results of several texts, in order; also as a table with a row each."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return [as_dict(each) for each in self]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame."""
        return import_module("pandas").DataFrame(self.to_dicts())

    def to_polars(self) -> Any:
        """A polars.DataFrame."""
        return import_module("polars").DataFrame(self.to_dicts())


# --- texts that a model generates -------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One translation of a line, or text about a picture; `score`, `log_probability`: sums over sentences."""

    text: str
    score: float = 0.0
    log_probability: float = 0.0
    finished: bool = True  # False if the length limit truncated it
    tokens: tuple[str, ...] = ()  # with the end of each sentence
    token_ids: tuple[int, ...] = ()
    token_log_probabilities: tuple[float, ...] = ()  # of each of them, 0 in a forced prefix
    alignment: list[tuple[int, int]] | None = None  # pairs of words: source, target


@dataclass(frozen=True)
class Translation(OldAttributes):
    """The translation of a line, and its candidates."""

    source: str
    text: str  # of the best candidate
    candidates: list[Candidate]  # best first
    split: bool = False  # a sentence was too long for the model and was split between words
    skipped: bool = False
    unmet: tuple[str, ...] = ()  # required phrases that the text lacks, forbidden ones that it contains
    confidence: float | None = None  # probability that the text is usable; None if the model has no estimate
    language: str | None = None  # of the source, if it is not the language that the model reads
    kept: bool = False  # the source, or a part of it, was left as it is
    refused: bool = False  # no text: another language, or less than `min_confidence`
    lost: tuple[str, ...] = ()  # numbers, addresses, tags ... of the source that the text lacks
    precision: str = "float32"


@dataclass(frozen=True)
class Alternative:
    """A next word after the beginning of a translation, and the best translation that continues with it."""

    word: str  # empty where the translation ends
    log_probability: float  # of the word
    candidate: Candidate  # the whole translation

    @property
    def text(self) -> str:
        return self.candidate.text


@dataclass(frozen=True)
class GeneratedText:
    """One continuation of a prompt."""

    text: str
    log_probability: float  # of the text and its end, as sampled: after temperature, top-k and top-p
    finished: bool  # the model ended the text; False if the length limit truncated it
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    probability: float | None = None  # of a choice, among all choices

    @property
    def picture(self) -> Pixels | None:
        """The picture that a model of `data.pixels` wrote, uint8 [H,W]; None for other texts."""
        from regard.inputs.pixels import text_picture

        return text_picture(self.text)


@dataclass(frozen=True)
class Generation:
    """The continuation of a prompt: `prompt + text` is the whole."""

    prompt: str
    text: str  # of the best candidate
    candidates: list[GeneratedText]  # best first
    truncated: bool = False  # only the end of the prompt was read
    skipped: bool = False
    precision: str = "float32"

    @property
    def picture(self) -> Pixels | None:
        """Of the best candidate."""
        return self.candidates[0].picture if self.candidates else None


@dataclass(frozen=True)
class FilledText:
    """A text with all its gaps filled."""

    text: str
    probability: float  # of all gaps together


@dataclass(frozen=True)
class Guess(OldAttributes):
    """A guess for one gap."""

    text: str  # without the space before it
    probability: float


@dataclass(frozen=True)
class Filling:
    """A text with its gaps filled: whole texts, and the guesses for each gap."""

    source: str
    text: str  # of the best candidate
    candidates: list[FilledText]  # best first
    guesses: list[list[Guess]]  # of each gap, best first
    truncated: bool = False  # the model read only the part around the gaps
    skipped: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class Caption:
    """The text about a picture, or the answer to a question about it."""

    file: str
    text: str  # of the best candidate
    candidates: list[Candidate]  # best first
    question: str = ""
    skipped: bool = False
    precision: str = "float32"


# --- what a model reads from a text -----------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    name: str
    probability: float


@dataclass(frozen=True)
class Classification(OldAttributes):
    """The labels of a text."""

    text: str
    label: str = ""  # the most probable label; empty if there is none
    labels: tuple[Label, ...] = ()  # most probable first; with several labels those with p >= 0.5
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of all labels, in the model's order
    truncated: bool = False  # only the beginning of the text was read
    skipped: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class Entity:
    """`text` is characters `start` to `end - 1` of the tagged text."""

    type: str
    start: int
    end: int
    text: str
    score: float  # the lowest probability among the tags of its words


@dataclass(frozen=True)
class Word:
    """A word of a text with its tag."""

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True)
class Tagging:
    """The entities and the words of a text."""

    text: str
    entities: tuple[Entity, ...] = ()
    words: tuple[Word, ...] = ()
    windows: int = 1  # above 1: a sentence was split into so many overlapping parts
    skipped: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class Answer:
    """`text` is characters `start` to `end - 1` of the context; the empty text is "no answer"."""

    text: str
    start: int
    end: int
    score: Number  # logit margin over "no answer"; for "no answer": the margin of the best text
    probability: float  # of both ends, in the window of the context that holds it; 0 for "no answer"


@dataclass(frozen=True)
class AnswerResult:
    """The best answer to a question, and all that were asked for."""

    question: str
    text: str = ""
    start: int = 0
    end: int = 0
    score: Number = -math.inf
    probability: float = 0.0
    answers: tuple[Answer, ...] = ()  # best first
    windows: int = 1  # above 1: the context was split into so many overlapping parts
    truncated: bool = False  # only the beginning of the question was read
    skipped: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class SpokenSegment:
    """A passage of speech, and when it was spoken: seconds from the beginning of the file."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class SpokenWord:
    """A word, and when it was spoken: seconds from the beginning of the file."""

    start: float
    end: float
    text: str
    probability: float  # the mean of its tokens


@dataclass(frozen=True)
class Transcription:
    """What was said in a file."""

    file: str
    text: str = ""
    segments: tuple[SpokenSegment, ...] = ()
    words: tuple[SpokenWord, ...] = ()  # if their times were asked for
    language: str | None = None  # of a model that knows several
    seconds: float = 0.0  # length of the sound
    skipped: bool = False  # never: a long sound is read in windows
    precision: str = "float32"


def shortest_digits(vector: Vector | None) -> list[float] | None:
    """The fewest digits that give the same float32 again."""
    return None if vector is None else [float(str(number)) for number in vector]


@dataclass(frozen=True)
class Embedding(OldAttributes):
    """The vector of a text."""

    text: str
    vector: Annotated[Any, PlainSerializer(shortest_digits, return_type=list[float] | None)]  # [W] or None
    truncated: bool = False  # only the beginning of the text was read
    skipped: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class TextScore(OldAttributes):
    """log p of a text, or of a translation of a source, token by token."""

    text: str
    log_probability: Number
    tokens: tuple[str, ...]  # with the end token
    token_log_probabilities: tuple[Number, ...]
    perplexity: Number
    bits_per_byte: Number
    source: str | None = None
    truncated: bool = False
    skipped: bool = False
    precision: str = "float32"

    @classmethod
    def of(cls, text: str, tokens: Sequence[str], log_p: Sequence[float], **others: Any) -> TextScore:
        """The score of a text from the log-probabilities of its tokens."""
        total, _, _, perplexity, bits = score_numbers(text, log_p).values()
        return cls(text, total, tuple(tokens), tuple(log_p), perplexity, bits, **others)

    def __iter__(self) -> Iterator[float]:
        """The log-probabilities, which earlier versions returned as a list."""
        return iter(self.token_log_probabilities)

    def __len__(self) -> int:
        return len(self.token_log_probabilities)

    def __getitem__(self, token: int) -> float:
        return self.token_log_probabilities[token]

    @property
    def numbers(self) -> dict[str, float]:
        return total_score([self])


def total_score(scores: Sequence[TextScore]) -> dict[str, float]:
    """The scores of texts as one: log_probability, tokens, bytes, perplexity, bits_per_byte."""
    every = [log_p for each in scores for log_p in each]
    return score_numbers("".join(each.text for each in scores), every)


def score_numbers(text: str, log_p: Sequence[float]) -> dict[str, float]:
    total, size = math.fsum(log_p), len(text.encode(errors="replace"))
    numbers = {"log_probability": total, "tokens": len(log_p), "bytes": size}
    return numbers | perplexity_scores(total, len(log_p), size)
