"""Tag texts: the tag of each word, and the entities with their types and places."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from regard.data.objectives import Tag
from regard.errors import UsageError
from regard.inputs.text import split_sentences
from regard.metrics.labels import spans
from regard.storage import Folder
from regard.tasks.encoder import EncoderTask
from regard.tasks.methods import TagMethods
from regard.tasks.results import Entity, Tagging, Word
from regard.tasks.task_model import TooLong, within_limit

Place = tuple[int, int]  # characters start .. end - 1 of a text

_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SAME = {"-": "-", "\u2010": "-", "\u2011": "-", "'": "'", "\u2019": "'", ".": ".", ",": ",", ":": ":"}
_SKIN = range(0x1F3FB, 0x1F400)  # skin colours of the emoji before them
_ENDING = re.compile(r"(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\Z", re.IGNORECASE)
# A pattern over the kinds of characters, see `kind`. Possessive repeats keep it linear.
_WORD = re.compile(
    r"(?<!\.)(?:w[mj]*+\.){2,}+(?![wd])"  # U.S.
    r"|[wd](?:[wdmj]|['-](?=[wd])|(?<=d)[.,:](?=d))*+"
    r"|c[mj]*+"
    r"|\.\.+|--+"
    r"|[s'.,:-][mj]*+(?:(?<=j)s[mj]*+)*+"
    r"|[mj]++"
)

OVERLAP = 4  # neighbouring windows of a long sentence share 1/4 of their tokens
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class TokenWindow:
    """Tokens `start` to `end - 1` of a sentence, read together."""

    start: int
    end: int

    def context(self, token: int) -> int:
        """The number of tokens of the window on the shorter side of a token; below 0 if it is outside."""
        return min(token - self.start, self.end - 1 - token)


class Tagger(EncoderTask, TagMethods):
    """A model that tags each word."""

    head = "tokens"

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        super().__init__(folder, precision)
        self.labels = folder.labels
        self.objective = Tag(folder.source, folder.config.max_length, folder.labels)
        self.split_above = min(folder.split_above, self.objective.longest)

    def _tag(self, texts: Sequence[str], on_too_long: TooLong, first_line: int) -> list[Tagging]:
        """`find_words` splits texts into words."""
        split = [self.sentences(each) for each in texts]
        skipped = [
            any(self.is_skipped(text, places, on_too_long, number) for places in parts)
            for number, (text, parts) in enumerate(zip(texts, split), first_line)
        ]
        read = [[] if skip else parts for parts, skip in zip(split, skipped)]
        words = [[t[a:b] for a, b in places] for t, parts in zip(texts, read) for places in parts]
        tags = iter(self.predict(words))
        return [
            replace(
                joined(text, [(part, next(tags)) for part in parts]), skipped=skip, precision=self.precision
            )
            for text, parts, skip in zip(texts, read, skipped)
        ]

    def is_skipped(self, text: str, places: Sequence[Place], on_too_long: TooLong, number: int) -> bool:
        """Whether a sentence is too long and to be skipped; by default it is read in parts."""
        if on_too_long == "truncate":
            return False
        ids = self.objective.encode_words([text[a:b] for a, b in places])[0]
        return within_limit(ids, self.objective.longest, on_too_long, number) is None

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
    return Tagging(text, tuple(entities), tuple(words), windows)


# --- words ------------------------------------------------------------------------------------------------


@lru_cache(1 << 16)
def kind(character: str) -> str:
    """w letter, d digit, c Chinese, m mark, j joiner, white space, ' - . , : themselves, s any other."""
    if character.isspace():
        return " "
    if character in _SAME:
        return _SAME[character]
    if _HAN.match(character):
        return "c"
    category = unicodedata.category(character)
    if character == "\u200d":
        return "j"
    if category[0] == "M" or category == "Cf" or ord(character) in _SKIN:
        return "m"
    return "d" if category == "Nd" else "w" if category[0] in "LN" or category == "Pc" else "s"


def find_words(text: str) -> Iterator[Place]:
    """The positions of the words of a text, in order, split as in corpora of tagged words (CoNLL).

    - Letters, digits, "_" and their marks form words; white space separates them.
    - An apostrophe or a hyphen between two of them stays inside (O'Brien, German-born, 2-1), and so does
      a full stop, comma or colon between digits (1,000.50, 10:30).
    - English endings are separate words: John 's, they 're, do n't.
    - Single letters with full stops are one word, the last full stop included (U.S., e.g.).
    - A Chinese character is a word, as in the Chinese corpora.
    - So is every other character, with the marks and joiners after it (an emoji of several parts); only "..."
      and "--" stay together.
    """
    for match in _WORD.finditer("".join(map(kind, text))):
        start, end = match.span()
        ending = _ENDING.search(text, start, end)
        if ending and ending.start() > start:
            yield start, ending.start()
            start = ending.start()
        yield start, end
