"""Text in, the entities in it out: their types, and where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from regard.data.objectives import Tags
from regard.errors import UsageError
from regard.inputs.text import split_sentences
from regard.metrics.labels import spans
from regard.storage import Folder
from regard.tasks.reader import Reader
from regard.tasks.words import Place, find_words

SHARED = 4  # windows of a sentence that is too long share one part in so many
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Entity:
    """`text` is characters `start` to `end - 1` of the text that it was found in."""

    type: str
    start: int
    end: int
    text: str
    score: float  # the probability of its least certain word's tag


@dataclass(frozen=True)
class Word:
    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True)
class Tagging:
    text: str
    words: tuple[Word, ...]
    entities: tuple[Entity, ...]
    windows: int = 1  # more: a sentence is too long for the model and was read in so many overlapping parts


@dataclass(frozen=True)
class Window:
    """Pieces `start` to `end - 1` of a sentence, read together."""

    start: int
    end: int

    def room(self, piece: int) -> int:
        """The pieces of the window on that side of a piece where they are fewer; below 0 if it is outside."""
        return min(piece - self.start, self.end - 1 - piece)


class Tagger(Reader):
    """An opened model that says what each word is."""

    head = "tokens"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.labels = folder.labels
        self.objective = Tags(folder.source, folder.config.max_length, folder.labels)
        self.split_above = min(folder.split_above, self.objective.longest)

    @overload
    def tag(self, text: str) -> Tagging: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, text: Sequence[str]) -> list[Tagging]: ...
    def tag(self, text: str | Sequence[str]) -> Tagging | list[Tagging]:
        """The entities of one raw text or of many; how words are found is told in `regard.tasks.words`."""
        texts = [text] if isinstance(text, str) else list(text)
        cut = [self.sentences(each) for each in texts]
        found = iter(self.read([[t[a:b] for a, b in own] for t, parts in zip(texts, cut) for own in parts]))
        results = [joined(each, [(own, next(found)) for own in parts]) for each, parts in zip(texts, cut)]
        return results[0] if isinstance(text, str) else results

    def tag_words(self, sentences: Sequence[Sequence[str]], first: int = 1) -> list[list[str]]:
        """The tag of each word of sentences that are cut into words already.

        `first` is the number of the first sentence in messages.
        """
        for number, words in enumerate(sentences, first):
            if isinstance(words, str) or not all(word.strip() for word in words):
                raise UsageError(f"sentence {number}: give a list of words, none of which is empty")
        # a space stands between words, so that inside of one it is of another kind, as in training
        rows = [[_SPACE.sub("\u00a0", word.strip()) for word in words] for words in sentences]
        return [[tag for tag, _ in tags] for tags, _ in self.read(rows)]

    def sentences(self, text: str) -> list[list[Place]]:
        """The places of the words of each sentence; a short text is one, if training had several in a row."""
        words = list(find_words(text))
        if len(self.objective.cut([text[a:b] for a, b in words])[0]) <= self.split_above:
            return [words] if words else []
        parts, at = [], 0
        for sentence, space in split_sentences(text):
            own = [(at + start, at + end) for start, end in find_words(sentence)]
            parts += [own] if own else []
            at += len(sentence) + len(space)
        return parts

    def read(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[tuple[str, float]], int]]:
        """The tag of each word with its probability, and in how many windows each sentence was read."""
        cut = [self.objective.cut(words) for words in sentences]
        windows = [windows_of(len(ids), first, self.objective.longest) for ids, first in cut]
        samples = [
            self.objective.text(ids[each.start : each.end])
            for (ids, _), own in zip(cut, windows)
            for each in own
        ]
        logits = iter(self.logits(samples))
        found = []
        for (_, first), own in zip(cut, windows):
            # [S,L], without the pieces that stand around a text
            p = [next(logits)[1:-1].softmax(dim=1) for _ in own]
            tags = []
            for place in first:
                if place is None:  # a word of which the tokenizer leaves nothing
                    tags.append(("O", 1.0))
                    continue
                best = max(range(len(own)), key=lambda number: own[number].room(place))
                value, label = p[best][place - own[best].start].max(dim=0)
                tags.append((self.labels[int(label)], float(value)))
            found.append((tags, len(own)))
        return found


def windows_of(length: int, first: Sequence[int | None], longest: int) -> list[Window]:
    """All of a sentence, or overlapping parts of it that begin and end with a word.

    `first` has the first piece of each word. Of a word that is too long alone its beginning is read.
    """
    if length <= longest:
        return [Window(0, length)]
    begins = sorted({place for place in first if place is not None} | {0})
    found: list[Window] = []
    start = 0
    while True:
        end = max((place for place in [*begins, length] if start < place <= start + longest), default=0)
        if not found or (end or start + longest) > found[-1].end:
            found.append(Window(start, end or start + longest))
        if end == length or not (rest := [place for place in begins if place > start]):
            return found
        reached = end or rest[0]
        start = min((place for place in rest if place >= reached - longest // SHARED), default=reached)


def joined(text: str, parts: Sequence[tuple[list[Place], tuple[list[tuple[str, float]], int]]]) -> Tagging:
    """The sentences of a text as one result."""
    words: list[Word] = []
    entities: list[Entity] = []
    for places, (tags, _) in parts:
        own = [Word(text[a:b], a, b, tag, p) for (a, b), (tag, p) in zip(places, tags)]
        for kind, first, last in spans([word.tag for word in own]):
            start, end = own[first].start, own[last].end
            score = min(word.probability for word in own[first : last + 1])
            entities.append(Entity(kind, start, end, text[start:end], score))
        words += own
    most = max((count for _, (_, count) in parts), default=1)
    return Tagging(text, tuple(words), tuple(entities), most)
