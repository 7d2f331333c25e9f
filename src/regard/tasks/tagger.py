"""Tag texts: the tag of each word, and the entities with their types and places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from regard.data.objectives import Tag
from regard.errors import UsageError
from regard.inputs.text import split_sentences
from regard.metrics.labels import spans
from regard.storage import Folder
from regard.tasks.reader import EncoderTask
from regard.tasks.words import Place, find_words

OVERLAP = 4  # neighbouring windows of a long sentence share 1/4 of their tokens
_SPACE = re.compile(r"\s+")


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
    windows: int = 1  # above 1: a sentence was split into so many overlapping parts


@dataclass(frozen=True)
class TokenWindow:
    """Tokens `start` to `end - 1` of a sentence, read together."""

    start: int
    end: int

    def context(self, token: int) -> int:
        """The number of tokens of the window on the shorter side of a token; below 0 if it is outside."""
        return min(token - self.start, self.end - 1 - token)


class Tagger(EncoderTask):
    """A model that tags each word."""

    head = "tokens"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.labels = folder.labels
        self.objective = Tag(folder.source, folder.config.max_length, folder.labels)
        self.split_above = min(folder.split_above, self.objective.longest)

    @overload
    def tag(self, text: str) -> Tagging: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, text: Sequence[str]) -> list[Tagging]: ...
    def tag(self, text: str | Sequence[str]) -> Tagging | list[Tagging]:
        """The words and entities of one raw text or of many; `regard.tasks.words` splits texts into words."""
        texts = [text] if isinstance(text, str) else list(text)
        split = [self.sentences(each) for each in texts]
        words = [[t[a:b] for a, b in places] for t, parts in zip(texts, split) for places in parts]
        tags = iter(self.predict(words))
        results = [joined(each, [(part, next(tags)) for part in parts]) for each, parts in zip(texts, split)]
        return results[0] if isinstance(text, str) else results

    def tag_words(self, sentences: Sequence[Sequence[str]], first: int = 1) -> list[list[str]]:
        """The tag of each word of sentences that are split into words already.

        `first` is the number of the first sentence in messages.
        """
        for number, words in enumerate(sentences, first):
            if isinstance(words, str) or not all(word.strip() for word in words):
                raise UsageError(f"sentence {number}: give a list of words, none of which is empty")
        # spaces separate words, so one inside a word becomes a no-break space, as in training
        rows = [[_SPACE.sub("\u00a0", word.strip()) for word in words] for words in sentences]
        return [[tag for tag, _ in tags] for tags, _ in self.predict(rows)]

    def sentences(self, text: str) -> list[list[Place]]:
        """The places of the words of each sentence; a short text is not split if training had such texts."""
        words = list(find_words(text))
        if len(self.objective.encode_words([text[a:b] for a, b in words])[0]) <= self.split_above:
            return [words] if words else []
        parts, at = [], 0
        for sentence, space in split_sentences(text):
            places = [(at + start, at + end) for start, end in find_words(sentence)]
            parts += [places] if places else []
            at += len(sentence) + len(space)
        return parts

    def predict(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[tuple[str, float]], int]]:
        """The tag of each word with its probability, and the number of windows of each sentence."""
        tokens = [self.objective.encode_words(words) for words in sentences]  # ids, first tokens
        split = [windows_of(len(ids), first, self.objective.longest) for ids, first in tokens]
        samples = [
            self.objective.text(ids[window.start : window.end])
            for (ids, _), windows in zip(tokens, split)
            for window in windows
        ]
        logits = iter(self.logits(samples))
        results = []
        for (_, first), windows in zip(tokens, split):
            p = [next(logits)[1:-1].softmax(dim=1) for _ in windows]  # [S,L], without start and end
            tags = []
            for token in first:
                if token is None:  # the tokenizer drops the whole word
                    tags.append(("O", 1.0))
                    continue
                best = max(range(len(windows)), key=lambda number: windows[number].context(token))
                value, label = p[best][token - windows[best].start].max(dim=0)
                tags.append((self.labels[int(label)], float(value)))
            results.append((tags, len(windows)))
        return results


def windows_of(length: int, first: Sequence[int | None], longest: int) -> list[TokenWindow]:
    """All of a sentence, or overlapping parts of it that begin and end with a word.

    `first` has the first token of each word. A word that is longer than a window is truncated.
    """
    if length <= longest:
        return [TokenWindow(0, length)]
    begins = sorted({token for token in first if token is not None} | {0})
    windows: list[TokenWindow] = []
    start = 0
    while True:
        end = max((token for token in [*begins, length] if start < token <= start + longest), default=0)
        if not windows or (end or start + longest) > windows[-1].end:
            windows.append(TokenWindow(start, end or start + longest))
        if end == length or not (rest := [token for token in begins if token > start]):
            return windows
        reached = end or rest[0]
        start = min((token for token in rest if token >= reached - longest // OVERLAP), default=reached)


def joined(text: str, parts: Sequence[tuple[list[Place], tuple[list[tuple[str, float]], int]]]) -> Tagging:
    """Join the sentences of a text to one result."""
    words: list[Word] = []
    entities: list[Entity] = []
    for places, (tags, _) in parts:
        sentence = [Word(text[a:b], a, b, tag, p) for (a, b), (tag, p) in zip(places, tags)]
        for kind, first, last in spans([word.tag for word in sentence]):
            start, end = sentence[first].start, sentence[last].end
            score = min(word.probability for word in sentence[first : last + 1])
            entities.append(Entity(kind, start, end, text[start:end], score))
        words += sentence
    windows = max((count for _, (_, count) in parts), default=1)
    return Tagging(text, tuple(words), tuple(entities), windows)
