"""Tokens that name a language: M2M100, NLLB, mBART.

A source names the language that it is in, a target begins with the language that it is in. Each tokenizer
puts the former before or after the text: in its post-processor or, for the classes of transformers below,
whatever that of tokenizer.json does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from copy import copy
from typing import Any

import tokenizers
from tokenizers import processors

from regard.errors import TokenizerError, UsageError
from regard.inputs.text.byte_level import special_ids
from regard.inputs.text.tokenizer import Tokenizer

UNKNOWN = "E_LANGUAGE"
NEAREST = 5  # codes that an error names
# __de__, de_DE, deu_Latn
_CODE = re.compile("__([a-z]{2,3})__|([a-z]{2,3}_[A-Z]{2})|([a-z]{3}_[A-Z][a-z]{3})")
# tokenizer_class -> where the language of the source is, and the default
CLASSES = {
    "M2M100Tokenizer": ("before", "en"),
    "NllbTokenizer": ("before", "eng_Latn"),
    "MBart50Tokenizer": ("before", "en_XX"),
    "MBartTokenizer": ("after", "en_XX"),
}


def language_tokens(specials: Mapping[str, int]) -> dict[str, int]:
    """The languages among special tokens, by their codes."""
    matches = ((_CODE.fullmatch(name), number) for name, number in specials.items())
    return {match[match.lastindex or 0]: number for match, number in matches if match}


def frame_of(pipeline: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that the post-processor puts before and after a text."""
    encoding = pipeline.encode("a", add_special_tokens=True)
    text = [place for place, part in enumerate(encoding.sequence_ids) if part is not None]
    first, last = (text[0], text[-1]) if text else (0, -1)
    return tuple(encoding.ids[:first]), tuple(encoding.ids[last + 1 :])


def frame_by_class(pipeline: tokenizers.Tokenizer, config: Mapping[str, Any], source: str) -> None:
    """The post-processor that the tokenizer's class has in transformers."""
    name = str(config.get("tokenizer_class")).removesuffix("Fast")
    specials = special_ids(pipeline)
    codes, end = language_tokens(specials), str(config.get("eos_token") or "</s>")
    if name not in CLASSES or not codes or end not in specials:
        return
    place, default = CLASSES[name]
    code = config.get("src_lang") or default
    if code not in codes:
        raise TokenizerError(f"{source}: src_lang = {code!r} is not a language of this tokenizer")
    language = next(each for each, number in specials.items() if number == codes[code])
    is_before = place == "before" and not config.get("legacy_behaviour", False)
    pipeline.post_processor = processors.TemplateProcessing(
        single=[language, "$A", end] if is_before else ["$A", end, language],
        pair=[language, "$A", "$B", end] if is_before else ["$A", "$B", end, language],
        special_tokens=[(end, specials[end]), (language, codes[code])],
    )


def between(tokenizer: Tokenizer, source: str | None, target: str | None) -> Tokenizer:
    """The same tokenizer for texts in these languages; None: as it is."""
    tokens, chosen = tokenizer.language_tokens, copy(tokenizer)
    if source is not None:
        name = find(tokens, source)
        names = set(tokens.values())
        chosen.set_frame(
            tuple(name if each in names else each for each in tokenizer.before),
            tuple(name if each in names else each for each in tokenizer.after),
        )
    if target is not None:
        chosen.first = find(tokens, target)
        fixed = next((code for code, number in tokens.items() if number == tokenizer.start), None)
        if fixed == target:
            chosen.first = None  # every output begins with it anyway
        elif fixed is not None:
            raise UsageError(f"it translates into {fixed} alone, not into {target!r}", code=UNKNOWN)
    return chosen


def source_language(tokenizer: Tokenizer) -> str | None:
    """The language that its sources name."""
    around = {*tokenizer.before, *tokenizer.after}
    return next((code for code, number in tokenizer.language_tokens.items() if number in around), None)


def find(tokens: Mapping[str, int], code: str) -> int:
    if code in tokens:
        return tokens[code]
    near = difflib.get_close_matches(code, list(tokens), n=NEAREST, cutoff=0.0)
    raise UsageError(
        f"{code!r} is none of its {len(tokens)} languages; nearest: {', '.join(near)}", code=UNKNOWN
    )


def both_between(
    tokenizers: tuple[Tokenizer, Tokenizer], source: str | None, target: str | None
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a model for these languages; one for both sides stays one."""
    left, right = tokenizers
    chosen = between(left, source, target)
    return chosen, chosen if right is left else between(right, source, target)
