"""Measures computed from the tensors of a run.

Attention weights show where a head attends, not why the model predicts a token: a later layer may ignore it.
Compare several measures. Shapes: H heads, T queries, S keys, N layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Groups = Sequence[Sequence[int]]  # the token positions of each word


def word_attention(weights: Tensor, queries: Groups, keys: Groups) -> Tensor:
    """Tokens to words: a_IJ = mean_{i in I} sum_{j in J} a_ij; rows still sum to 1. [...,T,S]."""
    summed = weights @ membership(keys, weights.shape[-1]).T  # sum over the keys of a word
    members = membership(queries, weights.shape[-2])  # [words,T]
    return (members / members.sum(dim=1, keepdim=True)) @ summed


def membership(groups: Groups, tokens: int) -> Tensor:
    """[words, tokens], 1 where a token belongs to a word."""
    table = torch.zeros(len(groups), tokens)
    for word, positions in enumerate(groups):
        table[word, list(positions)] = 1.0
    return table


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Attention rollout: the share of each input at each position after all layers (Abnar & Zuidema 2020).

    R_0 = I, R_l = (A_l + I) / 2 R_{l-1}, where A_l is the mean over the heads and I the residual connection.
    N of [H,T,T] -> [T,T]; rows sum to 1. Ignores values, norms and feed-forward layers.
    """
    shares = torch.eye(layers[0].shape[-1])
    for weights in layers:
        shares = (weights.mean(dim=0) @ shares + shares) / 2
    return shares


def rollout_across(
    encoder: Tensor, self_weights: Sequence[Tensor], cross_weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Rollout through encoder and decoder: shares of the source [T,S] and of the target so far [T,T].

    Self-attention: U <- (A U + U) / 2; cross-attention with the encoder's rollout R: U <- (C R + U) / 2.
    The rows of both together sum to 1.
    """
    target = torch.eye(self_weights[0].shape[-1])
    source = torch.zeros(len(target), encoder.shape[-1])
    for a, c in zip(self_weights, cross_weights):
        mean = a.mean(dim=0)
        source, target = (mean @ source + source) / 2, (mean @ target + target) / 2
        source, target = (c.mean(dim=0) @ encoder + source) / 2, target / 2
    return source, target


def value_weighted(weights: Tensor, norms: Tensor) -> Tensor:
    """||a_ij v_j W_O|| = a_ij ||v_j W_O||: the size of a key's contribution (Kobayashi et al. 2020).

    weights [H,T,S], norms [H,S] -> [H,T,S].
    """
    return weights * norms[:, None, :]


def value_norms(value: Tensor, output: Tensor) -> Tensor:
    """||v_j W_O^h|| of each head h: values [H,S,C], W_O [H*C,D] -> [H,S]."""
    heads, _, channels = value.shape
    value, per_head = value.double(), output.double().view(heads, channels, -1)  # [H,C,D]
    # ||v W||^2 = v (W W^T) v^T, without an [H,S,D] tensor
    square = torch.einsum("hsc,hcd,hsd->hs", value, per_head @ per_head.transpose(1, 2), value)
    return square.clamp(min=0).sqrt().float()


def entropy(weights: Tensor) -> Tensor:
    """-sum_j a_ij log2 a_ij in bits, mean over the queries: 0 for one key, log2 S for uniform weights.

    [H,T,S] -> [H].
    """
    return -(weights * weights.clamp(min=1e-30).log2()).sum(dim=-1).mean(dim=-1)


def mean_distance(weights: Tensor) -> Tensor:
    """sum_j a_ij |i - j|, mean over the queries, in tokens. [H,T,S] -> [H]."""
    queries, keys = weights.shape[-2:]
    distance = (torch.arange(queries)[:, None] - torch.arange(keys)).abs().float()
    return (weights * distance).sum(dim=-1).mean(dim=-1)


def lens(
    streams: Sequence[Tensor], unembed: Callable[[Tensor], Tensor], count: int = 5
) -> tuple[Tensor, Tensor]:
    """Logit lens: softmax(unembed(x_l)), where `unembed` is the model's final norm and output layer.

    N of [T,D] -> ids of the best tokens at each depth and position, and their probabilities: [N,T,count].
    Only the last layer is trained for this.
    """
    best = [unembed(stream).float().softmax(dim=-1).topk(count, dim=-1) for stream in streams]
    return torch.stack([each.indices for each in best]), torch.stack([each.values for each in best])


def occlusion(
    log_p: Callable[[Sequence[int]], float], ids: Sequence[int], words: Groups, instead: Sequence[int]
) -> list[float]:
    """log p(output | source) - log p(output | source without a word), for each word.

    `instead` replaces each token of a hidden word; empty drops it. Above 0: the word helped.
    """
    whole = log_p(ids)
    changes = []
    for word in words:
        rest = [[token] if place not in word else instead for place, token in enumerate(ids)]
        changes.append(whole - log_p([token for part in rest for token in part]))
    return changes


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(p || q) = sum_x p(x) (log p(x) - log q(x)) in nats, of logits: [...,V] -> [...]."""
    log_p, log_q = before.double().log_softmax(dim=-1), after.double().log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).clamp(min=0)


def multi_label_divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL divergence of independent labels, summed over the labels: [...,L] -> [...]."""
    total = torch.zeros(before.shape[:-1], dtype=torch.float64)
    for sign in (1.0, -1.0):  # log p = log sigmoid(x), log (1 - p) = log sigmoid(-x)
        log_p, log_q = F.logsigmoid(sign * before.double()), F.logsigmoid(sign * after.double())
        total = total + (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    return total.clamp(min=0)
