"""Lines before and after a translation model: what is no language goes around it, or through it as tokens.

A model with placeholder tokens reads a token for each part that is copied (`regard.inputs.text.spans`).
Others read these parts as they are, except emoji and chunks that are no words: the text is cut around them.
Marks of layout at the beginning of a line, and emoji and tags at its ends, are not read.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from regard.inputs.text import split_sentences
from regard.inputs.text.spans import (
    KINDS,
    OTHER_LETTER,
    PLACEHOLDERS,
    SCRIPT,
    TOKEN,
    Kind,
    Span,
    find_spans,
    mask,
    unmask,
)
from regard.tasks.confidence import language_of
from regard.tasks.letter_case import has_capital_sentence
from regard.tasks.results import Candidate
from regard.tasks.task_model import OtherLanguage, Split
from regard.tasks.translation import CELL_END, LONGEST_LINE, Line, LineSplitter, Segment

UNREADABLE: frozenset[Kind] = frozenset({"emoji", "word"})  # for a model without placeholder tokens
# A dash, bullet, quotation or heading mark before a text; the dash of a dialogue; the number of a list.
LAYOUT = re.compile(
    r"(?:\s*+(?:[-–—*•·‣◦>#|+]++(?=\s)|[-–—](?=[^\W\d_])|\(?\d{1,3}[.)](?=\s)|\[[ xX]\](?=\s)))*+\s*+"
)
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u202a-\u202e\u2060-\u206f\ufeff]"
)
SPACE = re.compile("[\xa0\u2000-\u200a\u202f\u205f]")  # no-break spaces and those of a certain width
EDGE = re.compile(r"(\W*)(.*?)([^\w.!?…)\]]*)", re.DOTALL)  # of a fragment: what is not translated around it
LANGUAGE_CODE = re.compile("[a-z]{2}")  # of a language that can be detected; others are names of our own
UNKNOWN = "und"  # language of a line in several (ISO 639-2: undetermined)
HALF = 0.5
MIXED = 0.9  # probability of the model's language below which each sentence of a line is looked at
NUMBERS = re.compile(r"\d+(?:[.,:'’/-]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?[ \u00a0]?([ap])\.?m\b", re.IGNORECASE)  # 5 pm, 5:30 p.m.


@dataclass(frozen=True)
class MaskedLine:
    """A line as a model reads it, between what is only copied."""

    head: str
    text: str  # with a token for each item
    tail: str
    items: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PreparedLine:
    line: Line
    masked: MaskedLine
    language: str | None = None  # if it is not the one that the model reads
    share: float = 1.0  # probability that it is


def mask_line(text: str, placeholders: int) -> MaskedLine:
    """A line for a model with so many placeholder tokens."""
    if len(text) > LONGEST_LINE:  # is refused or skipped
        return MaskedLine("", text, "")
    head, core, tail = split_edges(text)
    if not core.isprintable():
        core = CONTROL.sub("", core)
    masked = mask(core, placeholders, copied(core)) if placeholders else mask(core, PLACEHOLDERS, UNREADABLE)
    text = unicodedata.normalize("NFC", masked.text)  # as corpora are written; items stay as they are
    return MaskedLine(head, text if text.isprintable() else SPACE.sub(" ", text), tail, masked.items)


def copied(text: str) -> frozenset[Kind]:
    """The kinds of spans that are copied: of a text in Latin letters also words in another script."""
    others = 0 if text.isascii() else len(OTHER_LETTER.findall(text))
    return KINDS | SCRIPT if others and 2 * others < sum(map(str.isalpha, text)) else KINDS


@dataclass(frozen=True)
class LinePreparation:
    """Lines of text to lines that a model reads; those in another language stay as they are, or as asked."""

    splitter: LineSplitter
    placeholders: int  # tokens of the model
    language: str  # that the model reads
    other_language: OtherLanguage
    needs_share: bool  # for the confidence

    def run(
        self, texts: Sequence[str], split: Split, whole: Sequence[bool], first_line: int
    ) -> list[PreparedLine]:
        """Lines that are `whole` are neither masked nor split."""
        masked = [
            MaskedLine("", text, "") if is_whole else mask_line(text, self.placeholders)
            for text, is_whole in zip(texts, whole)
        ]
        asks, detects = self.other_language != "translate", LANGUAGE_CODE.fullmatch(self.language)
        languages: list[tuple[str | None, float]] = [(None, 1.0)] * len(masked)
        if detects and (asks or self.needs_share):
            languages = [language_of(each.text, self.language) for each in masked]
        doubtful = [asks and not is_whole and p < MIXED for is_whole, (_, p) in zip(whole, languages)]
        mixed = [doubt and len(split_sentences(each.text)) > 1 for doubt, each in zip(doubtful, masked)]
        unread = [
            doubt and not several and code is not None
            for doubt, several, (code, _) in zip(doubtful, mixed, languages)
        ]
        splits: list[Split] = [
            "never" if is_whole else "always" if is_mixed or must_split(each.text, split) else split
            for is_whole, is_mixed, each in zip(whole, mixed, masked)
        ]
        shown = ["" if is_unread else each.text for each, is_unread in zip(masked, unread)]
        lines = self.splitter.split(shown, splits, first_line)
        for number, text in enumerate(texts):
            if unread[number]:
                lines[number] = Line(text, [Segment("", "", text, kept=True)], [[]])
            elif not whole[number]:
                code = languages[number][0]
                lines[number] = self.with_edges(text, masked[number], lines[number], mixed[number], code)
                if any(each.kept for each in lines[number].segments) and code is None:
                    languages[number] = (UNKNOWN, 0.0)
        return [PreparedLine(line, each, *language) for line, each, language in zip(lines, masked, languages)]

    def with_edges(self, text: str, masked: MaskedLine, line: Line, mixed: bool, code: str | None) -> Line:
        """The line of a masked text as a line of the text: the edges around it, no segments without words.

        If the model does not know placeholder tokens, segments are cut around them. Of a line in several
        languages, most in `code`, sentences that the model does not read stay as they are.
        """
        if line.skipped:
            return replace(line, text=text)
        if line.text is text and has_words(text[:1]) and len(line.segments) == 1 and not mixed:
            return line  # nothing is copied
        parts: list[Segment] = []
        sources: list[list[int]] = []
        for part, ids in zip(line.segments, line.sources):
            if parts and "\n" in parts[-1].after and (end := layout_end(part.text, 0)):
                part = replace(part, before=part.before + part.text[:end], text=part.text[end:])
                ids = self.splitter.encode([part.text])[0]
            if not has_words(part.text):
                parts, sources = [*parts, Segment(part.before, "", part.text + part.after)], [*sources, []]
            elif mixed and not self.reads(part.text, code):
                parts, sources = [*parts, kept(part)], [*sources, []]
            elif self.placeholders or TOKEN.search(part.text) is None:
                parts, sources = [*parts, part], [*sources, ids]
            else:
                cut = fragments(part, [match.span() for match in TOKEN.finditer(part.text)])
                parts, sources = parts + cut, sources + self.splitter.encode([each.text for each in cut])
        parts[0] = replace(parts[0], before=masked.head + parts[0].before)
        parts[-1] = replace(parts[-1], after=parts[-1].after + masked.tail)
        return Line(text, parts, sources)

    def reads(self, sentence: str, code: str | None) -> bool:
        """Whether a sentence is in the model's language; one that is unclear has the language of its line."""
        other, p = language_of(sentence, self.language)
        return other is None and (code is None or p > HALF)


