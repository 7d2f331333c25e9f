"""Which language a text is in, as py3langid sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

READ = 2000  # characters of a text that are looked at


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
