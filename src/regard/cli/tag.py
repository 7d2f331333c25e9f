"""`regard tag`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.answers import Concerns
from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    OneModel,
    Threads,
    portions,
    print_line,
    read_inputs,
    say,
    thread_count,
    writable,
)
from regard.cli.translate import Texts, answer_all, is_typed
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Tagger, Tagging


def tag(
    model: OneModel,
    text: Texts = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="A row for each entity: line, start, end, type, text, with tabs.")
    ] = False,
    conll: Annotated[
        bool, typer.Option("--conll", help="Read a word a line (the first column), write word, tab, tag.")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Find the entities in texts: each line comes back with them marked, as in [PER Ada Lovelace] wrote.

    Start and end are characters of the line, counted from 0; the end is the first one behind. Programs
    should read [bold]--rows[/] or [bold]--json[/]: a text may have brackets of its own.

    [bold]--json[/] gives an object a line

      line, text, entities (each type, start, end, text, score: the probability
      of its least certain word), windows (only if more than 1: a sentence is
      too long for the model and was read in so many parts)

    [bold]Examples[/]

      regard tag -m runs/names "Ada Lovelace lived in London."
      regard tag -m runs/names article.txt --rows | cut -f 4,5 | sort | uniq -c
      regard tag -m runs/names --conll < words.conll > tagged.conll
    """
    from regard.tasks import Tagger, load_as

    output = writable(output)
    if conll + rows + as_json > 1:
        raise UsageError("--rows, --conll and --json are different forms of the result: take one")
    tagger = load_as(Tagger, model, device, thread_count(threads))
    if conll:
        write_conll(tagger, read_inputs(text or []), output)
        return
    answer = Marked(tagger, rows, as_json)
    answer_all(answer, read_inputs(text or []), is_typed(text), output, "tagging", "lines")


@dataclass
class Marked:
    """Lines of text to lines with their entities."""

    tagger: Tagger
    rows: bool
    as_json: bool
    concerns: Concerns = field(default_factory=Concerns)

    def __call__(self, lines: list[str], first: int) -> list[str]:
        results: list[str] = []
        for number, found in enumerate(self.tagger.tag(lines), first):
            if found.windows > 1:
                self.concerns.note("a sentence is too long for the model, and was read in parts", number)
            if self.as_json:
                results.append(as_object(number, found))
            elif self.rows:
                results += as_rows(number, found)
            else:
                results.append(marked(found))
        return results

    def end(self) -> None:
        self.concerns.say()


def as_object(number: int, found: Tagging) -> str:
    row: dict[str, object] = {"line": number, "text": found.text}
    row["entities"] = [asdict(entity) for entity in found.entities]
    return json.dumps(row | ({"windows": found.windows} if found.windows > 1 else {}), ensure_ascii=False)


def as_rows(number: int, found: Tagging) -> list[str]:
    return [
        "\t".join([str(number), str(each.start), str(each.end), each.type, " ".join(each.text.split())])
        for each in found.entities
    ]


def marked(found: Tagging) -> str:
    """The text as it is, with brackets around its entities."""
    parts, at = [], 0
    for each in found.entities:
        parts += [found.text[at : each.start], f"[{each.type} {each.text}]"]
        at = each.end
    return "".join([*parts, found.text[at:]])


def write_conll(tagger: Tagger, lines: Iterable[str], output: Path | None) -> None:
    """Words with their tags, a blank line behind each sentence."""
    results: list[str] = []
    count = 0
    for portion in portions(conll_sentences(lines), AT_ONCE):
        for words, tags in zip(portion, tagger.tag_words(portion, count + 1)):
            results += [*(f"{word}\t{tag}" for word, tag in zip(words, tags)), ""]
        count += len(portion)
        if output is None:
            for line in results:
                print_line(line)
            results = []
    if output is not None:
        from regard.storage import write_text

        write_text(output, "".join(f"{line}\n" for line in results))
        say(f"wrote {count:,} sentences to {output}")


def conll_sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """The first column of each sentence; other columns, such as tags, may be there and are not read."""
    from regard.data.readers.annotated import is_comment, split_tag_columns

    words: list[str] = []
    for line in lines:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if words:
                yield words
            words = []
        elif words or not is_comment(line):
            words.append(split_tag_columns(line)[0])
    if words:
        yield words