def split_edges(text: str) -> tuple[str, str, str]:
    """Marks of layout, emoji and tags before a text, the text, and emoji and tags behind it.

    Tags inside belong together with those at the ends: then these stay in the text.
    """
    first = text[:1]
    if first.isalpha() and text[-1:].isascii() and text[-1:] != ">":
        return "", text, ""
    start, end = layout_end(text, 0), len(text)
    spans = find_spans(text, {"emoji", "tag"})
    while spans and spans[0].start == start:
        start = layout_end(text, spans.pop(0).end)
    while spans and text[spans[-1].end : end].isspace() | (spans[-1].end == end):
        end = len(text[: spans.pop().start].rstrip())
    if any(span.kind == "tag" for span in spans):
        return text[: layout_end(text, 0)], text[layout_end(text, 0) :], ""
    end = max(start, end)
    return text[:start], text[start:end], text[end:]


def layout_end(text: str, start: int) -> int:
    match = LAYOUT.match(text, start)
    return match.end() if match else start


def must_split(text: str, split: Split) -> bool:
    """Whether lines, cells or sentences of a text are to be translated one by one, however short it is."""
    return has_capital_sentence(text) or (
        split == "auto" and ("\n" in text or CELL_END.search(text) is not None)
    )


def has_words(text: str) -> bool:
    """Whether there is anything to translate beside placeholder tokens."""
    return any(map(str.isalpha, text))


