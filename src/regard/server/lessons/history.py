"""What came before: an RNN that carries all in one state, Bahdanau's look back, and the Transformer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from regard.data.phrasebook import Phrase, phrases
from regard.interpret import Trace
from regard.server.lessons.content import distinct, formula, lines, matrix, table
from regard.server.lessons.given import Given, Ledger, LessonUnavailable
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion
from regard.storage import models as builtin
from regard.tasks import load

FAMILIES = {"rnn": "RNN", "bahdanau": "Bahdanau", "transformer": "Transformer"}
LENGTHS = ((3, 5), (6, 8), (9, 11), (12, 14), (15, 17), (18, 22))  # words of an English sentence, from and to
EACH = 6  # sentences of each length: a lesson opens in seconds
DRAWN = 1200  # among which they are found
SHOWN = 3
REPAIR = "“python recipes/lessons.py” in the project's folder trains them"


def model_of(family: str) -> str:
    return f"phrasebook-{family}"


@cache
def packaged(name: str) -> Any:
    return load(builtin.find_model(Path(name)), "cpu")


def runners(given: Given) -> dict[str, Any]:
    """The small models by family: those that were opened, else those of the package."""
    available = {*given.models, *builtin.names()}
    names = {family: model_of(family) for family in FAMILIES if model_of(family) in available}
    if not names:
        wanted = ", ".join(map(model_of, FAMILIES))
        raise LessonUnavailable(
            f"This lesson compares three small models: {wanted}. None of them is here; {REPAIR}."
        )
    return {family: given.models.get(name) or packaged(name) for family, name in names.items()}


def absent(models: dict[str, Any]) -> list[str]:
    missing = [model_of(family) for family in FAMILIES if family not in models]
    return [f"Missing here: {', '.join(missing)} ({REPAIR}). The lesson goes on without."] if missing else []


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


def bottleneck(given: Given, ledger: Ledger) -> LessonStep:
    models = runners(given)
    short, long = sentences()[0][0], sentences()[-1][0]
    sizes = {
        family: [ledger(carried, ledger(task.trace, each.english, each.german)) for each in (short, long)]
        for family, task in models.items()
    }
    family = "rnn" if "rnn" in models else next(iter(models))
    one, two = sizes[family]
    rows = [[FAMILIES[name], *pair] for name, pair in sizes.items()]
    tokens = [len(next(iter(models.values())).folder.source.encode(each.english)) for each in (short, long)]
    recurrent = family == "rnn"
    return LessonStep(
        "One state for a whole sentence",
        [
            "Before attention, one recurrent network read the sentence word by word, and another wrote the "
            "translation. All that passed between them was the reader's last state.",
            f"For “{short.english}” the {FAMILIES[family]} hands over {one} numbers.",
            *absent(models),
        ],
        NumberQuestion(f"How many for “{long.english}”?", two, 0.5, 0),
        "The same, however long the sentence is: a bottleneck. The other models hand over one vector for "
        "every token."
        if recurrent
        else f"More: one vector for every token of the source, {tokens[1]} instead of {tokens[0]}.",
        before=formula("hₜ = f(xₜ, hₜ₋₁)"),
        after=table(
            "Numbers that the writer has of the source",
            ["model", "short sentence", "long sentence"],
            rows,
            0,
        ),
    )


def longer(given: Given, ledger: Ledger) -> LessonStep:
    models = runners(given)
    scores = {FAMILIES[family]: ledger(right, task) for family, task in models.items()}
    names = list(scores)
    worst = min(names, key=lambda name: scores[name][-1])
    last = [scores[name][-1] for name in names]
    tie = last.count(min(last)) > 1
    options = [*names, "no single one of them"]
    example = sentences()[-1][:SHOWN]
    outputs = {FAMILIES[family]: translated(task, example) for family, task in models.items()}
    middle = [f"{low}–{high}" for low, high in LENGTHS]
    return LessonStep(
        "Longer and longer sentences",
        [
            f"Now sentences of the phrasebook that none of the models has seen, {EACH} of each length. We "
            "count how many are translated exactly right, word for word.",
            "Numbers that each model has learned: "
            + ", ".join(f"{FAMILIES[family]} {task.folder.parameters:,}" for family, task in models.items())
            + ".",
        ],
        ChoiceQuestion(
            f"Which model is worst on the longest sentences ({LENGTHS[-1][0]} to {LENGTHS[-1][1]} words)?",
            options,
            len(names) if tie else names.index(worst),
        ),
        "Right on the longest: "
        + ", ".join(f"{name} {100 * scores[name][-1]:.0f} %" for name in names)
        + ". On the shortest: "
        + ", ".join(f"{name} {100 * scores[name][0]:.0f} %" for name in names)
        + ".",
        after=[
            lines("Share of sentences that are exactly right", "words", middle, scores, even=True, digits=2),
            *(
                table(
                    f"“{each.english}”",
                    ["", "translation"],
                    [["right", each.german], *([name, texts[place]] for name, texts in outputs.items())],
                )
                for place, each in enumerate(example)
            ),
        ],
    )


def looking_back(given: Given, ledger: Ledger) -> LessonStep | None:
    task = runners(given).get("bahdanau")
    if task is None:
        return None
    phrase = sentences()[1][0]
    trace = ledger(task.trace, phrase.english, phrase.german)
    shares = ledger(trace.alignment_weights)
    output, read = trace.tokens["output"].word_texts, trace.tokens["source"].word_texts
    place = max(range(len(output)), key=lambda each: len(output[each]))
    best = int(shares[place].argmax())
    width = trace["decoder.cross.value"].shape[-1]
    return LessonStep(
        "Bahdanau: look back at every step",
        [
            "Bahdanau's writer looks at all states of the reader before each word. The reader goes through "
            "the sentence in both directions, and the two states of a word are joined: often 128 + "
            f"128 = 256 numbers, here {width // 2} + {width // 2} = {width}.",
            "Every state gets a score e, softmax makes weights of the scores, and the states mixed by these "
            "weights, c, go into a second recurrent network, which writes.",
            f"“{phrase.english}” becomes “{phrase.german}”",
        ],
        ChoiceQuestion(
            f"At which word does it look most when it says “{output[place]}”?", distinct(read), best
        ),
        f"At “{read[best]}”, with {float(shares[place, best]):.2f}.",
        before=formula("eᵢⱼ = v · tanh(W sᵢ₋₁ + U hⱼ)      aᵢⱼ = softmaxⱼ(eᵢⱼ)      cᵢ = Σⱼ aᵢⱼ hⱼ"),
        after=matrix("Weights a: words written (rows), words read (columns)", shares, output, read),
        then="This was the first attention. The Transformer kept it and threw the recurrent network away.",
    )


LESSONS = [
    Lesson(
        "history",
        "RNN, Bahdanau, Transformer",
        "One state for a whole sentence, a look back at every step, attention alone: longer and longer "
        "sentences.",
        (bottleneck, longer, looking_back),
    )
]
