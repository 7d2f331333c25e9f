"""Small models and samples that several tests share."""

from __future__ import annotations

import random

import torch

from regard.config import parse_model
from regard.config.model import FIELDS
from regard.models.families import build
from regard.models.transformer import EncoderDecoder
from regard.sample import Sample

VOCABULARY = 23
START, END = 2, 1


def of_family(fields: dict[str, object]) -> dict[str, object]:
    """Of sizes that are common to many tests those that the model's family has."""
    known = FIELDS[str(fields.get("family", "transformer"))]
    return {name: value for name, value in fields.items() if name in known}


def small(seed: int = 0, vocabulary: int = VOCABULARY, **changes: object) -> EncoderDecoder:
    """A tiny model with random weights, sharp enough that its choices are not near ties."""
    fields = {"width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "dropout": 0.0, **changes}
    torch.manual_seed(seed)
    model = build(parse_model(of_family(fields)), vocabulary).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.8 * fields["width"] ** -0.5)
    return model


def random_samples(count: int, seed: int = 0, longest: int = 9, vocabulary: int = VOCABULARY) -> list[Sample]:
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        source = [chance.randrange(4, vocabulary) for _ in range(chance.randint(1, longest))]
        target = [chance.randrange(4, vocabulary) for _ in range(chance.randint(1, longest))]
        found.append(Sample([*source, END], [START, *target], [*target, END]))
    return found
