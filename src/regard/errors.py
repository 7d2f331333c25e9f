"""The errors that users meet: what is wrong, where (file, line, field), and what to do.

`RegardError` ends a command with exit code 1, `UsageError` (wrong input from the caller) with 2. Each error
has a stable `code` for programs and tests; its message may change. A traceback is shown only with `--debug`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

MAX_MESSAGE = 4000  # characters


class RegardError(Exception):
    """Something went wrong that the user can act on."""

    exit_code = 1
    default_code = "E_FAILED"

    def __init__(self, message: object = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code: str | None = code or self.default_code

    def __str__(self) -> str:
        """The message without control characters: text from a file must not steer the terminal."""
        text = super().__str__()
        if len(text) > MAX_MESSAGE:
            text = f"{text[:MAX_MESSAGE]}…"
        if text.isprintable():
            return text
        return "".join(
            char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
            for char in text
        )


class UsageError(RegardError):
    """The user's input cannot be used: a wrong value, a missing file, a folder that is no model."""

    exit_code = 2
    default_code = "E_USAGE"


class DeviceError(UsageError):
    """A device that torch does not have."""

    default_code = "E_DEVICE"


class TokenizerError(UsageError):
    """A tokenizer that cannot be read, trained or used."""

    default_code = "E_TOKENIZER"


class WeightsError(UsageError):
    """Weights that are missing, damaged, or of another model."""

    default_code = "E_MODEL_WEIGHTS"


class CheckpointError(UsageError):
    """A checkpoint that is damaged, or of another run."""

    default_code = "E_CHECKPOINT"


class PeerError(RegardError):
    """Another process of a run failed; the message names it."""

    reports = False  # rank 0 cannot report it: this rank does


class CollectiveError(RegardError):
    """An error that every rank raises at the same step, so that they can still save together."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """For imports of what `pip install 'regard[name]'` installs: a missing package names its extra.

    Also a decorator, of a function that imports inside.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).split(".")[0]
        if package == "regard":
            raise
        message = f"this needs the package {package}: pip install 'regard[{name}]'"
        raise UsageError(message, code="E_EXTRA_MISSING") from None


@contextmanager
def located(place: object) -> Iterator[None]:
    """Put the file or field before the message of a UsageError from inside."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error}", code=error.code) from None


def near_miss(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean "steps"?`, or nothing when no allowed word is close."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
