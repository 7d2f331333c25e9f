"""“Thinking Machines”, steps 1 to 6, then eight heads and W_O. Random weights of a stated seed."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.models.attention import MultiHeadAttention, masked_softmax, scores
from regard.server.lessons.given import Given, Values, all_visible, cell, distance, race, seeded

WORDS = ("Thinking", "Machines")
WIDTH, HEADS, CHANNELS = 512, 8, 64
SEED = 8
NUMBERS = 4  # of a vector that are shown


def machine(heads: int = HEADS, channels: int = CHANNELS) -> MultiHeadAttention:
    """The paper's attention with weights of variance 1/512, so that queries and keys are of unit size."""
    with torch.random.fork_rng(devices=[]):  # others' dice stay as they lie
        torch.manual_seed(SEED)
        attention = MultiHeadAttention(WIDTH, heads, channels, bias=False)
        for weight in attention.parameters():
            torch.nn.init.normal_(weight, std=WIDTH**-0.5)
    return attention.eval()


def embeddings(words: int = 2) -> Tensor:
    """Random vectors of unit variance: [1,T,D]."""
    return torch.randn(1, words, WIDTH, generator=seeded(SEED))


@torch.no_grad()
def walk() -> dict[str, Tensor]:
    """All numbers of the walk for both words: q, k, v [H,T,C], products, shares, mixed, output."""
    attention, x = machine(), embeddings()
    q, k, v = attention.queries_keys_values(x)
    products = scores(q, k, scale=1.0)
    divided = scores(q, k)
    mask = all_visible(2, 2)
    shares = masked_softmax(divided, mask)
    tensors = {"q": q, "k": k, "v": v, "products": products, "divided": divided, "shares": shares}
    tensors |= {"mixed": shares @ v, "output": attention(q, k, v, mask[None, None]), "x": x}
    return {name: tensor[0] for name, tensor in tensors.items()}


def multiplications(words: int, heads: int, channels: int, width: int = WIDTH) -> int:
    """Of one attention over n words: four projections n D (H C) each, QK^T and AV with n^2 (H C) each."""
    inner = heads * channels
    return 4 * words * width * inner + 2 * words**2 * inner


@cell
def vectors(given: Given) -> Values:
    """The first numbers of embeddings, and of q, k, v in head 0."""
    tensors, attention = given(walk), given(machine)
    given.note(attention.queries_keys_values)
    first = {name: tensors[name][0, :, :NUMBERS] for name in "qkv"}
    shape = {"width": WIDTH, "heads": HEADS, "channels": CHANNELS, "seed": SEED}
    weights = {"size": attention.query.weight.numel() // HEADS}
    return {**shape, **weights, "words": WORDS, "x": tensors["x"][:, :NUMBERS], **first}


@cell
def thinking(given: Given) -> Values:
    """Products, scores, weights and their sum for “Thinking” in head 0."""
    tensors = given(walk)
    given.note(scores, masked_softmax)
    products, divided, shares, v, mixed = (
        tensors[name][0] for name in ("products", "divided", "shares", "v", "mixed")
    )
    scored = {"words": WORDS, "products": products[0], "divided": divided[0], "weights": shares}
    difference = divided[0, 0] - divided[0, 1]
    sums = {"values": v[:, :NUMBERS], "sum": mixed[0, :NUMBERS]}
    return {**scored, "difference": difference, "opposite": -difference, **sums}


@cell
def eight(given: Given) -> Values:
    """The eight heads side by side, times W_O."""
    tensors, attention = given(walk), machine()
    given.note(attention)
    joined = tensors["mixed"].transpose(0, 1).flatten(1)  # [T, H*C]
    with torch.no_grad():
        by_hand = given(attention.output, joined)
    numbers = {"width": joined.shape[1], "w_o": attention.output.weight.numel()}
    output = {"output": tensors["output"][:, :NUMBERS], "difference": distance(by_hand, tensors["output"])}
    return {"words": WORDS, **numbers, "weights": tensors["shares"][:, 0], **output}


@cell
def speed(given: Given, words: int = 256) -> Values:
    """Multiplications and milliseconds of one head of 512 numbers and of eight of 64."""
    x, mask = embeddings(words), all_visible(words, words)[None, None]
    one, many = machine(1, WIDTH), machine()
    times = race(
        {
            "1 head of 512": lambda: one(*one.queries_keys_values(x), mask),
            "8 heads of 64": lambda: many(*many.queries_keys_values(x), mask),
        },
        0.4,
    )
    given.note(race, many)
    counts = [given(multiplications, words, *size) for size in ((1, WIDTH), (HEADS, CHANNELS))]
    milliseconds = list(times.values())
    comparison = {"more": counts[1] - counts[0], "ratio": milliseconds[1] / milliseconds[0]}
    return {
        "words": words,
        "names": list(times),
        "counts": counts,
        "milliseconds": milliseconds,
        **comparison,
    }
