"""`regard translate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.builtin import (
    SAMPLE_LINES,
    builtin_translator,
    document_sample,
    preload_detector,
    with_sample,
)
from regard.cli.terminal import (
    AsJson,
    Beam,
    Device,
    Output,
    Precision,
    Scores,
    Settings,
    Texts,
    Threads,
    answer_lines,
    is_typed,
    open_model,
    parse_options,
    read_inputs,
    writable,
)
from regard.cli.translate_output import (
    LineOptions,
    NextWords,
    Translations,
    fill_file,
    find_document,
    read_constraints,
)
from regard.cli.translate_workers import TranslationJob, translate_in_parts
from regard.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="The model folder, or run/checkpoints/step-N; several are an ensemble; default: built-in.",
    ),
]
NBest = Annotated[int, typer.Option(min=1, help="Candidates a line, as `line ||| text ||| score`.")]
Alignment = Annotated[
    bool, typer.Option("--alignment", help="Add a tab and the word alignment, source-target.")
]
Prefix = Annotated[str | None, typer.Option(help="What every translation begins with.")]
Language = Annotated[
    str | None,
    typer.Option(
        help="Target language, of a multilingual model (fra puts >>fra<< first) or of the built-in."
    ),
]
Splitting = Annotated[
    Literal["auto", "always", "never"], typer.Option(help="Split lines into sentences; auto: long ones.")
]
Require = Annotated[
    list[str] | None, typer.Option(help="Words that every translation must contain; repeatable.")
]
Forbid = Annotated[list[str] | None, typer.Option(help="Words that no translation may contain; repeatable.")]
ByLine = Annotated[
    Path | None,
    typer.Option("--constraints", help='A line each: {"require": ["a phrase"], "forbid": ["another"]}.'),
]
Alternatives = Annotated[
    str | None,
    typer.Option(help="After this beginning, the --nbest most probable next words, each with a translation."),
]
Over = Annotated[
    Literal["cut", "skip", "error"],
    typer.Option("--too-long", help="A sentence too long for the model: cut it, skip its line, or stop."),
]
Everything = Annotated[
    bool, typer.Option("--all", help="In a .po, .tmx or .xliff: also what is translated already.")
]
Fuzzy = Annotated[bool, typer.Option("--fuzzy", help="In a .po or .xliff: mark new translations for review.")]
Workers = Annotated[
    int, typer.Option(min=1, max=1024, help="Processes for a large file; requires -o; can be resumed.")
]


def translate(
    model: Models = None,
    text: Texts = None,
    beam: Beam = None,
    nbest: NBest = 1,
    scores: Scores = False,
    alignment: Alignment = False,
    as_json: AsJson = False,
    option: Settings = None,
    prefix: Prefix = None,
    language: Language = None,
    require: Require = None,
    forbid: Forbid = None,
    constraints: ByLine = None,
    alternatives: Alternatives = None,
    split: Splitting = "auto",
    too_long: Over = "cut",
    output: Output = None,
    everything: Everything = False,
    fuzzy: Fuzzy = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
    workers: Workers = 1,
) -> None:
    """Translate lines of text, or the untranslated entries of a .po, .tmx, .xliff or .srt.

    [bold]--json[/] gives an object a line

      line, source, text, candidates (best first), and where they apply
      broken (a sentence was cut), skipped, disobeyed (constraints not met);
      a candidate has text, score, log_probability,
      finished (false: cut off at the length limit),
      pieces, piece_log_probabilities (tokens, with the end of each sentence),
      alignment (with --alignment: pairs of words, source and target)

    [bold]Examples[/]

      regard translate "I would like to read this book."
      regard translate -m runs/demo article.txt -o article.de.txt
      regard translate -m runs/demo "The cat sleeps." --nbest 3 --beam 5
      regard translate -m runs/demo "The cat sleeps." --require Kater --forbid Katze
      regard translate -m runs/demo "The cat sleeps." --alternatives "Die"
      regard translate -m runs/demo messages.po -o messages.de.po
    """
    preload_detector(model, language, text or [])
    output = writable(output)
    phrases = read_constraints(require, forbid, constraints)
    shown = LineOptions(nbest, scores, alignment, as_json, split, prefix, too_long)
    document = check_options(shown, phrases.any, alternatives is not None, text, everything or fuzzy)
    lines, typed = read_inputs(text or []), is_typed(text)
    if model is None:
        model, lines = choose_builtin(lines, language, document, 1 if typed else SAMPLE_LINES)
        language = None
    options = parse_options(option, beam, nbest)
    if workers > 1:
        place = check_workers(output, document, alternatives)
        job = TranslationJob(tuple(model), options, shown, language, device, threads, precision)
        translate_in_parts(job, lines, phrases, workers, place)
        return
    from regard.tasks import decode_options  # imports torch: after all checks

    translator = open_model(model, device, threads, precision, language)
    decode = decode_options(translator.folder.decode, options)
    if document is not None:
        fill_file(document, translator, decode, split, too_long, everything, fuzzy, output)
    elif alternatives is not None:
        answer_lines(NextWords(translator, decode, alternatives, nbest, as_json), lines, typed, output)
    else:
        answer_lines(Translations(translator, decode, phrases, shown), lines, typed, output)


def choose_builtin(
    lines: Iterable[str], language: str | None, document: Path | None, count: int
) -> tuple[list[Path], Iterator[str]]:
    """The built-in model for the language of the first `count` lines, and all the lines."""
    sample, every = ("", iter(lines)) if document is not None else with_sample(lines, count)
    return [builtin_translator(document_sample(document) if document else sample, language)], every


def check_workers(output: Path | None, document: Path | None, alternatives: str | None) -> Path:
    """Several processes translate lines only, and need a file."""
    if output is None:
        raise UsageError("--workers: give the file to write with -o; what is done is kept beside it")
    if document is not None or alternatives is not None:
        which = f"{document} is a document" if document is not None else "--alternatives"
        raise UsageError(f"--workers: for lines of text ({which}); leave it out")
    return output


def check_options(
    options: LineOptions, constraints: bool, alternatives: bool, names: list[str] | None, for_document: bool
) -> Path | None:
    """Refuse options that have no effect with --alternatives or a document; the document, if there is one."""
    given = options.given(constraints, alternatives)
    if alternatives:
        others = {**given, "--split": options.split != "auto", "--too-long": options.too_long != "cut"}
        fitting = ("--nbest", "--json", "--alternatives")
        if wrong := [name for name, is_given in others.items() if is_given and name not in fitting]:
            raise UsageError(f"{', '.join(wrong)}: not with --alternatives; leave one of them out")
    return find_document(names, given, for_document)
