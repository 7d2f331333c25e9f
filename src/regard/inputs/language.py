"""Language detection: by common words where these are unambiguous, else with py3langid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Any

from regard.resources import word_lists

SAMPLE = 2000  # characters of a text that are examined
WORDS = {code: frozenset(words.split()) for code, words in word_lists()["languages"].items()}
ENOUGH = 2  # common words of one language, with none of the other
COMMON = 0.3  # share of such words that settles the language of a text
FEW_LETTERS = 12  # of a text in Latin letters that says too little about its language
LAST_LATIN = "\u0250"
OTHER, EXPECTED = 60.0, 5.0  # per cent: another language has more, the expected one less


def by_words(text: str, among: Sequence[str], least: float = 0.0) -> str | None:
    """The language of the common words of a text; None if there are too few, or of several languages.

    `least` is the share of all words that they must have.
    """
    if not set(among) <= set(WORDS):
        return None
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text[:SAMPLE].lower())
    counts = {code: sum(word in WORDS[code] for word in words) for code in among}
    best = max(counts, key=lambda code: counts[code])
    others = sum(counts.values()) - counts[best]
    is_clear = counts[best] >= max(ENOUGH, least * len(words)) and not others
    return best if is_clear else None


@cache
def default_detector() -> Detector:
    """One for all models: it takes memory."""
    return Detector()


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

    def other_language(self, text: str, language: str) -> tuple[str | None, float]:
        """The language of a text if it is clearly another one, and the probability that it is `language`.

        A text of few letters is not clear, unless they are not Latin; a language that py3langid does not know
        is the language of every text.
        """
        shares = dict(self.rank(text))
        expected = shares.get(language)
        if expected is None:
            return None, 1.0
        letters = [sign for sign in text[:SAMPLE] if sign.isalpha()]
        not_latin = sum(sign > LAST_LATIN for sign in letters)
        best = max(shares, key=lambda code: shares[code])
        # of a text in another script the best may share its probability with its neighbours (zh and yue)
        is_other = 2 * not_latin > len(letters) or shares[best] > OTHER
        is_clear = is_other and (len(letters) >= FEW_LETTERS or not_latin > 0)
        return (best if is_clear and expected < EXPECTED else None), expected / 100

    def choose(self, text: str, among: Sequence[str]) -> tuple[str, float]:
        """The most probable of some languages, and its probability; the first with 0 if there is none."""
        shares = dict(self.rank(text))
        best = max(among, key=lambda code: shares.get(code, 0.0))
        return best, shares.get(best, 0.0)
