"""`regard classify`, `regard tag` and `regard embed`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    AT_ONCE,
    AsJson,
    Device,
    LineResults,
    OneModel,
    Output,
    Texts,
    Threads,
    TooLong,
    answer_texts,
    json_line,
    one_line,
    portions,
    put_lines,
    read_inputs,
    say,
    thread_count,
    writable,
)
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Classification, Classifier, Embedder, Embedding, Tagger, Tagging
    from regard.tasks import TooLong as TooLongName
    from regard.tasks.embedder import Vector


def classify(
    model: OneModel,
    text: Texts = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add a tab and the probability.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All labels with their probabilities, the best first.")
    ] = False,
    as_json: AsJson = False,
    too_long: TooLong = "cut",
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Classify texts: a line of result for each line of text.

    Of a multi-label model: all labels with p >= 0.5, comma-separated.
    With [bold]--scores[/] and [bold]--all[/] a line is label, tab, probability, tab, next label ...

    [bold]--json[/] gives an object a line

      line, text, labels (best first), probabilities (of all labels),
      and where they apply cut (only the beginning was read), skipped

    [bold]Examples[/]

      regard classify -m runs/reviews "A film to remember."
      regard classify -m runs/reviews reviews.txt --scores -o labels.tsv
    """
    from regard.tasks import Classifier, load_as

    output = writable(output)
    classifier = load_as(Classifier, model, device, thread_count(threads))
    results = Labels(classifier, scores or everything, everything, as_json, too_long)
    answer_texts(results, text, output, "classifying", "results")


@dataclass
class Labels(LineResults):
    """Lines of text to lines of labels."""

    classifier: Classifier
    scores: bool
    everything: bool
    as_json: bool
    too_long: TooLongName

    def __call__(self, lines: list[str], first: int) -> list[str]:
        count = len(self.classifier.labels) if self.everything else None
        results = self.classifier.classify(lines, count, too_long=self.too_long, first=first)
        for number, each in enumerate(results, first):
            self.notes.add_too_long(each.skipped, each.cut, number)
        return [self.line(number, each) for number, each in enumerate(results, first)]

    def line(self, number: int, result: Classification) -> str:
        names = [label.name for label in result.labels]
        if self.as_json:
            row = {"line": number, "text": result.text, "labels": names}
            row["probabilities"] = dict(result.probabilities)
            return json_line(row, {"cut": result.cut, "skipped": result.skipped})
        if not self.scores:
            return ",".join(names)
        return "\t".join(f"{label.name}\t{label.probability:.4f}" for label in result.labels)


# --- tag --------------------------------------------------------------------------------------------------


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
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Tag the entities in texts: each line is printed with them marked, as in [PER Ada Lovelace] wrote.

    Start and end are characters of the line, counted from 0; the end is exclusive. Programs
    should read [bold]--rows[/] or [bold]--json[/]: a text may contain brackets.

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
    answer_texts(Entities(tagger, rows, as_json), text, output, "tagging", "lines")


@dataclass
class Entities(LineResults):
    """Lines of text to lines with their entities."""

    tagger: Tagger
    rows: bool
    as_json: bool

    def __call__(self, lines: list[str], first: int) -> list[str]:
        results: list[str] = []
        for number, tagging in enumerate(self.tagger.tag(lines), first):
            if tagging.windows > 1:
                self.notes.add("a sentence is too long for the model, and was read in parts", number)
            results += self.lines(number, tagging)
        return results

    def lines(self, number: int, tagging: Tagging) -> list[str]:
        if self.as_json:
            row = {
                "line": number,
                "text": tagging.text,
                "entities": [asdict(each) for each in tagging.entities],
            }
            return [json_line(row, {"windows": tagging.windows if tagging.windows > 1 else 0})]
        if self.rows:
            return [
                "\t".join(
                    [str(number), str(each.start), str(each.end), each.type, " ".join(each.text.split())]
                )
                for each in tagging.entities
            ]
        return [with_brackets(tagging)]


def with_brackets(tagging: Tagging) -> str:
    """The text, with brackets around its entities."""
    parts, at = [], 0
    for each in tagging.entities:
        parts += [tagging.text[at : each.start], f"[{each.type} {each.text}]"]
        at = each.end
    return "".join([*parts, tagging.text[at:]])


def write_conll(tagger: Tagger, lines: Iterable[str], output: Path | None) -> None:
    """Words with their tags, a blank line after each sentence."""
    results: list[str] = []
    count = 0
    for portion in portions(conll_sentences(lines), AT_ONCE):
        for words, tags in zip(portion, tagger.tag_words(portion, count + 1)):
            results += [*(f"{word}\t{tag}" for word, tag in zip(words, tags)), ""]
        count += len(portion)
        if output is None:
            put_lines(results, None, "")
            results = []
    if output is not None:
        put_lines(results, output, f"{count:,} sentences")


