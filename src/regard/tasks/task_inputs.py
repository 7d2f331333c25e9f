"""The model input of each task for one text, as traces need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.errors import UsageError
from regard.generation.heads import predicted_tags, ranked_answers
from regard.inputs.frames import FrameReader
from regard.inputs.text.spans import mask
from regard.inputs.text.tokenizer import replace_surrogates
from regard.models.transformer import EncoderDecoder
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.encoder import Answerer, Classifier
from regard.tasks.filler import Filler
from regard.tasks.generator import Generator
from regard.tasks.media import open_raw, open_source
from regard.tasks.tagger import Tagger, find_words
from regard.tasks.translator import Translator

ReadOutput = Callable[[Tensor], tuple[str, list[tuple[int, int]]]]  # logits -> text, its (token, class)


@dataclass(frozen=True)
class TaskInput:
    """A text as the model of its task reads it."""

    folder: Folder
    sample: Sample  # its source
    text: str
    read_output: ReadOutput | None = None  # of an encoder: its output from the logits
    raw: Any = None  # of a picture or sound: its stored form


def task_input(task: Any, text: str, context: str | None) -> TaskInput:
    if not isinstance(text, str):
        raise UsageError("trace one text at a time, as a string")
    text = replace_surrogates(text)
    if not text.strip():
        raise UsageError("the text is empty: there is nothing to trace")
    if isinstance(task.folder.input, FrameReader):
        return frame_input(task, text, context)
    if context is not None and not isinstance(task, Answerer):
        raise UsageError("only question answering takes a context")
    for kind, make in INPUTS.items():
        if isinstance(task, kind):
            return make(task, text, context)
    raise UsageError(f"a {type(task).__name__} cannot be traced")


def frame_input(task: Any, place: str, question: str | None) -> TaskInput:
    """A picture or sound: a path, or a data URL."""
    folder: Folder = task.folder
    file = open_source(place)
    raw, name = open_raw(folder.reader, file), file.name
    sample = Sample(source=folder.reader.frames(raw))
    if not isinstance(task, Classifier):
        return TaskInput(folder, sample, name, raw=raw)

    def read_output(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        labels = task.result(name, logits[0], None, truncated=False).labels
        return ", ".join(each.name for each in labels), [(0, task.labels.index(each.name)) for each in labels]

    return TaskInput(folder, sample, name, read_output, raw)


def translate_input(task: Translator, text: str, _: str | None) -> TaskInput:
    if len(task.folders) > 1:
        raise UsageError("an ensemble cannot be traced; trace one of its models")
    count = task.objective.placeholders
    read = mask(text.strip(), count).text if count else text.strip()
    ids = task.folder.source.encode(task.source_prefix + read)
    check_length(len(ids), task.longest)
    task.check_language()
    folder = replace(task.folder, special=task.special)
    return TaskInput(folder, task.objective.source_sample(ids), text)


def generate_input(task: Generator, text: str, _: str | None) -> TaskInput:
    return TaskInput(task.folder, Sample(source=task.prompt_ids(text)), text)


def fill_input(task: Filler, text: str, _: str | None) -> TaskInput:
    gapped = task.split_gaps(text)
    if isinstance(task.model, EncoderDecoder):
        return TaskInput(task.folder, Sample(source=task.with_sentinels(gapped)), text)
    row = task.with_masks(gapped)

    def read_output(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        spans = task.guess_row(row, logits, 1)
        best = [span.ids[0] for (span,) in spans]
        return task.combine(gapped, spans).text, list(zip(task.gaps(row), best))

    return TaskInput(task.folder, Sample(source=row), text, read_output)


def classify_input(task: Classifier, text: str, _: str | None) -> TaskInput:
    ids = task.folder.source.encode(text)
    check_length(len(ids), task.objective.longest)

    def read_output(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        labels = task.result(text, logits[0], None, truncated=False).labels
        return ", ".join(each.name for each in labels), [(0, task.labels.index(each.name)) for each in labels]

    return TaskInput(task.folder, task.objective.text(ids), text, read_output)


def tag_input(task: Tagger, text: str, _: str | None) -> TaskInput:
    ids, first = task.objective.encode_words([text[start:end] for start, end in find_words(text)])
    check_length(len(ids), task.objective.longest)

    def read_output(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        best = logits.argmax(dim=1).tolist()
        chosen = [(token + 1, best[token + 1]) for token in first if token is not None]  # after the start
        return " ".join(predicted_tags(logits, first, task.labels)), chosen

    return TaskInput(task.folder, task.objective.text(ids), text, read_output)


def answer_input(task: Answerer, text: str, context: str | None) -> TaskInput:
    if context is None:
        raise UsageError("a question needs a text to answer it from: give it as context")
    context = replace_surrogates(context)
    windows = task.windows(text, context, 1)
    if len(windows) > 1:
        limit = task.objective.max_length
        raise UsageError(f"question and context are too long to trace: the model reads {limit} tokens")

    def read_output(logits: Tensor) -> tuple[str, list[tuple[int, int]]]:
        threshold = 0.0 if task.folder.may_refuse else None
        longest = task.folder.task.longest_answer
        span = ranked_answers(context, windows, [logits], longest, threshold)[0]
        ends = windows[0].places(span.start, span.end) if span.text else (0, 0)
        return span.text, [(ends[0], 0), (ends[1], 1)]

    return TaskInput(task.folder, task.objective.text(windows[0]), text, read_output)


INPUTS: dict[type[Any], Callable[[Any, str, str | None], TaskInput]] = {
    Translator: translate_input,
    Generator: generate_input,
    Filler: fill_input,
    Classifier: classify_input,
    Tagger: tag_input,
    Answerer: answer_input,
}


def check_length(tokens: int, limit: int) -> None:
    if tokens > limit:
        raise UsageError(f"a text of {tokens} tokens is too long to trace: the model reads {limit}")
