"""“Thinking Machines”, steps 1 to 6, then eight heads and W_O. Random weights of a stated seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.interpret.names import attentions, output_weight
from regard.models.attention import MultiHeadAttention, masked_softmax, scores
from regard.server.lessons.given import Given, Values, all_visible, cell, distance, race, seeded
from regard.server.lessons.history import subscript
from regard.server.lessons.she import self_attentions

WORDS = ("Thinking", "Machines")
WIDTH, HEADS, CHANNELS = 512, 8, 64
SEED = 8
NUMBERS = 4  # of a vector that are shown
ROW = 32  # numbers in a row of a figure


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
    """The embedding of “Thinking”, and its query in head 0."""
    tensors, attention = given(walk), given(machine)
    given.note(attention.queries_keys_values)
    shape = {"width": WIDTH, "heads": HEADS, "channels": CHANNELS, "seed": SEED}
    names = {"places": list(map(str, range(0, WIDTH, ROW))), "columns": list(map(str, range(ROW)))}
    grids = {"grid": tensors["x"][0].view(-1, ROW), "query": tensors["q"][0, 0].view(-1, ROW)}
    return {**shape, **names, **grids, "size": attention.query.weight.numel() // HEADS}


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
    undivided = products[0].softmax(dim=-1).max()
    return {**scored, "undivided": undivided, "difference": difference, "opposite": -difference, **sums}


@cell
def eight(given: Given) -> Values:
    """The eight heads side by side, times W_O."""
    tensors, attention = given(walk), machine()
    given.note(attention)
    joined = tensors["mixed"].transpose(0, 1).flatten(1)  # [T, H*C]
    with torch.no_grad():
        by_hand = given(attention.output, joined)
    numbers = {"width": joined.shape[1], "w_o": attention.output.weight.numel()}
    middle = 0.75 * (HEADS - 1) / 2
    boxes: list[list[Any]] = [
        [f"z{h}", f"z{subscript(h + 1)} // 64", "attention", h * 0.75, 1.7] for h in range(HEADS)
    ]
    boxes += [
        ["x", "x // 512", "embedding", middle, 0],
        ["all", "z₁ … z₈ side by side: 512", "end", middle, 3.4],
    ]
    boxes += [
        ["w", "W_O // 512 × 512", "norm", middle + 2.4, 4.4],
        ["y", "new vector // 512", "embedding", middle, 4.4],
    ]
    arrows = [[one, other] for h in range(HEADS) for one, other in (("x", f"z{h}"), (f"z{h}", "all"))]
    arrows += [["all", "y"], ["w", "y"]]
    difference = distance(by_hand, tensors["output"])
    drawing = {"boxes": boxes, "arrows": arrows}
    return {**numbers, "weights": tensors["shares"][:, 0], "difference": difference, **drawing}


def per_head(mixed: Tensor, output: Tensor) -> Tensor:
    """z_h W_O^h of each head: [H,T,C] and W_O [H*C,D] -> [H,T,D]; their sum is Concat(z_h) W_O."""
    return mixed @ output.view(len(mixed), mixed.shape[-1], -1)


@cell
def proposals(given: Given) -> Values:
    """What each head adds to “Thinking”; and the mean length of it in the loaded model, if it has heads."""
    tensors, output = given(walk), machine().output.weight.detach().T
    each = given(per_head, tensors["mixed"], output)
    changed = (each[0, 0].abs() > 0).sum()
    difference = distance(each.sum(dim=0), tensors["output"])
    values = {"changed": changed, "difference": difference, "here": False, "names": [], "lengths": []}
    trace = given.trace()
    if not (names := self_attentions(trace)):
        return values
    weight = output_weight(attentions(given.task.folder.model)[names[0]]).cpu()
    lengths = given(per_head, trace[f"{names[0]}.mixed"], weight.float()).norm(dim=-1).mean(dim=-1)
    names = [f"head {head}" for head in range(len(lengths))]
    return {**values, "here": True, "names": names, "lengths": lengths}


@cell
def different(given: Given) -> Values | None:
    """For one word of the learner's text, the token that each head looks at most."""
    trace = given.trace()
    if not (names := self_attentions(trace)):
        return None
    layer = len(names) // 2
    weights = trace.weights(names[layer])  # [H,T,S]
    queries, keys = trace.sides(names[layer])
    words = [place for place, text in enumerate(queries.shown) if text.strip(".,?!").isalpha()]
    place = max(words or range(len(queries)), key=lambda each: (len(queries.shown[each]), each))
    rows = weights[:, place]
    favourites = rows.argmax(dim=-1).tolist()
    sizes = {"layer": layer, "heads": len(rows), "count": len({*favourites})}
    labels = {"rows": [f"head {head}" for head in range(len(rows))], "columns": keys.shown[: rows.shape[1]]}
    return {"word": queries.shown[place], **sizes, "values": rows, **labels}


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
