"""Choosing words: greedy, temperature, drawing, top-k and top-p, beam search."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from regard.interpret import Trace
from regard.interpret.predictions import choice_logits, choice_texts
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell

TRANSLATOR = "tatoeba-en-de"
WRITES = ("generate", "translate")
NO_WRITER = "This model writes no text; choose one above that translates or goes on with a text."
LENGTH = 16  # tokens that are written
DRAWS = 5
COLD, HOT = 0.3, 1.3
SEED = 0
NUCLEUS = 0.9
SENTENCE = "I bought a lamp because it was cheap."


def written(given: Given, text: str | None = None, **options: Any) -> Trace:
    """What a model that writes says, with options of decoding."""
    if given.task.folder.task.name not in WRITES:
        raise LessonUnavailable(NO_WRITER)
    text = given.sentence if text is None else text
    given.check(text)
    trace: Trace = given(given.task.trace, text, decode={"max_length": LENGTH, **options})
    return trace


def written_greedily(given: Given) -> Trace:
    name = f"{given.sentence} greedy"
    if name not in given.kept:
        given.kept[name] = written(given, sample=False, beam=1)
    return given.kept[name]


def new_logits(trace: Trace) -> Tensor:
    """The logits of what was written, without those of a prompt: [tokens, vocabulary]."""
    logits: Tensor = choice_logits(trace)
    return logits[max(0, int(trace.meta.get("prompt") or 1) - 1) :]


def new_text(trace: Trace, text: str) -> str:
    """What a model added to its prompt, or its translation."""
    return trace.output.removeprefix(text) if trace.meta["task"] == "generate" else trace.output


@cell
def greedy(given: Given) -> Values:
    trace, again = written_greedily(given), written(given, sample=False, beam=1)
    logits = new_logits(trace)
    best = logits[0].softmax(dim=-1).topk(8)
    names = choice_texts(trace, trace, best.indices.tolist())
    ids = trace.tokens["output"].ids[-len(logits) :]
    sizes = {"vocabulary": logits.shape[-1], "length": len(ids), "kinds": len({*ids})}
    return {
        "output": trace.output,
        "same": trace.output == again.output,
        **sizes,
        "names": names,
        "p": best.values,
    }


@cell
def heat(given: Given) -> Values:
    """The probability of the best first token at several temperatures."""
    first = new_logits(written_greedily(given))[0]
    p = {name: (first / t).softmax(dim=-1).max() for name, t in (("half", 0.5), ("one", 1.0), ("two", 2.0))}
    return {**p}


def drawn_texts(given: Given, temperature: float) -> list[str]:
    """A few texts that are drawn with a seed."""
    options = {"temperature": temperature, "seed": SEED, "max_length": LENGTH}
    if given.task.folder.task.name == "generate":
        result = given(given.task.generate_texts, given.sentence, num_results=DRAWS, **options)
    else:
        options |= {"sample": True}
        result = given(
            given.task.translate_lines, given.sentence, num_results=DRAWS, decode=options, check=False
        )
    return [each.text for each in result.candidates]


def mean_log_p(given: Given, texts: list[str]) -> float:
    """The mean log p of a token, at temperature 1."""
    log_p: list[float] = [
        value
        for text in texts
        if text.strip()
        for value in given.task.trace(given.sentence, target=text, only=["logits"]).log_probabilities()
    ]
    return sum(log_p) / max(1, len(log_p))


@cell
def draws(given: Given) -> Values:
    """Outputs that are drawn at two temperatures, and how probable their tokens are at T = 1."""
    texts = {temperature: drawn_texts(given, temperature) for temperature in (COLD, HOT)}
    cold, hot = (math.exp(mean_log_p(given, each)) for each in texts.values())
    rows = [[str(temperature), text] for temperature, each in texts.items() for text in each]
    p = {"cold": cold, "hot": hot, "ratio": hot / cold}
    return {"each": DRAWS, "seed": SEED, "low": COLD, "high": HOT, **p, "rows": rows}


def allowed(logits: Tensor, share: float) -> int:
    """How many of the most probable tokens it takes to have a share of the probability."""
    p = logits.softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)
    return int((p < share).sum()) + 1


@cell
def cut(given: Given) -> Values:
    """What top-p leaves at each place."""
    trace = written_greedily(given)
    logits = new_logits(trace)
    counts = [given(allowed, each, NUCLEUS) for each in logits]
    shown = trace.tokens["output"].shown[-len(logits) :]
    best = logits.softmax(dim=-1).amax(dim=-1).tolist()
    rows = [[place + 1, *each] for place, each in enumerate(zip(shown, counts, best))][:12]
    return {"nucleus": counts[0], "tail": logits.shape[-1] - counts[0], "rows": rows}


@cell
def beams(given: Given) -> Values:
    """The sums of log p of what a beam of 1 and of 4 find; in a translator, where there is one."""
    given = given.with_model(TRANSLATOR) if given.has(TRANSLATOR) else given
    text = SENTENCE if given.name == TRANSLATOR else given.sentence
    rows: list[list[Any]] = []
    sums: list[float] = []
    for beam in (1, 4):
        trace = written(given, text, sample=False, beam=beam, max_length=60)
        log_p = trace.log_probabilities()
        sums.append(sum(log_p))
        rows.append([str(beam), new_text(trace, text), sums[-1], sums[-1] / max(1, len(log_p))])
    one, four = sums
    settings = {"normalised": given.task.folder.decode.length_penalty > 0}
    results = {"greedy": one, "best": four, "gain": four - one}
    return {"text": text, "model": given.name, **settings, **results, "rows": rows}
