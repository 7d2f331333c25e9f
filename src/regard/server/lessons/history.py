"""What came before: an RNN that carries all in one state, Bahdanau's look back, and the Transformer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise
from statistics import mean
from typing import Any

from regard.data.phrasebook import Phrase, phrases
from regard.interpret import Trace
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distinct, packaged
from regard.storage import models as builtin

FAMILIES = {"rnn": "RNN", "bahdanau": "Bahdanau", "transformer": "Transformer"}
LENGTHS = ((3, 5), (6, 8), (9, 11), (12, 14), (15, 17), (18, 22))  # words of an English sentence, from and to
EACH = 12  # sentences of each length
DRAWN = 1200  # among which they are found
SHOWN = 2
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


@cache
def translations(task: Any, count: int) -> tuple[tuple[str, ...], ...]:
    """Of the first `count` sentences of each length, without beam search: the best word at each step."""
    lines = [each.english for bucket in sentences() for each in bucket[:count]]
    texts = iter(task.translate(lines, beam=1))
    return tuple(tuple(islice(texts, min(count, len(bucket)))) for bucket in sentences())


def shared_words(text: str, right: str) -> float:
    """2 |common words| / (|words of one| + |words of the other|), repeated words counted."""
    one, other = Counter(text.split()), Counter(right.split())
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def right_words(task: Any) -> list[float]:
    """The share of words that a model has in common with the phrasebook's translation, by length."""
    return [mean(map(shared_words, *each)) for each in compared(task)]


def right_sentences(task: Any) -> list[float]:
    """The share of sentences that a model translates exactly as the phrasebook does, by length."""
    return [mean(text == right for text, right in zip(*each)) for each in compared(task)]


def compared(task: Any) -> list[tuple[tuple[str, ...], list[str]]]:
    """Translations and the right ones, by length."""
    by_length = zip(translations(task, EACH), sentences())
    return [(texts, [each.german for each in bucket]) for texts, bucket in by_length if bucket]


def subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


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
def unrolled(given: Given) -> Values:
    """Boxes and arrows: the encoder's states over the words, the last one into the decoder."""
    phrase = sentences()[0][0]
    source, target = phrase.english.split(), phrase.german.split()
    boxes: list[list[Any]] = []
    arrows: list[list[Any]] = []
    for place, word in enumerate(source):
        boxes += [
            [f"x{place}", word, "word", place, 2],
            [f"h{place}", f"h{subscript(place + 1)}", "embedding", place, 1],
        ]
        arrows += [[f"x{place}", f"h{place}"]]
    for place, word in enumerate(target):
        at = len(source) + 0.6 + place
        boxes += [
            [f"s{place}", f"s{subscript(place + 1)}", "forward", at, 1],
            [f"y{place}", word, "word", at, 0],
        ]
        arrows += [[f"s{place}", f"y{place}"]]
    chain = [f"h{place}" for place in range(len(source))] + [f"s{place}" for place in range(len(target))]
    arrows += [[one, other] for one, other in pairwise(chain)]
    last = len(source) - 1
    boxes += [["all", "all that passes", "note", last + 0.8, 1.6]]
    return {"boxes": boxes, "arrows": arrows}


@cell
def lengths(given: Given) -> Values:
    """The share of right words and of exact translations by length."""
    models = {FAMILIES[family]: task for family, task in runners(given)[0].items()}
    words = {name: given(right_words, task) for name, task in models.items()}
    exact = {name: given(right_sentences, task) for name, task in models.items()}
    names, falls = list(words), [each[0] - each[-1] for each in words.values()]
    examples = sentences()[-1][:SHOWN]
    outputs = {name: translations(task, EACH)[-1] for name, task in models.items()}
    tables = [
        {
            "english": each.english,
            "rows": [["right", each.german], *([name, texts[i]] for name, texts in outputs.items())],
        }
        for i, each in enumerate(examples)
    ]
    question = {"options": names, "answer": falls.index(max(falls))}
    per_cent = {
        key: [f"{name} {100 * each[place]:.0f} %" for name, each in words.items()]
        for key, place in (("longest", -1), ("shortest", 0))
    }
    parameters = [f"{name} {task.folder.parameters:,}" for name, task in models.items()]
    places = [f"{low}–{high}" for low, high in LENGTHS]
    ranges = {"each": EACH, "one": 1 / EACH, "first_range": places[0], "last_range": places[-1]}
    seen = {
        "rnn_falls": falls[names.index("RNN")] > 0.1 if "RNN" in names else False,
        "transformer_slips": exact["Transformer"][-1] < 0.9 if "Transformer" in names else False,
    }
    shares = {"places": places, "words": words, "exact": exact, "examples": tables}
    return {**ranges, **question, **per_cent, **seen, "parameters": parameters, **shares}


@cell
def steps(given: Given) -> Values:
    """How many steps lie between the first and the last word of a sentence in an RNN."""
    english = sentences()[3][0].english
    given.note(sentences)
    return {"english": english, "words": len(english.split()), "recurrent": len(english.split()) - 1}


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
        **context_figure(read, output, place, shares[place].tolist()),
        **words,
        "options": distinct(read),
        "answer": best,
        "values": shares,
        "rows": output,
        "columns": read,
    }


def context_figure(read: Sequence[str], written: Sequence[str], place: int, weights: list[float]) -> Values:
    """Boxes and arrows: both directions of the encoder, the joined states, their mixture, and the decoder."""
    boxes: list[list[Any]] = []
    arrows: list[list[Any]] = []
    for j, text in enumerate(read):
        boxes += [
            [f"x{j}", text, "word", j, 4.7],
            [f"b{j}", "←", "embedding", j + 0.23, 3.8],
            [f"f{j}", "→", "embedding", j - 0.23, 3.1],
            [f"h{j}", f"h{subscript(j + 1)}", "end", j, 2.1],
        ]
        arrows += [[f"x{j}", f"b{j}"], [f"x{j}", f"f{j}"], [f"f{j}", f"h{j}"], [f"b{j}", f"h{j}"]]
        arrows += [[f"h{j}", "c", "", weights[j]]]
    for j in range(len(read) - 1):
        arrows += [[f"f{j}", f"f{j + 1}"], [f"b{j + 1}", f"b{j}"]]
    middle = (len(read) - 1) / 2
    word, earlier = written[place], written[place - 1] if place else "start"
    boxes += [
        ["c", "context c", "attention", middle, 1],
        ["before", f"s after {earlier}", "forward", middle - 1.9, 0],
        ["s", "s", "forward", middle, 0],
        ["y", word, "word", middle + 1.3, 0],
    ]
    return {"boxes": boxes, "arrows": [*arrows, ["c", "s"], ["before", "s"], ["s", "y"]]}
