"""What the files of a tokenizer may hold. They may come from anywhere: a few hundred bytes could name a
million pieces, a pattern that never ends, or steps each of which doubles the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.config.reading import LARGE, read_bytes, read_json_text, shown
from regard.errors import UsageError

MOST_PIECES = 1 << 20
_LONGEST_PIECE = 4096  # characters
_LONGEST_SETTING = 1 << 22  # characters: SentencePiece's table of characters is one string
_MOST_STEPS = 64
_MOST_GROWTH = 64  # times that a text may become longer

_LONGEST_PATTERN = 2000  # characters
_MOST_REPEATS = 3  # parts of one alternative that repeat without a bound: time grows with that power
_GROUP = re.compile(r"\(\?(?:[imsx-]*[:)]|[=!>]|<[=!])|\((?!\?)")
_REPEAT = re.compile(r"[*+]|\{(\d*)(,?)(\d*)\}")
_NO_BOUND = 16  # so many times are as bad as any number


def read_object(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and content of a tokenizer's JSON file."""
    try:
        return read_json_text(path, LARGE)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; give the tokenizer.json of a model folder") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(
            f"{path}: not a tokenizer, the JSON is broken ({error}); copy or train it again"
        ) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a vocabulary or a list of merges."""
    try:
        content = read_bytes(path, LARGE)
        if content.count(b"\n") > MOST_PIECES:
            raise UsageError(f"{path}: has more than {MOST_PIECES:,} lines")
        return content.decode().split("\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as a vocabulary ({error})") from None


@contextmanager
def told(source: object) -> Iterator[None]:
    """Whatever the library says of wrong content as our error: it raises bare Exception, and panics."""
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UsageError(
                f"{source}: not a tokenizer ({shown(str(error))}); give the tokenizer.json of a model"
            ) from None
        raise


def check_content(content: Mapping[str, Any], source: object) -> None:
    """Refuse a tokenizer.json whose pieces or steps are none that a tokenizer of a model has."""
    try:
        model = content.get("model")
        if not isinstance(model, dict):
            raise ValueError("it has no model")
        check_pieces(model.get("vocab"))
        added = content.get("added_tokens") or []
        if not isinstance(added, list) or len(added) > MOST_PIECES:
            raise ValueError("its added_tokens are no list")
        if not all(isinstance(token, dict) for token in added):
            raise ValueError("one of its added_tokens is no object")
        _check_names(str(token.get("content")) for token in added)
        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
        check_steps([content.get(part) for part in parts])
    except ValueError as error:
        raise UsageError(
            f"{source}: not a tokenizer that Regard opens ({error}); give the tokenizer.json of a model"
        ) from None


def check_pieces(vocabulary: Any) -> None:
    """Names with numbers that are each there once (or, of unigram, names with scores)."""
    if not isinstance(vocabulary, dict | list):
        raise ValueError("it has no vocabulary")
    if len(vocabulary) > MOST_PIECES:
        raise ValueError(f"it has {len(vocabulary):,} pieces, more than {MOST_PIECES:,}")
    if isinstance(vocabulary, list):
        pairs = all(isinstance(pair, list) and len(pair) == 2 for pair in vocabulary)
        if not pairs or not all(isinstance(name, str) for name, _ in vocabulary):
            raise ValueError("its vocabulary is no list of names and scores")
        _check_names(name for name, _ in vocabulary)
        return
    numbers = set(vocabulary.values()) if all(type(n) is int for n in vocabulary.values()) else {-1}
    if numbers and not 0 <= min(numbers) <= max(numbers) <= 2 * MOST_PIECES:
        raise ValueError(f"the numbers of its pieces are none from 0 to {2 * MOST_PIECES:,}")
    if len(numbers) < len(vocabulary):
        raise ValueError("two of its pieces have the same number")
    _check_names(vocabulary)


def _check_names(names: Any) -> None:
    for name in names:
        if len(name) > _LONGEST_PIECE:
            raise ValueError(f"the piece {shown(name)} has {len(name):,} characters")


def check_steps(steps: Any) -> None:
    """What happens to a text before and after the pieces: a few steps, which end and do not inflate it."""
    count, growth = 0, 1.0
    waiting = [steps]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            count += "type" in part
            growth *= _growth(part)
            if "Regex" in part:
                check_pattern(part["Regex"])
        elif isinstance(part, str) and len(part) > _LONGEST_SETTING:
            raise ValueError("a setting of a step is too long")
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    if count > _MOST_STEPS or growth > _MOST_GROWTH:
        raise ValueError("its steps are too many, or make a text too long")


def _growth(step: Mapping[str, Any]) -> float:
    """How many times longer a step can make a text."""
    if step.get("type") == "Replace":
        pattern = step.get("pattern")
        found = pattern.get("String", "x") if isinstance(pattern, dict) else pattern
        if not isinstance(found, str) or not found:
            raise ValueError("it replaces what is empty")
        return max(1.0, len(str(step.get("content"))) / len(found))
    return 1.0


def check_pattern(pattern: Any) -> None:
    """A pattern that takes no more than a known power of a text's length, as those of known models do.

    No repeated groups ("(a+)+" takes for ever), no references, few repeats in each alternative.
    """
    if not isinstance(pattern, str) or not pattern or len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"the pattern {shown(pattern)} is too long, or empty")
    plain = _without_classes(pattern)
    groups = len(_GROUP.findall(plain))
    if groups != plain.count("(") or re.search(r"\)(?:[*+]|\{(?!0?,1\}))", plain):
        raise ValueError(f"the pattern {shown(pattern)} could take for ever")
    for part in _alternatives(plain):
        repeats = [found for found in _REPEAT.finditer(part) if _is_endless(found)]
        if len(repeats) > _MOST_REPEATS:
            raise ValueError(f"the pattern {shown(pattern)} could take for ever")


def _is_endless(repeat: re.Match[str]) -> bool:
    least, comma, most = repeat.groups()
    if least is None:  # * or +
        return True
    return int((most if comma else least) or _NO_BOUND + 1) > _NO_BOUND


def _without_classes(pattern: str) -> str:
    """Each escaped sign and each class of signs as one letter."""
    if re.search(r"(?<!\\)(?:\\\\)*\\[1-9kg]", pattern):
        raise ValueError(f"the pattern {shown(pattern)} refers to itself")
    plain = re.sub(r"\\[pP]\{[^}]*\}|\\.", "e", pattern, flags=re.DOTALL)
    found, depth = "", 0
    for sign in plain:
        depth += sign == "["
        found += "" if depth else sign
        if sign == "]" and depth:
            depth -= 1
            found += "" if depth else "c"
    if depth:
        raise ValueError(f"the pattern {shown(pattern)} is broken")
    return found


def _alternatives(plain: str) -> list[str]:
    """The parts of a pattern between the signs "|" that stand in no group."""
    parts, depth = [""], 0
    for sign in plain:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
