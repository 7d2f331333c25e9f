"""Limits for tokenizer files of unknown origin, and errors that name the file.

A few hundred bytes can declare a million tokens, a regular expression that never ends, or steps that each
double the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from regard.config.reading import LARGE, read_bytes, read_json_text, shown
from regard.errors import TokenizerError, UsageError

MAX_TOKENS = 1 << 20
_MAX_TOKEN_LENGTH = 4096  # characters
_MAX_SETTING_LENGTH = 1 << 22  # characters: SentencePiece's character map is one string
_MAX_STEPS = 64
_MAX_GROWTH = 64  # factor by which all steps together may lengthen a text
_MAX_PATTERN_LENGTH = 2000  # characters
_MAX_REPEATS = 3  # unbounded repeats in one alternative: time grows with this power of the text's length
_UNBOUNDED = 16  # a bounded repeat of more than this counts as unbounded
_GROUP = re.compile(r"\(\?(?:[imsx-]*[:)]|[=!>]|<[=!])|\((?!\?)")
_REPEAT = re.compile(r"[*+]|\{(\d*)(,?)(\d*)\}")


def read_object(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and content of a tokenizer's JSON file."""
    try:
        return read_json_text(path, LARGE)
    except FileNotFoundError as error:
        raise TokenizerError(f"{path}: no such file; give the tokenizer.json of a model folder") from error
    except OSError as error:
        raise TokenizerError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
    except ValueError as error:
        raise TokenizerError(
            f"{path}: not a tokenizer, invalid JSON ({error}); copy or train it again"
        ) from error


def read_settings(path: Path) -> dict[str, Any]:
    """Content of an optional JSON file; {} if there is none."""
    return read_object(path)[1] if path.is_file() else {}


def read_lines(path: Path) -> list[str]:
    """Lines of a vocabulary or of a list of merges."""
    try:
        content = read_bytes(path, LARGE)
        if content.count(b"\n") > MAX_TOKENS:
            raise TokenizerError(f"{path}: has more than {MAX_TOKENS:,} lines")
        return content.decode().split("\n")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: cannot be read as a vocabulary ({error})") from None


@contextmanager
def tokenizer_errors(source: object) -> Iterator[None]:
    """Raise UsageError for what `tokenizers` raises: bare Exception, and PanicException."""
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(
                f"{source}: not a tokenizer ({shown(str(error))}); give the tokenizer.json of a model"
            ) from None
        raise


def to_pipeline(content: str, source: str = "tokenizer.json") -> tokenizers.Tokenizer:
    """The pipeline of a tokenizer.json, without truncation and padding."""
    with tokenizer_errors(source):
        pipeline = tokenizers.Tokenizer.from_str(content)
        pipeline.no_padding()
        pipeline.no_truncation()
    return pipeline


def check_sizes(sizes: Any, source: str) -> dict[str, int]:
    """The "regard" object of tokenizer_config.json: size of the vocabulary ("pieces"), id of "start"."""
    numbers = sizes.values() if isinstance(sizes, dict) else [None]
    if wrong := [n for n in numbers if type(n) is not int or not 0 <= n <= MAX_TOKENS]:
        raise TokenizerError(f"{source}: {shown(wrong[0])} is neither a vocabulary size nor a token id")
    return dict(sizes)


def model_sizes(config: Mapping[str, Any], vocabulary: str = "vocab_size") -> dict[str, Any]:
    """The same from the model's config.json; a model of two models has an object for its decoder."""
    config = {**inner, **config} if isinstance(inner := config.get("decoder"), dict) else config
    keys = {"pieces": vocabulary, "start": "decoder_start_token_id"}
    return {key: config[name] for key, name in keys.items() if config.get(name) is not None}


