"""Lines of text through a translation model: split into segments, decoded, joined again.

Long lines may be decoded sentence by sentence, each with the preceding sentences and their translations
(`ContextDecoder`): a model trained on several sentences a line reads `x_{j-n} .. x_j`, and its output is
forced to begin with `y_{j-n} .. y_{j-1}`; only the rest, `y_j`, is new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pydantic import ValidationError

from regard.config import Decode
from regard.config.load import config_error
from regard.config.model_base import Section
from regard.errors import UsageError
from regard.generation import Hypothesis, longest_output
from regard.generation.alignment import Links
from regard.generation.constraints import Constraint, Lexicon, PhraseProgress
from regard.inputs.text import Tokenizer, split_sentences, split_words
from regard.tasks.results import Candidate
from regard.tasks.task_model import Split, TooLong

CELL_END = re.compile(r"([^\S\n]*\t\s*|\s+\|(?:\s+|$))")  # in a row of .tsv or Markdown
LONGEST_LINE = 1_000_000  # characters: its tokens take some hundred times as many bytes

# --- segments of a line -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """A part of a line with the spacing around it; `text` is empty where there is nothing to translate."""

    before: str
    text: str
    after: str
    broken: bool = False  # a part of a sentence that was too long
    finish: Callable[[str], str] = str  # from the output to its translation
    kept: bool = False  # no translation passed the checks: the source is in `after`


def segments(
    line: str, count_tokens: Callable[[str], int], split: Split, above: int, longest: int
) -> list[Segment]:
    """Split a line at sentence ends if it is long (or always), and too long sentences between words.

    A line of more than `above` tokens is long; the model reads at most `longest` tokens.
    """
    whole = segment(line, "")
    if not whole.text:
        return [whole]
    parts = [(line, "")]
    if split == "always" or (split == "auto" and count_tokens(whole.text) > above):
        parts = [cell for part in split_sentences(line) for cell in split_cells(*part)]
    result: list[Segment] = []
    for text, gap in parts:
        if count_tokens(text.strip()) > longest:
            result += [
                replace(segment(part, after), broken=True)
                for part, after in split_words(text, lambda t: count_tokens(t.strip()) <= longest)
            ]
            result[-1] = replace(result[-1], after=result[-1].after + gap)
        else:
            result.append(segment(text, gap))
    return result


def split_cells(text: str, gap: str) -> list[tuple[str, str]]:
    """The cells of a row of a table, each with what follows it."""
    cells = CELL_END.split(text)
    return list(zip(cells[::2], [*cells[1::2], gap]))


def segment(text: str, gap: str = "") -> Segment:
    """A text as one segment."""
    core = text.strip()
    if not core:
        return Segment("", "", text + gap)
    start = text.index(core)
    return Segment(text[:start], core, text[start + len(core) :] + gap)


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
    options: Decode | None = None  # of a second try


@dataclass(frozen=True)
class LineSplitter:
    """Splits lines into segments that a model can read. Lengths are in tokens.

    Lines of more than `above` tokens are long; the model reads at most `longest`.
    """

    tokenizer: Tokenizer
    above: int
    longest: int
    on_too_long: TooLong = "truncate"
    source_prefix: str = ""  # before every segment

    def split(self, texts: Sequence[str], splits: Sequence[Split], first_line: int = 1) -> list[Line]:
        """The lines, numbered from `first_line` in messages. Only long ones are tokenized twice."""
        for number, text in enumerate(texts, first_line):
            if len(text) > LONGEST_LINE and self.on_too_long != "skip":
                raise UsageError(
                    f"line {number} has {len(text):,} characters; split it into lines of {LONGEST_LINE:,}",
                    code="E_LINE_LENGTH",
                )
        endless = [len(text) > LONGEST_LINE for text in texts]
        whole = self.encode(["" if skip else text.strip() for text, skip in zip(texts, endless)])
        return [
            Line(text, [], [], skipped=True) if skip else self.split_line(text, ids, split, number)
            for number, (text, ids, split, skip) in enumerate(
                zip(texts, whole, splits, endless, strict=True), first_line
            )
        ]

    def split_line(self, text: str, ids: list[int], split: Split, number: int) -> Line:
        most = {"always": 0, "auto": min(self.above, self.longest), "never": self.longest}[split]
        if len(ids) <= most or not ids:
            return Line(text, [segment(text)], [ids])
        parts = segments(text, self.count_tokens, split, self.above, self.longest)
        is_broken = any(part.broken for part in parts)
        if is_broken and self.on_too_long == "error":
            raise UsageError(
                f"line {number}: a sentence has more than the {self.longest} tokens that the model reads; "
                "shorten it, or let it be split (on too long: truncate)",
                code="E_TOO_LONG",
            )
        if is_broken and self.on_too_long == "skip":
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


# --- constraints ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhraseConstraints:
    """Phrases that a translation must contain, in any order, and must not contain; whole words."""

    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    def __add__(self, other: PhraseConstraints) -> PhraseConstraints:
        return PhraseConstraints(self.require + other.require, self.forbid + other.forbid)


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


# --- decoding with context --------------------------------------------------------------------------------

DecodeInputs = Callable[[Sequence[SegmentInput]], list[list[Hypothesis]]]


@dataclass
class ContextDecoder:
    """Decodes the first segment of every line, then the second of every line after the first, ..."""

    lines: Sequence[Line]
    source: Tokenizer
    target: Tokenizer
    sentences: int  # preceding sentences at most
    longest: int  # tokens
    source_prefix: str = ""
    translations: dict[tuple[int, int], str] = field(default_factory=dict)  # by line and segment

    def run(self, inputs: Sequence[SegmentInput], decode: DecodeInputs) -> list[list[Hypothesis]]:
        """The hypotheses of each input, in order, without their context."""
        results: dict[tuple[int, int], list[Hypothesis]] = {}
        for batch in rounds(inputs):
            hypotheses = self.decode_with_context(batch, decode)
            empty = [
                each for each, best in zip(batch, hypotheses) if not best[0].tokens and self.translations
            ]
            alone = iter(decode(empty))  # no sentence is lost if the model adds nothing to the context
            for each, best in zip(batch, hypotheses):
                best = next(alone) if each in empty else best
                results[each.line, each.index] = best
                self.translations[each.line, each.index] = self.target.decode(best[0].tokens)
        return [results[each.line, each.index] for each in inputs]

    def decode_with_context(
        self, batch: Sequence[SegmentInput], decode: DecodeInputs
    ) -> list[list[Hypothesis]]:
        extended = [self.extend(each) for each in batch]
        return [
            [self.without_context(each, len(wide.prefix) - len(short.prefix)) for each in hypotheses]
            for short, wide, hypotheses in zip(batch, extended, decode(extended))
        ]

    def extend(self, one: SegmentInput) -> SegmentInput:
        """The input with as many preceding sentences as are configured and fit."""
        before = [index for index in self.lines[one.line].translatable if index < one.index]
        for first in before[-self.sentences :]:
            text, translation = self.join(one.line, first, one.index)
            source, prefix = (self.source.encode(self.source_prefix + text), self.target.encode(translation))
            if len(source) <= self.longest and len(prefix) + len(one.source) <= self.longest:
                return replace(one, source=source, prefix=prefix)
        return one

    def join(self, line: int, first: int, last: int) -> tuple[str, str]:
        """The source from one segment to another, and the translation of all but the last of them."""
        text, translation = "", ""
        for index in range(first, last):
            part = self.lines[line].segments[index]
            text += part.before + part.text + part.after
            translation += part.before + self.translations.get((line, index), "") + part.after
        return (text + self.lines[line].segments[last].text).strip(), translation.strip()

    def without_context(self, hypothesis: Hypothesis, context: int) -> Hypothesis:
        """A hypothesis without its first `context` tokens and the space after them."""
        tokens = hypothesis.tokens[context:]
        if context and tokens and self.target.token_bytes[tokens[0]] == b" ":
            context, tokens = context + 1, tokens[1:]
        log_p = hypothesis.token_log_probabilities[context:]
        return replace(hypothesis, tokens=tokens, token_log_probabilities=log_p)


def rounds(inputs: Sequence[SegmentInput]) -> list[list[SegmentInput]]:
    """The first input of every line, the second of every line, ..."""
    batches: list[list[SegmentInput]] = []
    for _, group in groupby(inputs, key=lambda each: each.line):
        for rank, each in enumerate(group):
            if rank == len(batches):
                batches.append([])
            batches[rank].append(each)
    return batches


# --- results ----------------------------------------------------------------------------------------------

AlignedHypotheses = list[tuple[Hypothesis, Links | None]]  # of one segment, best first


def join_segments(
    segments: Sequence[Segment],
    hypotheses: Sequence[tuple[Hypothesis, Links | None] | None],
    target: Tokenizer,
    aligned: bool,
) -> Candidate:
    """The translation of a line from one hypothesis of each of its segments, None for a blank one."""
    source = text = ""  # up to this segment
    alignment: Links = []
    tokens: list[str] = []
    token_ids: list[int] = []
    for part, chosen in zip(segments, hypotheses):
        source, text = source + part.before, text + part.before
        if chosen is not None:
            hypothesis, links = chosen
            new = part.finish(target.decode(hypothesis.tokens))
            left, right = words_before(source, part.text), words_before(text, new)
            alignment += [(word + left, other + right) for word, other in links or ()]
            ids = [*hypothesis.tokens, *([target.end] if hypothesis.finished else ())]
            tokens, token_ids, text = tokens + target.tokens(ids), token_ids + ids, text + new
        source, text = source + part.text + part.after, text + part.after
    parts = [chosen[0] for chosen in hypotheses if chosen is not None]
    return Candidate(
        text=text,
        score=sum((each.score for each in parts), 0.0),
        log_probability=sum((each.log_probability for each in parts), 0.0),
        finished=all(each.finished for each in parts),
        tokens=tuple(tokens),
        token_ids=tuple(token_ids),
        token_log_probabilities=tuple(log_p for each in parts for log_p in each.token_log_probabilities),
        alignment=alignment if aligned else None,
    )


def words_before(text: str, following: str) -> int:
    """The index of the first word of `following`; a word that was cut in two keeps one index."""
    is_cut = text and following and not text[-1].isspace() and not following[0].isspace()
    return len(text.split()) - bool(is_cut)


# --- options ----------------------------------------------------------------------------------------------


class DecodeOptions(Section):
    decode: Decode


def decode_options(base: Decode, options: Mapping[str, object]) -> Decode:
    """The options of a folder with some replaced; an unknown field or a wrong value is an error."""
    values = {name: value for name, value in {**base.model_dump(), **options}.items() if value is not None}
    try:
        return DecodeOptions.model_validate({"decode": values}).decode
    except ValidationError as error:
        raise config_error(error, "options") from None
