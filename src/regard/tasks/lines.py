"""Lines of text as the inputs of a translation model: segments with token ids, prefix and constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Constraint, Lexicon, longest_output
from regard.generation.constraints import PhraseProgress
from regard.inputs.text import Tokenizer
from regard.tasks.segments import Segment, Split, segment, segments

TooLong = Literal["cut", "skip", "error"]


@dataclass(frozen=True)
class PhraseConstraints:
    """Phrases that a translation must contain, in any order, and must not contain; whole words."""

    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    def __add__(self, other: PhraseConstraints) -> PhraseConstraints:
        return PhraseConstraints(self.require + other.require, self.forbid + other.forbid)


@dataclass(frozen=True)
class Line:
    """A line and its segments; `sources` holds the token ids of each, none for a blank one."""

    text: str
    segments: list[Segment]
    sources: list[list[int]]
    skipped: bool = False

    @property
    def broken(self) -> bool:
        return any(each.broken for each in self.segments)

    @property
    def translatable(self) -> list[int]:
        """The indices of the segments that have something to translate."""
        return [] if self.skipped else [at for at, each in enumerate(self.segments) if each.text]


@dataclass(frozen=True)
class SegmentInput:
    """One segment to translate."""

    line: int
    index: int  # among the segments of its line
    source: Sequence[int]
    prefix: Sequence[int] = ()  # forced first tokens of its translation
    constraint: Constraint | None = None


@dataclass(frozen=True)
class LineSplitter:
    """Splits lines into segments that a model can read. Lengths are in tokens.

    Lines of more than `above` tokens are long; the model reads at most `longest`.
    """

    tokenizer: Tokenizer
    above: int
    longest: int
    too_long: TooLong = "cut"
    source_prefix: str = ""  # before every segment

    def split(self, texts: Sequence[str], splits: Sequence[Split], first_line: int = 1) -> list[Line]:
        """The lines, numbered from `first_line` in messages. Only long ones are tokenized twice."""
        whole = self.encode([text.strip() for text in texts])
        return [
            self.split_line(text, ids, split, number)
            for number, (text, ids, split) in enumerate(zip(texts, whole, splits, strict=True), first_line)
        ]

    def split_line(self, text: str, ids: list[int], split: Split, number: int) -> Line:
        most = {"always": 0, "auto": min(self.above, self.longest), "never": self.longest}[split]
        if len(ids) <= most or not ids:
            return Line(text, [segment(text)], [ids])
        parts = segments(text, self.count_tokens, split, self.above, self.longest)
        is_broken = any(part.broken for part in parts)
        if is_broken and self.too_long == "error":
            raise UsageError(
                f"line {number}: a sentence has more than the {self.longest} tokens that the model reads; "
                'shorten it, or let it be cut (too_long = "cut")'
            )
        if is_broken and self.too_long == "skip":
            return Line(text, parts, [], skipped=True)
        return Line(text, parts, self.encode([part.text for part in parts]))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text after the source prefix; none for an empty text."""
        return self.tokenizer.encode_batch([f"{self.source_prefix}{text}" if text else "" for text in texts])

    def count_tokens(self, text: str) -> int:
        return len(self.encode([text])[0])


def segment_inputs(
    lines: Sequence[Line],
    prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[Constraint] | None = None,
) -> list[SegmentInput]:
    """All segments with something to translate.

    The prefix and the required phrases of a line belong to its first segment, the forbidden ones to all.
    """
    inputs = []
    for number, line in enumerate(lines):
        constraint = constraints[number] if constraints else None
        prefix = prefixes[number] if prefixes is not None else ()
        for index in line.translatable:
            inputs.append(SegmentInput(number, index, line.sources[index], prefix, constraint))
            prefix = ()
            if constraint is not None and constraint.require:
                constraint = Constraint(constraint.lexicon, (), constraint.forbid)
    return inputs


def compile_constraints(
    lexicon: Lexicon, constraints: Sequence[PhraseConstraints], first_line: int
) -> list[Constraint]:
    """The constraints of lines, numbered from `first_line`; equal ones are compiled once."""
    compiled: dict[PhraseConstraints, Constraint] = {}
    for number, phrases in enumerate(constraints, first_line):
        if phrases not in compiled:
            try:
                compiled[phrases] = lexicon.constraint(phrases.require, phrases.forbid)
            except UsageError as error:
                raise UsageError(f"line {number}: {error}") from None
    return [compiled[phrases] for phrases in constraints]


def check_constraints(
    inputs: Sequence[SegmentInput], options: Decode, readable: int | None, first_line: int
) -> None:
    """Refuse constraints that cannot be met, before anything is decoded."""
    for each in inputs:
        constraint, line = each.constraint, first_line + each.line
        if constraint is None:
            continue
        prefix = constraint.lexicon.text_of(each.prefix)
        if wrong := next((phrase.text for phrase in constraint.forbid if phrase.is_in(prefix)), None):
            raise UsageError(f'line {line}: the prefix contains "{wrong}", which is forbidden')
        length = len(each.source) + 1 + constraint.size
        room = longest_output(options, length, len(each.prefix), readable) - len(each.prefix)
        needed = PhraseProgress(constraint, each.prefix).needed()
        if needed > room:
            raise UsageError(
                f"line {line}: the required phrases take {needed} tokens, but a translation may have {room}; "
                f"raise decode.max_length (the limit of the model is {readable or 'none'}) or require less"
            )


def violated(constraint: Constraint, text: str) -> tuple[str, ...]:
    """The required phrases that a text lacks, and the forbidden ones that it contains."""
    missing = [phrase.text for phrase in constraint.require if not phrase.is_in(text)]
    return (*missing, *(phrase.text for phrase in constraint.forbid if phrase.is_in(text)))
