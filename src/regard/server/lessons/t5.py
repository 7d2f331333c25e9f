"""T5: tasks told by prefixes, spans that are written, and a bias for each distance."""

from __future__ import annotations

import torch

from regard.data.batches import generator
from regard.data.objectives.language import SpanCorruption
from regard.models.positions import RelativeBias
from regard.server.lessons.given import Given, Values, cell

MODEL = "two-tasks"
TRANSLATE, SENTIMENT = "translate English to German: ", "sentiment: "
REMARKS = (
    "The food was wonderful.",
    "The room is too small.",
    "I like this little book.",
    "It does not work.",
)
FORMS = (
    (TRANSLATE + "I see the small house.", "Ich sehe das kleine Haus."),
    (SENTIMENT + "a film to remember", "positive"),
    ("question: Where does the cat sleep? context: The cat sleeps in a box.", "in a box"),
    ("summarize: (a long text)", "(a short text)"),
)
LABELS = ("positive", "negative")
SPANS = (
    "Thank you for inviting me to your party last week, it was very kind of you and I enjoyed it very much; "
    "please come and see us soon, the children would like to meet your dog again."
)
SENTINELS = ("<X>", "<Y>", "<Z>", "<W>")
SEED = 4
FARTHEST = 40
NEAR, FAR = 24, 30


@cell
def forms(given: Given) -> Values:
    """Tasks as text."""
    given.note(forms)
    return {"rows": FORMS, "here": given.has(MODEL)}


def outputs(given: Given, prefix: str) -> list[str]:
    """What the model writes for all remarks with a prefix."""
    texts: list[str] = given(given.task.translate, [prefix + each for each in REMARKS], check=False)
    return texts


@cell
def prefixes(given: Given) -> Values | None:
    """The same remarks with both prefixes."""
    if not given.has(MODEL):
        return None
    given = given.with_model(MODEL)
    sentiment, german = outputs(given, SENTIMENT), outputs(given, TRANSLATE)
    options = sorted({sentiment[0], german[0], *LABELS})
    names = {"sentiment": SENTIMENT, "translate": TRANSLATE, "text": REMARKS[0], "model": given.name}
    question = {"options": options, "answer": options.index(sentiment[0])}
    results = {"first": sentiment[0], "second": german[0], "rows": list(zip(REMARKS, sentiment, german))}
    return {**names, **question, **results}


@cell
def bare(given: Given) -> Values | None:
    """A remark without a prefix."""
    if not given.has(MODEL):
        return None
    given = given.with_model(MODEL)
    output = outputs(given, "")[0]
    kind = 1 if output == outputs(given, TRANSLATE)[0] else 2 if output in LABELS else 3
    return {"model": given.name, "text": REMARKS[0], "output": output, "kind": kind}


@cell
def spans(given: Given) -> Values:
    """Span corruption, word by word."""
    words, rng = SPANS.split(), generator(SEED, 0, 0)
    objective = SpanCorruption(given.task.folder.target, 128, mask_rate=0.15, mean_span=3.0)
    kept, masked = given(objective.span_lengths, len(words), len(SENTINELS) - 1, rng)
    source, target, place = [], [], 0
    for before, span, mark in zip(kept, masked, SENTINELS):
        source += [*words[place : place + before], mark]
        target += [mark, *words[place + before : place + before + span]]
        place += before + span
    source, target = [*source, *words[place:]], [*target, SENTINELS[len(masked)]]
    texts = {"source": " ".join(source), "target": " ".join(target)}
    return {"seed": SEED, "words": len(words), "hidden": sum(masked), **texts}


@cell
def buckets(given: Given) -> Values:
    """The bucket of each distance; and the learned biases, if the model has such."""
    bias = RelativeBias(1, both_ways=True)
    distances = torch.arange(-FARTHEST, FARTHEST + 1)
    values = given(bias.bucket, distances)
    near, far = (int(bias.bucket(torch.tensor(each))) for each in (NEAR, FAR))
    sizes = {"count": bias.buckets, "near": NEAR, "far": FAR, "same": near == far}
    learned = next(
        (each for each in given.task.folder.model.modules() if isinstance(each, RelativeBias)), None
    )
    series = {}
    if learned is not None:
        table = learned.table.weight.detach().float().cpu()[learned.bucket(distances)]
        series = {f"head {head}": table[:, head] for head in range(min(4, table.shape[1]))}
    about = {"here": learned is not None, "model": given.name, "biases": series}
    return {**sizes, **about, "places": distances, "values": values}
