"""Which source word a target word came from, read off the cross-attention.

Attention is not made to align: of all layers and heads none has to. The mean over the heads of the layer
before the last is the usual choice; a model with one layer has only that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.batch import collate
from regard.data import Seq2Seq
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.interpret.recorder import Recorder
from regard.models import Model
from regard.models.state import BLOCK
from regard.sample import Sample

Links = list[tuple[int, int]]  # (source word, target word)
ALIGNED_AT_ONCE = 64


def align(
    models: Sequence[Model],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    source: Tokenizer,
    target: Tokenizer,
    signs: int = 0,
) -> list[Links]:
    """The word links of each (source ids, target ids); of several models by the mean of their attention.

    The first `signs` pieces of a source are no word of it: the language to translate into.
    """
    looking = [model for model in models if model.alignment is not None]
    if not looking:
        raise UsageError("this model never looks back at the source: there is no alignment to read off")
    objective = Seq2Seq(source, target)
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number][0]))  # little padding
    aligned: dict[int, Links] = {}
    for start in range(0, len(order), ALIGNED_AT_ONCE):
        numbers = order[start : start + ALIGNED_AT_ONCE]
        # the last piece is said but never read, and learned positions may have no place for it
        samples = [objective.sample(pairs[number][0], pairs[number][1][:-1]) for number in numbers]
        weights = [cross_weights(model, samples) for model in looking]
        for number, *tables in zip(numbers, *weights):
            read, said = pairs[number]
            from_words = [-1] * signs + source.words(read[signs:], was_read=True)
            weights_of_words = word_weights(torch.stack(tables).mean(dim=0), from_words, target.words(said))
            aligned[number] = links(weights_of_words)
    return [aligned[number] for number in range(len(pairs))]


@torch.no_grad()
def cross_weights(model: Model, samples: Sequence[Sample]) -> list[Tensor]:
    """For each sample [target tokens, source tokens], mean over heads, at the step that says the token."""
    name = model.alignment
    assert name is not None  # a model that looks back
    recorder = Recorder(wanted=name.__eq__)
    device = next(model.parameters()).device
    model(collate(samples, BLOCK).to(device), recorder)
    weights = recorder.tensors[name].mean(dim=1).cpu()  # [B,H,T,S] -> [B,T,S]
    return [weights[row, : len(sample.target), : len(sample.source)] for row, sample in enumerate(samples)]


def word_weights(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Pieces to words: sum over the keys of a source word, mean over the queries of a target word.

    What stands behind the last piece (the end of the sentence) belongs to no word.
    """
    keys = _membership(source_words)  # [S,words]
    queries = _membership(target_words)  # [T,words]
    summed = weights[: len(target_words), : len(source_words)] @ keys
    return (queries / queries.sum(dim=0).clamp(min=1)).T @ summed  # [target words, source words]


def links(weights: Tensor) -> Links:
    """Each target word with the source word it looks at most: Pharaoh's `source-target` pairs."""
    if 0 in weights.shape:
        return []
    return [(int(source), target) for target, source in enumerate(weights.argmax(dim=1))]


def pharaoh(found: Links) -> str:
    return " ".join(f"{source}-{target}" for source, target in found)


def _membership(words: Sequence[int]) -> Tensor:
    """[pieces, words], 1 where a piece belongs to a word."""
    table = torch.zeros(len(words), max(words, default=-1) + 1)
    for piece, word in enumerate(words):
        if word >= 0:  # a piece of no word, such as a lone space
            table[piece, word] = 1.0
    return table
