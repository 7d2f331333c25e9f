"""Language detection: by common words where these are unambiguous, else with py3langid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from regard.resources import word_lists

SAMPLE = 2000  # characters of a text that are examined
WORDS = {code: frozenset(words.split()) for code, words in word_lists()["languages"].items()}
ENOUGH = 2  # common words of one language, with none of the other


def by_words(text: str, among: Sequence[str]) -> str | None:
    """The language of the common words of a text; None if there are too few, or of several languages."""
    if not set(among) <= set(WORDS):
        return None
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text[:SAMPLE].lower())
    counts = {code: sum(word in WORDS[code] for word in words) for code in among}
    best = max(counts, key=lambda code: counts[code])
    others = sum(counts.values()) - counts[best]
    return best if counts[best] >= ENOUGH and not others else None


class Detector:
    """py3langid, loaded at first use or in the background: decompressing its model takes half a second."""

    def __init__(self) -> None:
        self.identifier: Any = None
        self.loading: Thread | None = None

    def load_in_background(self) -> None:
        if self.identifier is None and self.loading is None:
            self.loading = Thread(target=self.try_to_load, daemon=True)
            self.loading.start()

    def try_to_load(self) -> None:
        with suppress(Exception):  # `rank` loads it again and raises
            self.load()

    def load(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages and probabilities in per cent, best first; [] for a text without letters."""
        if not any(sign.isalpha() for sign in text):
            return []
        if self.loading is not None:
            self.loading.join()
        if self.identifier is None:
            self.load()
        ranked = self.identifier.rank(text[:SAMPLE])
        return [(str(code), round(100 * float(share), 2)) for code, share in ranked]

    def choose(self, text: str, among: Sequence[str]) -> tuple[str, float]:
        """The most probable of some languages, and its probability; the first with 0 if there is none."""
        shares = dict(self.rank(text))
        best = max(among, key=lambda code: shares.get(code, 0.0))
        return best, shares.get(best, 0.0)
