"""What `regard translate` prints for lines, and what it says about them on stderr at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.terminal import one_line, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.tasks import (
        Alternative,
        Candidate,
        PhraseConstraints,
        Split,
        TooLong,
        Translation,
        Translator,
    )

USUAL_ALTERNATIVES = 5


@dataclass
class Concerns:
    """What a reader of the results should know; each kind is said once, with its count and first line."""

    first: dict[str, int] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, line: int) -> None:
        self.first.setdefault(kind, line)
        self.count[kind] = self.count.get(kind, 0) + 1

    def look_at(self, found: Translation, line: int) -> None:
        if found.skipped:
            self.note("skipped: a sentence is too long for the model", line)
        elif not found.candidates[0].finished:
            self.note("cut off at the length limit (decode.max_length)", line)
        if found.broken:
            self.note("cut between words, because a sentence is too long for the model (--too-long)", line)
        for phrase in found.disobeyed:
            self.note(f'not as wished: see "{phrase}"', line)

    def say(self) -> None:
        for kind, count in self.count.items():
            which = (
                f"line {self.first[kind]}"
                if count == 1
                else f"{count} lines, the first is {self.first[kind]}"
            )
            say(f"{which}: {kind}")


@dataclass
class Wishes:
    """The phrases of --require and --forbid, and those that a file has for each line."""

    always: PhraseConstraints
    of_lines: list[PhraseConstraints] | None = None
    path: Path | None = None
    used: int = 0

    @property
    def any(self) -> bool:
        return self.of_lines is not None or bool(self.always.require or self.always.forbid)

    def next(self, count: int) -> list[PhraseConstraints] | None:
        """Those of the next lines, None where there are none at all."""
        if self.of_lines is None:
            return [self.always] * count if self.any else None
        own = self.of_lines[self.used : self.used + count]
        self.used += count
        if len(own) < count:
            raise UsageError(f"{self.path} has {len(self.of_lines)} lines, the text has more: one for each")
        return [self.always + wish for wish in own]

    def check_all_used(self) -> None:
        if self.of_lines is not None and self.used < len(self.of_lines):
            raise UsageError(
                f"{self.path} has {len(self.of_lines)} lines, the text {self.used}: one for each"
            )


def read_wishes(require: list[str] | None, forbid: list[str] | None, path: Path | None) -> Wishes:
    from regard.data.files import lines
    from regard.tasks import PhraseConstraints

    always = PhraseConstraints(tuple(require or ()), tuple(forbid or ()))
    if path is None:
        return Wishes(always)
    found = [parse_wish(line, f"{path}, line {number}") for number, line in enumerate(lines(path), 1)]
    return Wishes(always, found, path)


def parse_wish(line: str, where: str) -> PhraseConstraints:
    """`{"require": ["..."], "forbid": ["..."]}`; a blank line asks for nothing."""
    from regard.tasks import PhraseConstraints

    try:
        content: Any = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    example = '{"require": ["a phrase"], "forbid": ["another"]}'
    if not isinstance(content, dict) or not set(content) <= {"require", "forbid"}:
        raise UsageError(f"{where}: write an object such as {example}")
    for phrases in content.values():
        if not isinstance(phrases, list) or not all(isinstance(phrase, str) for phrase in phrases):
            raise UsageError(f"{where}: phrases are a list of texts, as in {example}")
    return PhraseConstraints(tuple(content.get("require", ())), tuple(content.get("forbid", ())))


@dataclass
class Lines:
    """Lines of text to lines of result."""

    translator: Translator
    options: Decode
    wishes: Wishes
    nbest: int = 1
    scores: bool = False
    alignment: bool = False
    as_json: bool = False
    split: Split = "auto"
    prefix: str | None = None
    too_long: TooLong = "cut"
    concerns: Concerns = field(default_factory=Concerns)

    def __call__(self, lines: list[str], first: int) -> list[str]:
        """The results of lines, of which the first has the number `first`."""
        found = self.translator.translate_lines(
            lines,
            self.options,
            self.nbest,
            self.alignment,
            self.split,
            None if self.prefix is None else [self.prefix] * len(lines),
            constraints=self.wishes.next(len(lines)),
            too_long=self.too_long,
            first_line=first,
            warn=say,
        )
        results: list[str] = []
        for number, each in enumerate(found, first):
            self.concerns.look_at(each, number)
            results += [self.as_object(number, each)] if self.as_json else self.as_lines(number, each)
        return results

    def end(self) -> None:
        self.wishes.check_all_used()
        self.concerns.say()

    def as_object(self, number: int, found: Translation) -> str:
        """All that is known of a line, as JSON."""
        row: dict[str, object] = {"line": number, "source": found.source, "text": found.text}
        row["candidates"] = [candidate_object(self.translator, each) for each in found.candidates]
        marks = {"broken": found.broken, "skipped": found.skipped, "disobeyed": list(found.disobeyed)}
        return json.dumps(row | {name: mark for name, mark in marks.items() if mark}, ensure_ascii=False)

    def as_lines(self, number: int, found: Translation) -> list[str]:
        from regard.interpret import pharaoh

        lines = []
        for each in found.candidates:
            text = one_line(each.text)
            if self.nbest > 1:
                text = f"{number - 1} ||| {text} ||| {each.score:.4f}"
            elif self.scores:
                text = f"{each.score:.4f}\t{text}"
            if self.alignment:
                text += f"\t{pharaoh(each.alignment or [])}"
            lines.append(text)
        return lines


@dataclass
class NextWords:
    """For each line the most probable words after a prefix, each with the translation that follows."""

    translator: Translator
    options: Decode
    prefix: str
    nbest: int  # as asked for; 1, which everybody has who did not ask, gives the usual number
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        results: list[str] = []
        count = self.nbest if self.nbest > 1 else USUAL_ALTERNATIVES
        for number, line in enumerate(lines, first):
            found = self.translator.alternatives(line, self.prefix, count, self.options)
            if self.as_json:
                own = [alternative_object(self.translator, each) for each in found]
                row = {"line": number, "source": line, "prefix": self.prefix, "alternatives": own}
                results.append(json.dumps(row, ensure_ascii=False))
            else:
                results += [
                    f"{number}\t{each.log_probability:.4f}\t{one_line(each.word)}\t{one_line(each.text)}"
                    for each in found
                ]
        return results

    def end(self) -> None:
        pass


def candidate_object(translator: Translator, found: Candidate) -> dict[str, object]:
    links = {} if found.alignment is None else {"alignment": [list(link) for link in found.alignment]}
    return {
        "text": found.text,
        "score": found.score,
        "log_probability": found.log_probability,
        "finished": found.finished,
        "pieces": translator.folder.target.tokens(found.tokens),
        "piece_log_probabilities": list(found.token_log_probabilities),
        **links,
    }


def alternative_object(translator: Translator, found: Alternative) -> dict[str, object]:
    own = {"word": found.word, "word_log_probability": found.log_probability}
    return own | candidate_object(translator, found.candidate)
