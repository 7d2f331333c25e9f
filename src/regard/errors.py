"""The errors a person meets: one sentence that names the field or the file and line, and what to do.

`RegardError` ends a command with exit code 1, `UsageError` (wrong input from the caller) with 2.
Nothing else is meant to reach a user; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 4000  # characters of a message


class RegardError(Exception):
    """Something went wrong that the user can act on."""

    exit_code = 1

    def __str__(self) -> str:
        """Readable on every terminal: what a file says may be quoted, but not steer the cursor."""
        text = super().__str__()
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}…"
        if text.isprintable():
            return text
        return "".join(
            sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
            for sign in text
        )


class UsageError(RegardError):
    """What the user gave cannot be used: a wrong value, a missing file, a folder that is no model."""

    exit_code = 2


def near_miss(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean "steps"?`, or nothing when no allowed word is close."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
