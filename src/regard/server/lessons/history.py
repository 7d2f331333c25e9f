"""What came before: an RNN that carries all in one state, Bahdanau's look back, and the Transformer."""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.data.phrasebook import Phrase, phrases
from regard.interpret import Trace
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distinct, packaged
from regard.storage import models as builtin

FAMILIES = {"rnn": "RNN", "bahdanau": "Bahdanau", "transformer": "Transformer"}
LENGTHS = ((3, 5), (6, 8), (9, 11), (12, 14), (15, 17), (18, 22))  # words of an English sentence, from and to
EACH = 6  # sentences of each length: a lesson opens in seconds
DRAWN = 1200  # among which they are found
SHOWN = 3
REPAIR = "“python recipes/lessons.py” in the project's folder trains them"


def runners(given: Given) -> tuple[dict[str, Any], list[str]]:
    """The small models by family: those that were opened, else those of the package; and what is missing."""
    names = {family: f"phrasebook-{family}" for family in FAMILIES}
    available = {*given.models, *builtin.names()}
    if not available & {*names.values()}:
        wanted = ", ".join(names.values())
        raise LessonUnavailable(
            f"This lesson compares three small models: {wanted}. None of them is here; {REPAIR}."
        )
    here = {family: name for family, name in names.items() if name in available}
    models = {family: given.models.get(name) or packaged(name) for family, name in here.items()}
    return models, [name for name in names.values() if name not in available]


@cache
def sentences() -> tuple[tuple[Phrase, ...], ...]:
    """Sentences of the phrasebook that no model was trained on, the first of each length."""
    by_length: list[list[Phrase]] = [[] for _ in LENGTHS]
    for phrase in phrases("test", DRAWN):
        words = len(phrase.english.split())
        for (low, high), bucket in zip(LENGTHS, by_length):
            if low <= words <= high and len(bucket) < EACH:
                bucket.append(phrase)
    return tuple(map(tuple, by_length))


def translated(task: Any, lines: tuple[Phrase, ...]) -> list[str]:
    """Without beam search: the best word at each step."""
    texts: list[str] = task.translate([each.english for each in lines], beam=1)
    return texts


def right(task: Any) -> list[float]:
    """The share of sentences that a model translates exactly as the phrasebook does, by length."""
    shares = []
    for bucket in sentences():
        outputs = translated(task, bucket)
        shares.append(sum(text == each.german for text, each in zip(outputs, bucket)) / max(1, len(bucket)))
    return shares


def carried(trace: Trace) -> int:
    """How many numbers the writer has of the source: one state, or all states of the reader."""
    for name in ("decoder.cross.value", "encoder.out"):
        if name in trace:
            return trace[name].numel()
    return trace["decoder.first"].numel()


@cell
def bottleneck(given: Given) -> Values:
    """How many numbers the writer has of a short source and of a long one."""
    models, missing = runners(given)
    pair = sentences()[0][0], sentences()[-1][0]
    sizes = {
        family: [given(carried, given(task.trace, each.english, each.german)) for each in pair]
        for family, task in models.items()
    }
    family = "rnn" if "rnn" in models else next(iter(models))
    tokenizer = next(iter(models.values())).folder.source
    tokens = [len(tokenizer.encode(each.english)) for each in pair]
    texts = {"short": pair[0].english, "long": pair[1].english, "missing": missing, "repair": REPAIR}
    numbers = {
        "family": FAMILIES[family],
        "recurrent": family == "rnn",
        "sizes": sizes[family],
        "tokens": tokens,
    }
    return {**texts, **numbers, "rows": [[FAMILIES[name], *each] for name, each in sizes.items()]}


@cell
def lengths(given: Given) -> Values:
    """The share of exact translations by length."""
    models = {FAMILIES[family]: task for family, task in runners(given)[0].items()}
    scores = {name: given(right, task) for name, task in models.items()}
    names, last = list(scores), [each[-1] for each in scores.values()]
    tie = last.count(min(last)) > 1
    examples = sentences()[-1][:SHOWN]
    outputs = {name: translated(task, examples) for name, task in models.items()}
    tables = [
        {
            "english": each.english,
            "rows": [["right", each.german], *([n, texts[i]] for n, texts in outputs.items())],
        }
        for i, each in enumerate(examples)
    ]
    question = {
        "options": [*names, "no single one of them"],
        "answer": len(names) if tie else last.index(min(last)),
    }
    per_cent = {
        key: [f"{name} {100 * each[place]:.0f} %" for name, each in scores.items()]
        for key, place in (("longest", -1), ("shortest", 0))
    }
    parameters = [f"{name} {task.folder.parameters:,}" for name, task in models.items()]
    ranges = {"each": EACH, "from": LENGTHS[-1][0], "to": LENGTHS[-1][1], "parameters": parameters}
    places = [f"{low}–{high}" for low, high in LENGTHS]
    return {**ranges, **question, **per_cent, "places": places, "series": scores, "examples": tables}


@cell
def looking_back(given: Given) -> Values | None:
    """Bahdanau's weights on a sentence of the phrasebook."""
    task = runners(given)[0].get("bahdanau")
    if task is None:
        return None
    phrase = sentences()[1][0]
    trace = given(task.trace, phrase.english, phrase.german)
    shares = given(trace.alignment_weights)
    output, read = trace.tokens["output"].word_texts, trace.tokens["source"].word_texts
    place = max(range(len(output)), key=lambda each: len(output[each]))
    best, width = int(shares[place].argmax()), trace["decoder.cross.value"].shape[-1]
    words = {"word": output[place], "best": read[best], "weight": shares[place, best]}
    texts = {"english": phrase.english, "german": phrase.german, "width": width, "half": width // 2}
    return {
        **texts,
        **words,
        "options": distinct(read),
        "answer": best,
        "values": shares,
        "rows": output,
        "columns": read,
    }
