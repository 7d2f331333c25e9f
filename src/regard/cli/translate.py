"""`regard translate`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import typer

from regard.cli.answers import Lines, NextWords, read_wishes
from regard.cli.builtin import (
    SAMPLE_LINES,
    builtin_translator,
    document_sample,
    preload_detector,
    with_sample,
)
from regard.cli.documents import Everything, Fuzzy, document_among, fill_file
from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    Precision,
    Threads,
    messages,
    open_model,
    portions,
    print_line,
    read_inputs,
    say,
    writable,
)
from regard.cli.workers import Job, translate_in_parts
from regard.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from regard.config import Decode
    from regard.tasks import Translator

Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="The model folder, or run/checkpoints/step-N; several are an ensemble; else the package's own.",
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(help="Texts or files; nothing or - reads stdin.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.")]
NBest = Annotated[int, typer.Option(min=1, help="Candidates a line, as `line ||| text ||| score`.")]
Scores = Annotated[bool, typer.Option("--scores", help="Put the score and a tab before the text.")]
Alignment = Annotated[
    bool, typer.Option("--alignment", help="Add a tab and the word alignment, source-target.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the section decode: --set length_penalty=0.6."),
]
Prefix = Annotated[str | None, typer.Option(help="What every translation begins with.")]
Language = Annotated[
    str | None,
    typer.Option(
        help="To translate into, where a model knows several (fra puts >>fra<< first), or by the package."
    ),
]
Splitting = Annotated[
    Literal["auto", "always", "never"], typer.Option(help="Cut lines into sentences; auto: long ones.")
]
Require = Annotated[
    list[str] | None, typer.Option(help="Words that every translation must hold; may come several times.")
]
Forbid = Annotated[
    list[str] | None, typer.Option(help="Words that no translation may hold; may come several times.")
]
ByLine = Annotated[
    Path | None,
    typer.Option("--constraints", help='A line each: {"require": ["a phrase"], "forbid": ["another"]}.'),
]
Alternatives = Annotated[
    str | None,
    typer.Option(help="After this beginning, the --nbest most probable next words and how each goes on."),
]
Over = Annotated[
    Literal["cut", "skip", "error"],
    typer.Option("--too-long", help="A sentence too long for the model: cut it, skip its line, or stop."),
]
Workers = Annotated[
    int, typer.Option(min=1, max=1024, help="Processes for a large file; needs -o, and can be gone on with.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")]


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
      broken (a sentence was cut), skipped, disobeyed (phrases not as wished);
      a candidate has text, score, log_probability,
      finished (false: cut off at the length limit),
      pieces, piece_log_probabilities (with the end of each sentence),
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
    wishes = read_wishes(require, forbid, constraints)
    marked = lines_only(nbest, scores, alignment, as_json, prefix, wishes.any, alternatives)
    check_alternatives(marked, split, too_long)
    document = document_among(text, marked, everything or fuzzy)
    lines, typed = read_inputs(text or []), is_typed(text)
    if model is None:
        model, language, lines = own(lines, language, document, 1 if typed else SAMPLE_LINES)
    shown = (nbest, scores, alignment, as_json, split, prefix, too_long)
    options = parse_options(option, beam, nbest)
    if workers > 1:
        place = check_workers(output, document, alternatives)
        job = Job(tuple(model), options, *shown, language, device, threads, precision)
        translate_in_parts(job, lines, wishes, workers, place)
        return
    translator = open_model(model, device, threads, precision, language)
    chosen = with_options(translator, options)
    if document is not None:
        fill_file(document, translator, chosen, split, too_long, everything, fuzzy, output)
        return
    answer: Answering = Lines(translator, chosen, wishes, *shown)
    if alternatives is not None:
        answer = NextWords(translator, chosen, alternatives, nbest, as_json)
    answer_all(answer, lines, typed, output)


def with_options(translator: Translator, options: dict[str, object]) -> Decode:
    """How it decodes: as its folder says, but for what was asked."""
    from regard.tasks import decode_options

    return decode_options(translator.folder.decode, options)


def own(
    lines: Iterable[str], language: str | None, document: Path | None, read: int
) -> tuple[list[Path], str | None, Iterator[str]]:
    """The package's model for these lines, what is still to be said of the language, and all the lines."""
    sample, every = ("", iter(lines)) if document is not None else with_sample(lines, read)
    return [builtin_translator(document_sample(document) if document else sample, language)], None, every


