"""Word alignment of source and target, read from the cross-attention.

No head is trained to align. The mean over the heads of the second-to-last layer is the usual choice; a model
with one layer uses that layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.batch import collate
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.models.attention import BLOCK
from regard.models.families import Model
from regard.models.recorder import Recorder
from regard.sample import Sample

Links = list[tuple[int, int]]  # (source word, target word)
BATCH_SIZE = 64  # pairs


def align(
    models: Sequence[Model],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    source: Tokenizer,
    target: Tokenizer,
    signs: int = 0,
) -> list[Links]:
    """The word links of each (source ids, target ids); several models are averaged.

    The first `signs` source tokens belong to no word: they name the target language.
    """
    attending = [model for model in models if model.alignment is not None]
    if not attending:
        raise UsageError("this model has no cross-attention, so there is no alignment", code="E_ALIGNMENT")
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number][0]))  # little padding
    aligned: dict[int, Links] = {}
    for start in range(0, len(order), BATCH_SIZE):
        numbers = order[start : start + BATCH_SIZE]
        # the decoder never reads the last token, and learned positions may have no row for it
        samples = [
            Sample(source.framed(pairs[number][0]), [target.start, *pairs[number][1][:-1]])
            for number in numbers
        ]
        weights = [cross_weights(model, samples) for model in attending]
        for number, *tables in zip(numbers, *weights):
            source_ids, target_ids = pairs[number]
            outside = len(source.before) + signs
            source_words = [-1] * outside + source.words(source_ids[signs:], was_read=True)
            mean = torch.stack(tables).mean(dim=0)
            aligned[number] = links(word_weights(mean, source_words, target.words(target_ids)))
    return [aligned[number] for number in range(len(pairs))]


@torch.no_grad()
def cross_weights(model: Model, samples: Sequence[Sample]) -> list[Tensor]:
    """For each sample [target tokens, source tokens]: mean over heads; row t is the step that predicts t."""
    name = model.alignment
    assert name is not None  # a model with cross-attention
    recorder = Recorder(wanted=name.__eq__)
    device = next(model.parameters()).device
    model(collate(samples, BLOCK).to(device), recorder)
    weights = recorder.tensors[name].mean(dim=1).cpu()  # [B,H,T,S] -> [B,T,S]
    return [weights[row, : len(sample.target), : len(sample.source)] for row, sample in enumerate(samples)]


def word_weights(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Tokens to words: sum over the keys of a source word, mean over the queries of a target word.

    Tokens after the last word (the end token) belong to no word.
    """
    keys = _membership(source_words)  # [S,words]
    queries = _membership(target_words)  # [T,words]
    summed = weights[: len(target_words), : len(source_words)] @ keys
    return (queries / queries.sum(dim=0).clamp(min=1)).T @ summed  # [target words, source words]


def links(weights: Tensor) -> Links:
    """Each target word with the source word of the largest weight. [target words, source words] -> pairs."""
    if 0 in weights.shape:
        return []
    return [(int(source), target) for target, source in enumerate(weights.argmax(dim=1))]


def pharaoh(pairs: Links) -> str:
    """The Pharaoh format: `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def _membership(words: Sequence[int]) -> Tensor:
    """[tokens, words], 1 where a token belongs to a word."""
    table = torch.zeros(len(words), max(words, default=-1) + 1)
    for token, word in enumerate(words):
        if word >= 0:  # -1: a token of no word, such as a lone space
            table[token, word] = 1.0
    return table
