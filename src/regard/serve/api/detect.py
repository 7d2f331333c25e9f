"""Which language a text is in: py3langid's answer where it is installed, else that we do not know."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

READ = 2000  # characters of a text that are looked at
LEAST = 1.0  # per cent; what is less probable is not told


class Detector:
    """Opened at its first use."""

    def __init__(self) -> None:
        self.installed = find_spec("py3langid") is not None
        self.identifier: Any = None

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages and how sure we are, in per cent, best first; nothing without a detector or a letter."""
        if not self.installed or not any(sign.isalpha() for sign in text):
            return []
        if self.identifier is None:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier

            self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        ranked = self.identifier.rank(text[:READ])
        return [(str(code), round(100 * float(share), 2)) for code, share in ranked]

    def told(self, text: str, known: Iterable[str]) -> list[dict[str, Any]]:
        """LibreTranslate's answer; without a detector the models' languages, with no confidence at all."""
        ranked = [(code, share) for code, share in self.rank(text) if share >= LEAST]
        ranked = ranked or [(code, 0.0) for code in known]
        return [{"confidence": share, "language": code} for code, share in ranked]

    def choose(self, text: str, among: list[str]) -> tuple[str, float]:
        """The likeliest of some languages; the first with confidence 0 where nothing is known."""
        shares = dict(self.rank(text))
        best = max(among, key=lambda code: shares.get(code, 0.0))
        return best, shares.get(best, 0.0)
