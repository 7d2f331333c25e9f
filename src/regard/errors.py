"""The errors a person meets: one sentence that names the field or the file and line, and what to do.

`RegardError` ends a command with exit code 1, `UsageError` (wrong input from the caller) with 2.
Nothing else is meant to reach a user; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RegardError(Exception):
    """Something went wrong that the user can act on."""

    exit_code = 1


class UsageError(RegardError):
    """What the user gave cannot be used: a wrong value, a missing file, a folder that is no model."""

    exit_code = 2


def near_miss(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean "steps"?`, or nothing when no allowed word is close."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
