"""How far a hypothesis has come with its required phrases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, permutations

from regard.generation.phrases import Constraint, Phrase, closes

ALL_ORDERS = 4  # phrases of which every order is tried


class Progress:
    """The required phrases that the text of some tokens lacks, and how to go on with them.

    A phrase is met when the text holds it as whole words. One at the very end is open: if the next piece is
    glued to it, it is lost again, as "das klein" on the way to "das kleine Haus". Both ways are looked at.
    """

    def __init__(self, constraint: Constraint, words: Sequence[int]) -> None:
        self.lexicon, self.words = constraint.lexicon, words
        text = self.lexicon.text_of(words)
        self.last = text[-1:]
        self.missing = [phrase for phrase in constraint.require if not phrase.is_in(text)]
        glued = f"{text}x"
        self.open = [p for p in constraint.require if p not in self.missing and not p.is_in(glued)]

    def guides(self) -> list[int]:
        """The tokens that go on with a missing phrase, or leave an open one for a longer one."""
        found = [phrase.cut[self.begun(phrase, glue=not self.open)] for phrase in self.missing]
        if self.open:
            found += [phrase.cut[self.begun(phrase, glue=True)] for phrase in self.missing]
        return list(dict.fromkeys(found))

    def needed(self) -> int:
        """Pieces that are enough until every phrase is said; where phrases overlap they share pieces."""
        if not self.missing:
            return 0
        keeping = self.together(self.missing, glue=not self.open)
        if not self.open:
            return keeping
        return min(keeping, self.together([*self.missing, *self.open], glue=True))

    def together(self, phrases: Sequence[Phrase], glue: bool) -> int:
        size = sum(len(phrase.cut) for phrase in phrases)
        return min(
            size - self.begun(order[0], glue) - sum(self.overlap(one, two) for one, two in pairwise(order))
            for order in orders(phrases)
        )

    def begun(self, phrase: Phrase, glue: bool) -> int:
        """How many pieces of a phrase, not all, stand at the end of the tokens; `glue` to an open phrase."""
        words = self.words
        if phrase.lone_space and len(words) < len(phrase.cut):
            words = [phrase.cut[0], *words]  # the start of a text parts words as a space does
        return shared(words, phrase, lambda piece: glue or self.closed_by(self.last, piece))

    def overlap(self, one: Phrase, two: Phrase) -> int:
        """Pieces at the end of one phrase that may begin the other."""
        return shared(one.cut, two, lambda piece: self.closed_by(one.text[-1], piece))

    def closed_by(self, last: str, piece: int) -> bool:
        return closes(last, self.lexicon.content[piece] or b"") == "closed"


def pieces_needed(constraint: Constraint, words: Sequence[int]) -> int:
    """Pieces that are enough to say what tokens lack of their required phrases."""
    return Progress(constraint, words).needed()


def shared(words: Sequence[int], phrase: Phrase, may_follow: Callable[[int], bool]) -> int:
    """The most pieces at the end of `words` that begin the phrase, if the piece after them may follow."""
    for count in range(min(len(phrase.cut) - 1, len(words)), 0, -1):
        if tuple(words[-count:]) == phrase.cut[:count] and may_follow(phrase.cut[count]):
            return count
    return 0


def orders(phrases: Sequence[Phrase]) -> Iterable[Sequence[Phrase]]:
    """Every order of a few phrases; of many, each of them first."""
    if len(phrases) <= ALL_ORDERS:
        return permutations(phrases)
    return [[first, *(phrase for phrase in phrases if phrase is not first)] for first in phrases]
