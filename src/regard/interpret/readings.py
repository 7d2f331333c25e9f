"""What can be read off the tensors of a run, and what it does not mean.

Attention tells where a head looked, not why the model said a word: a head may look at what it then ignores.
So there are several readings of one sentence side by side. Shapes: H heads, T queries, S keys, N layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Groups = Sequence[Sequence[int]]  # the places of each word's pieces


def word_attention(weights: Tensor, queries: Groups, keys: Groups) -> Tensor:
    """Pieces to words: a_IJ = mean_{i in I} sum_{j in J} a_ij; rows still sum to 1. [...,T,S]."""
    summed = weights @ membership(keys, weights.shape[-1]).T  # sum over the keys of a word
    whose = membership(queries, weights.shape[-2])  # [words,T]
    return (whose / whose.sum(dim=1, keepdim=True)) @ summed


def membership(groups: Groups, pieces: int) -> Tensor:
    """[words, pieces], 1 where a piece belongs to a word."""
    table = torch.zeros(len(groups), pieces)
    for word, places in enumerate(groups):
        table[word, list(places)] = 1.0
    return table


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """How much of each input reaches each place through all layers (Abnar & Zuidema 2020):

    R_0 = I, R_l = (A_l + I) / 2 R_{l-1}, where A_l is the mean over the heads and I the residual way around
    the attention. N of [H,T,T] -> [T,T]; rows sum to 1. Values, norms and feed-forward are not in it.
    """
    found = torch.eye(layers[0].shape[-1])
    for weights in layers:
        found = (weights.mean(dim=0) @ found + found) / 2
    return found


def rollout_across(encoder: Tensor, own: Sequence[Tensor], across: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The same through encoder and decoder: shares of the source [T,S] and of the target so far [T,T].

    Self-attention mixes both: U <- (A U + U) / 2; cross-attention brings in what the encoder's places hold
    (`encoder` is its rollout R): U <- (C R + U) / 2. The rows of both together sum to 1.
    """
    target = torch.eye(own[0].shape[-1])
    source = torch.zeros(len(target), encoder.shape[-1])
    for looks, crosses in zip(own, across):
        mean = looks.mean(dim=0)
        source, target = (mean @ source + source) / 2, (mean @ target + target) / 2
        source, target = (crosses.mean(dim=0) @ encoder + source) / 2, target / 2
    return source, target


def value_weighted(weights: Tensor, norms: Tensor) -> Tensor:
    """||a_ij v_j W_O|| = a_ij ||v_j W_O||: what a key really gives (Kobayashi et al. 2020).

    weights [H,T,S], norms [H,S] -> [H,T,S]; a place much looked at may have little to give.
    """
    return weights * norms[:, None, :]


def value_norms(value: Tensor, output: Tensor) -> Tensor:
    """||v_j W_O^h|| of each head h: values [H,S,C], W_O [H*C,D] -> [H,S]."""
    heads, _, channels = value.shape
    value, per_head = value.double(), output.double().view(heads, channels, -1)  # [H,C,D]
    # ||v W||^2 = v (W W^T) v^T: no [H,S,D] is made
    square = torch.einsum("hsc,hcd,hsd->hs", value, per_head @ per_head.transpose(1, 2), value)
    return square.clamp(min=0).sqrt().float()


def entropy(weights: Tensor) -> Tensor:
    """-sum_j a_ij log2 a_ij in bits, mean over the queries: 0 looks at one key, log2 S at all alike.

    [H,T,S] -> [H].
    """
    return -(weights * weights.clamp(min=1e-30).log2()).sum(dim=-1).mean(dim=-1)


def mean_distance(weights: Tensor) -> Tensor:
    """sum_j a_ij |i - j|, mean over the queries: how far a head looks, in pieces. [H,T,S] -> [H]."""
    queries, keys = weights.shape[-2:]
    distance = (torch.arange(queries)[:, None] - torch.arange(keys)).abs().float()
    return (weights * distance).sum(dim=-1).mean(dim=-1)


def lens(
    streams: Sequence[Tensor], read: Callable[[Tensor], Tensor], count: int = 5
) -> tuple[Tensor, Tensor]:
    """Logit lens: softmax(read(x_l)), where `read` is the model's last norm and output layer.

    N of [T,D] -> the ids of the best words at each depth and place, and their probabilities: [N,T,count].
    Only the last layer was trained to be read so.
    """
    ids, probabilities = [], []
    for stream in streams:
        best = read(stream).float().softmax(dim=-1).topk(count, dim=-1)
        ids.append(best.indices)
        probabilities.append(best.values)
    return torch.stack(ids), torch.stack(probabilities)


def occlusion(
    log_p: Callable[[Sequence[int]], float], ids: Sequence[int], words: Groups, instead: Sequence[int]
) -> list[float]:
    """log p(output | source) - log p(output | source without a word), for each word.

    `instead` are the ids that stand for each piece of a hidden word; none drops it. Above 0: the word helped.
    """
    whole = log_p(ids)
    found = []
    for places in words:
        gone = set(places)
        left = [[piece] if place not in gone else list(instead) for place, piece in enumerate(ids)]
        found.append(whole - log_p([piece for own in left for piece in own]))
    return found


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(p || q) = sum_x p(x) (log p(x) - log q(x)) in nats, of logits: [...,V] -> [...]."""
    log_p, log_q = before.double().log_softmax(dim=-1), after.double().log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).clamp(min=0)


def divergence_of_labels(before: Tensor, after: Tensor) -> Tensor:
    """The same where each label is there or not for itself: the sum of KL over them. [...,L] -> [...]."""
    found = torch.zeros(before.shape[:-1], dtype=torch.float64)
    for sign in (1.0, -1.0):  # there, not there: log p = log sigmoid(x), log (1 - p) = log sigmoid(-x)
        log_p, log_q = F.logsigmoid(sign * before.double()), F.logsigmoid(sign * after.double())
        found = found + (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    return found.clamp(min=0)
