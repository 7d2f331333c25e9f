"""Checks of translations, and second ways to translate what fails them.

A model may repeat itself without end, write far more than there was to translate, or lose a number or a tag.
Such a segment is translated again, with those of all other lines in one further batch: without repeated
n-grams and with a lower limit of length, clause by clause, or around the parts that were lost. A segment in
capitals, title case or small letters is read in sentence case; a title of two or three words may be a name,
so its second translation must be clearly more probable. One with typographic signs is read with plain ones
unless that is clearly less probable. If no way passes the checks, the source stays as it is, and the result
says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from regard.config import Decode
from regard.generation import Hypothesis, Request
from regard.inputs.text import Tokenizer
from regard.inputs.text.spans import TOKEN, find_spans, is_complete
from regard.tasks.letter_case import in_case, letter_case, may_be_name, plain_signs, sentence_case
from regard.tasks.masking import NUMBERS, fragments, kept, lost_items, repair_number
from regard.tasks.translation import Line, Segment, SegmentInput

Fault = Literal["repetition", "length", "empty", "items", "case", "signs"]
MINOR = ("case", "signs")  # only the form of the source is special: its translation may stay
PERIODS = 8  # tokens of a repeated part at most
REPEATS = 2  # times in a row that a part of an output may occur, more often if it does so in the source
MANY = 10  # times in a row in a source, of which one in ten may be missing in the output
LONGEST_RATIO, LONGEST_MORE = 3, 24  # an output may have 3 * source + 24 tokens
LIMIT_RATIO, LIMIT_MORE = 2, 8  # the same for a second try, which is stopped there
NGRAM, LONG = 2, 32  # tokens that a second try may not repeat; one more if the source has so many
CLAUSE = re.compile(r"[,;:]\s+|\s[–—-]+\s|\s*[()]\s*")
CASE_MARGIN = 0.2  # by which sentence case is the better reading of a short title, per token
FORM_MARGIN = 0.1  # by which plain signs, or sentence case for small letters, may be less probable
SURE = -0.15  # log p of a token from which on a text with typographic signs is not read again


@dataclass(frozen=True)
class Way:
    """A second way to translate a segment: as other segments, read in another form, with other options."""

    segments: Sequence[Segment]
    options: Decode
    read: Callable[[str], str] = str  # from the text of a segment to what the model reads


Decoded = tuple[Sequence[Line], Sequence[SegmentInput], Sequence[Sequence[Hypothesis]]]
Part = tuple[Segment, SegmentInput | None, Sequence[Hypothesis]]  # no input: nothing to translate


@dataclass
class Retry:
    """A segment whose translation failed the checks, and the ways that are left."""

    input: SegmentInput
    segment: Segment
    fault: Fault
    ways: Iterator[Way]
    first: Hypothesis
    way: Way | None = None
    inputs: list[SegmentInput] = field(default_factory=list)  # of this way
    parts: list[Part] = field(default_factory=list)  # instead of the segment; empty: it stays


@dataclass(frozen=True)
class Checker:
    """Checks the translations of segments, and replaces those that fail."""

    options: Decode
    encode: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Sequence[int]], str]
    tokenizer: Tokenizer  # of the source
    placeholders: frozenset[int] = frozenset()  # token ids, if the model has them
    whole: Sequence[bool] = ()  # lines that are not checked: their translation is constrained as a whole

    def rounds(
        self,
        lines: Sequence[Line],
        inputs: Sequence[SegmentInput],
        hypotheses: Sequence[Sequence[Hypothesis]],
        requests: Callable[[Sequence[SegmentInput]], list[Request]],
    ) -> Generator[list[Request], Sequence[Sequence[Hypothesis]], Decoded]:
        """Lines, inputs and hypotheses after second tries; each round decodes those of all lines together."""
        retries = pending = self.failures(lines, inputs, hypotheses)
        while pending := [each for each in pending if self.advance(each)]:
            outputs = iter((yield requests([one for each in pending for one in each.inputs])))
            pending = [
                each for each in pending if not self.accept(each, [next(outputs) for _ in each.inputs])
            ]
        return merge(lines, inputs, hypotheses, retries) if retries else (lines, inputs, hypotheses)

    def failures(
        self,
        lines: Sequence[Line],
        inputs: Sequence[SegmentInput],
        hypotheses: Sequence[Sequence[Hypothesis]],
    ) -> list[Retry]:
        """The segments that are to be translated again."""
        retries = []
        for each, best in zip(inputs, hypotheses):
            segment = lines[each.line].segments[each.index]
            if self.whole and self.whole[each.line]:
                continue
            if fault := self.fault(segment, each.source, best[0]):
                ways = second_ways(segment, each.source, fault, self.options, self.tokenizer)
                retry = Retry(each, segment, fault, ways, best[0])
                if fault == "items" and (repaired := self.repaired(segment, best[0])):
                    retry.parts, retry.ways = [(repaired, each, list(best))], iter(())
                retries.append(retry)
        return retries

    def fault(self, segment: Segment, source: Sequence[int], best: Hypothesis) -> Fault | None:
        """What is wrong with a translation; its text is decoded only if that is needed."""
        tokens = best.tokens
        if not tokens:
            return "empty"
        if is_loop(source, tokens):
            return "repetition"
        if len(tokens) > LONGEST_RATIO * len(source) + LONGEST_MORE:
            return "length"
        has_signs = plain_signs(segment.text) != segment.text and mean(best) < SURE
        if self.placeholders:
            if "⟦" in segment.text or not self.placeholders.isdisjoint(tokens):
                complete = is_complete(segment.text, self.decode(tokens))
                return "items" if not complete else "signs" if has_signs else None
        elif find_spans(segment.text) and lost_items(segment.text, segment.finish(self.decode(tokens))):
            return "items"
        case = letter_case(segment.text)
        if case is not None and (case is not str.lower or self.decode(tokens).islower()):
            return "case"
        return "signs" if has_signs else None

    def repaired(self, segment: Segment, best: Hypothesis) -> Segment | None:
        """The segment with its number in place of that of the output, if nothing else is lost."""
        numbers = NUMBERS.findall(segment.text)
        if self.placeholders or len(numbers) != 1:
            return None
        finish = partial(repair_number, numbers[0])
        is_whole = not lost_items(segment.text, finish(self.decode(best.tokens)))
        return replace(segment, finish=finish) if is_whole else None

    def advance(self, retry: Retry) -> bool:
        """Take the next way; without one the source stays, except where only the letter case is special."""
        retry.way = next(retry.ways, None)
        if retry.way is None:
            if retry.fault not in MINOR and not retry.parts:
                retry.parts = [(kept(retry.segment), None, [])]
            return False
        texts = [retry.way.read(each.text) for each in retry.way.segments]
        retry.inputs = [
            replace(retry.input, source=ids, options=retry.way.options)
            for text, ids in zip(texts, self.encode(texts))
            if text
        ]
        return True

    def accept(self, retry: Retry, hypotheses: Sequence[Sequence[Hypothesis]]) -> bool:
        """Use the outputs of a way if none has a fault."""
        assert retry.way is not None
        outputs = iter(zip(retry.inputs, hypotheses))
        parts: list[Part] = []
        for segment in retry.way.segments:
            each, best = next(outputs) if segment.text else (None, [])
            if each is not None and self.fault(segment, each.source, best[0]) not in (None, *MINOR):
                return False
            parts.append((segment, each, best))
        if retry.fault in MINOR and less_probable(retry, parts[0][2][0]):
            return False
        retry.parts = parts
        return True


def less_probable(retry: Retry, best: Hypothesis) -> bool:
    """Whether the translation of another form of the source is to be less trusted than the first one."""
    gain, text = mean(best) - mean(retry.first), retry.segment.text
    if retry.fault == "case" and may_be_name(text):
        return gain < CASE_MARGIN
    return (retry.fault == "signs" or letter_case(text) is str.lower) and gain <= -FORM_MARGIN


def merge(
    lines: Sequence[Line],
    inputs: Sequence[SegmentInput],
    hypotheses: Sequence[Sequence[Hypothesis]],
    retries: Sequence[Retry],
) -> Decoded:
    """Lines, inputs and hypotheses with the parts that replace some segments."""
    first = {(each.line, each.index): (each, best) for each, best in zip(inputs, hypotheses)}
    other = {(each.input.line, each.input.index): each.parts for each in retries if each.parts}
    merged: list[Line] = []
    new: list[tuple[SegmentInput, Sequence[Hypothesis]]] = []
    for number, line in enumerate(lines):
        segments: list[Segment] = []
        parts = [part for index in range(len(line.segments)) for part, *_ in other.get((number, index), [])]
        if any(part.kept and part.broken for part in parts):  # all of a sentence, or nothing
            merged.append(replace(line, segments=[kept(each) for each in line.segments]))
            continue
        for index, segment in enumerate(line.segments):
            same = (segment, *first.get((number, index), (None, ())))
            for part, each, best in other.get((number, index), [same]):
                if each is not None:
                    new.append((replace(each, index=len(segments)), best))
                segments.append(part)
        merged.append(replace(line, segments=segments))
    return merged, [each for each, _ in new], [best for _, best in new]


def mean(hypothesis: Hypothesis) -> float:
    """log p of a token."""
    return sum(hypothesis.token_log_probabilities) / max(1, len(hypothesis.token_log_probabilities))


def is_loop(source: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether an output repeats itself more than its source, or not as often as a source of repetitions."""
    read, written = repeats(source), repeats(tokens)
    return written > max(REPEATS, read) or (read >= MANY and abs(written - read) > read // MANY)


def repeats(tokens: Sequence[int]) -> int:
    """How often a part of 1 .. PERIODS tokens occurs in a row, at most."""
    if len(set(tokens)) == len(tokens):
        return 1
    most = 1
    for period in range(1, min(PERIODS, len(tokens) // 2) + 1):
        run = 0
        for one, following in zip(tokens, tokens[period:]):
            run = run + 1 if one == following else 0
            most = max(most, run // period + 1)
    return most


def second_ways(
    segment: Segment,
    source: Sequence[int],
    fault: Fault,
    options: Decode,
    tokenizer: Tokenizer,
) -> Iterator[Way]:
    """Ways to translate a segment after a fault, the most faithful first."""
    read = partial(sentence_case, tokenizer)
    if (case := letter_case(segment.text)) is not None and read(segment.text) != segment.text:
        finish = partial(in_case, case, segment.finish)
        yield Way([replace(segment, finish=finish)], options, read)
    if plain_signs(segment.text) != segment.text:
        yield Way([segment], options, plain_signs)
    if fault in MINOR:
        return
    cuts = [match.span() for match in TOKEN.finditer(segment.text)]
    if cuts := cuts or [(span.start, span.end) for span in find_spans(segment.text)]:
        yield Way(fragments(segment, cuts), options)
    if fault == "items":
        return
    most = LIMIT_RATIO * len(source) + LIMIT_MORE
    ngram = NGRAM + (len(source) >= LONG)
    limits = {"no_repeat_ngram": ngram, "max_length": min(options.max_length or most, most)}
    limited = options.model_copy(update=limits)
    yield Way([segment], limited)
    clauses = fragments(segment, [match.span() for match in CLAUSE.finditer(segment.text)])
    if sum(bool(each.text) for each in clauses) > 1:
        yield Way(clauses, limited)
