"""Pre-training and fine-tuning: what a fine-tuned model keeps, and what a pre-trained body is worth."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.models.encoder import EncoderOnly, mean
from regard.server.lessons.given import Given, Values, adam, cell, seeded
from regard.storage.folder import open_folder

TUNED = ("english-sentiment", "english-names", "english-answers")
FROZEN = ("english-names", "english-answers")  # their lowest layers are those of the pre-trained model
COUNTS = (4, 8, 16, 24)  # labelled sentences
SEED = 3
STEPS = 150
TOPICS = ("food", "travel")
FOOD = (
    "The soup was hot and tasted of onions.", "She baked bread for the whole family.",
    "We had eggs and coffee in the morning.", "He put salt and pepper on the meat.",
    "The children ate all the cakes.", "There is cheese and butter on the table.",
    "I drink tea with milk and sugar.", "They cooked fish for dinner.",
    "An apple and some nuts were her lunch.", "The cook cut the vegetables.",
    "He likes chocolate more than fruit.", "Would you like another glass of wine?",
    "The chicken was roasted with potatoes.", "She poured the juice into a cup.",
    "The restaurant serves rice and beans.", "He was so hungry that he ate two plates.",
    "Honey is sweet and lemons are sour.", "The pie smelled of cinnamon.",
    "We bought bread at the baker.", "Pass me the knife and the jam.",
)  # fmt: skip
TRAVEL = (
    "The train left the station at noon.", "She flew across the ocean to America.",
    "We drove along the coast for hours.", "He walked over the mountains to the next town.",
    "The ship came into the harbour at night.", "They rode their horses through the forest.",
    "I took the bus to the city.", "The road was long and full of stones.",
    "A captain must know the sea.", "The passengers waited for the ferry.",
    "He lost his ticket on the platform.", "Would you like to see other countries?",
    "The plane landed on a small island.", "She followed the river to the bridge.",
    "The travellers slept in a tent.", "He was so far away that no letter came.",
    "Maps are useful and guides are better.", "The wheels of the carriage turned slowly.",
    "We bought a map of the north.", "Show me the way to the border.",
)  # fmt: skip


@cell
def years(given: Given) -> Values:
    """Answers in a text of 1,000 words: each word but the first follows others."""
    given.note(years)
    return {"answers": 999}


@cache
def plain_model(task: Any) -> Any:
    """The model as it was saved, not packed for speed."""
    return open_folder(task.folder.path).model.eval()


def body(model: nn.Module) -> dict[str, Tensor]:
    """The numbers of embeddings and layers by name."""
    return {
        name: each.detach().cpu()
        for name, each in model.named_parameters()
        if name.startswith(("source.", "encoder."))
    }


def part_of(name: str) -> str:
    """ "layer 2" of a parameter of `encoder.blocks.2`."""
    parts = name.split(".")
    return f"layer {parts[2]}" if name.startswith("encoder.blocks.") else "embeddings"


@cell
def shared(given: Given) -> Values | None:
    """Which numbers of the pre-trained model a fine-tuned one has unchanged."""
    frozen = next((name for name in FROZEN if given.has(name)), None)
    if frozen is None:
        return None
    base, tuned = body(plain_model(given.task)), given.with_model(frozen).task
    counts: dict[str, list[int]] = {}
    for name, each in body(plain_model(tuned)).items():
        count = counts.setdefault(part_of(name), [0, 0])
        if name in base and base[name].shape == each.shape:
            count[0] += int((base[name] == each).sum())
        count[1] += each.numel()
    parameters = tuned.folder.parameters
    same, size = (sum(each) for each in zip(*counts.values()))
    shares = [100 * same / size for same, size in counts.values()]
    names = [name for name in TUNED if given.has(name)]
    sizes = {"kept": 100 * same / size, "head": parameters - size, "parameters": parameters}
    texts = {"base": given.name, "frozen": frozen, "names": names}
    return {**texts, **sizes, "parts": list(counts), "shares": shares}


@torch.no_grad()
def vectors(task: Any, model: EncoderOnly) -> Tensor:
    """The mean of the last hidden states of each sentence, first of one topic: [sentences, D]."""
    tokenizer, rows = task.folder.source, []
    for text in (*FOOD, *TRAVEL):
        ids = torch.tensor([[tokenizer.start, *tokenizer.encode(text), tokenizer.end]])
        hidden = model.encode(Batch(source=Tokens(ids, torch.arange(ids.shape[1])[None])))
        rows.append(mean(hidden, torch.ones_like(ids, dtype=torch.bool))[0, 0])
    return F.normalize(torch.stack(rows).float(), dim=-1)


def untrained(model: EncoderOnly) -> EncoderOnly:
    """The same shape with random numbers, as BERT begins: deviations of 0.02."""
    other = deepcopy(model)
    generator = seeded(SEED)
    for each in other.parameters():
        if each.dim() > 1:
            each.data.normal_(0, 0.02, generator=generator)
    return other


def accuracy(features: Tensor, count: int) -> float:
    """Train a linear layer on `count` of the sentences; the share of the last 16 that are right."""
    topic = torch.cat([torch.zeros(len(FOOD)), torch.ones(len(TRAVEL))])
    order = torch.arange(len(topic)).view(2, -1).T.flatten()  # food, travel, food ...
    train, test = order[:count], order[COUNTS[-1] :]
    weight = torch.zeros(features.shape[1], requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    center = features[train].mean(dim=0)

    def logits(places: Tensor) -> Tensor:
        return (features[places] - center) @ weight * 10 + bias

    def loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(logits(train), topic[train]) + 0.01 * weight.square().sum()

    for _ in adam([weight, bias], 0.05, loss, STEPS):
        pass
    return float(((logits(test) > 0).float() == topic[test]).float().mean())


@cache
def curves(task: Any) -> tuple[list[float], list[float]]:
    """Accuracy by number of examples, with the pre-trained body and with a random one."""
    model = plain_model(task)
    models = model, untrained(model)
    features = [vectors(task, each) for each in models]
    first, second = ([accuracy(each, count) for count in COUNTS] for each in features)
    return first, second


@cell
def worth(given: Given) -> Values:
    """Sentences of two topics: a linear layer on a pre-trained body and on a random one."""
    by_count, random_by_count = given(curves, given.task)
    test = len(FOOD) + len(TRAVEL) - COUNTS[-1]
    some = [[topic, text] for i in range(3) for topic, text in zip(TOPICS, (FOOD[i], TRAVEL[i]))]
    sizes = {"train": COUNTS[-1], "test": test, "step": 1 / test, "counts": COUNTS}
    results = {"pretrained": by_count[-1], "random": random_by_count[-1]}
    names = {"one": TOPICS[0], "other": TOPICS[1], "base": given.name}
    return {
        **sizes,
        **results,
        **names,
        "some": some,
        "by_count": by_count,
        "random_by_count": random_by_count,
    }
