"""Which language a text is in: by its commonest words where they make it plain, else as py3langid sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

READ = 2000  # characters of a text that are looked at
# fmt: off
WORDS = {  # the commonest of a language that the other has not
    "en": frozenset((
        "the", "a", "of", "to", "and", "is", "are", "be", "been", "i", "you", "he", "she", "we",
        "they", "it", "this", "that", "these", "those", "my", "your", "his", "our", "their", "what",
        "where", "when", "why", "who", "how", "do", "does", "did", "don't", "isn't", "didn't",
        "have", "has", "had", "would", "could", "should", "can", "can't", "with", "from", "for",
        "by", "at", "no", "yes", "there", "here", "if", "but", "or", "as", "more", "than", "about",
        "like", "please",
    )),
    "de": frozenset((
        "der", "das", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer", "und", "ist",
        "sind", "bin", "bist", "ich", "du", "er", "sie", "wir", "ihr", "mich", "dich", "ihn", "uns",
        "mein", "dein", "sein", "kein", "keine", "nicht", "auch", "noch", "schon", "nur", "wenn",
        "weil", "dass", "oder", "aber", "wie", "wo", "wer", "warum", "haben", "habe", "hast",
        "hatte", "wird", "wurde", "werden", "kann", "können", "muss", "mit", "von", "für", "auf",
        "bei", "nach", "zu", "zum", "im", "ja", "nein", "bitte", "hier", "dort",
    )),
}
# fmt: on
PLAIN = 2  # common words of one language and none of the other


def by_words(text: str, among: Sequence[str]) -> str | None:
    """The one of some languages that the commonest words of a text are in; None where that is not plain."""
    if not set(among) <= set(WORDS):
        return None
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text[:READ].lower())
    found = {code: sum(word in WORDS[code] for word in words) for code in among}
    best = max(found, key=lambda code: found[code])
    others = sum(found.values()) - found[best]
    return best if found[best] >= PLAIN and not others else None


class Detector:
    """Opened at its first use, or before it and beside other work: unpacking its file takes half a second."""

    def __init__(self) -> None:
        self.identifier: Any = None
        self.opening: Thread | None = None

    def begin(self) -> None:
        """Open beside what follows."""
        if self.identifier is None and self.opening is None:
            self.opening = Thread(target=self.try_to_open, daemon=True)
            self.opening.start()

    def try_to_open(self) -> None:
        with suppress(Exception):  # whoever asks will be told
            self.open()

    def open(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages and how sure we are, in per cent, best first; nothing for a text without a letter."""
        if not any(sign.isalpha() for sign in text):
            return []
        if self.opening is not None:
            self.opening.join()
        if self.identifier is None:  # nobody began, or it failed there and tells why here
            self.open()
        ranked = self.identifier.rank(text[:READ])
        return [(str(code), round(100 * float(share), 2)) for code, share in ranked]

    def choose(self, text: str, among: Sequence[str]) -> tuple[str, float]:
        """The likeliest of some languages; the first with confidence 0 where nothing is known."""
        shares = dict(self.rank(text))
        best = max(among, key=lambda code: shares.get(code, 0.0))
        return best, shares.get(best, 0.0)