def check_workers(output: Path | None, document: Path | None, alternatives: str | None) -> Path:
    """Several processes are for lines, and their portions lie beside the output."""
    if output is None:
        raise UsageError("--workers: give the file to write with -o; what is done is kept beside it")
    if document is not None or alternatives is not None:
        which = f"{document} is a document" if document is not None else "--alternatives"
        raise UsageError(f"--workers: for lines of text ({which}); leave it out")
    return output


class Answering(Protocol):
    """Lines to lines of result; in the end it says what is to be known about them."""

    def __call__(self, lines: list[str], first: int) -> list[str]: ...

    def end(self) -> None: ...


def answer_all(
    answer: Answering,
    lines: Iterable[str],
    interactive: bool,
    output: Path | None,
    doing: str = "translating",
    done: str = "translations",
) -> None:
    """Answer portion by portion: at once on stdout, or in the end into a file."""
    results: list[str] = []
    count = 0
    seen = not interactive and sys.stderr is not None and sys.stderr.isatty()
    with messages().status(doing) if seen else nullcontext() as status:
        for portion in portions(lines, 1 if interactive else AT_ONCE):
            results += answer(portion, count + 1)
            count += len(portion)
            if status is not None:
                status.update(f"{doing}: {count:,} lines")
            if output is None and results:
                for line in results[:-1]:
                    print_line(line)
                print_line(results[-1], flush=True)
                results = []
    if output is not None:
        from regard.storage import write_text

        write_text(output, "".join(f"{line}\n" for line in results))
        say(f"wrote {count:,} {done} to {output}")
    answer.end()


def lines_only(
    nbest: int,
    scores: bool,
    alignment: bool,
    as_json: bool,
    prefix: str | None,
    wishes: bool,
    alternatives: str | None,
) -> dict[str, bool]:
    """Which options were given that say something of a line, and nothing of a document."""
    return {
        "--nbest": nbest > 1,
        "--scores": scores,
        "--alignment": alignment,
        "--json": as_json,
        "--prefix": prefix is not None,
        "--require, --forbid or --constraints": wishes,
        "--alternatives": alternatives is not None,
    }


def check_alternatives(given: dict[str, bool], split: str, too_long: str) -> None:
    """--alternatives gives words, to which most options say nothing."""
    if not given["--alternatives"]:
        return
    others = {**given, "--split": split != "auto", "--too-long": too_long != "cut"}
    fitting = ("--nbest", "--json", "--alternatives")
    if wrong := [name for name, is_given in others.items() if is_given and name not in fitting]:
        raise UsageError(f"{', '.join(wrong)}: not with --alternatives; leave one of them out")


def is_typed(text: list[str] | None) -> bool:
    """Whether a person types the lines; they are told how, and answered line by line."""
    typed = text in (None, [], ["-"]) and sys.stdin is not None and sys.stdin.isatty()
    if typed:
        say("type a sentence a line; Ctrl-D ends")
    return typed


def parse_options(given: list[str] | None, beam: int | None, nbest: int) -> dict[str, object]:
    """`--set field=value` and the short options as fields of [decode]."""
    from regard.config.load import parse_value

    options: dict[str, object] = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each}: write field=value, for example --set length_penalty=0.6")
        options[name.strip().removeprefix("decode.")] = parse_value(value)
    if beam is not None:
        options["beam"] = beam
    elif nbest > 1 and "beam" not in options:
        options["beam"] = max(4, nbest)
    return options
