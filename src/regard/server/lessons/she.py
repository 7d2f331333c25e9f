"""Whom does a pronoun look at? Heads of two models, and what one of them says without a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.interpret import Trace
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distinct

TRANSLATOR = "tatoeba-en-de"
SENTENCE = "Sarah was walking in the park with her cat, Alex. She was wearing a beautiful gold watch."
NO_SELF_ATTENTION = (
    "This model has no self-attention: it reads word after word, so “She” looks at nothing. Choose a "
    "Transformer above, or start the page with one (regard explore -m ...)."
)
OTHERS = (
    ("Tom asked Mary because she was there.", "she", "Mary"),
    ("Tom asked Mary because he was there.", "he", "Tom"),
    ("Mary said that she was tired.", "she", "Mary"),
    ("My mother said that she was tired.", "she", "mother"),
    ("The animal did not cross the street because it was too tired.", "it", "animal"),
    ("I bought a lamp because it was cheap.", "it", "lamp"),
    ("Mary lost her book, but she found it.", "it", "book"),
    ("Mary has a dog. She loves it.", "She", "Mary"),
)
SHORT = OTHERS[5:] + OTHERS[2:3]


@dataclass(frozen=True)
class PronounWeights:
    """The rows of a pronoun in all self-attentions of a run, [layers, H, words], and places of words."""

    rows: Tensor
    words: list[str]
    pronoun: int
    meant: int

    @property
    def shares(self) -> Tensor:
        """The weight of the word that is meant: [layers, H]."""
        return self.rows[:, :, self.meant]

    @property
    def favourites(self) -> Tensor:
        return self.rows.argmax(dim=-1)

    @property
    def strongest(self) -> tuple[int, int]:
        """Layer and head with the largest weight."""
        layer, head = divmod(int(self.shares.argmax()), self.rows.shape[1])
        return layer, head


def self_attentions(trace: Trace) -> list[str]:
    """The self-attentions over the text that was read."""
    encoder = [name for name in trace.attentions if name.startswith("encoder.")]
    return encoder or [name for name in trace.attentions if name.endswith(".self")]


def place_of(word: str, words: list[str]) -> int:
    """The last place of a word of the sentence."""
    places = [place for place, other in enumerate(words) if other.strip(".,") == word]
    if not places:
        raise LessonUnavailable(
            f"This model's tokenizer leaves no word “{word}” whole enough to be found again."
        )
    return places[-1]


def fills(given: Given) -> bool:
    return bool(given.task.folder.task.name == "fill")


def weights_of(given: Given, sentence: str, pronoun: str, meant: str) -> PronounWeights:
    """How much a pronoun looks at each word. A model that fills gaps gets one behind the last word."""
    try:
        trace = given.trace(f"{sentence} <mask>" if fills(given) else sentence)
    except UsageError as error:  # a model of short texts, or of another alphabet
        raise LessonUnavailable(f"This model cannot read the sentence: {error}.") from None
    names = self_attentions(trace)
    if not names:
        raise LessonUnavailable(NO_SELF_ATTENTION)
    words = list(trace.sides(names[0])[0].group_texts)
    places = [place_of(word, words) for word in (pronoun, meant)]
    rows = torch.stack([given(trace.word_weights, name)[:, places[0]] for name in names])
    return PronounWeights(rows, words, *places)


@cell
def look(given: Given) -> Values:
    """The row of “She” in every head."""
    row = given(weights_of, given, SENTENCE, "She", "Sarah")
    layers, heads, words = row.rows.shape
    layer, head = row.strongest
    names = {
        "layer_names": [f"layer {number}" for number in range(layers)],
        "head_names": [str(number) for number in range(heads)],
        "columns": ["", *(f"head {number}" for number in range(heads))],
    }
    sizes = {"layers": layers, "heads": heads, "all_heads": layers * heads, "words": words}
    question = {
        "count": (row.favourites == row.meant).sum(),
        "by_chance": layers * heads / words,
        "tolerance": 1,
    }
    best = {"layer": layer, "head": head, "weight": row.shares.max(), "weights": row.rows[layer, head]}
    favourites = [[row.words[each] for each in places] for places in row.favourites.tolist()]
    behind = "It fills gaps and wants one, so <mask> stands behind the text." if fills(given) else ""
    texts = {"behind": behind, "sentence": SENTENCE, "she": "She", "sarah": "Sarah", "model": given.name}
    shown = {"by_head": row.shares, "favourites": favourites, "labels": distinct(row.words)}
    return {**texts, **sizes, **names, **question, **best, **shown}


@cell
def others(given: Given) -> Values:
    """The head that gives Sarah the most, on other sentences."""
    layer, head = weights_of(given, SENTENCE, "She", "Sarah").strongest
    rows, results = [], []
    for sentence, pronoun, meant in OTHERS:
        each = given(weights_of, given, sentence, pronoun, meant)
        weights = each.rows[layer, head]
        favourite, weight = each.words[int(weights.argmax())], float(weights[each.meant])
        results.append((int(weights.argmax()) == each.meant, favourite, weight))
        rows.append([sentence, f"{pronoun}: {meant}", favourite, weight])
    wrong = next((place for place, (right, *_) in enumerate(results) if not right), 0)
    sentence, pronoun, meant = OTHERS[wrong]
    right, favourite, weight = results[wrong]
    question = {"asked": sentence, "pronoun": pronoun, "meant": meant, "right": right}
    answer = {"favourite": favourite, "weight": weight, "rows": rows}
    counts = {"count": sum(right for right, *_ in results), "all": len(results)}
    return {"layer": layer, "head": head, **question, **answer, **counts}


@cell
def needed(given: Given) -> Values | None:
    """What a model that fills gaps expects for “She”, with that head and without, and with another name."""
    if not fills(given):
        return None
    row = weights_of(given, SENTENCE, "She", "Sarah")
    layer, head = row.strongest
    gapped = SENTENCE.replace("She", "<mask>")
    off = [{"type": "zero_head", "where": f"encoder.{layer}.self", "head": head}]
    runs = {
        "Sarah": given.trace(gapped),
        "Sarah, without the head": given.trace(gapped, interventions=off),
        "Tom instead of Sarah, and his cat": given.trace(
            gapped.replace("Sarah", "Tom").replace("her cat", "his cat")
        ),
    }
    rows: list[list[Any]] = [
        [name, *(probability(given, trace, word) for word in ("She", "He", "It"))]
        for name, trace in runs.items()
    ]
    before, after = rows[0][1], rows[1][1]
    return {"gapped": gapped, "before": before, "after": after, "ratio": after / before, "rows": rows}


def probability(given: Given, trace: Trace, word: str) -> float:
    """p of a word at the gap."""
    tokenizer = given.task.folder.source
    place = trace.tokens["source"].ids.index(tokenizer.mask)
    first = tokenizer.encode(f"A. {word}")[-1]
    return float(trace["logits"][place].softmax(dim=-1)[first])


@cell
def translator(given: Given) -> Values | None:
    """The same sentence and shorter ones in a translator."""
    if not given.has(TRANSLATOR):
        return None
    given = given.with_model(TRANSLATOR)
    row = given(weights_of, given, SENTENCE, "She", "Sarah")
    rows = []
    for sentence, pronoun, meant in SHORT:
        each = given(weights_of, given, sentence, pronoun, meant)
        layer, head = each.strongest
        rows.append([sentence, pronoun, meant, f"layer {layer}, head {head}", float(each.shares.max())])
    heads = row.shares.numel()
    question = {"count": (row.favourites == row.meant).sum(), "tolerance": 1}
    result = {"model": TRANSLATOR, "output": given.trace(SENTENCE).output, "most": row.shares.max()}
    return {**result, "all_heads": heads, **question, "rows": rows}
