"""Masks: future positions to minus infinity, and what happens without."""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.config import parse_model
from regard.interpret.interventions import InterventionTap, TensorEdit, parse
from regard.interpret.names import causal_side
from regard.models.attention import masked_softmax, scores, visible
from regard.models.families import build
from regard.server.lessons.given import Given, Values, adam, cell, seeded

WORDS = ("The", "cat", "sees", "a", "dog")
SEED = 6
TRAINING_STEPS = 80
VOCABULARY = 8  # of random words
LENGTH = 8


@cache
def lottery(masked: bool, steps: int = TRAINING_STEPS, seed: int = SEED) -> tuple[float, ...]:
    """Train a small GPT on random words, with its mask or without; the loss of each step, in nats."""
    generator = seeded(seed)
    settings = {"family": "gpt", "width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0}
    with torch.random.fork_rng(devices=[]):  # others' dice stay as they lie
        torch.manual_seed(seed)
        model = build(parse_model({**settings, "max_length": LENGTH}), VOCABULARY)
    changes = [] if masked else parse([{"type": "unmask_future"}], model)
    tap = InterventionTap([each for each in changes if isinstance(each, TensorEdit)]) if changes else None
    places = torch.arange(LENGTH).expand(32, -1)

    def loss() -> Tensor:
        text = torch.randint(VOCABULARY, (32, LENGTH + 1), generator=generator)
        logits = model(Batch(target=Tokens(text[:, :-1], places)), tap)  # [B,T,V]
        # the last word's answer lies outside what it reads, so only the others count
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:-1].flatten())

    return tuple(adam(list(model.parameters()), 0.01, loss, steps))


@cell
def triangle(given: Given) -> Values:
    """Which words each word sees; random scores with one chosen row, and their masked softmax."""
    places, generator = torch.arange(len(WORDS))[None], seeded(SEED)
    mask = given(visible, places, places, causal=True)[0, 0]
    q, k = (torch.randn(len(WORDS), 4, generator=generator) for _ in range(2))
    products = given(scores, q, k)
    products[1] = torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0])
    shares = given(masked_softmax, products, mask)
    visibility = {"mask": mask, "visible": mask.float(), "count": mask.sum()}
    return {"words": WORDS, **visibility, "scores": products, "weights": shares}


@cell
def cheating(given: Given) -> Values:
    """The losses of two small models on random words, one of which sees the answer."""
    honest, cheat = (given(lottery, masked) for masked in (True, False))
    constants = {"steps": TRAINING_STEPS, "vocabulary": VOCABULARY, "chance": math.log(VOCABULARY)}
    every = slice(0, TRAINING_STEPS, 10)
    losses = {"at": range(TRAINING_STEPS)[every], "honest": honest[every], "cheat": cheat[every]}
    return {**constants, "honest": honest[-1], "cheat": cheat[-1], "losses": losses}


@cell
def unmasked(given: Given) -> Values | None:
    """log p of the output of the loaded model, with its mask and without."""
    if causal_side(given.task.folder.model) is None:
        return None
    trace = given.trace()
    generates = trace.meta["task"] == "generate"
    target = trace.output.removeprefix(given.sentence) if generates else trace.output
    masked = given.trace(target=target)
    other = given.trace(target=target, interventions=[{"type": "unmask_future"}])
    log_p = {"with": masked.log_probabilities(), "without": other.log_probabilities()}
    before, after = map(sum, log_p.values())
    sums = {
        "before": before,
        "after": after,
        "rises": after > before,
        "change": (after - before) / abs(before),
    }
    return {"output": trace.output, "tokens": masked.tokens["output"].shown, **log_p, **sums}
