"""Which language a text is in, as py3langid sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

READ = 2000  # characters of a text that are looked at


class Detector:
    """Opened at its first use."""

    def __init__(self) -> None:
        self.identifier: Any = None

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages and how sure we are, in per cent, best first; nothing for a text without a letter."""
        if not any(sign.isalpha() for sign in text):
            return []
        if self.identifier is None:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier

            self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        ranked = self.identifier.rank(text[:READ])
        return [(str(code), round(100 * float(share), 2)) for code, share in ranked]

    def choose(self, text: str, among: Sequence[str]) -> tuple[str, float]:
        """The likeliest of some languages; the first with confidence 0 where nothing is known."""
        shares = dict(self.rank(text))
        best = max(among, key=lambda code: shares.get(code, 0.0))
        return best, shares.get(best, 0.0)
