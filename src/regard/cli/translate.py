"""`regard translate`: lines of text, next words, documents (.po, .tmx, .xliff, .srt)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.builtin import (
    SAMPLE_LINES,
    builtin_translator,
    document_sample,
    preload_detector,
    with_sample,
)
from regard.cli.tasks import AT_ONCE, CandidateCommand
from regard.cli.terminal import Notes, is_typed, json_line, messages, one_line, put, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.tasks import PhraseConstraints, Translation

USUAL_ALTERNATIVES = 5
REFUSED = "refused"  # how such notes begin
NEXT_WORD_OPTIONS = ("--num-results", "--json", "--alternatives")  # with --alternatives


@dataclass
class TranslateCommand(CandidateCommand):
    name = "translate"
    progress = ("translating", "translations")
    blank = "source"
    notes_on = """
        Translates lines, or the untranslated entries of a .po, .tmx, .xliff or .srt. With -n a line is
        `line ||| text ||| score`. What is done of a file with -o is kept beside it: after Ctrl-C the same
        command continues.
    """
    examples = """
        regard translate "I would like to read this book."
        regard translate -m runs/demo article.txt -o article.de.txt
        regard translate -m runs/demo "The cat sleeps." -n 3 --beam 5
        regard translate -m runs/demo "The cat sleeps." --require Kater --forbid Katze
        regard translate -m runs/demo "The cat sleeps." --alternatives "Die"
        regard translate -m runs/demo messages.po -o messages.de.po
    """
    model_type = Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            help="The model folder, or run/checkpoints/step-N; several are an ensemble; default: built-in.",
        ),
    ]

    constraints: Annotated[
        Path | None,
        typer.Option("--constraints", help='A line each: {"require": ["a phrase"], "forbid": ["another"]}.'),
    ] = None
    alternatives: Annotated[
        str | None,
        typer.Option(help="After this beginning, the -n most probable next words, each with a translation."),
    ] = None
    everything: Annotated[
        bool, typer.Option("--all", help="In a .po, .tmx or .xliff: also what is translated already.")
    ] = False
    fuzzy: Annotated[
        bool, typer.Option("--fuzzy", help="In a .po or .xliff: mark new translations for review.")
    ] = False
    workers: Annotated[
        int, typer.Option(min=1, max=1024, help="Processes for a large file, or with --on; requires -o.")
    ] = 1
    by_line: list[Any] | None = field(init=False, default=None)  # the rows of the file --constraints

    def run(self) -> None:
        if self.on is not None:
            super().run()
            return
        preload_detector(self.texts)
        self.by_line = read_constraints(self.constraints) if self.constraints else None
        document = self.check_options()
        lines, typed = self.read(), is_typed(self.names)
        if self.model is None:
            lines = self.choose_builtin(lines, document, 1 if typed else SAMPLE_LINES)
        if document is not None:
            self.open()
            self.fill_document(document)
        elif self.output and not typed and self.alternatives is None and self.may_continue(self.output):
            from regard.cli.translate_workers import translate_in_parts

            translate_in_parts(self, lines, self.workers, self.output)
        else:
            self.open()
            self.write(lines, 1 if typed else AT_ONCE)

    def choose_builtin(self, lines: Iterable[str], document: Path | None, count: int) -> Iterable[str]:
        """Set the built-in model for the language of the first `count` lines; all the lines."""
        sample, lines = (document_sample(document), lines) if document else with_sample(lines, count)
        self.model = [builtin_translator(sample, self.options["language"])]
        self.options["language"] = None
        return lines

    def may_continue(self, output: Path) -> bool:
        from regard.storage.files import is_special

        if self.workers > 1 and is_special(output):
            raise UsageError(f"{output} is a device or a pipe; --workers needs a regular file for -o")
        return not is_special(output)

    def results(self, lines: Sequence[str], first: int) -> Sequence[Any]:
        rows = self.line_constraints(first, len(lines))
        return self.spec.run(self.task, lines, self.options, constraints=rows, first_line=first, warn=say)

    def line_constraints(self, first: int, count: int) -> list[PhraseConstraints] | None:
        """The phrases of `count` lines, from number `first` on."""
        if self.by_line is None:
            return None
        rows = self.by_line[first - 1 : first - 1 + count]
        if len(rows) < count:
            raise UsageError(
                f"{self.constraints} has {len(self.by_line)} lines, the text has more: one for each"
            )
        return rows

    def check_constraints_used(self) -> None:
        if self.by_line is not None and self.count < len(self.by_line):
            raise UsageError(
                f"{self.constraints} has {len(self.by_line)} lines, the text {self.count}: one for each"
            )

    def lines(self, number: int, result: Translation) -> list[str]:
        if not self.options["alignment"]:
            return super().lines(number, result)
        from regard.interpret import pharaoh

        shown = super().lines(number, result)
        return [f"{line}\t{pharaoh(each.alignment or [])}" for line, each in zip(shown, result.candidates)]

    def add_notes(self, number: int, result: Translation) -> None:
        if result.skipped:
            self.notes.add("skipped: a sentence is too long for the model", number)
        elif not result.candidates[0].finished:
            self.notes.add("cut off at the length limit (decode.max_length)", number)
        if result.split:
            self.notes.add(
                "split between words, because a sentence is too long for the model (--on-too-long)", number
            )
        for phrase in result.unmet:
            self.notes.add(f'constraint not met: see "{phrase}"', number)
        if doubt := self.doubt(result):
            self.notes.add(doubt, number)
        if result.lost:
            self.notes.add("the translation lacks numbers, addresses or tags of the text: check them", number)

    def doubt(self, result: Translation) -> str:
        """Why a translation may be wrong; empty if it seems right."""
        reads, least = self.task.folder.task.source, self.options["min_confidence"]
        if result.refused and result.language is None:
            return f"{REFUSED}, the confidence is below {least:g} (--min-confidence)"
        if result.language is not None:
            other = "left as it is" if result.kept else "translated all the same"
            what = REFUSED if result.refused else other
            return f'{what}, the text seems to be "{result.language}", not "{reads}" (--other-language)'
        if result.kept:
            return "left as it is, at least in part, because no translation passed the checks (--no-check)"
        if self.is_doubtful(result):
            return (
                f"the translation is probably wrong (confidence below {self.task.confidence.warn_below:.2f})"
            )
        return ""

    def is_doubtful(self, result: Translation) -> bool:
        """Whether the text is not, or probably not, a translation."""
        fitted = self.task.confidence
        is_low = fitted is not None and (result.confidence or 0.0) < fitted.warn_below
        return result.kept or result.refused or is_low

    def write(self, rows: Iterable[Any], at_once: int = AT_ONCE) -> None:
        super().write(rows, at_once)
        self.check_refused(self.notes)

    def check_refused(self, notes: Notes) -> None:
        """The exit code is not 0 if a text was refused."""
        if count := sum(times for kind, times in notes.count.items() if kind.startswith(REFUSED)):
            raise RegardError(
                f"{count:,} {'text was' if count == 1 else 'texts were'} refused", code="E_REFUSED"
            )

    def end(self) -> list[str]:
        self.check_constraints_used()
        return super().end()

    def __call__(self, lines: Sequence[Any], first: int) -> list[str]:
        return (super().__call__ if self.alternatives is None else self.next_words)(lines, first)

    def next_words(self, lines: Sequence[str], first: int) -> list[str]:
        """For each line the most probable words after a prefix, each with the best translation."""
        from regard.tasks.results import as_dict
        from regard.tasks.task_model import decode_fields

        shown: list[str] = []
        count = self.options["num_results"] if self.shows_all else USUAL_ALTERNATIVES
        fields = decode_fields(self.options["decode"], beam=self.options["beam"])
        task = self.task if self.options["language"] is None else self.task.into(self.options["language"])
        options = task.decode_options(fields, 1)
        for number, line in enumerate(lines, first):
            words = task.alternatives(line, self.alternatives or "", count, options)
            if not self.as_json:
                rows = [(number, f"{each.log_probability:.4f}", each.word, each.text) for each in words]
                shown += ["\t".join(one_line(str(cell)) for cell in row) for row in rows]
                continue
            alternatives = [
                {"word": each.word, "word_log_probability": each.log_probability, **as_dict(each.candidate)}
                for each in words
            ]
            row = {"line": number, "source": line, "prefix": self.alternatives, "alternatives": alternatives}
            shown.append(json_line({**row, "precision": task.precision}))
        return shown

    # documents

    def check_options(self) -> Path | None:
        """Refuse options that have no effect here; the document to translate, if one is named."""
        from regard.data.formats import FORMATS

        options = self.options
        constraints = bool(self.constraints or options["require"] or options["forbid"])
        given = {
            "--num-results": self.shows_all,
            "--json": self.as_json,
            "--alternatives": self.alternatives is not None,
            "--scores": self.scores,
            "--alignment": options["alignment"],
            "--prefix": options["prefix"] is not None,
            "--require, --forbid or --constraints": constraints,
            "--workers": self.workers > 1,
        }
        if self.alternatives is not None:
            others = {name: is_given for name, is_given in given.items() if name not in NEXT_WORD_OPTIONS}
            others["--split"] = options["split"] != "auto"
            others["--on-too-long"] = options["on_too_long"] != "truncate"
            refuse(others, "not with --alternatives; leave one of them out")
        paths = [
            Path(name) for name in self.names if name.casefold().endswith(FORMATS) and Path(name).exists()
        ]
        if not paths:
            if self.everything or self.fuzzy:
                raise UsageError("--all and --fuzzy are for documents: a .po, .tmx or .xliff file")
            if self.workers > 1 and self.output is None:
                raise UsageError("--workers: give the file to write with -o; what is done is kept beside it")
            return None
        if len(self.names) > 1:
            raise UsageError(f"{paths[0]} is translated as a document: give one such file at a time")
        refuse(given, f"for lines of text, not for a document such as {paths[0]}")
        if options["on_too_long"] == "skip":
            raise UsageError("--on-too-long skip: for lines of text; texts of a document are split")
        return paths[0]

    def fill_document(self, path: Path) -> None:
        """Translate the untranslated entries of a file; to -o, or to stdout."""
        from regard.data.formats import open_document
        from regard.storage import write_atomically
        from regard.tasks.documents import fill_document

        document = open_document(path, self.task.folder.task)
        if self.fuzzy and not document.reviewable:
            raise UsageError(f"--fuzzy: {path} has no mark for review; a .po or .xliff has")
        split = 0

        def translate(lines: Sequence[str]) -> list[str | None]:
            nonlocal split
            translations = self.spec.run(self.task, lines, self.options)
            split += sum(each.split for each in translations)
            return [None if self.is_doubtful(each) else each.text for each in translations]

        with messages().status("translating"):
            counts = fill_document(document, translate, self.everything, self.fuzzy)
        content, output = document.content(), self.output
        if output is None:
            put(content, flush=True)
        else:
            write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
        left = f", {counts.left:,} left because no translation passed the checks" if counts.left else ""
        where = f"; wrote {output}" if output is not None else ""
        say(f"{path}: {counts.filled:,} translated{left}, {counts.kept:,} not touched{where}")
        if split:
            say(f"{split:,} of its texts split between words: too long for the model (--on-too-long)")


def refuse(given: dict[str, bool], why: str) -> None:
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise UsageError(f"{', '.join(wrong)}: {why}", code="E_OPTION_CONFLICT")


# --- constraints ------------------------------------------------------------------------------------------


def read_constraints(path: Path) -> list[PhraseConstraints]:
    """The phrases of each line of a file."""
    from regard.data.files import lines

    return [parse_constraints(line, f"{path}, line {number}") for number, line in enumerate(lines(path), 1)]


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
