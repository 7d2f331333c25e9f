"""A text as the model of each task reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.generation.score import ranked_answers
from regard.inputs.text.tokenizer import replace_surrogates
from regard.models import EncoderDecoder
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.answerer import Answerer
from regard.tasks.classifier import Classifier
from regard.tasks.filler import Filler, Span
from regard.tasks.generator import Generator
from regard.tasks.tagger import Tagger
from regard.tasks.translator import Translator
from regard.tasks.words import find_words

Told = Callable[[Tensor], tuple[str, list[tuple[int, int]]]]  # logits -> the output, (place, choice) of it


@dataclass(frozen=True)
class Asked:
    """A text as its task's model reads it, before anything is known of the output."""

    folder: Folder
    sample: Sample  # its source
    text: str
    told: Told | None = None  # of a model that writes nothing: what its logits say


def ask(task: Any, text: str, context: str | None) -> Asked:
    if not isinstance(text, str):
        raise UsageError("trace one text at a time, as a string")
    text = replace_surrogates(text)
    if not text.strip():
        raise UsageError("the text is empty: there is nothing to trace")
    if context is not None and not isinstance(task, Answerer):
        raise UsageError("only a model that answers questions reads a context")
    for kind, make in ASKING.items():
        if isinstance(task, kind):
            return make(task, text, context)
    raise UsageError(f"a {type(task).__name__} cannot be traced")


def translated(task: Translator, text: str, _: str | None) -> Asked:
    if len(task.folders) > 1:
        raise UsageError("several models speak as one here; trace one of them")
    ids = task.folder.source.encode(task.before + text.strip())
    too_long(len(ids), task.longest)
    return Asked(task.folder, task.objective.source(ids), text)


def continued(task: Generator, text: str, _: str | None) -> Asked:
    return Asked(task.folder, Sample(source=task.read(text)), text)


def filled(task: Filler, text: str, _: str | None) -> Asked:
    gapped = task.cut(text, "")
    if isinstance(task.model, EncoderDecoder):
        return Asked(task.folder, Sample(source=task.hidden_spans(gapped)), text)
    row = task.hidden_words(gapped)
    silent = [*task.tokenizer.never_said, task.tokenizer.end]

    def told(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        gaps = [place for place, piece in enumerate(row) if piece == task.tokenizer.mask]
        log_p = logits[gaps].log_softmax(dim=1)
        log_p[:, silent] = -torch.inf
        values, best = log_p.max(dim=1)
        spans = [[Span((piece,), value)] for piece, value in zip(best.tolist(), values.tolist())]
        return task.combined(gapped, spans).text, list(zip(gaps, best.tolist()))

    return Asked(task.folder, Sample(source=row), text, told)


def classified(task: Classifier, text: str, _: str | None) -> Asked:
    ids = task.folder.source.encode(text)
    too_long(len(ids), task.objective.longest)

    def told(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        labels = task.result(text, logits[0], None, cut=False).labels
        return ", ".join(each.name for each in labels), [(0, task.labels.index(each.name)) for each in labels]

    return Asked(task.folder, task.objective.text(ids), text, told)


def tagged(task: Tagger, text: str, _: str | None) -> Asked:
    ids, first = task.objective.cut([text[start:end] for start, end in find_words(text)])
    too_long(len(ids), task.objective.longest)

    def told(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        best = logits.argmax(dim=1).tolist()
        places = [(place + 1, best[place + 1]) for place in first if place is not None]  # behind the start
        tags = ["O" if place is None else task.labels[best[place + 1]] for place in first]
        return " ".join(tags), places

    return Asked(task.folder, task.objective.text(ids), text, told)


def answered_in(task: Answerer, text: str, context: str | None) -> Asked:
    if context is None:
        raise UsageError("a question is asked about a text: give it as context")
    context = replace_surrogates(context)
    windows = task.windows(text, context, 1)
    if len(windows) > 1:
        most = task.objective.max_length
        raise UsageError(f"question and context are too long to trace: the model reads {most} pieces at once")

    def told(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        least = 0.0 if task.folder.may_refuse else None
        longest = task.folder.task.longest_answer
        found = ranked_answers(context, windows, [logits], longest, least, 1)[0]
        places = windows[0].places(found.start, found.end) if found.text else (0, 0)
        return found.text, [(places[0], 0), (places[1], 1)]

    return Asked(task.folder, task.objective.text(windows[0]), text, told)


ASKING: dict[type[Any], Callable[[Any, str, str | None], Asked]] = {
    Translator: translated,
    Generator: continued,
    Filler: filled,
    Classifier: classified,
    Tagger: tagged,
    Answerer: answered_in,
}


def too_long(pieces: int, most: int) -> None:
    if pieces > most:
        raise UsageError(f"a text of {pieces} pieces is too long to trace: the model reads {most}")