def check_content(content: Mapping[str, Any], source: object) -> None:
    """Refuse a tokenizer.json whose vocabulary or steps exceed the limits."""
    try:
        model = content.get("model")
        if not isinstance(model, dict):
            raise ValueError("it has no model")
        check_vocabulary(model.get("vocab"))
        added = content.get("added_tokens") or []
        if not isinstance(added, list) or len(added) > MAX_TOKENS:
            raise ValueError("added_tokens is not a list")
        if not all(isinstance(token, dict) for token in added):
            raise ValueError("an entry of added_tokens is not an object")
        _check_lengths(str(token.get("content")) for token in added)
        check_steps(
            [content.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")]
        )
    except ValueError as error:
        raise TokenizerError(
            f"{source}: not a tokenizer that Regard opens ({error}); give the tokenizer.json of a model"
        ) from None


def check_vocabulary(vocabulary: Any) -> None:
    """Tokens with unique ids (or, of a unigram model, tokens with scores)."""
    if not isinstance(vocabulary, dict | list):
        raise ValueError("it has no vocabulary")
    if len(vocabulary) > MAX_TOKENS:
        raise ValueError(f"it has {len(vocabulary):,} tokens, more than {MAX_TOKENS:,}")
    if isinstance(vocabulary, list):
        pairs = all(isinstance(pair, list) and len(pair) == 2 for pair in vocabulary)
        if not pairs or not all(isinstance(name, str) for name, _ in vocabulary):
            raise ValueError("its vocabulary is not a list of tokens and scores")
        _check_lengths(name for name, _ in vocabulary)
        return
    ids = set(vocabulary.values()) if all(type(n) is int for n in vocabulary.values()) else {-1}
    if ids and not 0 <= min(ids) <= max(ids) <= 2 * MAX_TOKENS:
        raise ValueError(f"its token ids are not all between 0 and {2 * MAX_TOKENS:,}")
    if len(ids) < len(vocabulary):
        raise ValueError("two of its tokens have the same id")
    _check_lengths(vocabulary)


def _check_lengths(names: Iterable[str]) -> None:
    for name in names:
        if len(name) > _MAX_TOKEN_LENGTH:
            raise ValueError(f"the token {shown(name)} has {len(name):,} characters")


def check_steps(steps: Any) -> None:
    """Limits for the steps before and after the model: few, terminating, without inflating the text."""
    count, growth = 0, 1.0
    stack = [steps]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            count += "type" in part
            growth *= _growth(part)
            if "Regex" in part:
                check_pattern(part["Regex"])
        elif isinstance(part, str) and len(part) > _MAX_SETTING_LENGTH:
            raise ValueError("a setting of a step is too long")
        stack += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    if count > _MAX_STEPS or growth > _MAX_GROWTH:
        raise ValueError("it has too many steps, or they make a text too long")


def _growth(step: Mapping[str, Any]) -> float:
    """Factor by which a step can lengthen a text."""
    if step.get("type") != "Replace":
        return 1.0
    pattern = step.get("pattern")
    text = pattern.get("String", "x") if isinstance(pattern, dict) else pattern
    if not isinstance(text, str) or not text:
        raise ValueError("a step replaces the empty text")
    return max(1.0, len(str(step.get("content"))) / len(text))


def check_pattern(pattern: Any) -> None:
    """Accept a pattern whose time is bounded by a low power of the text's length, as in known models.

    No repeated groups ("(a+)+" is exponential), no back references, few repeats in each alternative.
    """
    if not isinstance(pattern, str) or not pattern or len(pattern) > _MAX_PATTERN_LENGTH:
        raise ValueError(f"the pattern {shown(pattern)} is too long, or empty")
    if re.search(r"(?<!\\)(?:\\\\)*\\[1-9kg]", pattern):
        raise ValueError(f"the pattern {shown(pattern)} has a back reference")
    plain = _simplified(pattern)
    repeated_group = re.search(r"\)(?:[*+]|\{(?!0?,1\}))", plain)
    # lookarounds, possessive groups and named groups that _GROUP does not list are refused too
    if repeated_group or len(_GROUP.findall(plain)) != plain.count("("):
        raise ValueError(f"the pattern {shown(pattern)} may not terminate")
    for part in _alternatives(plain):
        if sum(map(_is_unbounded, _REPEAT.finditer(part))) > _MAX_REPEATS:
            raise ValueError(f"the pattern {shown(pattern)} may not terminate")


def _is_unbounded(repeat: re.Match[str]) -> bool:
    least, comma, most = repeat.groups()
    return least is None or int((most if comma else least) or _UNBOUNDED + 1) > _UNBOUNDED


def _simplified(pattern: str) -> str:
    """The pattern with each escape and each character class as one letter."""
    plain = re.sub(r"\\[pP]\{[^}]*\}|\\.", "e", pattern, flags=re.DOTALL)
    while (inner := re.sub(r"\[[^\[\]]*\]", "c", plain)) != plain:  # innermost classes first
        plain = inner
    if "[" in plain:
        raise ValueError(f"the pattern {shown(pattern)} has an unclosed class")
    return plain


def _alternatives(plain: str) -> list[str]:
    """Split a pattern at each "|" outside of groups."""
    parts, depth = [""], 0
    for character in plain:
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
