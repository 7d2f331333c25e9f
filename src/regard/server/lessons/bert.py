"""BERT: gaps filled from both sides, how it is trained, and three tasks with the same body."""

from __future__ import annotations

from torch import Tensor

from regard.data.batches import generator
from regard.data.objectives.language import MaskedLM
from regard.interpret import Trace, TracedTokens
from regard.interpret.predictions import steps
from regard.sample import IGNORED
from regard.server.lessons.given import Given, Values, cell

GAP = "He opened the <mask> with a key."
SIDES = ("She opened the <mask> with a key.", "She opened the <mask> and read the first page.")
MASKING = "The old man was sitting in his garden when a boy came in and asked him for a glass of water."
SEED = 5
WRITING = "Once upon a time <mask> <mask> <mask> <mask> <mask> <mask> <mask> <mask>."
REMARKS = (
    ("Not bad at all.", "positive"),
    ("What a wonderful film.", "positive"),
    ("A boring, endless movie.", "negative"),
    ("It was not good.", "negative"),
    ("The actors are good, but the story is weak.", "negative"),
)
NAMES = "Paris Hilton went to Paris."
QUESTION = "When was it written?"
CONTEXT = "Hamlet is a tragedy that was written by William Shakespeare around 1600 in London."
POINTED = ("Hamlet", "William Shakespeare", "1600", "London")


def gap_probabilities(given: Given, trace: Trace, gap: int = 0) -> Tensor:
    """softmax of the logits at a gap: [vocabulary]."""
    mask = given.task.folder.source.mask
    places = [place for place, token in enumerate(trace.tokens["source"].ids) if token == mask]
    return trace["logits"][places[gap]].softmax(dim=-1)


def best_words(given: Given, p: Tensor, count: int) -> tuple[list[str], list[float]]:
    best = p.topk(count)
    shown = TracedTokens.of(given.task.folder.source, best.indices.tolist()).shown
    return [text.strip() for text in shown], best.values.tolist()


@cell
def gap(given: Given) -> Values:
    p = gap_probabilities(given, given.trace(GAP))
    names, values = best_words(given, p, 8)
    options = sorted({*names[:5]})
    question = {"options": options, "answer": options.index(names[0]), "best": names[0]}
    return {"text": GAP, **question, "names": names, "p": values}


@cell
def sides(given: Given) -> Values:
    """The same beginning with two endings: what the gap becomes."""
    p = [gap_probabilities(given, given.trace(text)) for text in SIDES]
    # the word whose probability the ending changes most
    word = int((p[0] - p[1]).abs().argmax())
    before, after = (float(each[word]) for each in p)
    shown = TracedTokens.of(given.task.folder.source, [word]).shown[0].strip()
    rows = [[text.split("<mask>")[1].strip(), *best_words(given, each, 5)[0]] for text, each in zip(SIDES, p)]
    numbers = {"word": shown, "before": before, "after": after, "ratio": after / before}
    return {"one": SIDES[0], "other": SIDES[1], **numbers, "rows": rows}


@cell
def masking(given: Given) -> Values:
    """A training sample of masked language modelling."""
    tokenizer = given.task.folder.source
    objective = MaskedLM(tokenizer, given.task.folder.config.max_length, mask_rate=0.15)
    ids = tokenizer.encode(MASKING)
    sample = given(objective.sample, ids, objective.words(ids), generator(SEED, 0, 0))
    labels, read = list(sample.labels)[1:-1], [int(each) for each in list(sample.source)[1:-1]]
    names, inputs, wanted = (TracedTokens.of(tokenizer, each).shown for each in (ids, read, ids))
    rows = [
        [name, text, answer if label != IGNORED else ""]
        for name, text, answer, label in zip(names, inputs, wanted, labels)
    ]
    chosen = sum(label != IGNORED for label in labels)
    return {"text": MASKING, "seed": SEED, "count": len(ids), "chosen": chosen, "rows": rows}


@cell
def writing(given: Given) -> Values:
    """Many gaps at once."""
    trace = given.trace(WRITING)
    gaps = WRITING.count("<mask>")
    words = [best_words(given, gap_probabilities(given, trace, gap), 1)[0][0] for gap in range(gaps)]
    return {"text": WRITING, "gaps": gaps, "kinds": len({*words}), "output": trace.output}


@cell
def sentiment(given: Given) -> Values | None:
    if not given.has("english-sentiment"):
        return None
    given = given.with_model("english-sentiment")
    results = [given(given.task.classify, text) for text, _ in REMARKS]
    options = sorted(results[0].probabilities)
    first, (remark, meant) = results[0], REMARKS[0]
    rows = [[each.text, each.label, each.probabilities[each.label]] for each in results]
    question = {"options": options, "answer": options.index(first.label), "label": first.label}
    numbers = {"p": first.probabilities[first.label], "wrong": first.label != meant}
    return {"model": given.name, "asked": remark, **question, **numbers, "rows": rows}


@cell
def tags(given: Given) -> Values | None:
    if not given.has("english-names"):
        return None
    given = given.with_model("english-names")
    words = given(given.task.tag, NAMES).words
    last = max(place for place, word in enumerate(words) if word.text == "Paris")
    options = sorted({"O", "B-PER", "I-PER", "B-LOC", "B-ORG", words[last].tag})
    rows = [[word.text, word.tag, word.probability] for word in words]
    question = {"options": options, "answer": options.index(words[last].tag), "label": words[last].tag}
    kinds = {word.tag for word in words if word.text == "Paris"}
    return {"model": given.name, "text": NAMES, **question, "two": len(kinds) > 1, "rows": rows}


@cell
def answers(given: Given) -> Values | None:
    """Question answering: which token begins the answer."""
    if not given.has("english-answers"):
        return None
    given = given.with_model("english-answers")
    best = given(given.task.answer, QUESTION, context=CONTEXT).text
    options = list(dict.fromkeys([*POINTED, best]))
    trace = given(given.task.trace, QUESTION, context=CONTEXT)
    begins = steps(trace)[0]["best"]
    bars = {"names": [each["shown"] for each in begins], "begins": [each["p"] for each in begins]}
    question = {"options": options, "answer": options.index(best), "best": best}
    return {"model": given.name, "context": CONTEXT, "question": QUESTION, **question, **bars}
