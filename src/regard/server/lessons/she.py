"""Which word does “She” look at, in the model that is loaded?"""

from __future__ import annotations

import torch

from regard.errors import UsageError
from regard.interpret import Trace
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distinct

SENTENCE = "Sarah was walking in the park with her cat, Alex. She was wearing a beautiful gold watch."
GAPPED = SENTENCE.replace("watch", "<mask>")  # for a model that fills gaps
NO_SELF_ATTENTION = (
    "This model has no self-attention: it reads word after word, so “She” looks at nothing. Choose a "
    "Transformer above, or start the page with one (regard explore -m ...)."
)


def self_attentions(trace: Trace) -> list[str]:
    """The self-attentions over the text that was read."""
    encoder = [name for name in trace.attentions if name.startswith("encoder.")]
    return encoder or [name for name in trace.attentions if name.endswith(".self")]


def place_of(word: str, words: list[str]) -> int:
    """The place of a word of the sentence; of “She”, the last."""
    places = [place for place, other in enumerate(words) if other.strip(".,").lower() == word.lower()]
    if not places:
        raise LessonUnavailable(
            f"This model's tokenizer leaves no word “{word}” whole enough to be found again."
        )
    return places[-1] if word == "She" else places[0]


@cell
def look(given: Given) -> Values:
    """The row of “She” in every head of a model."""
    sentence = GAPPED if given.task.folder.task.name == "fill" else SENTENCE
    try:
        trace = given.trace(sentence)
    except UsageError as error:  # a model of short texts, or of another alphabet
        raise LessonUnavailable(f"This model cannot read the sentence: {error}.") from None
    names = self_attentions(trace)
    if not names:
        raise LessonUnavailable(NO_SELF_ATTENTION)
    words = list(trace.sides(names[0])[0].group_texts)
    sarah, cat, alex, she = (place_of(word, words) for word in ("Sarah", "cat", "Alex", "She"))
    weights = torch.stack([given(trace.word_weights, name) for name in names])  # [layers, H, words, words]
    rows = weights[:, :, she]
    mean, labels = rows.mean(dim=(0, 1)), distinct(words)
    best = mean.argsort(descending=True).tolist()
    options = sorted({sarah, cat, alex, she, *best[:3]})
    most, place = rows[:, :, sarah].flatten().max(dim=0)
    layers, heads = rows.shape[:2]
    layer, head = divmod(int(place), heads)
    favourites = rows.argmax(dim=-1)  # [layers, H]
    sizes = {"layers": layers, "heads": heads, "all_heads": layers * heads, "words": len(words)}
    average = {
        "weights": mean,
        "options": [labels[place] for place in options],
        "answer": options.index(best[0]),
        "best": labels[best[0]],
        "most": mean[best[0]],
        "sarah": mean[sarah],
        "cat": mean[cat],
        "is_sarah": best[0] == sarah,
        "is_she": best[0] == she,
        "is_other": best[0] not in (sarah, she),
    }
    by_head = {
        "count": (favourites == sarah).sum(),
        "by_chance": layers * heads / len(words),
        "tolerance": max(1.0, 0.1 * layers * heads),
        "sarah": rows[:, :, sarah],
        "layers": [f"layer {number}" for number in range(layers)],
        "heads": [str(number) for number in range(heads)],
        "columns": ["", *(f"head {number}" for number in range(heads))],
        "favourites": [[words[each] for each in row] for row in favourites.tolist()],
    }
    strongest = {"layer": layer, "head": head, "weight": most, "weights": rows[layer, head]}
    parts = {"average": average, "by_head": by_head, "strongest": strongest}
    return {"sentence": sentence, "she": "She", "labels": labels, **sizes, **parts}
