"""Grammars: which tokens may follow, so that an output is one of some choices or fits a JSON schema."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard.errors import UsageError, extra
from regard.inputs.text import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_CHOICES = 100
MAX_SCHEMA = 1 << 16  # characters of a schema
MAX_DEPTH = 32  # objects and lists inside one another
STATES = 256  # of hypotheses that a schema's grammar remembers
# of llguidance; it gives up in some 20 milliseconds a step, and holds some 40 MB
LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_items_in_row": 2_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
CHOICES, SCHEMA = "E_CHOICES", "E_JSON_SCHEMA"


class Grammar(Protocol):
    """A function of the tokens that were generated; after an output that cannot go on comes its end."""

    end: int
    error: str  # why an output had to be given up, "" if none had

    def next_tokens(self, tokens: Sequence[int]) -> Sequence[int]: ...


class ChoiceTrie:
    """Outputs that are one of some token sequences."""

    error = ""

    def __init__(self, choices: Sequence[Sequence[int]], end: int) -> None:
        self.end, self.count = end, len(choices)
        self.longest = max(map(len, choices))
        self.root: dict[int, Any] = {}
        for choice in choices:
            node = self.root
            for token in (*choice, end):
                node = node.setdefault(token, {})

    @classmethod
    def of(cls, tokenizer: Tokenizer, choices: Sequence[str], end: int) -> ChoiceTrie:
        """The texts as they continue another one; each must be tokens that give it again."""
        if not 1 <= len(choices) <= MAX_CHOICES:
            raise UsageError(f"choices: {len(choices)}; give 1 to {MAX_CHOICES}", code=CHOICES)
        sequences = [tuple(tokenizer.encode_inside(choice)) for choice in choices]
        for choice, tokens in zip(choices, sequences):
            if not tokens or tokenizer.unknown in tokens or end in tokens:
                raise UsageError(f"choices: the tokenizer cannot write {choice!r}", code=CHOICES)
        if len(set(sequences)) < len(sequences):
            raise UsageError("choices: two of them are the same", code=CHOICES)
        return cls(sequences, end)

    def next_tokens(self, tokens: Sequence[int]) -> Sequence[int]:
        node = self.root
        for token in tokens:
            node = node.get(token, {})
        return list(node) or [self.end]  # a beam without probability may hold anything


class SchemaGrammar:
    """Outputs that are JSON of a schema, by llguidance; several threads may ask."""

    def __init__(self, matcher: LLMatcher, end: int, size: int) -> None:
        self.end, self.size, self.error = end, size, ""
        self.root = matcher
        self.states: OrderedDict[tuple[int, ...], LLMatcher] = OrderedDict()  # the latest
        self.lock = Lock()

    @classmethod
    def of(cls, tokenizer: Tokenizer, schema: Mapping[str, Any], end: int) -> SchemaGrammar:
        check_schema(schema)
        with extra("structured"):
            from llguidance import LLMatcher, LLParserLimits
        try:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=COMPACT)  # type: ignore[arg-type]
        except ValueError as error:
            raise UsageError(f"the JSON schema cannot be used ({error})", code=SCHEMA) from None
        limits = LLParserLimits(**LIMITS)  # type: ignore[arg-type]
        matcher = LLMatcher(json_tokenizer(tokenizer, end), grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise UsageError(f"the JSON schema cannot be used ({short(matcher)})", code=SCHEMA)
        return cls(matcher, end, len(tokenizer))

    def next_tokens(self, tokens: Sequence[int]) -> Sequence[int]:
        with self.lock:
            matcher = self.state(tuple(tokens))
            if matcher is None or matcher.is_stopped():
                return [self.end]
            mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            if matcher.is_error():
                self.error = f"the JSON schema is too complex ({short(matcher)})"
                return [self.end]
        allowed: list[int] = np.unpackbits(mask, bitorder="little")[: self.size].nonzero()[0].tolist()
        return allowed or [self.end]

    def state(self, tokens: tuple[int, ...]) -> LLMatcher | None:
        """The matcher behind these tokens; None if they do not fit, as in a beam without probability."""
        if tokens not in self.states:
            count = next((n for n in range(len(tokens), 0, -1) if tokens[:n] in self.states), 0)
            matcher = (self.states[tokens[:count]] if count else self.root).deep_copy()
            rest = list(tokens[count:])
            if matcher.try_consume_tokens(rest) < len(rest):
                return None
            self.states[tokens] = matcher
            if len(self.states) > STATES:
                self.states.popitem(last=False)
        self.states.move_to_end(tokens)
        return self.states[tokens]


def check_schema(schema: object) -> None:
    """Refuse what is no schema, or too large to be compiled."""
    if not isinstance(schema, Mapping):
        raise UsageError("the JSON schema is no object", code=SCHEMA)
    layer: list[Any] = [schema]
    depth = 0
    while layer:
        depth += 1
        if depth > MAX_DEPTH:
            raise UsageError(f"the JSON schema is nested more than {MAX_DEPTH} deep", code=SCHEMA)
        values = [each.values() if isinstance(each, Mapping) else each for each in layer]
        layer = [each for inner in values for each in inner if isinstance(each, Mapping | list)]
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA:
        raise UsageError(
            f"the JSON schema has {size:,} characters; at most {MAX_SCHEMA:,} are read", code=SCHEMA
        )


def short(matcher: LLMatcher) -> str:
    """The first line of an error."""
    return matcher.get_error().strip().partition("\n")[0][:200]


class TokenTable:
    """A tokenizer as llguidance reads it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self.tokenizer, self.eos_token_id = tokenizer, end

    @cached_property
    def tokens(self) -> list[bytes]:
        return [content or b"<special>" for content in self.tokenizer.token_bytes]

    @property
    def special_token_ids(self) -> list[int]:
        content = self.tokenizer.token_bytes
        return [token for token in range(len(content)) if not content[token]]

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode_inside(text)


@lru_cache(maxsize=8)
def json_tokenizer(tokenizer: Tokenizer, end: int) -> LLTokenizer:
    """The trie of a vocabulary; it takes up to seconds to make."""
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(TokenTable(tokenizer, end)), n_vocab=len(tokenizer))
