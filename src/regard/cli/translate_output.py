"""What `regard translate` prints: lines, next words, documents (.po, .tmx, .xliff, .srt)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.terminal import LineResults, json_line, messages, one_line, put, say
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


@dataclass(frozen=True)
class LineOptions:
    """The options that concern the result of a line."""

    nbest: int = 1
    scores: bool = False
    alignment: bool = False
    as_json: bool = False
    split: Split = "auto"
    prefix: str | None = None
    too_long: TooLong = "cut"

    def given(self, constraints: bool, alternatives: bool) -> dict[str, bool]:
        """Which options were given that have no meaning for a document."""
        return {
            "--nbest": self.nbest > 1,
            "--scores": self.scores,
            "--alignment": self.alignment,
            "--json": self.as_json,
            "--prefix": self.prefix is not None,
            "--require, --forbid or --constraints": constraints,
            "--alternatives": alternatives,
        }


@dataclass
class LineConstraints:
    """The phrases of --require and --forbid, and those of the file --constraints for each line."""

    always: PhraseConstraints
    by_line: list[PhraseConstraints] | None = None
    path: Path | None = None
    used: int = 0

    @property
    def any(self) -> bool:
        return self.by_line is not None or bool(self.always.require or self.always.forbid)

    def next(self, count: int) -> list[PhraseConstraints] | None:
        """The constraints of the next lines; None if there are none at all."""
        if self.by_line is None:
            return [self.always] * count if self.any else None
        rows = self.by_line[self.used : self.used + count]
        self.used += count
        if len(rows) < count:
            raise UsageError(f"{self.path} has {len(self.by_line)} lines, the text has more: one for each")
        return [self.always + row for row in rows]

    def check_all_used(self) -> None:
        if self.by_line is not None and self.used < len(self.by_line):
            raise UsageError(f"{self.path} has {len(self.by_line)} lines, the text {self.used}: one for each")


def read_constraints(
    require: list[str] | None, forbid: list[str] | None, path: Path | None
) -> LineConstraints:
    from regard.data.files import lines
    from regard.tasks import PhraseConstraints

    always = PhraseConstraints(tuple(require or ()), tuple(forbid or ()))
    if path is None:
        return LineConstraints(always)
    rows = [parse_constraints(line, f"{path}, line {number}") for number, line in enumerate(lines(path), 1)]
    return LineConstraints(always, rows, path)


def parse_constraints(line: str, where: str) -> PhraseConstraints:
    """`{"require": ["..."], "forbid": ["..."]}`; a blank line has no constraints."""
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
class Translations(LineResults):
    """Lines of text to lines of translation."""

    translator: Translator
    decode: Decode
    constraints: LineConstraints
    options: LineOptions = LineOptions()

    def __call__(self, lines: list[str], first: int) -> list[str]:
        options = self.options
        translations = self.translator.translate_lines(
            lines,
            self.decode,
            options.nbest,
            options.alignment,
            options.split,
            None if options.prefix is None else [options.prefix] * len(lines),
            constraints=self.constraints.next(len(lines)),
            too_long=options.too_long,
            first_line=first,
            warn=say,
        )
        results: list[str] = []
        for number, each in enumerate(translations, first):
            self.add_notes(each, number)
            results += [self.as_json(number, each)] if options.as_json else self.as_lines(number, each)
        return results

    def add_notes(self, translation: Translation, line: int) -> None:
        if translation.skipped:
            self.notes.add("skipped: a sentence is too long for the model", line)
        elif not translation.candidates[0].finished:
            self.notes.add("cut off at the length limit (decode.max_length)", line)
        if translation.broken:
            self.notes.add(
                "cut between words, because a sentence is too long for the model (--too-long)", line
            )
        for phrase in translation.disobeyed:
            self.notes.add(f'constraint not met: see "{phrase}"', line)

    def end(self) -> None:
        self.constraints.check_all_used()
        super().end()

    def as_json(self, number: int, translation: Translation) -> str:
        candidates = [candidate_row(self.translator, each) for each in translation.candidates]
        row = {
            "line": number,
            "source": translation.source,
            "text": translation.text,
            "candidates": candidates,
        }
        broken, skipped, disobeyed = translation.broken, translation.skipped, list(translation.disobeyed)
        return json_line(row, {"broken": broken, "skipped": skipped, "disobeyed": disobeyed})

    def as_lines(self, number: int, translation: Translation) -> list[str]:
        from regard.interpret import pharaoh

        lines = []
        for each in translation.candidates:
            text = one_line(each.text)
            if self.options.nbest > 1:
                text = f"{number - 1} ||| {text} ||| {each.score:.4f}"
            elif self.options.scores:
                text = f"{each.score:.4f}\t{text}"
            if self.options.alignment:
                text += f"\t{pharaoh(each.alignment or [])}"
            lines.append(text)
        return lines


@dataclass
class NextWords(LineResults):
    """For each line the most probable words after a prefix, each with the best translation."""

    translator: Translator
    decode: Decode
    prefix: str
    nbest: int  # 1, the default of the option, gives the usual number
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        results: list[str] = []
        count = self.nbest if self.nbest > 1 else USUAL_ALTERNATIVES
        for number, line in enumerate(lines, first):
            words = self.translator.alternatives(line, self.prefix, count, self.decode)
            if self.as_json:
                rows = [alternative_row(self.translator, each) for each in words]
                row = {"line": number, "source": line, "prefix": self.prefix, "alternatives": rows}
                results.append(json_line(row))
            else:
                results += [
                    f"{number}\t{each.log_probability:.4f}\t{one_line(each.word)}\t{one_line(each.text)}"
                    for each in words
                ]
        return results


def candidate_row(translator: Translator, candidate: Candidate) -> dict[str, object]:
    links = {} if candidate.alignment is None else {"alignment": [list(link) for link in candidate.alignment]}
    return {
        "text": candidate.text,
        "score": candidate.score,
        "log_probability": candidate.log_probability,
        "finished": candidate.finished,
        "pieces": translator.folder.target.tokens(candidate.tokens),
        "piece_log_probabilities": list(candidate.token_log_probabilities),
        **links,
    }


def alternative_row(translator: Translator, word: Alternative) -> dict[str, object]:
    row = {"word": word.word, "word_log_probability": word.log_probability}
    return row | candidate_row(translator, word.candidate)


# --- documents --------------------------------------------------------------------------------------------


def find_document(
    names: list[str] | None, options_of_lines: dict[str, bool], has_document_options: bool
) -> Path | None:
    """The document to translate, if one is named; options that do not fit are refused."""
    from regard.data.formats import FORMATS

    paths = [Path(name) for name in names or [] if name.casefold().endswith(FORMATS) and Path(name).exists()]
    if not paths and has_document_options:
        raise UsageError("--all and --fuzzy are for documents: a .po, .tmx or .xliff file")
    if not paths:
        return None
    if len(names or []) > 1:
        raise UsageError(f"{paths[0]} is translated as a document: give one such file at a time")
    if wrong := [name for name, is_given in options_of_lines.items() if is_given]:
        raise UsageError(f"{', '.join(wrong)}: for lines of text, not for a document such as {paths[0]}")
    return paths[0]


def fill_file(
    path: Path,
    translator: Translator,
    options: Decode,
    split: Split,
    too_long: TooLong,
    everything: bool,
    fuzzy: bool,
    output: Path | None,
) -> None:
    """Translate the untranslated entries of a file; to `output`, or to stdout."""
    from regard.data.formats import open_document
    from regard.storage import write_atomically
    from regard.tasks.documents import fill_document

    document = open_document(path, translator.folder.task)
    if fuzzy and not document.reviewable:
        raise UsageError(f"--fuzzy: {path} has no mark for review; a .po or .xliff has")
    if too_long == "skip":
        raise UsageError("--too-long skip: for lines of text; a document's texts are cut, or it is an error")
    cut = 0

    def translate(lines: Sequence[str]) -> list[str]:
        nonlocal cut
        translations = translator.translate_lines(lines, options, split=split, too_long=too_long)
        cut += sum(each.broken for each in translations)
        return [each.text for each in translations]

    with messages().status("translating"):
        counts = fill_document(document, translate, everything, fuzzy)
    content = document.content()
    if output is None:
        put(content, flush=True)
    else:
        write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
    left = f", {counts.left:,} left because placeholders were lost" if counts.left else ""
    where = f"; wrote {output}" if output is not None else ""
    say(f"{path}: {counts.filled:,} translated{left}, {counts.kept:,} not touched{where}")
    if cut:
        say(f"{cut:,} of its texts cut between words, because they are too long for the model (--too-long)")
