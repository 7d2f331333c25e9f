"""Results of translation, and how the segments of a line are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regard.generation import Hypothesis
from regard.interpret import Links
from regard.tasks.segments import Segment

AlignedHypotheses = list[tuple[Hypothesis, Links | None]]  # of one segment, best first


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. `score` and `log_probability` are sums over its sentences."""

    text: str
    score: float = 0.0
    log_probability: float = 0.0
    alignment: Links | None = None
    finished: bool = True  # False if the length limit truncated it
    tokens: tuple[int, ...] = ()  # ids, with the end of each sentence
    token_log_probabilities: tuple[float, ...] = ()  # of each of them, 0 in a forced prefix


@dataclass(frozen=True)
class Translation:
    source: str
    candidates: list[Candidate]  # best first
    broken: bool = False  # a sentence was too long for the model and was cut between words
    skipped: bool = False  # a sentence was too long and the line was not translated (too_long = "skip")
    disobeyed: tuple[str, ...] = ()  # required phrases that the text lacks, forbidden ones that it contains

    @property
    def text(self) -> str:
        return self.candidates[0].text


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
class SegmentJoiner:
    """Joins the segments of a line: candidate k consists of the k-th hypothesis of each segment."""

    decode: Callable[[Sequence[int]], str]
    end: int  # the id that ends a sentence

    def join(
        self,
        line: Sequence[Segment],
        hypotheses: Sequence[AlignedHypotheses | None],
        nbest: int,
        aligned: bool,
    ) -> list[Candidate]:
        count = min((len(each) for each in hypotheses if each is not None), default=1)
        return [
            self.join_one(line, [each[k] if each else None for each in hypotheses], aligned)
            for k in range(min(nbest, count))
        ]

    def join_one(
        self, line: Sequence[Segment], chosen: Sequence[tuple[Hypothesis, Links | None] | None], aligned: bool
    ) -> Candidate:
        whole = Candidate("", alignment=[] if aligned else None)
        source = ""  # up to this segment
        for part, hypothesis in zip(line, chosen):
            source, whole = source + part.before, replace(whole, text=whole.text + part.before)
            if hypothesis is not None:
                whole = self.add(whole, source, part, *hypothesis)
            source, whole = source + part.text + part.after, replace(whole, text=whole.text + part.after)
        return whole

    def add(
        self, whole: Candidate, source: str, part: Segment, hypothesis: Hypothesis, links: Links | None
    ) -> Candidate:
        text = self.decode(hypothesis.tokens)
        left, right = words_before(source, part.text), words_before(whole.text, text)
        shifted = [(word + left, target + right) for word, target in links or ()]
        return Candidate(
            text=whole.text + text,
            score=whole.score + hypothesis.score,
            log_probability=whole.log_probability + hypothesis.log_probability,
            alignment=None if whole.alignment is None else whole.alignment + shifted,
            finished=whole.finished and hypothesis.finished,
            tokens=(*whole.tokens, *hypothesis.tokens, *([self.end] if hypothesis.finished else ())),
            token_log_probabilities=(*whole.token_log_probabilities, *hypothesis.token_log_probabilities),
        )


def words_before(text: str, following: str) -> int:
    """The index of the first word of `following`; a word that was cut in two keeps one index."""
    is_cut = text and following and not text[-1].isspace() and not following[0].isspace()
    return len(text.split()) - bool(is_cut)