def conll_sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """The first column of each sentence; other columns, such as tags, are ignored."""
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


# --- embed ------------------------------------------------------------------------------------------------


def embed(
    model: OneModel,
    text: Texts = None,
    similar: Annotated[
        bool, typer.Option("--similarity", help="Cosine similarity of the first text and each other one.")
    ] = False,
    npy: Annotated[
        Path | None, typer.Option("--npy", help="Write a float32 array [texts, width] for NumPy.")
    ] = None,
    as_json: AsJson = False,
    too_long: TooLong = "cut",
    output: Output = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Compute sentence embeddings: a JSON list of numbers for each line of text.

    Any BERT folder works. Its sentence-transformers files set the pooling; the default is the mean.
    With [bold]--similarity[/] a line is the cosine, a tab and the text.

    [bold]--json[/] gives an object a line

      line, text, vector (with --similarity: similarity),
      and where they apply cut (only the beginning was read), skipped

    [bold]Examples[/]

      regard embed -m sentence-transformers/all-MiniLM-L6-v2 "A small house."
      regard embed -m minilm sentences.txt --npy sentences.npy
      regard embed -m minilm --similarity "A small house." "A tiny home." "It rains."
    """
    from regard.tasks import Embedder, load_as

    output, npy = writable(output), writable(npy)
    if npy is not None and (similar or as_json or output is not None):
        raise UsageError(
            "--npy writes the vectors and nothing else: without --similarity, --json and --output"
        )
    embedder = load_as(Embedder, model, device, thread_count(threads))
    if not embedder.pooling.configured:
        say("the folder does not set the pooling of its hidden states: using the mean")
    results = Vectors(embedder, too_long, as_json, npy is not None)
    if similar:
        results = Similarities(embedder, too_long, as_json)
    answer_texts(results, text, output, "embedding", "results")
    if npy is not None:
        write_array(npy, embedder.as_array(results.embeddings))


@dataclass
class Vectors(LineResults):
    """Lines of text to lines of numbers, or to no lines but a list of embeddings."""

    embedder: Embedder
    too_long: TooLongName
    as_json: bool
    keep: bool = False
    embeddings: list[Embedding] = field(default_factory=list)

    def __call__(self, lines: list[str], first: int) -> list[str]:
        results = self.embedder.embed(lines, too_long=self.too_long, first=first)
        for number, each in enumerate(results, first):
            self.notes.add_too_long(each.skipped, each.cut, number)
            if not each.text.strip():
                self.notes.add("empty: its vector is that of no words", number)
        if self.keep:
            self.embeddings += results
            return []
        return [line for number, each in enumerate(results, first) for line in self.lines(each, number)]

    def lines(self, embedding: Embedding, number: int) -> list[str]:
        # the fewest digits that give the same float32 again
        vector = "null" if embedding.vector is None else f"[{', '.join(map(str, embedding.vector))}]"
        return [self.object(embedding, number, f'"vector": {vector}') if self.as_json else vector]

    def object(self, embedding: Embedding, number: int, result: str) -> str:
        head = json_line({"line": number, "text": embedding.text})
        marks = {"cut": embedding.cut, "skipped": embedding.skipped}
        tail = "".join(f', "{name}": true' for name, mark in marks.items() if mark)
        return f"{head[:-1]}, {result}{tail}}}"


@dataclass
class Similarities(Vectors):
    """The cosine similarity of the first text and each of the others."""

    first: Vector | None = None
    count: int = 0

    def lines(self, embedding: Embedding, number: int) -> list[str]:
        from regard.tasks.embedder import similarity

        self.count += 1
        if self.count == 1:
            if embedding.vector is None:
                raise UsageError(
                    f"line {number}: the first text is too long, and all others are compared to it"
                )
            self.first = embedding.vector
            return []
        if embedding.vector is None or self.first is None:
            cosine = "null" if self.as_json else "nan"
        else:
            cosine = f"{similarity(self.first, embedding.vector):.4f}"
        if self.as_json:
            return [self.object(embedding, number, f'"similarity": {cosine}')]
        return [f"{cosine}\t{one_line(embedding.text)}"]

    def end(self) -> None:
        if self.count < 2:
            raise UsageError("--similarity compares the first text to others: give at least two")
        super().end()


def write_array(path: Path, array: Vector) -> None:
    import numpy as np

    from regard.storage import write_atomically

    content = io.BytesIO()
    np.save(content, array)
    write_atomically(path, content.getvalue())
    say(f"wrote {array.shape[0]:,} vectors of {array.shape[1]:,} numbers to {path}")
