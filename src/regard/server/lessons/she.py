"""Which word does “She” look at, in the model that is loaded?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.interpret import Trace
from regard.server.lessons.content import bars, distinct, matrix, token
from regard.server.lessons.given import Given, Ledger, LessonUnavailable
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

SENTENCE = "Sarah was walking in the park with her cat, Alex. She was wearing a beautiful gold watch."
GAPPED = SENTENCE.replace("watch", "<mask>")  # for a model that fills gaps
NAMED = ("Sarah", "cat", "Alex", "She")


@dataclass(frozen=True)
class Looks:
    """The row of “She” in every head of a model: [layers, heads, words]."""

    words: list[str]
    rows: Tensor
    she: int

    def named(self, word: str) -> int:
        """The place of a word of the sentence."""
        places = [
            place for place, other in enumerate(self.words) if other.strip(".,").lower() == word.lower()
        ]
        if not places:
            raise LessonUnavailable(
                f"This model's tokenizer leaves no word “{word}” whole enough to be found again."
            )
        return places[-1] if word == "She" else places[0]

    @property
    def labels(self) -> list[str]:
        return distinct(self.words)


def self_attentions(trace: Trace) -> list[str]:
    """The self-attentions over the text that was read."""
    encoder = [name for name in trace.attentions if name.startswith("encoder.")]
    return encoder or [name for name in trace.attentions if name.endswith(".self")]


def sentence(given: Given) -> str:
    return GAPPED if given.task.folder.task.name == "fill" else SENTENCE


def look(given: Given, ledger: Ledger) -> Looks:
    try:
        trace = given.trace(ledger, sentence(given))
    except UsageError as error:  # a model of short texts, or of another alphabet
        raise LessonUnavailable(f"This model cannot read the sentence: {error}.") from None
    names = self_attentions(trace)
    if not names:
        raise LessonUnavailable(
            "This model has no self-attention: it reads word after word, so “She” looks at nothing. Choose a "
            "Transformer above, or start the page with one (regard explore -m ...)."
        )
    words = list(trace.sides(names[0])[0].group_texts)
    weights = torch.stack([ledger(trace.word_weights, name) for name in names])  # [layers, H, words, words]
    looks = Looks(words, weights, 0)
    she = looks.named("She")
    return Looks(words, weights[:, :, she], she)


def on_average(given: Given, ledger: Ledger) -> LessonStep:
    looks = look(given, ledger)
    mean = looks.rows.mean(dim=(0, 1))
    best = mean.argsort(descending=True).tolist()
    options = sorted({looks.named(word) for word in NAMED} | set(best[:3]))
    layers, heads = looks.rows.shape[:2]
    return LessonStep(
        "On average",
        f"In a common example a reader knows that {token('She')} is Sarah, not Alex, who is a cat. Does "
        f"{token(given.name)} know? It has {layers} layers of self-attention over the text with {heads} "
        f"heads each. We take the row of {token('She')} in every head and average them all.",
        ChoiceQuestion(
            "To which of these does “She” give the most weight, on average?",
            [looks.labels[place] for place in options],
            options.index(best[0]),
        ),
        f"The answer of this model: {token(looks.labels[best[0]])}, with {float(mean[best[0]]):.3f}. Sarah "
        f"gets {float(mean[looks.named('Sarah')]):.3f}, the cat {float(mean[looks.named('cat')]):.3f}.",
        before={"kind": "text", "text": sentence(given)},
        after=bars("Weights of “She”, average of all heads", looks.labels, mean.tolist(), 3),
        then=remark(looks, best[0]),
    )


def remark(looks: Looks, best: int) -> str:
    """What is to be said about the word that “She” looks at most."""
    if best == looks.named("Sarah"):
        return "That is what a person would say. Whether the model has the same reason is another question."
    mixed = (
        "An average mixes many jobs: some heads only look at the neighbour or at the sign that ends a text. "
        "And a model that translates may not need to know who she is."
    )
    if best == looks.she:
        return f"A word often looks at itself most. {mixed}"
    return f"That is not what a person would say. {mixed}"


def counted(given: Given, ledger: Ledger) -> LessonStep:
    looks = look(given, ledger)
    layers, heads, words = looks.rows.shape
    sarah = looks.named("Sarah")
    best = looks.rows.argmax(dim=-1)  # [layers, H]
    count = int((best == sarah).sum())
    names = [f"layer {layer}" for layer in range(layers)]
    return LessonStep(
        "Head by head",
        f"There are {layers * heads} heads. If each looked at one of the {words} words by chance, about "
        f"{layers * heads / words:.1f} would look most at Sarah.",
        NumberQuestion(
            "In how many heads is “Sarah” the word that “She” looks at most?",
            count,
            max(1.0, 0.1 * layers * heads),
            0,
        ),
        f"{count} of {layers * heads}. Below you see how much of “She” goes to Sarah in each head.",
        after=[
            matrix(
                "Weight from “She” to “Sarah”", looks.rows[:, :, sarah], names, [f"{h}" for h in range(heads)]
            ),
            {
                "kind": "table",
                "caption": "What “She” looks at most",
                "digits": 0,
                "columns": ["", *(f"head {head}" for head in range(heads))],
                "rows": [
                    [name, *(looks.words[place] for place in row)] for name, row in zip(names, best.tolist())
                ],
            },
        ],
    )


def strongest(given: Given, ledger: Ledger) -> LessonStep:
    looks = look(given, ledger)
    heads = looks.rows.shape[1]
    sarah = looks.named("Sarah")
    most, place = looks.rows[:, :, sarah].flatten().max(dim=0)
    layer, head = divmod(int(place), heads)
    return LessonStep(
        "The head that looks at Sarah most",
        f"One head gives Sarah the most: head {head} of layer {layer}.",
        NumberQuestion("How much of “She” comes from Sarah in this head, from 0 to 1?", float(most), 0.15),
        f"It is {float(most):.2f}.",
        after=bars(
            f"Weights of “She”, layer {layer}, head {head}",
            looks.labels,
            looks.rows[layer, head].tolist(),
            3,
        ),
        then=(
            "Be careful with such a find. Among many heads one will look at Sarah by chance. Weights tell "
            "where numbers come from; they do not prove why the model says what it says. To test that, "
            "change something and look again: the view Compare does it."
        ),
    )


LESSONS = [
    Lesson(
        "she",
        "Who is “She”?",
        "Sarah walks in the park with her cat, Alex. Which word does “She” attend to, in the loaded model?",
        (on_average, counted, strongest),
        ("model",),
    )
]