def kept(part: Segment) -> Segment:
    """The segment as it is, not translated."""
    return replace(part, text="", after=part.text + part.after, kept=True)


def fragments(part: Segment, cuts: Sequence[tuple[int, int]]) -> list[Segment]:
    """A segment without some parts of its text, which are copied, as is punctuation beside them."""
    pieces: list[Segment] = []
    at = 0
    for start, end in [*cuts, (len(part.text), len(part.text))]:
        text, gap = part.text[at:start], part.text[start:end]
        edges = EDGE.fullmatch(text)
        before, core, after = edges.groups() if edges and has_words(text) else (text, "", "")
        finish = as_fragment if core and core[-1].isalnum() else part.finish
        pieces.append(replace(part, before=before, text=core, after=after + gap, finish=finish))
        at = end
    pieces[0] = replace(pieces[0], before=part.before + pieces[0].before)
    pieces[-1] = replace(pieces[-1], after=pieces[-1].after + part.after)
    return pieces


def as_fragment(text: str) -> str:
    """The translation of a text without end punctuation: models add it."""
    return text.rstrip(".!?…") or text


# --- after the model


def unmask_candidate(candidate: Candidate, masked: MaskedLine) -> Candidate:
    """A candidate with the items in place of their tokens."""
    items = masked.items
    if not items:
        return candidate
    text = unmask(candidate.text, items)
    if candidate.alignment is None or not any(len(item.split()) != 1 for _, item in items):
        return replace(candidate, text=text)
    source = masked.head + masked.text + masked.tail
    left, right = word_places(source, items), word_places(candidate.text, items)
    links = [(left[word], right[other]) for word, other in candidate.alignment]
    return replace(candidate, text=text, alignment=links)


def word_places(text: str, items: Sequence[tuple[str, str]]) -> list[int]:
    """The index of each word of a masked text in the text: items may be several words."""
    words = dict(items)
    sizes = (len(TOKEN.sub(lambda match: words.get(match[0], ""), word).split()) for word in text.split())
    return [0, *accumulate(sizes)]


def lost_items(source: str, output: str) -> tuple[str, ...]:
    """Spans and small numbers of a source that its translation lacks.

    Numbers are compared by their digits. A small one may be a word in the translation, so it is lost only if
    there is a number that the source does not have.
    """
    spans = find_spans(source)
    if not spans and not any_digit(source):
        return ()
    numbers = Counter(map(digits, NUMBERS.findall(output)))
    items = [(source[span.start : span.end], span.kind) for span in spans]
    lost = [
        item
        for item, kind in items
        if item not in output and not (kind == "number" and numbers[digits(item)])
    ]
    rest = without(source, spans)
    same = clock_forms(rest)
    others = set(numbers - Counter(map(digits, NUMBERS.findall(source))))
    if others - set().union(*same.values()):
        small = NUMBERS.findall(rest)
        lost += [each for each in small if numbers.keys().isdisjoint(same.get(digits(each), {digits(each)}))]
    return tuple(lost)


def clock_forms(text: str) -> dict[str, set[str]]:
    """The digits of each time with am or pm, and all digits that say the same: 5 pm is 17.00."""
    forms = {}
    for hour, minutes, half in CLOCK.findall(text):
        hours = {hour, str(int(hour) % 12 + 12 * (half in "pP"))}
        forms[hour + minutes] = {each + rest for each in hours for rest in {minutes, minutes or "00"}}
    return forms


def without(text: str, spans: Sequence[Span]) -> str:
    for span in reversed(spans):
        text = f"{text[: span.start]} {text[span.end :]}"
    return text


def any_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def repair_number(number: str, output: str) -> str:
    """The output with its only number replaced by that of the source; as it is if there are several."""
    return NUMBERS.sub(lambda _: number, output, count=1) if len(NUMBERS.findall(output)) == 1 else output
