"""`regard classify`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.answers import Concerns
from regard.cli.terminal import AsJson, Device, OneModel, Threads, read_inputs, thread_count, writable
from regard.cli.translate import Texts, answer_all, is_typed

if TYPE_CHECKING:
    from regard.tasks import Classification, Classifier, TooLong

Over = Annotated[
    Literal["cut", "skip", "error"],
    typer.Option("--too-long", help="A text too long for the model: read its beginning, skip it, or stop."),
]


def classify(
    model: OneModel,
    text: Texts = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add a tab and the probability.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All labels with their probabilities, the best first.")
    ] = False,
    as_json: AsJson = False,
    too_long: Over = "cut",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Say what texts are: a line of result for each line of text.

    Where a text may have many labels, those that are at least as likely as not, a comma between them.
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
    answer = Labelled(classifier, scores or everything, everything, as_json, too_long)
    answer_all(answer, read_inputs(text or []), is_typed(text), output, "classifying", "results")


@dataclass
class Labelled:
    """Lines of text to lines of labels."""

    classifier: Classifier
    scores: bool
    everything: bool
    as_json: bool
    too_long: TooLong
    concerns: Concerns = field(default_factory=Concerns)

    def __call__(self, lines: list[str], first: int) -> list[str]:
        count = len(self.classifier.labels) if self.everything else None
        found = self.classifier.classify(lines, count, too_long=self.too_long, first=first)
        for number, each in enumerate(found, first):
            if each.skipped:
                self.concerns.note("skipped: too long for the model", number)
            elif each.cut:
                self.concerns.note(
                    "too long for the model, which read only the beginning (--too-long)", number
                )
        if self.as_json:
            return [as_object(number, each) for number, each in enumerate(found, first)]
        return [self.as_line(each) for each in found]

    def end(self) -> None:
        self.concerns.say()

    def as_line(self, found: Classification) -> str:
        if not self.scores:
            return ",".join(label.name for label in found.labels)
        return "\t".join(f"{label.name}\t{label.probability:.4f}" for label in found.labels)


def as_object(number: int, found: Classification) -> str:
    row = {
        "line": number,
        "text": found.text,
        "labels": [label.name for label in found.labels],
        "probabilities": dict(found.probabilities),
    }
    marks = {"cut": found.cut, "skipped": found.skipped}
    return json.dumps(row | {name: mark for name, mark in marks.items() if mark}, ensure_ascii=False)
