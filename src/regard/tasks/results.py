"""What is known of a translated line, and how the parts of a line become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regard.generation import Hypothesis
from regard.generation.alignment import Links
from regard.tasks.segments import Segment

Answer = list[tuple[Hypothesis, Links | None]]  # the candidates of one part


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. `score` and `log_probability` are sums over its sentences."""

    text: str
    score: float = 0.0
    log_probability: float = 0.0
    alignment: Links | None = None
    finished: bool = True  # False where the length limit cut it off
    tokens: tuple[int, ...] = ()  # ids, with the end of each sentence
    token_log_probabilities: tuple[float, ...] = ()  # of each of them, 0 in a forced prefix


@dataclass(frozen=True)
class Translation:
    source: str
    candidates: list[Candidate]  # best first
    broken: bool = False  # a sentence was too long for the model and was cut between words
    skipped: bool = False  # or was not translated at all, because the caller wished so
    disobeyed: tuple[str, ...] = ()  # required phrases that the text lacks, forbidden ones that it holds

    @property
    def text(self) -> str:
        return self.candidates[0].text


@dataclass(frozen=True)
class Alternative:
    """A next word after the beginning of a translation, and the best translation that goes on with it."""

    word: str  # empty where the translation ends
    log_probability: float  # of the word
    candidate: Candidate  # the whole translation

    @property
    def text(self) -> str:
        return self.candidate.text


@dataclass(frozen=True)
class Joiner:
    """Puts the parts of a line back together: the k-th candidate is made of the k-th of each part."""

    decode: Callable[[Sequence[int]], str]
    end: int  # the id that ends a sentence

    def join(
        self, line: Sequence[Segment], answers: Sequence[Answer | None], nbest: int, aligned: bool
    ) -> list[Candidate]:
        count = min((len(answer) for answer in answers if answer is not None), default=1)
        return [
            self.join_one(line, [answer[k] if answer else None for answer in answers], aligned)
            for k in range(min(nbest, count))
        ]

    def join_one(
        self, line: Sequence[Segment], chosen: Sequence[tuple[Hypothesis, Links | None] | None], aligned: bool
    ) -> Candidate:
        whole = Candidate("", alignment=[] if aligned else None)
        read = ""  # the source up to here
        for part, answer in zip(line, chosen):
            read, whole = read + part.before, replace(whole, text=whole.text + part.before)
            if answer is not None:
                whole = self.add(whole, read, part, *answer)
            read, whole = read + part.text + part.after, replace(whole, text=whole.text + part.after)
        return whole

    def add(
        self, whole: Candidate, read: str, part: Segment, hypothesis: Hypothesis, own: Links | None
    ) -> Candidate:
        said = self.decode(hypothesis.tokens)
        seen, told = words_before(read, part.text), words_before(whole.text, said)
        links = [(source + seen, target + told) for source, target in own or ()]
        return Candidate(
            text=whole.text + said,
            score=whole.score + hypothesis.score,
            log_probability=whole.log_probability + hypothesis.log_probability,
            alignment=None if whole.alignment is None else whole.alignment + links,
            finished=whole.finished and hypothesis.finished,
            tokens=(*whole.tokens, *hypothesis.tokens, *([self.end] if hypothesis.finished else ())),
            token_log_probabilities=(*whole.token_log_probabilities, *hypothesis.token_log_probabilities),
        )


def words_before(text: str, following: str) -> int:
    """The number of the first word of `following`; where a word was cut in two, it goes on in that word."""
    cut = text and following and not text[-1].isspace() and not following[0].isspace()
    return len(text.split()) - bool(cut)
